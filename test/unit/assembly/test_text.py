"""Reading and printing of KTIR text."""

import time

import pytest
from amounts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ktir.assembly import parse_module, pretty, print_module
from ktir.context import context
from ktir.diagnostics import Diagnostic, KtirError, location_text
from ktir.mlir import ir, operations

BOX = "affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>"


def view(name: str = "%v", size: str = "4") -> str:
    return (
        f"{name} = ktdp.construct_memory_view %x, sizes: [{size}], strides: [1] "
        f"{{coordinate_set = {BOX}, memory_space = #ktdp.memory_space<global>}} : memref<{size}xf16>"
    )


@pytest.mark.usefixtures("mlir")
class TestReading:
    def error(self, text: str) -> KtirError:
        with pytest.raises(KtirError) as caught:
            parse_module(text, "k.mlir", first_line=11)
        return caught.value

    def test_syntax_errors_are_placed(self) -> None:
        error = self.error("func.func @f() {\n  %0 = ktdp.load 4 : <4xindex> -> tensor<4xf16>\n}")
        assert str(error) == "k.mlir:12:18: error: expected SSA operand"
        error = self.error("func.func @f() {\n  %0 = spyreop.constant dense\n 1.0> : tensor<2xf32>\n}")
        assert str(error) == "k.mlir:13:2: error: expected a bracket"
        error = self.error("func.func @f(%t: !ktdp.access_tile<4xindex>) {\n  ktdp.store , %t : tensor<4xf16>, <4xindex>\n}")
        assert str(error) == "k.mlir:12:14: error: expected SSA operand"  # and no attribute of that name

    def test_errors_of_mlir_are_placed_behind_rewritten_text(self) -> None:
        error = self.error("func.func @f(%t: !ktdp.access_tile<4xindex>, %n: indexx) { return }")
        assert (error.location, error.message) == ("k.mlir:11:49", "expected non-function type")

    def test_verifier_errors_are_placed_and_spell_types_as_the_source_does(self) -> None:
        error = self.error("func.func @f(%t: !ktdp.access_tile<4xindex>) { %0 = ktdp.load %t : <4xindex> -> tensor<8xf16> return }")
        message = "access tile shape must match result tensor shape, but got 'tensor<8xf16>' for a tile of shape [4]"
        assert str(error) == f"k.mlir:11:53: error: 'ktdp.load' op {message}"

    def test_notes_are_placed(self) -> None:
        error = self.error("func.func @f(%t: !ktdp.access_tile<4xindex>) {\n %0 = ktdp.load %t : <8xindex> -> tensor<8xf16> }")
        assert [str(note) for note in error.notes] == ["k.mlir:11:14: note: prior use here"]

    def test_end_of_input(self) -> None:
        assert self.error("func.func @f(%t: index) { ktdp.load").message == "expected SSA operand"
        assert self.error("func.func @f(%t: index) { ktdp.load %t {a = [").message == "unexpected end of input"

    def test_warnings_are_handed_out(self) -> None:
        said: list[Diagnostic] = []
        parse_module("module {}\n{-# external_resources: { who: { a: 1 } } #-}", "k.mlir", diagnostics=said)
        assert [(d.severity, d.location) for d in said] == [("warning", "k.mlir:2:27")]

    def test_locations(self) -> None:
        module = parse_module(f"func.func @f(%x: index) {{\n  {view()} {view('%w')}\n  return\n}}", "k.mlir", first_line=5)
        at = [location_text(op.location) for op in operations(module)]
        first, second = 3 + len("%v = "), 3 + len(view()) + len(" %w = ")
        assert at[1:] == ["k.mlir:5:1", f"k.mlir:6:{first}", f"k.mlir:6:{second}", "k.mlir:7:3"]

    def test_columns_count_characters(self) -> None:
        text = 'func.func @f() attributes {a = "äöü", b = #ktir.acc<PT>} { %c = arith.constant 0 : index return }'
        at = [location_text(op.location) for op in operations(parse_module(text, "k.mlir"))]
        assert at[2] == f"k.mlir:1:{text.index('arith') + 1}"

    def test_written_locations_stay(self) -> None:
        text = 'func.func @f() { return loc(fused["a"("-":7:50), callsite("x" at "-":20:8)]) } loc("-":3:4)'
        module = parse_module(text, "k.mlir")
        function, end = list(operations(module))[1:]
        assert str(function.location) == 'loc("-":3:4)'
        assert str(end.location) == 'loc(fused["a"("-":7:50), callsite("x" at "-":20:8)])'

    def test_block_arguments_have_locations(self) -> None:
        module = parse_module("func.func @f(%t: !ktdp.access_tile<4xindex>, %n: index) { return }", "k.mlir")
        block = module.body.operations[0].regions[0].blocks[0]
        assert [location_text(a.location) for a in block.arguments] == ["k.mlir:1:14", "k.mlir:1:46"]

    def test_pretty(self) -> None:
        assert pretty(ir.Type.parse("!ktdp.access_tile<array<i64: 4, 8>>")) == "!ktdp.access_tile<4x8xindex>"
        assert pretty('got \'#ktir.acc<"PT">\', want "#ktir.acc"') == "got '#ktir.acc<PT>', want \"#ktir.acc\""


@pytest.mark.parametrize("seconds", [6.0])
def test_five_thousand_ops_there_and_back(seconds: float) -> None:
    """The bound is loose, since test machines are slow and shared; about one second is usual."""
    ops = "\n".join(
        f"{view(f'%v{i}')}\n"
        f"%t{i} = ktdp.construct_access_tile %v{i}[%x + {i}] "
        f"{{access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = {BOX}}} : memref<4xf16> -> !ktdp.access_tile<4xindex>\n"
        f"%l{i} = ktdp.load %t{i} : <4xindex> -> tensor<4xf16>\n"
        f"ktdp.store %l{i}, %t{i} : tensor<4xf16>, <4xindex>"
        for i in range(1250)
    )
    with context(), ir.Location.unknown():
        start = time.perf_counter()
        module = parse_module(f"func.func @f(%x: index) {{\n{ops}\nreturn\n}}")
        text = print_module(module)
        assert time.perf_counter() - start < seconds
    assert text.count("ktdp.load") == 1250


names = st.from_regex(r"%[a-z][a-z0-9_]{0,5}", fullmatch=True)
gaps = st.sampled_from([" ", "  ", "\n", "\t", " // ktdp.load %a\n", "\n\n"])


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_spacing_and_any_names(data: st.DataObject) -> None:
    """Blanks, comments and value names do not change what is read."""
    x, n, v, t, g = data.draw(st.lists(names, min_size=5, max_size=5, unique=True))
    size, step = data.draw(st.integers(4, 99)), data.draw(st.integers(0, 9))
    tokens = (
        f"func.func @f ( {x} : index , {n} : index ) {{ {g} :2 = ktdp.get_compute_tile_id : index , index "
        f"{v} = ktdp.construct_memory_view {x} , sizes : [ {n} , {size} ] , strides : [ {size} , 1 ] "
        "{ coordinate_set = affine_set<(a,b)[s]:(a>=0,s-a-1>=0,b>=0)> , masked , memory_space = #ktdp.memory_space<ct_local,ct_id=2> } "
        f": memref<?x{size}xf16> "
        f"{t} = ktdp.construct_access_tile {v} [ {g}#1 * 2 + {g}#0 , {n} + {step} ] "
        "{ access_tile_order = affine_map<(a,b)->(b,a)> , access_tile_set = affine_set<(a,b):(a>=0,1-a>=0,b>=0,3-b>=0)> } "
        f": memref<?x{size}xf16> -> !ktdp.access_tile<4x2xindex> return }}"
    ).split(" ")
    spaced = "".join(token + data.draw(gaps) for token in tokens)
    with context(), ir.Location.unknown():
        plain = parse_module(" ".join(tokens))
        text = print_module(plain)
        assert print_module(parse_module(spaced)) == text
        assert print_module(parse_module(text)) == text
        for form in ({"generic": True}, {"local_scope": True}, {"debuginfo": True}):
            again = parse_module(print_module(plain, **form))
            assert print_module(again) == text
            assert print_module(again, **form) == print_module(plain, **form)


@pytest.mark.usefixtures("mlir")
def test_ops_that_would_not_verify_are_printed_in_generic_form() -> None:
    module = parse_module(f"func.func @f(%x: index) {{ {view()} return }}")
    op = next(op for op in operations(module) if op.name == "ktdp.construct_memory_view")
    del op.attributes["static_sizes"]
    assert '"ktdp.construct_memory_view"(%arg0) {coordinate_set = ' in print_module(module)


@pytest.mark.usefixtures("mlir")
def test_parameters_that_nobody_verifies_are_printed_as_they_are() -> None:
    """In MLIR's spelling any number of parameters of any kind parses; the verifier of the op that uses them comes later."""
    text = print_module(parse_module('module attributes {x.y = {work = #ktir.work<"a", [1]>}} {}'))
    assert '#ktir.work<"a", [1]>' in text
    assert print_module(parse_module(text)) == text
