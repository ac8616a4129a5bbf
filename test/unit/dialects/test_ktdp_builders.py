"""Builders and accessors of the ktdp ops beyond plain views and tiles."""

from collections.abc import Callable, Sequence

import pytest

from ktir.assembly import parse_module, print_module
from ktir.diagnostics import KtirError, verify
from ktir.dialects import ktdp
from ktir.dialects._ktdp import tile_sets
from ktir.mlir import arith, func, ir, operations

pytestmark = pytest.mark.usefixtures("mlir")

TILES = "affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>"
FIRST = "affine_set<(i)[g] : (i - 4*g == 0)>"
GROUPS = "affine_set<(g) : (g >= 0, -g + 1 >= 0)>"


def a_set(text: str) -> ir.Attribute:
    return ir.Attribute.parse(text)


def tensor(*shape: int) -> ir.Type:
    return ir.RankedTensorType.get(shape, ir.F16Type.get())


def build(types: Sequence[ir.Type], body: Callable[..., None]) -> ir.Module:
    """A verified module with a function whose body `body` builds from arguments of `types`; its text reads back."""
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        function = func.FuncOp("f", (list(types), []))
        with ir.InsertionPoint(function.add_entry_block()):
            body(*function.arguments)
            func.ReturnOp([])
    verify(module)
    for generic in (False, True):
        text = print_module(module, generic=generic)
        assert print_module(parse_module(text), generic=generic) == text
    return module


def only(module: ir.Module, name: str) -> ir.OpView:
    found = [op.opview for op in operations(module) if op.name == name]
    assert len(found) == 1
    return found[0]


def test_distributed_view() -> None:
    def body(x: ir.Value) -> None:
        first = ktdp.construct_memory_view(x, [4, 64], [64, 1], ir.F16Type.get())
        box = {"coordinate_set": a_set("affine_set<(d0, d1) : (d0 - 4 >= 0, -d0 + 11 >= 0, d1 >= 0, -d1 + 63 >= 0)>")}
        second = ktdp.construct_memory_view(x, [8, 64], [64, 1], ir.F16Type.get(), "ct_local", ct_id=3, attributes=box)
        ktdp.construct_distributed_memory_view([first, second], [12, 64])

    module = build([ir.IndexType.get()], body)
    view = only(module, "ktdp.construct_distributed_memory_view")
    assert [str(p.type) for p in view.partitions] == ["memref<4x64xf16>", "memref<8x64xf16>"]
    assert str(view.result.type) == "memref<12x64xf16>"


def test_as_many_partitions_as_there_may_be() -> None:
    def body(x: ir.Value) -> None:
        views = []
        for i in range(64):
            box = {"coordinate_set": a_set(f"affine_set<(d0) : (d0 - {i} >= 0, -d0 + {i} >= 0)>")}
            views.append(ktdp.construct_memory_view(x, [1], [1], ir.F16Type.get(), "ct_local", ct_id=i, attributes=box))
        ktdp.construct_distributed_memory_view(views, [64])

    module = build([ir.IndexType.get()], body)
    assert len(only(module, "ktdp.construct_distributed_memory_view").partitions) == 64
    more = print_module(module).replace("view(%0", "view(%0, %0").replace("view(%0, %0, ", "view(%0, %0, ", 1)
    more = more.replace(" : memref<1xf16>, ", " : memref<1xf16>, memref<1xf16>, ", 1)
    with pytest.raises(KtirError, match="has more than 64 of 'partitions'"):
        parse_module(more)


def test_indirect_tile() -> None:
    def body(base: ir.Value, rows: ir.Value, offset: ir.Value) -> None:
        o, i, j = (ir.AffineExpr.get_dim(k) for k in range(3))
        tile = ktdp.construct_indirect_access_tile(base, [(rows, [i + o]), j], [8, 64], [1, 0], captured=[offset])
        ktdp.load(tile, ir.F16Type.get())

    base, rows = ir.Type.parse("memref<99x64xf16>"), ir.Type.parse("memref<16xi32>")
    module = build([base, rows, ir.IndexType.get()], body)
    tile = only(module, "ktdp.construct_indirect_access_tile")
    assert tile.shape == [64, 8]
    assert [v.type for v in tile.index_views] == [rows]
    assert [v.type for v in tile.captured] == [ir.IndexType.get()]
    (first, view), (second, none) = tile.subscripts
    assert (str(first), view, str(second), none) == (
        "(d0, d1, d2) -> (d0 + d1)" if "(d0 + d1)" in str(first) else "(d0, d1, d2) -> (d1 + d0)",
        tile.index_views[0],
        "(d0, d1, d2) -> (d2)",
        None,
    )


def test_runtime_arguments() -> None:
    argument = ktdp.RuntimeArgType.build(ir.IntegerType.get_signless(32), granularity=4)
    assert (argument.granularity, argument.upperbound, str(argument.underlying)) == (4, None, "i32")

    def body(a: ir.Value) -> None:
        assert str(ktdp.runtime_arg_extract(a).type) == "i32"
        assert str(ktdp.runtime_arg_extract(a, "granularity").type) == "index"

    module = build([argument], body)
    kinds = [op.opview.extracts for op in operations(module) if op.name == "ktdp.runtime_arg_extract"]
    assert kinds == ["value", "granularity"]
    with pytest.raises(KtirError, match="granularity must be positive"):
        ktdp.RuntimeArgType.build(ir.IndexType.get(), granularity=0)
    with pytest.raises(KtirError, match="underlying type must be a builtin type"):
        ktdp.RuntimeArgType.build(tensor(4))


def test_every_delivery() -> None:
    role = tensor(8, 64)

    def add(left: ir.Value, right: ir.Value) -> list[ir.Value]:
        return [arith.AddFOp(left, right).result]

    def body(x: ir.Value) -> None:
        tiles, first = a_set(TILES), a_set(FIRST)

        def future(producers: ir.Attribute = tiles) -> ir.Value:
            return ktdp.inter_tile_produce(producers, a_set(GROUPS), [role], lambda _: [x])

        dependency = a_set("affine_set<(p)[c] : (p - c == 0)>")
        assert ktdp.inter_tile_consume(future(first), tiles)[0].type == role
        assert ktdp.inter_tile_consume(future(), tiles, dependency)[0].type == role
        assert ktdp.inter_tile_reduce(future(), tiles, [x], add)[0].type == role
        ktdp.inter_tile_reduce_scatter(future(), tiles, [0], [tensor(2, 64)], [x], add, dependency)
        ktdp.inter_tile_gather(future(), tiles, [1], [tensor(8, 256)])
        ktdp.inter_tile_all_to_all(future(), tiles, [1], [0], [tensor(32, 16)])
        ktdp.inter_tile_scatter(future(first), tiles, [0], [tensor(2, 64)])

    module = build([role], body)
    produce = next(op.opview for op in operations(module) if op.name == "ktdp.inter_tile_produce")
    assert produce.future.type.roles == [role]
    assert str(produce.future.type.groups) == "affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>"
    reduce = only(module, "ktdp.inter_tile_reduce")
    assert [v.type for v in reduce.identities] == [role]
    assert [v.type for v in reduce.values] == [role]
    assert reduce.future.owner.name == "ktdp.inter_tile_produce"


def test_futures_survive_bytecode() -> None:
    import io

    text = f"func.func private @f(!ktdp.tile_future<(tensor<4xf16>), groups = {GROUPS}>)"
    module = parse_module(text)
    written = io.BytesIO()
    module.operation.write_bytecode(written)
    assert print_module(ir.Module.parse(written.getvalue())) == print_module(module)


def test_old_memory_spaces_mean_what_the_new_ones_do() -> None:
    module = parse_module("""func.func @f(%x: index) {
      %0 = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {memory_space = #ktdp.spyre_memory_space<LX, core = 2>} : memref<4xf16>
      return }""")
    view = only(module, "ktdp.construct_memory_view")
    assert (view.memory_space, view.ct_id) == ("ct_local", 2)
    assert ktdp.SpyreMemorySpaceAttr.build("HBM").ct_id == -1
    with pytest.raises(KtirError, match="core affinity"):
        ktdp.SpyreMemorySpaceAttr.build("HBM", 1)


@pytest.mark.parametrize(
    ("text", "symbols", "tiles"),
    [
        (TILES, (1,), [4, 5, 6, 7]),
        (FIRST, (3,), [12]),
        ("affine_set<(i)[g] : ((i - g) mod 8 == 0, i >= 0, -i + 31 >= 0)>", (3,), [3, 11, 19, 27]),
        ("affine_set<(i)[g] : ((i floordiv 4) mod 8 - g == 0, i >= 0, -i + 31 >= 0)>", (7,), [28, 29, 30, 31]),
        ("affine_set<(i)[g] : (-2 * i + 7 - g >= 0)>", (0,), [0, 1, 2, 3]),
        ("affine_set<(i)[g] : (i ceildiv 3 - g == 0, -i + 9 >= 0)>", (1,), [1, 2, 3]),
        ("affine_set<(p)[c, g] : (p + c - 8*g - 3 == 0)>", (1, 0), [2]),
        ("affine_set<(i)[g] : (i - g >= 0)>", (0,), None),
        ("affine_set<(i)[g] : (i floordiv 4 - g == 0)>", (0,), None),
        ("affine_set<(i)[g] : (-i + 100000 >= 0)>", (0,), None),
    ],
)
def test_tiles_of_a_set(text: str, symbols: tuple[int, ...], tiles: list[int] | None) -> None:
    assert tile_sets.members(a_set(text), symbols) == tiles


def test_groups_of_a_set() -> None:
    assert tile_sets.groups(a_set("affine_set<(g) : (g - 2 >= 0, -g + 7 >= 0, g mod 3 == 0)>")) == [3, 6]
    assert tile_sets.groups(a_set("affine_set<(g) : (g - 2 == 0)>")) == [2]
    assert tile_sets.groups(a_set("affine_set<(g) : (g >= 0)>")) is None
