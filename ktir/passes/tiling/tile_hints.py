"""Tiles in time that a user asks for: `num_tiles_per_dim` of a `ktir.hint`, or the option `num-tiles`.

The blocks of rows are a choice; the other loops of a kernel are what the units take at once, so a wish for them is honoured where it says
just that, and refused otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator

from ktir import hints
from ktir.analysis.attributes.kernel import KernelFunction
from ktir.diagnostics import location_text
from ktir.dialects.structured import Generic
from ktir.hints import HintRefused
from ktir.mlir import func, ir
from ktir.passes.tiling.online_plan import Remark, plan_of, silent
from ktir.passes.tiling.tile_plan import TilePlan, even
from ktir.target import LANES, Target


def wanted_tiles(num_tiles: str) -> dict[str, int]:
    """Tiles per loop: a pass option such as `m=4`, else the `ktir.hint` in force."""
    hint = hints.parse(f"num_tiles_per_dim = {{{num_tiles}}}") if num_tiles else hints.current()
    return dict(hint.num_tiles_per_dim)


def hinted_plan(source: func.FuncOp, rows: int, target: Target, online: str, num_tiles: str, remark: Remark = silent) -> TilePlan:
    """The plan of a kernel that has the tiles a user wants. Raises HintRefused for a wish that cannot be honoured."""
    wishes = wanted_tiles(num_tiles)
    for name, tiles in wishes.items():
        if name != "m":
            _check(source, name, tiles)
    if "m" not in wishes:
        return plan_of(source, rows, target, online, remark)
    tiles, share = wishes["m"], _shares(source)[-1]
    wanted = even(-(-share // tiles))
    if -(-share // wanted) != tiles:
        counts = sorted({-(-share // n) for n in range(2, even(share) + 1, 2)})
        near = sorted(counts, key=lambda n: (abs(n - tiles), n))[:2]
        text = (
            f"a core's {share} rows are cut into blocks of an even number of rows: the nearest are {' and '.join(map(str, sorted(near)))}"
        )
        raise _refused(source, "m", tiles, text if len(near) > 1 else f"a core's {share} rows are one block")
    if rows and even(rows) != wanted:
        raise _refused(source, "m", tiles, f"the option 'rows' asks for blocks of {rows} rows")
    plan = plan_of(source, wanted, target, online, remark)
    if plan.block_rows != wanted:
        raise _refused(source, "m", tiles, f"at most {plan.block_rows} rows fit the scratchpad and the matrix array, not {wanted}")
    return plan


def _shares(source: func.FuncOp) -> list[int]:
    """Extents of a core's part of each axis."""
    return list(KernelFunction(source).work.row_shares)


def _check(source: func.FuncOp, name: str, tiles: int) -> None:
    """Raise for a number of tiles of a loop that is no choice."""
    trips = dict(_fixed_loops(source))
    if name not in trips:
        raise _refused(source, name, tiles, f"the loops of this kernel are {', '.join(['m', *trips])}")
    counts, why = trips[name]
    if counts - {tiles}:
        raise _refused(source, name, tiles, f"{why}: {' or '.join(map(str, sorted(counts)))} tiles")


def _fixed_loops(source: func.FuncOp) -> Iterator[tuple[str, tuple[set[int], str]]]:
    """Loops by name, with their trips, and why they have these."""
    for i, share in enumerate(_shares(source)[:-1]):
        yield f"b{i}", ({share}, "a batch axis is walked one position at a time")
    contractions = [
        g for op in source.regions[0].blocks[0].operations if op.operation.name == "linalg.generic" and (g := Generic(op)).is_contraction
    ]
    if contractions:
        shapes = [(_extents(g.op.results[0]), _extents(g.inputs[0])) for g in contractions]
        yield "n", ({result[0] for result, _ in shapes}, f"the matrix array makes {LANES} columns at once")
        yield "k", ({first[0] for _, first in shapes}, f"the matrix array takes {LANES} elements of the reduced loop at once")


def _extents(value: ir.Value) -> list[int]:
    return list(ir.RankedTensorType(value.type).shape)


def _refused(source: func.FuncOp, name: str, tiles: int, why: str) -> HintRefused:
    kernel = source.name.value
    return HintRefused(
        f"hint num_tiles_per_dim wants {tiles} tiles of '{name}' in kernel '{kernel}', but {why}", location_text(source.location)
    )
