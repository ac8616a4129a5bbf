"""Kernels whose columns can be dealt to the cores too: matmuls and what follows them element by element.

A core that owns some rows and some sticks of the result needs all of the first operand's columns in its rows, and only its own columns of
the second operand. Every weight is then read by fewer cores at once, and few rows no longer mean few cores.
"""

from __future__ import annotations

from functools import lru_cache

from ktir.cost.division import Plan, solve
from ktir.cost.problem import Loop, Operand, Problem
from ktir.dialects.structured import Generic
from ktir.hints import Hint
from ktir.mlir import ir
from ktir.target import DATASHEET, LANES

_NO_SPLIT_K = ("k", 1)


@lru_cache(maxsize=1024)
def column_division(rows: int, sticks: int, depth: int, cores: int) -> Plan:
    """The best division of a matmul of `rows` rows, `sticks` sticks of columns and `depth` sticks of the reduced loop, which is not cut."""
    return solve(_problem(rows, sticks, depth), DATASHEET.with_cores(cores), hint=Hint(work_div=(_NO_SPLIT_K,)))


@lru_cache(maxsize=1024)
def row_division(rows: int, sticks: int, depth: int, cores: int) -> Plan:
    """The same with rows alone dealt to the cores."""
    return solve(_problem(rows, sticks, depth), DATASHEET.with_cores(cores), hint=Hint(work_div=(("n", 1), _NO_SPLIT_K)))


def _problem(rows: int, sticks: int, depth: int) -> Problem:
    loops = (Loop("m", rows), Loop("n", sticks * LANES, LANES), Loop("k", depth * LANES, LANES, reduction=True))
    operands = (Operand("rows", ("m", "k")), Operand("weights", ("k", "n")), Operand("result", ("m", "n"), output=True, resident=True))
    return Problem(f"matmul of {rows} rows", loops, operands)


def extents(g: Generic) -> tuple[int, int, int]:
    """Rows, sticks of columns and sticks of the reduced loop of a laid-out contraction."""
    depth = ir.RankedTensorType(g.inputs[0].type).shape[0]
    sticks, rows, _ = ir.RankedTensorType(g.op.results[0].type).shape
    return rows, sticks, depth


def is_local(g: Generic, sticks: int) -> bool:
    """Whether an op computes each stick of its `sticks` sticks from the same stick of its operands."""
    if not g.is_pointwise or ir.RankedTensorType(g.op.results[0].type).shape[0] != sticks:
        return False
    if any(o.name == "linalg.index" for o in g.body_ops):
        return False  # a body that knows its position would see that of the core's part
    return all(g.loop_of(i, 0) in (0, None) and g.loop_of(i, 1) in (1, None) for i in range(len(g.maps)))
