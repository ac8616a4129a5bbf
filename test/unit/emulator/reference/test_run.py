"""`ktir.execute`: exchange between tiles, distributed and indirect access, data-dependent control flow, types, arrays at addresses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_texts import kernel, load, random_f16, store, tensor, tile, view

import ktir
from ktir.arithmetic import numerics
from ktir.diagnostics import KtirError
from ktir.emulator.findings import Deadlock, DuplicateTarget, Finding, OutOfBounds, Race, Uninitialized
from ktir.emulator.policy import Policy

F16, F32 = np.float16, np.float32
TILE = "%t = ktdp.get_compute_tile_id : index\n"
ROW = "affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 63 >= 0)>"
ALL = "affine_set<(i)[g] : (i - 4 * g >= 0, -i + 4 * g + 3 >= 0)>"
GROUPS = "affine_set<(g) : (g >= 0, -g + 1 >= 0)>"
ROLE = "tensor<1x64xf16>"
FUTURE = f"<({ROLE}), groups = {GROUPS}>"


def row(name: str, base: str, rows: int) -> str:
    return load(name, base, (rows, 64), index=("%t", 0), extents=(1, 64))


def produce(producers: str = ALL, value: str = "%x") -> str:
    return (
        f"%f = ktdp.inter_tile_produce producer_tiles_per_group = {producers} -> {FUTURE} {{\n^bb0(%gid: index):\n"
        f"ktdp.yield_partial {value} : {ROLE}\n}}\n"
    )


COMBINE = (
    f"{{\n^bb0(%l: {ROLE}, %r: {ROLE}):\n%e2 = tensor.empty() : {ROLE}\n"
    f"%s = linalg.add ins(%l, %r : {ROLE}, {ROLE}) outs(%e2 : {ROLE}) -> {ROLE}\nktdp.yield_reduced %s : {ROLE}\n}}\n"
)
IDENTITY = f"%zero = arith.constant dense<0.0> : {ROLE}\n"


def exchange(op: str, out: tuple[int, int], extents: tuple[int, int], x: np.ndarray, **kwargs: object) -> np.ndarray:
    """Eight tiles in two groups: each loads its row of `x`, `op` makes %y, which it stores at its row of blocks."""
    y = np.zeros(out, F16)
    body = TILE + row("%x", "%arg0", 8) + IDENTITY + produce(**kwargs) + op  # type: ignore[arg-type]
    body += "%c = arith.constant " + f"{extents[0]} : index\n%at = arith.muli %t, %c : index\n"
    body += store("%y", "%arg1", out, index=("%at", 0), extents=extents)
    ktir.execute(kernel(["%arg0", "%arg1"], body, "8"), args=[x, y])
    return y


def small(rows: int = 8) -> np.ndarray:
    """Whole numbers: sums are exact in any order."""
    return np.random.default_rng(1).integers(-9, 9, (rows, 64)).astype(F16)


def test_reduce_in_groups():
    x = small()
    op = f"%y = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = {ALL}, identity(%zero : {ROLE}) : {FUTURE} -> {ROLE} {COMBINE}"
    want = x.reshape(2, 4, 64).sum(1, keepdims=True).repeat(4, 1).reshape(8, 64)
    np.testing.assert_array_equal(exchange(op, (8, 64), (1, 64), x), want)


def test_reduce_with_dependencies_takes_part_of_the_group():
    x = small()
    even = "affine_set<(p)[c, g] : ((p - c) mod 2 == 0, p - 4 * g >= 0, -p + 4 * g + 3 >= 0)>"
    op = (
        f"%y = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = {ALL}, producer_dependency_per_consumer = {even}, "
        f"identity(%zero : {ROLE}) : {FUTURE} -> {ROLE} {COMBINE}"
    )
    want = x.reshape(2, 2, 2, 64).sum(1, keepdims=True).repeat(2, 1).reshape(8, 64)
    np.testing.assert_array_equal(exchange(op, (8, 64), (1, 64), x), want)


def test_consume_by_a_mirrored_pairing():
    x = small()
    mirror = "affine_set<(p)[c, g] : (p + c - 8 * g - 3 == 0)>"
    op = (
        f"%y = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = {ALL}, producer_dependency_per_consumer = {mirror} : "
        f"{FUTURE} -> {ROLE}\n"
    )
    np.testing.assert_array_equal(exchange(op, (8, 64), (1, 64), x), x.reshape(2, 4, 64)[:, ::-1].reshape(8, 64))


def test_gather_and_reduce_scatter_and_scatter_and_all_to_all():
    x = small()
    group = x.reshape(2, 4, 64)
    op = f"%y = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = {ALL}, gather_dimensions = [0] : {FUTURE} -> tensor<4x64xf16>\n"
    np.testing.assert_array_equal(exchange(op, (32, 64), (4, 64), x), group.repeat(4, 0).reshape(32, 64))
    op = (
        f"%y = ktdp.inter_tile_reduce_scatter(%f) consumer_tiles_per_group = {ALL}, scatter_dimensions = [1], "
        f"identity(%zero : {ROLE}) : {FUTURE} -> tensor<1x16xf16> {COMBINE}"
    )
    np.testing.assert_array_equal(exchange(op, (8, 16), (1, 16), x), group.sum(1).reshape(8, 16))
    first = "affine_set<(i)[g] : (i - 4 * g == 0)>"
    op = f"%y = ktdp.inter_tile_scatter(%f) consumer_tiles_per_group = {ALL}, scatter_dimensions = [1] : {FUTURE} -> tensor<1x16xf16>\n"
    np.testing.assert_array_equal(exchange(op, (8, 16), (1, 16), x, producers=first), group[:, 0].reshape(8, 16))
    op = (
        f"%y = ktdp.inter_tile_all_to_all(%f) consumer_tiles_per_group = {ALL}, split_dimensions = [1], concat_dimensions = [0] : "
        f"{FUTURE} -> tensor<4x16xf16>\n"
    )
    want = group.reshape(2, 4, 4, 16).swapaxes(1, 2).reshape(32, 16)
    np.testing.assert_array_equal(exchange(op, (32, 16), (4, 16), x), want)


def test_deadlock_where_a_producer_does_not_come():
    x, y = small(), np.zeros((8, 64), F16)
    body = TILE + row("%x", "%arg0", 8) + IDENTITY + "%c2 = arith.constant 2 : index\n%few = arith.cmpi ult, %t, %c2 : index\n"
    inner = produce() + (
        f"%y = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = {ALL}, identity(%zero : {ROLE}) : {FUTURE} -> {ROLE} {COMBINE}"
    )
    body += "scf.if %few {\n" + inner + store("%y", "%arg1", (8, 64), index=("%t", 0), extents=(1, 64)) + "}\n"
    with pytest.raises(Deadlock, match=r"<text>:\d+:\d+: error: 'ktdp.inter_tile_reduce' op waits on tile 0 for tile 2") as caught:
        ktir.execute(kernel(["%arg0", "%arg1"], body, "8"), args=[x, y])
    assert caught.value.tiles[:2] == (0, 2)
    assert caught.value.other is not None


def test_a_delivery_orders_accesses_of_tiles():
    """A tile may read in global memory what another has written, if a future says that it comes later."""
    x, y, scratch = small(), np.zeros((8, 64), F16), np.zeros((8, 64), F16)
    mirror = "affine_set<(p)[c, g] : (p + c - 8 * g - 3 == 0)>"
    wait = (
        f"%z = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = {ALL}, producer_dependency_per_consumer = {mirror} : "
        f"{FUTURE} -> {ROLE}\n"
    )
    other = (
        "%c4 = arith.constant 4 : index\n%g = arith.divui %t, %c4 : index\n%c8 = arith.constant 8 : index\n"
        "%g8 = arith.muli %g, %c8 : index\n%c3 = arith.constant 3 : index\n%s3 = arith.addi %g8, %c3 : index\n"
        "%m = arith.subi %s3, %t : index\n"
    )
    read = load("%y", "%arg2", (8, 64), index=("%m", 0), extents=(1, 64)) + store("%y", "%arg1", (8, 64), index=("%t", 0), extents=(1, 64))
    write = TILE + row("%x", "%arg0", 8) + store("%x", "%arg2", (8, 64), index=("%t", 0), extents=(1, 64)) + other
    names = ["%arg0", "%arg1", "%arg2"]
    ktir.execute(kernel(names, write + produce() + wait + read, "8"), args=[x, y, scratch])
    np.testing.assert_array_equal(y, x.reshape(2, 4, 64)[:, ::-1].reshape(8, 64))
    with pytest.raises(Race):
        ktir.execute(kernel(names, write + read, "8"), args=[x, y, scratch])


# Views of several places


def partition(name: str, base: str, low: int, space: str) -> str:
    owned = f"affine_set<(d0, d1) : (d0 - {low} >= 0, -d0 + {low + 3} >= 0, d1 >= 0, -d1 + 63 >= 0)>"
    return (
        f"{name} = ktdp.construct_memory_view {base}, sizes: [4, 64], strides: [64, 1] {{coordinate_set = {owned}, "
        f"memory_space = #ktdp.memory_space<{space}>}} : memref<4x64xf16>\n"
    )


def test_distributed_view_of_global_memory_and_of_other_tiles():
    x, far, y = random_f16(4, 64), random_f16(4, 64, seed=1), np.zeros((8, 64), F16)
    m = "memref<4x64xf16>"
    text = (
        TILE
        + "%zero = arith.constant 0 : index\n"
        + partition("%a", "%arg0", 0, "global")
        + partition("%b", "%zero", 4, "ct_local, ct_id = 1")
        + f"%d = ktdp.construct_distributed_memory_view(%a, %b : {m}, {m}) : memref<8x64xf16>\n"
        + "%c4 = arith.constant 4 : index\n%at = arith.muli %t, %c4 : index\n"
        + tile("%ta", "%d", ("%at", 0), (4, 64), (8, 64))
        + f"%x = ktdp.load %ta : <4x64xindex> -> {tensor((4, 64))}\n"
        + store("%x", "%arg1", (8, 64), index=("%at", 0), extents=(4, 64))
    )
    result = ktir.execute(kernel(["%arg0", "%arg1"], text, "2"), args=[x, y], memory={("lx", 1, 0): far})
    np.testing.assert_array_equal(y, np.concatenate([x, far]))
    assert result.report.bytes_read == {"global": 512, "ct_local": 512}
    beyond = text.replace(tile("%ta", "%d", ("%at", 0), (4, 64), (8, 64)), tile("%ta", "%d", (6, 0), (4, 64), (16, 64)))
    with pytest.raises((OutOfBounds, KtirError)):
        ktir.execute(kernel(["%arg0", "%arg1"], beyond, "2"), args=[x, y], memory={("lx", 1, 0): far})


# Indirect access


def indirect(name: str, base: str, sizes: tuple[int, int], rows: int) -> str:
    box = f"affine_set<(d0, d1) : (d0 >= 0, -d0 + {rows - 1} >= 0, d1 >= 0, -d1 + {sizes[1] - 1} >= 0)>"
    return (
        view("%v", base, sizes, (sizes[1], 1))
        + view("%iv", "%arg1", (rows * 2,), (1,), "i32")
        + f"%off = arith.constant {rows} : index\n%o = arith.muli %t, %off : index\n"
        + f"{name} = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j) %v[ind(%iv[%i + %o]), (%j)] "
        f"{{variables_space_order = affine_map<(d0, d1) -> (d0, d1)>, variables_space_set = {box}}} : "
        f"memref<{sizes[0]}x{sizes[1]}xf16>, memref<{rows * 2}xi32> -> !ktdp.access_tile<{rows}x{sizes[1]}xindex>\n"
    )


EMBEDDING = kernel(
    ["%arg0", "%arg1", "%arg2"],
    TILE
    + indirect("%ta", "%arg0", (50, 64), 8)
    + "%x = ktdp.load %ta : <8x64xindex> -> tensor<8x64xf16>\n"
    + store("%x", "%arg2", (16, 64), index=("%o", 0), extents=(8, 64)),
    "2",
)
CACHE_WRITE = kernel(
    ["%arg0", "%arg1", "%arg2"],
    TILE
    + indirect("%ta", "%arg0", (50, 64), 8)
    + load("%x", "%arg2", (16, 64), index=("%o", 0), extents=(8, 64))
    + "ktdp.store %x, %ta : tensor<8x64xf16>, <8x64xindex>\n",
    "2",
)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 49), min_size=16, max_size=16))
def test_embedding(rows):
    table, index, y = random_f16(50, 64), np.array(rows, np.int32), np.zeros((16, 64), F16)
    ktir.execute(EMBEDDING, args=[table, index, y])
    np.testing.assert_array_equal(y, table[index])


@pytest.mark.parametrize("bad", [-1, 50])
def test_index_out_of_range(bad):
    y = np.zeros((16, 64), F16)
    with pytest.raises(OutOfBounds, match=rf"has index {bad} in dim 0 of a view of size 50 \(tile 1\)"):
        ktir.execute(EMBEDDING, args=[random_f16(50, 64), np.array([0] * 12 + [bad] * 4, np.int32), y])
    assert not y.any()


def test_cache_write_and_its_findings():
    cache, x = np.zeros((50, 64), F16), random_f16(16, 64)
    index = np.random.default_rng(0).permutation(50)[:16].astype(np.int32)
    ktir.execute(CACHE_WRITE, args=[cache, index, x])
    want = np.zeros_like(cache)
    want[index] = x
    np.testing.assert_array_equal(cache, want)
    before = cache.copy()
    with pytest.raises(DuplicateTarget, match=r"stores twice to element 192 of 'argument 0' \(tile 0\)"):
        ktir.execute(CACHE_WRITE, args=[cache, np.array([3, 3, *range(10, 24)], np.int32), x])
    with pytest.raises(Race):
        ktir.execute(CACHE_WRITE, args=[cache, np.array([*range(8), *range(7, 15)], np.int32), x])
    np.testing.assert_array_equal(cache, before)


# Data decides


def test_while_on_data():
    """Each tile doubles its number until it exceeds 100; how often is data."""
    x, y = np.array([3, 60, 101, 1], F32), np.zeros(4, F32)
    text = (
        TILE
        + load("%v", "%arg0", (4,), index=("%t",), extents=(1,), element="f32")
        + "%c0 = arith.constant 0 : index\n%s = tensor.extract %v[%c0] : tensor<1xf32>\n"
        "%limit = arith.constant 100.0 : f32\n%two = arith.constant 2.0 : f32\n"
        "%r = scf.while (%a = %s) : (f32) -> f32 {\n%go = arith.cmpf ole, %a, %limit : f32\nscf.condition(%go) %a : f32\n} do {\n"
        "^bb0(%b: f32):\n%d = arith.mulf %b, %two : f32\nscf.yield %d : f32\n}\n"
        "%w = tensor.splat %r : tensor<1xf32>\n" + store("%w", "%arg1", (4,), index=("%t",), extents=(1,), element="f32")
    )
    ktir.execute(kernel(["%arg0", "%arg1"], text, "4"), args=[x, y])
    np.testing.assert_array_equal(y, [192, 120, 101, 128])


# Types, arguments, memory


@pytest.mark.parametrize(("element", "dtype"), [("bf16", np.uint16), ("f8E4M3FN", np.uint8), ("f8E5M2", np.uint8), ("f64", np.float64)])
def test_float_types_round_once(element, dtype):
    a, b = (np.random.default_rng(i).standard_normal(64).astype(F32) for i in range(2))
    text = load("%x", "%a", (64,), element=element) + load("%y", "%b", (64,), element=element)
    text += f"%z = arith.mulf %x, %y : tensor<64x{element}>\n" + store("%z", "%c", (64,), element=element)
    if element == "f64":
        x, y, z = a.astype(dtype), b.astype(dtype), np.zeros(64)
        ktir.execute(kernel(["%a", "%b", "%c"], text), args={"a": x, "b": y, "c": z})
        np.testing.assert_array_equal(z, x * y)
        return
    x, y, z = numerics.encode(element, a), numerics.encode(element, b), np.zeros(64, dtype)
    ktir.execute(kernel(["%a", "%b", "%c"], text), args={"a": x, "b": y, "c": z})
    np.testing.assert_array_equal(z, numerics.encode(element, numerics.decode(element, x) * numerics.decode(element, y)))


def test_arrays_at_addresses(tmp_path):
    text = "%p = arith.constant 64 : index\n%q = arith.constant 4096 : index\n" + load("%x", "%p", (64,)) + store("%x", "%q", (64,))
    path = tmp_path / "copy.mlir"
    path.write_text(kernel([], text))
    x, y = random_f16(64), np.zeros(64, F16)
    result = ktir.execute(path, memory={("global", 64): x, ("global", 4096): y})
    np.testing.assert_array_equal(result.memory["global", 4096], x)
    assert result.report.bytes_written["global"] == 128
    with pytest.raises(Uninitialized, match=r"copy\.mlir"):
        ktir.execute(path, memory={("global", 4096): y})
    with pytest.raises(KtirError, match="two arrays share byte"):
        ktir.execute(path, memory={("global", 64): x, ("global", 65): y})


def test_read_only_output_is_refused_before_anything_runs():
    x, y = random_f16(64), np.zeros(64, F16)
    y.flags.writeable = False
    text = kernel(["%x_ptr", "%y_ptr"], load("%x", "%x_ptr", (64,)) + store("%x", "%y_ptr", (64,)))
    with pytest.raises(KtirError, match="argument 1 \\('y_ptr'\\) of 'kernel' is written, but the array is read-only"):
        ktir.execute(text, args=[x, y])


def test_grid_order():
    y = np.zeros((2, 3), np.int32)
    text = (
        "%a, %b = ktdp.get_compute_tile_id : index, index\n"
        "%i = arith.index_cast %a : index to i32\n%w = tensor.splat %i : tensor<1x1xi32>\n"
        + store("%w", "%arg0", (2, 3), index=("%a", "%b"), extents=(1, 1), element="i32")
    )
    for order in ("last-fastest", "first-fastest"):
        ktir.execute(kernel(["%arg0"], text, "2, 3"), args=[y], policy=Policy(grid_order=order))
        np.testing.assert_array_equal(y, [[0] * 3, [1] * 3])


@pytest.mark.parametrize("n", [1, 2, 63, 100, 1024])
def test_peer_sums_fold_pairwise(n):
    x, y = random_f16(1, n), np.zeros(1, F16)
    text = load("%x", "%arg0", (1, n)) + "%z = arith.constant dense<0.0> : tensor<1xf16>\n"
    text += f"%s = linalg.reduce {{ arith.addf }} ins(%x : tensor<1x{n}xf16>) outs(%z : tensor<1xf16>) dimensions = [1]\n"
    ktir.execute(kernel(["%arg0", "%arg1"], text + store("%s", "%arg1", (1,))), args=[x, y], policy=Policy(numerics="peer"))
    want = x[0]
    while want.size > 1:
        half = want.size // 2
        want = np.concatenate([want[:half] + want[half : 2 * half], want[2 * half :]])
    assert y[0] == want[0]


def test_peer_folds_a_contraction_that_is_no_named_matmul():
    a, b = (random_f16(*shape, seed=s) for s, shape in enumerate(((9, 37), (37, 33))))
    text = load("%a", "%arg0", a.shape) + load("%b", "%arg1", b.shape) + "%z = arith.constant dense<0.0> : tensor<9x33xf32>\n"
    maps = ", ".join(f"affine_map<(m, n, k) -> {m}>" for m in ("(m, k)", "(k, n)", "(m, n)"))
    text += f"""%c = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel", "reduction"]}}
        ins(%a, %b : tensor<9x37xf16>, tensor<37x33xf16>) outs(%z : tensor<9x33xf32>) {{
        ^bb0(%i: f16, %j: f16, %o: f32):
          %p = arith.extf %i : f16 to f32
          %q = arith.extf %j : f16 to f32
          %m = arith.mulf %p, %q : f32
          %s = arith.addf %o, %m : f32
          linalg.yield %s : f32
        }} -> tensor<9x33xf32>\n"""
    c = np.zeros((9, 33), F32)
    text = kernel(["%arg0", "%arg1", "%arg2"], text + store("%c", "%arg2", c.shape, element="f32"))
    ktir.execute(text, args=[a, b, c], policy=Policy(numerics="peer"))
    want = a.astype(F32)[:, None, :] * b.astype(F32).T
    while want.shape[-1] > 1:
        half = want.shape[-1] // 2
        want = np.concatenate([want[..., :half] + want[..., half : 2 * half], want[..., 2 * half :]], -1)
    np.testing.assert_array_equal(c, want[..., 0])


def test_findings_name_their_op():
    with pytest.raises(Finding) as caught:
        ktir.execute(EMBEDDING, args=[random_f16(50, 64), np.full(16, 77, np.int32), np.zeros((16, 64), F16)])
    assert caught.value.op == "ktdp.load"
    assert caught.value.address == 77


def test_peer_rounds_elementary_functions_in_the_type_of_the_operand():
    """A reciprocal root in f16 is rounded twice there, and only there."""
    x = np.arange(1, 0x7C00, dtype=np.uint16).view(F16)  # every positive finite f16
    body = load("%x", "%arg0", x.shape) + f"%y = math.rsqrt %x : tensor<{x.size}xf16>\n" + store("%y", "%arg1", x.shape)
    text = kernel(["%arg0", "%arg1"], body)
    twice, once = np.zeros_like(x), np.zeros_like(x)
    ktir.execute(text, args=[x, twice], policy=Policy(numerics="peer"))
    ktir.execute(text, args=[x, once])
    np.testing.assert_array_equal(twice, 1 / np.sqrt(x))
    exact = 1 / np.sqrt(x.astype(np.float64))
    assert (np.abs(once - exact) <= np.abs(twice - exact)).all()
    assert (once != twice).any()


def test_peer_multiplies_f32_as_numpy_does():
    a, b = (random_f16(*shape, seed=s).astype(F32) for s, shape in enumerate(((9, 700), (700, 33))))
    types = "tensor<9x700xf32>", "tensor<700x33xf32>", "tensor<9x33xf32>"
    text = load("%a", "%arg0", a.shape, element="f32") + load("%b", "%arg1", b.shape, element="f32")
    text += f"%z = arith.constant dense<0.0> : {types[2]}\n"
    text += f"%c = linalg.matmul ins(%a, %b : {types[0]}, {types[1]}) outs(%z : {types[2]}) -> {types[2]}\n"
    c = np.zeros((9, 33), F32)
    text = kernel(["%arg0", "%arg1", "%arg2"], text + store("%c", "%arg2", c.shape, element="f32"))
    ktir.execute(text, args=[a, b, c], policy=Policy(numerics="peer"))
    np.testing.assert_array_equal(c, a @ b)
