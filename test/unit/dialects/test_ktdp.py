"""Builders and accessors of the ktdp dialect."""

from collections.abc import Callable

import pytest

from ktir.assembly import parse_module, print_module
from ktir.diagnostics import KtirError, verify
from ktir.dialects import ktdp
from ktir.dialects.ktir import LayoutAttr, RotateAttr
from ktir.mlir import func, ir, operations

pytestmark = pytest.mark.usefixtures("mlir")


def build(body: Callable[[ir.Value, ir.Value], None]) -> ir.Module:
    """A verified module with a function of two index arguments whose body `body` builds."""
    module = ir.Module.create()
    index = ir.IndexType.get()
    with ir.InsertionPoint(module.body):
        function = func.FuncOp("f", ([index, index], []))
        with ir.InsertionPoint(function.add_entry_block()):
            body(*function.arguments)
            func.ReturnOp([])
    verify(module)
    text = print_module(module)
    assert print_module(parse_module(text)) == text
    return module


def only(module: ir.Module, name: str) -> ir.OpView:
    found = [op.opview for op in operations(module) if op.name == name]
    assert len(found) == 1
    return found[0]


def f16() -> ir.Type:
    return ir.F16Type.get()


def test_static_view() -> None:
    def body(x: ir.Value, n: ir.Value) -> None:
        ktdp.construct_memory_view(x, [57, 64], [64, 1], f16())

    module = build(body)  # ops die with their module
    view = only(module, "ktdp.construct_memory_view")
    assert isinstance(view, ktdp.ConstructMemoryViewOp)
    assert view.sizes == [57, 64]
    assert view.strides == [64, 1]
    assert view.memory_space == "global"
    assert view.ct_id is None
    assert not view.masked
    assert view.element_type == f16()
    assert view.offset == view.operands[0]
    assert str(view.result.type) == "memref<57x64xf16>"
    assert str(view.attributes["coordinate_set"]) == "affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 63 >= 0)>"


def test_dynamic_view_is_masked_and_has_a_symbol_per_dynamic_size() -> None:
    def body(x: ir.Value, n: ir.Value) -> None:
        rotate = {"ktir.rotate": RotateAttr.build(2, 8192)}
        ktdp.construct_memory_view(x, [3, n, x], [n, 64, 1], f16(), "ct_local", ct_id=7, attributes=rotate)

    module = build(body)  # ops die with their module
    view = only(module, "ktdp.construct_memory_view")
    x, n = view.operation.parent.opview.arguments
    assert view.sizes == [3, n, x]
    assert view.strides == [n, 64, 1]
    assert (view.memory_space, view.ct_id, view.masked) == ("ct_local", 7, True)
    assert "masked" in view.attributes
    assert "[s0, s1]" in str(view.attributes["coordinate_set"])
    assert RotateAttr(view.attributes["ktir.rotate"]).stride == 8192


def test_access_tile() -> None:
    def body(x: ir.Value, n: ir.Value) -> None:
        view = ktdp.construct_memory_view(x, [8, n, 64], [64, 64, 1], f16())
        ktdp.construct_access_tile(view, [2, n, n], [3, 16, 32], [2, 0, 1])

    module = build(body)  # ops die with their module
    tile = only(module, "ktdp.construct_access_tile")
    n = tile.operation.parent.opview.arguments[1]
    assert tile.base.owner.name == "ktdp.construct_memory_view"
    assert tile.indices == [2, n, n]
    assert tile.index_operands == [n]
    assert str(tile.base_map) == "(d0) -> (2, d0, d0)"
    assert tile.shape == [32, 3, 16]
    assert tile.order == [2, 0, 1]


def test_access_tile_with_expressions_and_a_set_that_is_no_box() -> None:
    module = parse_module("""
        func.func @f(%v: memref<64x64xf16>, %i: index) {
          %0 = ktdp.construct_access_tile %v[%i * 2 + 1, 0] {
              access_tile_order = affine_map<(d0, d1) -> (d0, d1)>,
              access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 7 >= 0, d0 mod 2 == 0, d1 == 0)>
            } : memref<64x64xf16> -> !ktdp.access_tile<4x1xindex>
          return
        }""")
    tile = only(module, "ktdp.construct_access_tile")
    (expr, values), column = tile.indices
    assert (str(expr), values, column) == ("d0 * 2 + 1", tile.index_operands, 0)


def test_load_and_store() -> None:
    def body(x: ir.Value, n: ir.Value) -> None:
        layout = LayoutAttr.build([4, 64], [1, 4, 64], [64, 64, 1], f16())
        view = ktdp.construct_memory_view(x, [1, 4, 64], [256, 64, 1], f16())
        tile = ktdp.construct_access_tile(view, [0, 0, 0], [1, 4, 64])
        ktdp.store(ktdp.load(tile, f16(), layout), tile)

    module = build(body)
    load, store = only(module, "ktdp.load"), only(module, "ktdp.store")
    assert load.tile == store.tile
    assert load.value == store.value
    assert LayoutAttr(load.value.type.encoding).size == [4, 64]


def test_tile_ids_and_locations() -> None:
    def body(x: ir.Value, n: ir.Value) -> None:
        i, j = ktdp.get_compute_tile_id(2, loc=ir.Location.file("a.py", 3, 4))
        assert i.owner == j.owner

    module = build(body)  # ops die with their module
    op = only(module, "ktdp.get_compute_tile_id")
    assert len(op.ids) == 2
    assert str(op.location) == 'loc("a.py":3:4)'


@pytest.mark.parametrize(("kind", "ct_id"), [("global", 0), ("global", 7), ("ct_local", -5)])
def test_illegal_memory_spaces(kind: str, ct_id: int) -> None:
    with pytest.raises(KtirError, match="ct_id"):
        ktdp.MemorySpaceAttr.build(kind, ct_id)


def test_dynamic_tile_dims() -> None:
    tile = ir.Type.parse("!ktdp.access_tile<array<i64: 4, -9223372036854775808>>")
    assert ktdp.AccessTileType(tile) == ktdp.AccessTileType.build([4, ktdp.DYNAMIC])
