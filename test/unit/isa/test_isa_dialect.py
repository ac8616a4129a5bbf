"""MLIR form: round trip through objects and through text, and the verifier."""

from hypothesis import given, settings
from random_programs import programs

from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.dialects import spyre
from ktir.isa.encoding import encode

CONTEXT = context()


def used(program):
    """The sources that words refer to."""
    ids = {w.source for k in program.kernels for words in k.units.values() for w in words}
    return {i: program.sources[i] for i in ids}


@given(programs())
@settings(max_examples=60, deadline=None)
def test_round_trip(program):
    module = spyre.to_mlir(program, CONTEXT)
    module.operation.verify()
    again = spyre.from_mlir(module)
    assert again == program
    assert used(again) == used(program)
    assert encode(again) == encode(program)


@given(programs())
@settings(max_examples=60, deadline=None)
def test_round_trip_through_text(program):
    with CONTEXT:
        text = print_module(spyre.to_mlir(program, CONTEXT), debuginfo=True)
        module = parse_module(text)
        assert spyre.from_mlir(module) == program
        assert print_module(module, debuginfo=True) == text
