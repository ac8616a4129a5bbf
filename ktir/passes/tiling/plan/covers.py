"""Windows that overlap: what they lie in is loaded once, lines of rows at the least distance of each; each window is a slice of that."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import gcd

from ktir.mlir import ir
from ktir.passes.tiling.plan.tile_facts import TileFacts
from ktir.passes.tiling.plan.tile_views import direct, tile_of

Walked = Mapping[int, tuple[int, int]]
"""Dim of a tensor -> rows or lines from a position to the next one, and positions."""


@dataclass(frozen=True)
class Rolling:
    """How the innermost loop fills a cover: `before` lines are loaded before it, and in each trip `each` lines, `step` lines further on."""

    axis: int
    before: int
    each: int
    step: int


@dataclass(frozen=True)
class Cover:
    """What all windows of a load lie in, at one position of the batch axes of the `depth` outermost loops."""

    unit: int
    """Elements of memory from one row of a line to the next."""
    step: int
    """Rows from a block's row to the next one."""
    inside: Walked
    """What walks the rows of a line: taps."""
    line: int
    """Elements of memory from one line to the next."""
    lines: int
    across: Walked
    """What walks lines: taps, and axes whose loops are inside."""
    depth: int
    begins: Mapping[ir.Value, tuple[int, int]]
    """The load, or several that overlap, and the line and row at which the windows of each begin. The first one's load is that of all."""
    rolling: Rolling | None = None

    @property
    def leader(self) -> ir.Value:
        """The load whose memory is loaded."""
        return next(iter(self.begins))

    @property
    def reach(self) -> int:
        """Rows from the first window of a line to the last one."""
        return _reach(self.inside) + max(row for _, row in self.begins.values())

    def pitch(self, block_rows: int) -> int:
        """Rows of a line for blocks of so many, an even number."""
        rows = (block_rows - 1) * self.step + 1 + self.reach
        return rows + rows % 2

    def rows(self, block_rows: int) -> int:
        """Rows of all lines."""
        return self.lines * self.pitch(block_rows)


def cover_of(facts: TileFacts, group: Mapping[ir.Value, int], taps: Mapping[int, int], *, whole_rows: bool) -> Cover | None:
    """The cover of a load with `taps` (dim -> extent), or of several that begin so many elements behind the first one; None where windows
    are no rows of each other. `whole_rows`: a block has all rows of a core, so that a load may stand outside of the innermost loop."""
    leader = next(iter(group))
    tensor = facts.tensors[leader]
    tile = tile_of(leader.owner.operation)
    if not tensor.is_loaded or tensor.is_resident or not direct(tile) or facts.row_axis not in tensor.axes:
        return None
    strides = [s for s in tile.operands[0].owner.opview.strides if isinstance(s, int)]
    loops = list(facts.loops)
    depth = max(len(loops) - 1, 0) if whole_rows else len(loops) + 1
    row = strides[tensor.axes.index(facts.row_axis)]
    moved = {d: facts.loops[axis] for d, axis in enumerate(tensor.axes) if axis in loops[depth:]}
    counts = dict(taps) | moved
    inside = {d: n for d, n in taps.items() if strides[d] * (n - 1) < facts.share * row}
    across = {d: n for d, n in counts.items() if d not in inside}
    if min([row, *(strides[d] for d in counts)]) < 0:
        return None
    starts = _line_starts(group.values(), (facts.share - 1) * row)
    unit = gcd(row, *(strides[d] for d in inside), *(at - start for at, start in starts.items()))
    line = gcd(*(strides[d] for d in across), *starts.values())
    if unit == 0 or (len(group) > 1 and 0 < line < facts.share * row):
        return None
    rows = {d: (strides[d] // unit, n) for d, n in inside.items()}
    lines = {d: (strides[d] // line, n) for d, n in across.items()}
    begins = {v: (starts[at] // max(line, 1), (at - starts[at]) // unit) for v, at in group.items()}
    used = facts.share * len({number for _, number in begins.values()})
    reach = max(row_ for _, row_ in begins.values())
    walked = [(strides[tensor.axes.index(axis)], trips) for axis, trips in facts.loops.items() if axis in tensor.axes]
    if len(group) > 1 and not _meet(sorted(set(group.values())), (row, facts.share), walked):
        return None  # what lies side by side, as halves of rows do, is loaded once anyway
    if len(group) > 1 and (facts.share * row // unit > 2 * used or max(begins.values())[1] < reach):
        return None  # most of a line would be rows between those of windows, or the last line would reach further than its windows
    behind = _reach(lines) + max(number for number, _ in begins.values())
    rolling = None
    if len(moved) == 1 and len(lines) <= 2 and set(moved) <= set(lines):
        ((dim, trips),) = moved.items()
        step, seen = lines[dim][0], 1 + behind - lines[dim][0] * (trips - 1)
        each = min(step, seen)
        rolling = Rolling(loops[-1], seen - each, each, step)
    return Cover(unit, row // unit, rows, line, 1 + behind, lines, depth, begins, rolling)


def _meet(distances: Sequence[int], rows: tuple[int, int], loops: Sequence[tuple[int, int]]) -> bool:
    """Whether two loads that begin so far behind the first one read one element: at other rows, or at another position of one of `loops`;
    both are a step and a count."""
    step, count = rows
    apart = {b - a for a, b in combinations(distances, 2)}
    moves = {0, *(s * n for s, trips in loops if s > 0 for n in range(1, min(trips, max(apart) // s + 2)))}
    return any(step and (d - m) % step == 0 and abs(d - m) < step * count for d in apart for m in moves)


def _line_starts(distances: Collection[int], row_reach: int) -> dict[int, int]:
    """Where the line of each distance begins: one goes on as long as the next distance is no further than the last row of a core's share,
    `row_reach` from the first one."""
    found: dict[int, int] = {}
    start = before = 0
    for at in sorted(set(distances)):
        start = start if at - before <= row_reach else at
        found[at], before = start, at
    return found


def _reach(walked: Walked) -> int:
    return sum(distance * (count - 1) for distance, count in walked.values())
