"""Kernels whose columns can be dealt to the cores too: matmuls and what follows them element by element.

A core that owns some rows and some sticks of the result needs all of the first operand's columns in its rows, and only its own columns of
the second operand. Every weight is then read by fewer cores at once, and few rows no longer mean few cores.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from ktir import hints
from ktir.cost.division import Infeasible, Plan, solve
from ktir.cost.problem import Loop, MatmulShape, Operand, Problem
from ktir.diagnostics import KtirError, location_text
from ktir.hints import Hint, HintRefused
from ktir.mlir import ir
from ktir.target import LANES, Target

NO_HINT = Hint()
WHOLE = {"n": "the columns of this kernel are not dealt out", "k": "the reduced loop of this kernel is not dealt out"}
"""Why loops are not cut: kernels whose ops do not all work on the same sticks, and those with batch axes."""
TAPS = "a matmul of this kernel adds up the places of a window"
"""Why the reduced loop of some is not cut."""
_NO_SPLIT_K = ("k", 1)


@lru_cache(maxsize=1024)
def column_division(shape: MatmulShape, target: Target, hint: Hint = NO_HINT, whole: str | None = None) -> Plan:
    """The best division of a matmul. `whole`: why the reduced loop must not be cut.

    Raises Infeasible for a hint that cannot be honoured.
    """
    if whole is not None:
        refuse_parts(hint, "k", whole)
        hint = Hint(work_div=(*((n, p) for n, p in hint.work_div if n != "k"), _NO_SPLIT_K))
    return solve(_problem(shape), target, hint=hint)


def refuse_parts(hint: Hint, name: str, reason: str) -> None:
    """Raise Infeasible if a hint wants several parts of a loop."""
    parts = dict(hint.work_div).get(name, 1)
    if parts > 1:
        raise Infeasible(f"hint work_div wants {parts} parts of '{name}', but {reason}")


@lru_cache(maxsize=1024)
def row_division(shape: MatmulShape, target: Target) -> Plan:
    """The same with rows alone dealt out, to as many cores as there are."""
    parts = -(-shape.rows // -(-shape.rows // target.cores))
    return solve(_problem(shape), target, hint=Hint(work_div=(("m", parts), ("n", 1), _NO_SPLIT_K)))


def saved_by_columns(shape: MatmulShape, target: Target, whole: str | None = None) -> float:
    """Cycles that dealing out columns saves; without a bound where rows alone cannot be dealt out, so that what is refused is the best
    division. `whole`: why the reduced loop must not be cut."""
    try:
        alone = row_division(shape, target).cost.cycles
    except Infeasible:
        return float("inf")
    return alone - column_division(shape, target, whole=whole).cost.cycles


def row_parts(rows: int, target: Target, hint: Hint) -> int:
    """Cores that the rows of a kernel are dealt to: all, or as many as a hint for `m` wants.

    Raises Infeasible for a hint that cannot be honoured.
    """
    for name, reason in WHOLE.items():
        refuse_parts(hint, name, reason)
    wanted = Hint(work_div=tuple((name, parts) for name, parts in hint.work_div if name not in ("n", "k")))
    if not wanted.work_div:
        return target.cores
    problem = Problem(f"kernel of {rows} rows", (Loop("m", rows),), (Operand("result", ("m",), output=True),), "vector")
    return solve(problem, target, hint=wanted).division.cores


def _problem(shape: MatmulShape) -> Problem:
    """The matmul. Where operands lie is no matter: transfers and loops that reach further than an address spans are cut (`spans.py`)."""
    loops = (Loop("m", shape.rows), Loop("n", shape.sticks * LANES, LANES), Loop("k", shape.depth * LANES, LANES, reduction=True))
    operands = (
        Operand("rows", ("m", "k")),
        Operand("weights", ("k", "n"), element_bytes=shape.weight_bytes),
        Operand("result", ("m", "n"), output=True, resident=True),
    )
    return Problem(f"matmul of {shape.rows} rows", loops, operands, widening=shape.widening, alone=shape.alone)


def wishes(work_div: str) -> Hint:
    """The division that the user wants of rows (m) and columns (n): a pass option such as `m=4,n=8`, else the `ktir.hint` in force."""
    return hints.parse(f"work_div = {{{work_div}}}") if work_div else Hint(work_div=hints.current().work_div)


T = TypeVar("T")


def hinted(decide: Callable[[Hint], T], hint: Hint, location: ir.Location) -> T:
    """What `decide` makes of a hint; a refusal names the kernel's place."""
    try:
        return decide(hint)
    except Infeasible as error:
        kind = HintRefused if hint.work_div else KtirError
        raise kind(error.message, location_text(location)) from None
