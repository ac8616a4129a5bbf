"""What gathers bring together, or for several rows of a grid once: the same bits as one by one, and less memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_texts import access, filled, indirect, kernel, load, memref, random_f16, row_major, same, store, tensor, view

from ktir.emulator.findings import OutOfBounds
from ktir.emulator.policy import Policy
from ktir.emulator.reference import binding, execute, executor
from ktir.emulator.reference.ops.indirect_steps import Gather

F16 = np.float16
PAGES = (5, 3, 70, 2)


def paged_matmul(between: str = "") -> str:
    """c[8, 6] = a[8, 70] x sum of the pages that a table names, on 4x3 tiles, each with a block of 2x2; the column chooses in the page."""
    page, block, sums = (1, 1, 70, 2), tensor((70, 2)), tensor((2, 2), "f32")
    body = "%p, %q = ktdp.get_compute_tile_id : index, index\n%i = arith.muli %p, %c2 : index\n%k = arith.muli %q, %c2 : index\n"
    body = "".join(f"%c{n} = arith.constant {n} : index\n" for n in range(4)) + body
    body += load("%a", "%arg0", (8, 70), index=("%i", 0), extents=(2, 70))
    body += view("%cache", "%arg1", PAGES, row_major(PAGES)) + view("%table", "%arg2", (3,), (1,), "i32") + filled("%z", "0.0", (2, 2))
    body += f"%s = scf.for %j = %c0 to %c3 step %c1 iter_args(%acc = %z) -> ({sums}) {{\n"
    where = "ind(%table[%j + %v0]), (%q + %v1), (%v2), (%v3)"
    body += indirect("%t", "%cache", where, page, f"{memref(PAGES)}, {memref((3,), 'i32')}")
    body += f"%b4 = ktdp.load %t : {access(page)} -> {tensor(page)}\n{between}"
    body += f"%b = tensor.collapse_shape %b4 [[0, 1, 2], [3]] : {tensor(page)} into {block}\n"
    body += f"%n = linalg.matmul ins(%a, %b : {tensor((2, 70))}, {block}) outs(%acc : {sums}) -> {sums}\nscf.yield %n : {sums}\n}}\n"
    body += f"%y = arith.truncf %s : {sums} to {tensor((2, 2))}\n"
    return kernel([f"%arg{i}" for i in range(4)], body + store("%y", "%arg3", (8, 6), index=("%i", "%k"), extents=(2, 2)), "4, 3")


def run(text: str, table: list[int], policy: Policy) -> tuple[np.ndarray, np.ndarray, list[Gather]]:
    """The result, what NumPy computes, and the gathers of the tape."""
    a, pages, c = random_f16(8, 70), random_f16(*PAGES, seed=1), np.zeros((8, 6), F16)
    executor._plans.clear()
    execute(text, args=[a, pages, np.array(table, np.int32), c], policy=policy)
    (plan,) = executor._plans.values()
    want = a.astype(np.float64) @ pages[table].astype(np.float64).sum(0).transpose(1, 0, 2).reshape(70, 6)
    return c, want, [s for s in plan.rec.steps if isinstance(s, Gather)]


@pytest.mark.parametrize("numerics", ["machine", "peer", "fast"])
@pytest.mark.parametrize("order", ["last-fastest", "first-fastest"])
def test_bits_and_memory(monkeypatch: Any, numerics: Any, order: Any):
    policy = Policy(numerics=numerics, grid_order=order)
    c, want, gathers = run(paged_matmul(), [4, 0, 4], policy)
    np.testing.assert_allclose(c, want, atol=0.1)
    rows = 3 if order == "last-fastest" else 12  # else it is neighbours that read the same
    assert sorted(g.writes[0].storage.size for g in gathers) == [3] + [rows * 140] * 3
    monkeypatch.setattr(binding, "share_repeats", lambda steps: steps)
    monkeypatch.setattr(binding, "join_lookups", lambda steps: steps)
    plain, _, gathers = run(paged_matmul(), [4, 0, 4], policy)
    same(c, plain)
    assert sorted(g.writes[0].storage.size for g in gathers) == [1] * 3 + [12 * 140] * 3


def test_another_reader_gets_a_copy_for_each_tile():
    """What an op besides the matmul reads is there for all tiles."""
    page = tensor((1, 1, 70, 2))
    text = paged_matmul(f"%d4 = arith.addf %b4, %b4 : {page}\n%e4 = arith.subf %d4, %b4 : {page}\n")
    c, want, gathers = run(text.replace("collapse_shape %b4", "collapse_shape %e4"), [4, 0, 1], Policy())
    np.testing.assert_allclose(c, want, atol=0.1)
    assert max(g.writes[0].storage.size for g in gathers) == 12 * 140


def test_every_entry_of_a_table_is_checked():
    with pytest.raises(OutOfBounds, match="has index 5 in dim 0 of a view of size 5"):
        run(paged_matmul(), [4, 0, 5], Policy())
