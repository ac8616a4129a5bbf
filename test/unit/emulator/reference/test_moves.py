"""What a program only moves keeps the caller's bits; stores to places that are all different; gathers from a repeated value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_texts import access, box, kernel, load, memref, row_major, store, tensor, view

from ktir.emulator.findings import DuplicateTarget, Race
from ktir.emulator.policy import Policy
from ktir.emulator.reference import execute, executor

F16 = np.float16
TILE = "%t = ktdp.get_compute_tile_id : index\n%c8 = arith.constant 8 : index\n%o = arith.muli %t, %c8 : index\n"


def rows(name: str, base: str, ids: str, space: str = "global") -> str:
    """Rows ids[o .. o + 8] of base [32, 16], as an access tile."""
    return (
        view(f"{name}v", base, (32, 16), row_major((32, 16)), "f16", space)
        + view(f"{name}i", ids, (32,), (1,), "i32")
        + f"{name} = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j) {name}v[ind({name}i[%i + %o]), (%j)] "
        + f"{{variables_space_set = {box((8, 16))}, variables_space_order = affine_map<(i, j) -> (i, j)>}} : "
        + f"{memref((32, 16))}, {memref((32,), 'i32')} -> !ktdp.access_tile<8x16xindex>\n"
    )


GATHER = TILE + rows("%g", "%arg0", "%arg1") + f"%x = ktdp.load %g : {access((8, 16))} -> {tensor((8, 16))}\n"
SCATTER = rows("%s", "%arg2", "%arg1") + f"ktdp.store %x, %s : {tensor((8, 16))}, {access((8, 16))}\n"
ARGUMENTS = ["%arg0", "%arg1", "%arg2"]


def everything() -> np.ndarray:
    """512 patterns of f16, NaN of every kind among them."""
    return np.linspace(0, 0xFFFF, 512).astype(np.uint16).reshape(32, 16)


def kinds(plan: Any) -> set[type]:
    return {t.storage.dtype for step in plan.rec.steps for t in (*step.reads, *step.writes) if t.element == "f16"}


@pytest.mark.parametrize("order", [np.arange(32), np.arange(32)[::-1].copy(), np.random.default_rng(0).permutation(32)])
def test_bits_survive_moves(order: np.ndarray):
    x, ids, y, back = everything(), order.astype(np.int32), np.zeros((32, 16), np.uint16), np.zeros((32, 16), np.uint16)
    executor._plans.clear()
    gather = kernel(ARGUMENTS, GATHER + store("%x", "%arg2", (32, 16), index=("%o", 0), extents=(8, 16)), "4")
    execute(gather, args=[x.view(F16), ids, y.view(F16)])
    np.testing.assert_array_equal(y, x[order])
    scatter = TILE + load("%x", "%arg0", (32, 16), index=("%o", 0), extents=(8, 16)) + SCATTER
    execute(kernel(ARGUMENTS, scatter, "4"), args=[y.view(F16), ids, back.view(F16)])
    np.testing.assert_array_equal(back, x)
    assert all(kinds(plan) == {F16} for plan in executor._plans.values())


def test_what_is_computed_with_is_wide():
    """The same array is moved and computed with."""
    x, ids, y = np.arange(512).astype(F16).reshape(32, 16), np.arange(32).astype(np.int32), np.zeros((32, 16), F16)
    executor._plans.clear()
    more = f"%y = arith.addf %x, %x : {tensor((8, 16))}\n" + store("%y", "%arg2", (32, 16), index=("%o", 0), extents=(8, 16))
    execute(kernel(ARGUMENTS, GATHER + more, "4"), args=[x, ids, y])
    np.testing.assert_array_equal(y, x + x)
    (plan,) = executor._plans.values()
    assert np.float32 in kinds(plan)


def test_a_masked_move_fills_with_zero():
    x, y = np.arange(1, 65).astype(F16), np.full(96, np.nan, F16)
    text = "%n = arith.constant 64 : index\n%m = arith.constant 96 : index\n" + load("%x", "%arg0", ("%n",), strides=(1,), extents=(96,))
    execute(kernel(["%arg0", "%arg1"], text + store("%x", "%arg1", (96,))), args=[x, y])
    np.testing.assert_array_equal(y, np.concatenate([x, np.zeros(32, F16)]))


@pytest.mark.parametrize(("first", "second", "finding"), [(3, 3, DuplicateTarget), (3, 11, Race)])
def test_places_that_are_not_all_different(first: int, second: int, finding: type[Exception]):
    """Twice within a tile, or on two tiles."""
    ids = np.arange(32).astype(np.int32)
    ids[first], ids[second if second != first else first + 1] = 5, 5
    ids[5] = 3
    x, y = everything().view(F16), np.zeros((32, 16), F16)
    text = TILE + load("%x", "%arg0", (32, 16), index=("%o", 0), extents=(8, 16)) + SCATTER
    with pytest.raises(finding):
        execute(kernel(ARGUMENTS, text, "4"), args=[x, ids, y])
    assert not y.any()


def test_gather_from_one_value_in_lx():
    """LX holds a constant, which has one element of memory."""
    ids, y = np.random.default_rng(0).integers(0, 32, 32).astype(np.int32), np.zeros((32, 16), F16)
    text = TILE + f"%lx = arith.constant 0 : index\n%v = arith.constant dense<2.5> : {tensor((32, 16))}\n"
    text += store("%v", "%lx", (32, 16), space="ct_local") + rows("%g", "%lx", "%arg0", "ct_local")
    text += f"%x = ktdp.load %g : {access((8, 16))} -> {tensor((8, 16))}\n"
    text += store("%x", "%arg1", (32, 16), index=("%o", 0), extents=(8, 16))
    execute(kernel(["%arg0", "%arg1"], text, "4"), args=[ids, y])
    np.testing.assert_array_equal(y, np.full((32, 16), 2.5, F16))


@pytest.mark.parametrize("order", ["last-fastest", "first-fastest"])
@pytest.mark.parametrize("grid", [(4, 2), (2, 4), (8, 1), (3, 2)])
def test_tiles_that_gather_the_same(grid: tuple[int, int], order: Any):
    """Only one coordinate of the grid decides what a tile reads: columns q * 4 .. q * 4 + 4 of the rows ids."""
    p, q = grid
    x, ids = np.random.default_rng(0).standard_normal((32, 4 * q)).astype(F16), np.array([5, 31, 0, 5], np.int32)
    y, name, kind = np.zeros((p, 4, 4 * q), F16), "affine_map<(i, j) -> (i, j)>", memref((32, 4 * q))
    text = "%p, %q = ktdp.get_compute_tile_id : index, index\n%c4 = arith.constant 4 : index\n%o = arith.muli %q, %c4 : index\n"
    text += view("%v", "%arg0", (32, 4 * q), row_major((32, 4 * q)), "f16") + view("%ids", "%arg1", (4,), (1,), "i32")
    text += "%g = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j) %v[ind(%ids[%i]), (%j + %o)] "
    text += f"{{variables_space_set = {box((4, 4))}, variables_space_order = {name}}} : {kind}, {memref((4,), 'i32')} "
    text += f"-> !ktdp.access_tile<4x4xindex>\n%x = ktdp.load %g : {access((4, 4))} -> {tensor((4, 4))}\n"
    text += f"%z = tensor.expand_shape %x [[0, 1], [2]] output_shape [1, 4, 4] : {tensor((4, 4))} into {tensor((1, 4, 4))}\n"
    text += f"%s = arith.addf %z, %z : {tensor((1, 4, 4))}\n"
    text += store("%s", "%arg2", y.shape, index=("%p", 0, "%o"), extents=(1, 4, 4))
    execute(kernel(ARGUMENTS, text, f"{p}, {q}"), args=[x, ids, y], policy=Policy(grid_order=order))
    np.testing.assert_array_equal(y, np.broadcast_to(2 * x[ids], y.shape))
