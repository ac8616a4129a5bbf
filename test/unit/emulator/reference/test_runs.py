"""Matmuls on a grid of two dims read their operands where they lie: the same bits as from copies, and none of a later store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_texts import filled, kernel, load, random_f16, same, store, tensor

from ktir.emulator.policy import Policy
from ktir.emulator.reference import binding, execute, executor
from ktir.emulator.reference.tape.tape import Assemble

F16 = np.float16


def grid_matmul(between: str = "", transposed: bool = False) -> str:
    """c[8, 6] = a[8, 70] x b[70, 6] on 4x3 tiles, each with a block of 2x2."""
    body = "%p, %q = ktdp.get_compute_tile_id : index, index\n%c2 = arith.constant 2 : index\n"
    body += "%i = arith.muli %p, %c2 : index\n%j = arith.muli %q, %c2 : index\n"
    body += load("%a", "%arg0", (8, 70), index=("%i", 0), extents=(2, 70))
    if transposed:
        body += load("%b", "%arg1", (70, 6), strides=(1, 70), index=(0, "%j"), extents=(70, 2))
    else:
        body += load("%b", "%arg1", (70, 6), index=(0, "%j"), extents=(70, 2))
    body += between + filled("%z", "0.0", (2, 2))
    body += f"%s = linalg.matmul ins(%a, %b : {tensor((2, 70))}, {tensor((70, 2))}) outs(%z : {tensor((2, 2), 'f32')}) -> "
    body += f"{tensor((2, 2), 'f32')}\n%y = arith.truncf %s : {tensor((2, 2), 'f32')} to {tensor((2, 2))}\n"
    return kernel(["%arg0", "%arg1", "%arg2"], body + store("%y", "%arg2", (8, 6), index=("%i", "%j"), extents=(2, 2)), "4, 3")


def run(text: str, arrays: list[np.ndarray], policy: Policy) -> int:
    """Execute; how many values the tape puts together in temporaries."""
    executor._plans.clear()
    execute(text, args=arrays, policy=policy)
    (plan,) = executor._plans.values()
    return sum(isinstance(s, Assemble) and s.writes[0].storage.owner is None for s in plan.rec.steps)


@pytest.mark.parametrize("numerics", ["machine", "peer", "fast"])
@pytest.mark.parametrize("order", ["last-fastest", "first-fastest"])
@pytest.mark.parametrize("transposed", [False, True])
def test_bits_and_copies(monkeypatch: Any, numerics: Any, order: Any, transposed: bool):
    a, b = random_f16(8, 70), random_f16(70, 6, seed=1)
    held = np.ascontiguousarray(b.T) if transposed else b
    policy = Policy(numerics=numerics, grid_order=order)
    c, plain = np.zeros((8, 6), F16), np.zeros((8, 6), F16)
    assert run(grid_matmul(transposed=transposed), [a, held, c], policy) == 0
    monkeypatch.setattr(binding, "split_runs", lambda steps: steps)
    assert run(grid_matmul(transposed=transposed), [a, held, plain], policy) == 2
    same(c, plain)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=0.1)


def test_a_store_between_load_and_use():
    """What was loaded is multiplied, not what stands there later."""
    zero = f"%n = arith.constant dense<0.0> : {tensor((2, 70))}\n" + store("%n", "%arg0", (8, 70), index=("%i", 0), extents=(2, 70))
    a, b, c = random_f16(8, 70), random_f16(70, 6, seed=1), np.zeros((8, 6), F16)
    want = a.astype(np.float32) @ b.astype(np.float32)
    run(grid_matmul(zero), [a, b, c], Policy(races=False))
    np.testing.assert_allclose(c, want, atol=0.1)
    assert not a.any()


def test_plans_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch):
    """The oldest go where all together hold more; also after somebody has thrown all away."""
    policies = [Policy(numerics=n, grid_order=o) for n in ("machine", "peer", "fast") for o in ("last-fastest", "first-fastest")]
    arrays = [random_f16(8, 70), random_f16(70, 6, seed=1), np.zeros((8, 6), F16)]
    for _ in range(2):
        run(grid_matmul(), arrays, policies[0])
        (first,) = executor._plans.values()
        monkeypatch.setattr(executor, "_MOST_BYTES", 3 * first.bytes)
        for policy in policies[1:]:
            execute(grid_matmul(), args=arrays, policy=policy)
            assert executor._held == sum(plan.bytes for plan in executor._plans.values()) <= 3 * first.bytes
        assert 1 < len(executor._plans) < len(policies)
