"""Tiles in time that a user asks for: `num_tiles_per_dim` of a `ktir.hint`, or the option `num-tiles`.

The blocks of rows are a choice; the other loops of a kernel are what the units take at once, so a wish for them is honoured where it says
just that, and refused otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from ktir import hints
from ktir.analysis.attributes.residents import room_of
from ktir.diagnostics import location_text
from ktir.hints import HintRefused
from ktir.passes.tiling.online_plan import plan_of
from ktir.passes.tiling.plan.tile_facts import TileFacts
from ktir.passes.tiling.plan.tile_plan import TilePlan, even
from ktir.target import LANES, Target

OnlineSoftmax = Literal["auto", "always", "never"]
"""When a softmax runs over blocks of keys: where that is cheaper or needed, always, or never."""


class Wishes(NamedTuple):
    """Rows of a block (0: any), when a softmax runs over blocks of keys, and tiles per loop as in `m=4` (else: as a `ktir.hint` says)."""

    rows: int
    online_softmax: OnlineSoftmax
    num_tiles: str

    @property
    def tiles(self) -> dict[str, int]:
        """Tiles per loop."""
        hint = hints.parse(f"num_tiles_per_dim = {{{self.num_tiles}}}") if self.num_tiles else hints.current()
        return dict(hint.num_tiles_per_dim)


def decide(facts: TileFacts, wishes: Wishes, target: Target) -> TilePlan:
    """The plan of a kernel that has the tiles a user wants. Raises HintRefused for a wish that cannot be honoured."""
    tiles = wishes.tiles
    rows = _rows(facts, tiles, wishes.rows)
    begin, end = room_of(facts.source.operation, target.lx_planned_bytes)
    plan = plan_of(facts, rows, wishes.online_softmax, target, end - begin)
    if "m" in tiles and plan.block_rows != rows:
        raise _refused(facts, "m", tiles["m"], f"at most {plan.block_rows} rows fit the scratchpad and the matrix array, not {rows}")
    return plan


def _rows(facts: TileFacts, tiles: dict[str, int], rows: int) -> int:
    """The rows of a block that a user wants; 0: any."""
    fixed = dict(_fixed_loops(facts))
    for name, wanted in tiles.items():
        if name == "m":
            continue
        if name not in fixed:
            raise _refused(facts, name, wanted, f"the loops of this kernel are {', '.join(['m', *fixed])}")
        counts, why = fixed[name]
        if counts - {wanted}:
            raise _refused(facts, name, wanted, f"{why}: {' or '.join(map(str, sorted(counts)))} tiles")
    return _rows_of(facts, tiles["m"], rows) if "m" in tiles else rows


def _rows_of(facts: TileFacts, tiles: int, rows: int) -> int:
    """The rows of a block of which a core has so many."""
    share = facts.share
    wanted = even(-(-share // tiles))
    if facts.trips(wanted) != tiles:
        counts = sorted({facts.trips(n) for n in range(2, even(share) + 1, 2)})
        near = sorted(counts, key=lambda n: (abs(n - tiles), n))[:2]
        text = (
            f"a core's {share} rows are cut into blocks of an even number of rows: the nearest are {' and '.join(map(str, sorted(near)))}"
        )
        raise _refused(facts, "m", tiles, text if len(near) > 1 else f"a core's {share} rows are one block")
    if rows and even(rows) != wanted:
        raise _refused(facts, "m", tiles, f"the option 'rows' asks for blocks of {rows} rows")
    return wanted


def _fixed_loops(facts: TileFacts) -> Iterator[tuple[str, tuple[set[int], str]]]:
    """Loops by name, with their trips, and why they have these."""
    for i in range(facts.row_axis):
        yield f"b{i}", ({facts.loops.get(i, 1)}, "a batch axis is walked one position at a time")
    if facts.matmuls:
        yield "n", ({m.n for m in facts.matmuls}, f"the matrix array makes {LANES} columns at once")
        yield "k", ({m.k for m in facts.matmuls}, f"the matrix array takes {LANES} elements of the reduced loop at once")


def _refused(facts: TileFacts, name: str, tiles: int, why: str) -> HintRefused:
    kernel = facts.source.name.value
    return HintRefused(
        f"hint num_tiles_per_dim wants {tiles} tiles of '{name}' in kernel '{kernel}', but {why}", location_text(facts.source.location)
    )
