"""MLIR form: round trip through objects and through text, and the verifier."""

import pytest
from amounts import examples
from hypothesis import example, given, settings
from random_programs import programs

from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.dialects import spyre
from ktir.isa.binary.encoding import encode
from ktir.isa.problem import ProgramError
from ktir.isa.program import Kernel, Program, Source, word
from ktir.isa.units import Unit

CONTEXT = context()
AT_LINE_0 = Program("", [], [Kernel("", 1, {Unit.MNIL: [word("halt", 1)]}, [], [], [])], [Source("", ""), Source("a", "b:0:0")])


def used(program):
    """The sources that words refer to."""
    ids = {w.source for k in program.kernels for words in k.units.values() for w in words}
    return {i: program.sources[i] for i in ids}


@given(programs())
@example(AT_LINE_0)
@settings(max_examples=examples(60), deadline=None)
def test_round_trip(program):
    module = spyre.to_mlir(program, CONTEXT)
    module.operation.verify()
    again = spyre.from_mlir(module)
    assert again == program
    assert used(again) == used(program)
    assert encode(again) == encode(program)


@given(programs())
@settings(max_examples=examples(60), deadline=None)
def test_round_trip_through_text(program):
    with CONTEXT:
        text = print_module(spyre.to_mlir(program, CONTEXT), debuginfo=True)
        module = parse_module(text)
        assert spyre.from_mlir(module) == program
        assert print_module(module, debuginfo=True) == text


def program_of(*words):
    return Program("p", [], [Kernel("k", 1, {Unit.MNIL: list(words)}, [])])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([word("loop", trips=1, level=0)], "'loop' is not ended"),
        ([word("endl", level=0)], "'endl' does not end the innermost open loop"),
        ([word("loop", trips=1, level=0), word("endl", level=1)], "'endl' does not end the innermost open loop"),
        ([word("loop", trips=1, level=0)] * 9, "expects a level that is not open"),
        ([word("mm", rows=1)], "'mm' cannot run on MNIL"),
    ],
)
def test_what_the_dialect_cannot_hold(words, message):
    with pytest.raises(ProgramError, match=message):
        spyre.to_mlir(program_of(*words), CONTEXT)


def test_a_rep_with_a_short_body():
    program = program_of()
    program.kernels[0].units = {Unit.SFP: [word("rep", groups=1, each=2, sticks=1), word("vconst", dst=0)]}
    with pytest.raises(ProgramError, match="has a body of 2 words"):
        spyre.to_mlir(program, CONTEXT)


def test_locations_of_a_written_file_become_sources():
    text = """
spyre.program "p" {
  spyre.kernel "k" cores = 1 {
    spyre.unit MNIL {
      spyre.halt
    }
    spyre.unit PT {
      spyre.halt loc("ktdp.load"("x.mlir":7:9))
    }
  }
}
"""
    with CONTEXT:
        program = spyre.from_mlir(parse_module(text, "a.mlir"))
    halts = [program.source_of(words[0]) for words in program.kernels[0].units.values()]
    assert halts == [Source("spyre.halt", "a.mlir:5:7"), Source("ktdp.load", "x.mlir:7:9")]


def test_exactly_one_program():
    with CONTEXT, pytest.raises(KtirError, match="op, but got 0"):
        spyre.from_mlir(parse_module("module {}"))


def test_deep_nests_are_refused():
    loops = "spyre.loop trips = 1, level = 0, region = 0 {" * 20 + "}" * 20
    with CONTEXT, pytest.raises(KtirError, match="deeper than 8 levels"):
        parse_module(f'spyre.program "p" {{ spyre.kernel "k" cores = 1 {{ spyre.unit PT {{ {loops} }} }} }}')
