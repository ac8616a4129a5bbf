"""How a kernel is tiled: rows of a block, second operands that stay in the scratchpad, what is seen some sticks at a time.

A block's tensors must fit LX: what a loop streams twice (one block is worked on while the next one is loaded), computed tensors as long as
they live. A second operand streams by in blocks of 64x64, again for each block of rows; or it stays, whole, for all blocks that use it.
Without batch loops a matmul's first operand may be loaded stick by stick, and its weights may stay from the first block of rows on; which
of these forms is the fastest is the cost model's word (`ktir.cost.tiles`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

from ktir.analysis.attributes.levels import tensor_bytes
from ktir.analysis.softmax import Softmax
from ktir.cost import tiles
from ktir.cost.estimate import delivery_cycles
from ktir.cost.softmax import SoftmaxPrice, Sticks
from ktir.diagnostics import Unsupported, location_text
from ktir.dialects.structured import Generic, element_of
from ktir.mlir import ir, is_a, linalg
from ktir.passes.tiling.plan.covers import Cover, cover_of
from ktir.passes.tiling.plan.epilogues import Epilogues
from ktir.passes.tiling.plan.tile_facts import Matmul, StickLocal, Tensor, TileFacts
from ktir.target import LANES, STICK_BYTES, Target

_STREAMED = 1.02
"""Rows that are loaded again for each stick of columns must save more than this."""


class Resident(NamedTuple):
    """A second operand that stays in LX: its bytes, and the bytes that are not loaded again for that. `filled`: by the first block of rows,
    block by block; else it is loaded as a whole before."""

    matmul: Matmul
    bytes: int
    saved: int
    filled: bool

    @property
    def takes(self) -> int:
        """Bytes that it takes because it stays."""
        return self.bytes - (0 if self.filled else tiles.WEIGHT_BUFFERS * tiles.BLOCK_BYTES)


class Keys(NamedTuple):
    """A softmax of which a block sees `sticks` of keys at once, with `kept` second operands whole."""

    softmax: Softmax
    sticks: int
    kept: frozenset[ir.Operation]
    price: SoftmaxPrice
    seen: tuple[Sticks, ...] = ()
    """Per block of rows the keys that a mask leaves, in whole parts of `sticks` sticks; empty where all see all of them."""
    pipelined: bool = False
    """Whether the scores of the next block are computed while this one's are in use."""

    @property
    def whole(self) -> set[ir.Operation]:
        """Contractions along the keys whose second operands stay."""
        keyed = self.softmax.keyed
        return {op for op in self.kept if op.results[0] in keyed or op.operands[0] in keyed}

    @property
    def in_pieces(self) -> set[ir.Operation]:
        """Those of which each piece is loaded in front of the first block of rows that sees it."""
        return self.whole if self.seen else set()


@dataclass(frozen=True)
class TilePlan:
    """The decisions for a kernel."""

    block_rows: int
    used: int
    """Bytes of the kernel's own tensors."""
    epilogues: Epilogues
    stored: Mapping[ir.Value, Sequence[ir.Operation]]
    residents: tuple[Resident, ...] = ()
    streamed: frozenset[ir.Value] = frozenset()
    """First operands that are loaded stick by stick in the loops of their contractions."""
    covers: Mapping[ir.Value, Cover] = field(default_factory=dict)
    """Tensors that are loaded with all their windows."""
    part: StickLocal | None = None
    """What is seen `part_sticks` at a time; None: a block has whole rows."""
    part_sticks: int = 0
    keys: Keys | None = None
    stored_rows: int = tiles.STORED_ROWS
    """Rows of a finished stick that are stored at a time, at most."""
    last: tuple[int, ...] = ()
    """Rows of the blocks that the last block of rows is cut into, so that less is to be stored at the end."""
    k_parts: int = 1
    """Equal parts of the reduced loop, one after the other, between which the sums of all sticks of columns stay in LX."""
    reason: str = ""
    """Of one of two forms of a softmax."""

    def depth(self, facts: TileFacts, tensor: Tensor) -> int:
        """How many of the batch loops a load stands in; one more: in the loop over blocks of rows."""
        cover = self.covers.get(tensor.value)
        return facts.depth(tensor, facts.trips(self.block_rows)) if cover is None else cover.depth

    @property
    def peels(self) -> bool:
        """Whether the first block of rows stands before the loop over the others, since it leaves second operands for them."""
        return any(r.filled for r in self.residents)

    def is_one_block(self, facts: TileFacts) -> bool:
        """Whether all that the kernel does is done once, on whole rows."""
        once = not facts.loops and facts.trips(self.block_rows) == 1
        return once and self.keys is None and self.part is None and not self.residents

    @cached_property
    def in_epilogues(self) -> set[ir.Operation]:
        """Ops that are computed with the contractions that they follow."""
        return {op for chain in self.epilogues.values() for op in chain}

    @cached_property
    def loaded_whole(self) -> set[ir.Operation]:
        """Contractions whose second operands are loaded as a whole before they are used."""
        if self.keys is None:
            return {r.matmul.op for r in self.residents if not r.filled}
        return self.keys.whole - self.keys.in_pieces

    @property
    def in_parts(self) -> Collection[ir.Value]:
        """Tensors of which some sticks are seen at a time."""
        return self.keys.softmax.keyed if self.keys is not None else self.part.values - self.covers.keys() if self.part is not None else ()


def even(n: int) -> int:
    """The next even number: a block of rows is halved over the two corelets."""
    return n + n % 2


def in_whole_rows(facts: TileFacts, wanted: int, target: Target, budget: int) -> TilePlan:
    """The fastest blocks of rows that fit `budget` bytes, of `wanted` rows unless that is 0. Raises Unsupported if two rows do not fit."""
    search = _Search(facts, wanted, target, budget)
    best = min(search.candidates(), key=lambda found: found[0], default=None)
    if best is None and search.seen_together:  # no room for what windows lie in: each of them is loaded by itself
        search = replace(search, together=False)
        best = min(search.candidates(), key=lambda found: found[0], default=None)
    plan = best[1] if best is not None else search.some_sticks()
    if plan is None:
        raise search.too_large()
    return plan


class Need(NamedTuple):
    """Bytes of a block: `fixed`, and per row `streamed` ones and those of the computed tensors that live at once, at the op `at`."""

    fixed: int
    streamed: int
    live: int
    at: ir.Operation

    def bytes(self, rows: int, buffers: int) -> int:
        """Of a block of `rows` rows with `buffers` buffers for each stream."""
        return self.fixed + rows * (buffers * self.streamed + self.live)


@dataclass(frozen=True)
class _Search:
    facts: TileFacts
    wanted: int
    target: Target
    budget: int
    together: bool = True
    """Whether loads that overlap may be one."""

    @cached_property
    def forms(self) -> list[frozenset[ir.Value]]:
        """First operands that are loaded stick by stick: none, or all that can be."""
        facts = self.facts
        streamed = facts.streamable if facts.walked_alone and facts.matmuls else frozenset()
        streamed -= self.windowed.keys()
        apart = frozenset(v for v, taps in self.windowed.items() if cover_of(facts, {v: 0}, taps, whole_rows=False) is None)
        return [apart, streamed | apart] if streamed else [apart]

    @cached_property
    def windowed(self) -> dict[ir.Value, dict[int, int]]:
        """First operands that are seen through windows: the taps of each, dim -> extent."""
        return {m.g.inputs[0]: {tap.first: tap.extent for tap in m.taps} for m in self.facts.matmuls if m.taps}

    def candidates(self) -> Iterator[tuple[float, TilePlan]]:
        """Blocks that fit, with what they cost."""
        facts = self.facts
        for form in self.forms:
            for rows, free in self._blocks(self._need(form, self.part, 1)):
                covers, taken = self._covers(rows, form, free)
                if taken > free:
                    continue
                residents = self._stay(rows, free - taken)
                used = self.budget - free + taken + sum(r.takes for r in residents)
                part = self.part, 1 if self.part else 0
                plan = TilePlan(rows, used, facts.epilogues, facts.stored, residents, form, covers, *part)
                yield self._price(rows, form, residents), self._ended(plan)
        yield from self._in_k_parts()

    def _in_k_parts(self) -> Iterator[tuple[float, TilePlan]]:
        """Blocks whose sums stay while rows and weights come by along the reduced loop, if the kernel stores the sums of one product."""
        facts, form, most = self.facts, self.forms[-1], 2 * self.target.pt_accumulator_rows
        if len(facts.matmuls) != 1 or facts.matmuls[0].taps or form != {facts.matmuls[0].g.inputs[0]}:
            return
        if not facts.stores_sticks or self.seen_together or not isinstance(element_of(facts.matmuls[0].result), ir.FloatType):
            return
        (m,), (share,), need = facts.matmuls, self._shares, self._need(form)
        least = -(-facts.share // most)
        trips = range(least, 2 * least + 1)
        for rows in [min(most, self.wanted, facts.share)] if self.wanted else dict.fromkeys(-(-facts.share // n) for n in trips):
            rows = even(rows)
            others = need.bytes(rows, tiles.ROW_BUFFERS) - rows * tiles.ROW_STICKS * STICK_BYTES
            if parts := tiles.part_count(rows, m.n, m.k, (self.budget - others) // STICK_BYTES):
                used = others + rows * (tiles.PART_BUFFERS * m.k // parts + tiles.SUM_STICKS * m.n) * STICK_BYTES
                plan = TilePlan(rows, used, facts.epilogues, facts.stored, (), form, k_parts=parts)
                yield tiles.tile_cycles(share, rows, facts.trips(rows), False, False, self.target, parts) * _STREAMED, plan

    @cached_property
    def seen_together(self) -> list[Mapping[ir.Value, int]]:
        """Loads that overlap and whose windows are rows of each other."""
        groups = self.facts.overlapping if self.together else ()
        if not groups:
            return []
        local = self.facts.stick_local is not None or all(self.facts.tensors[v].sticks == 1 for group in groups for v in group)
        return [group for group in groups if local and cover_of(self.facts, group, {}, whole_rows=False) is not None]

    @cached_property
    def part(self) -> StickLocal | None:
        """What is seen stick by stick because windows of it are: all that has rows."""
        local = self.facts.stick_local if self.seen_together else None
        if local is None:
            return None
        loaded = {v for v, t in self.facts.tensors.items() if t.is_loaded and not t.has_rows}
        return StickLocal(local.sticks, local.values - loaded)

    def _covers(self, rows: int, streamed: Collection[ir.Value], free: int) -> tuple[dict[ir.Value, Cover], int]:
        """What is loaded with all its windows, and the bytes that it takes: outside of the innermost loop where there is room."""
        facts, found, taken = self.facts, dict[ir.Value, Cover](), 0
        windowed = [({v: 0}, taps) for v, taps in self.windowed.items() if v not in streamed]
        for group, taps in [*windowed, *((group, {}) for group in self.seen_together)]:
            tensor = facts.tensors[next(iter(group))]
            for whole in (True, False) if facts.trips(rows) == 1 else (False,):
                cover = cover_of(facts, group, taps, whole_rows=whole)
                bytes_ = 0 if cover is None else cover.rows(rows) * tensor.row_bytes * (tiles.ROW_BUFFERS if cover.depth else 1)
                if cover is not None and (not whole or bytes_ <= free // 2):
                    found |= dict.fromkeys(group, cover)
                    taken += bytes_
                    break
        return found, taken

    def some_sticks(self) -> TilePlan | None:
        """Blocks of two rows with some of their sticks at a time; as many as fit, or as make several blocks."""
        facts, part = self.facts, self.facts.stick_local
        if part is None:
            return None
        first, second = (self._need((), part, sticks).bytes(2, tiles.ROW_BUFFERS) for sticks in (1, 2))
        sticks = min((self.budget - first) // max(second - first, 1) + 1, -(-part.sticks // tiles.MOST_BLOCKS))
        if sticks <= 0:
            return None
        used = self._need((), part, sticks).bytes(2, tiles.ROW_BUFFERS)
        return TilePlan(2, used, facts.epilogues, facts.stored, part=part, part_sticks=sticks)

    # What a block takes

    def _need(self, streamed: Collection[ir.Value], part: StickLocal | None = None, part_sticks: int = 0) -> Need:
        """What a block takes where all second operands stream, and first operands as `streamed` says."""
        facts = self.facts
        fixed, rows = 0, 0
        ranges: list[tuple[int, int, int]] = []
        for t in facts.tensors.values():
            bytes_ = t.row_bytes // t.sticks * part_sticks if part is not None and t.value in part.values else t.row_bytes
            if t.is_resident or t.value in facts.sums:
                continue  # read where it lies, or never there as a whole
            if t.value in facts.second_operands:
                fixed += tiles.WEIGHT_BUFFERS * tiles.BLOCK_BYTES
            elif (t.value in self.windowed and t.value not in streamed) or any(t.value in group for group in self.seen_together):
                continue  # `_covers` counts it
            elif t.value in streamed:
                continue  # counted below
            elif t.is_loaded and t.has_rows:
                rows += bytes_
            elif t.is_loaded:
                fixed += bytes_ * (tiles.ROW_BUFFERS if facts.depth(t, 1) else 1)
            else:
                ranges.append((t.first, t.last, bytes_ // t.sticks if t.by_stick else bytes_))
                ranges.append((t.first, t.first, bytes_ * t.beside))
        ranges += self._streams(streamed)
        live = [(sum(b for s, e, b in ranges if s <= p <= e), -p) for p in range(len(facts.ops))]
        most, at = max(live)
        return Need(fixed, rows, most, facts.ops[-at])

    def _streams(self, streamed: Collection[ir.Value]) -> Iterator[tuple[int, int, int]]:
        """Of each loop over sticks of columns the numbers of its first and last contraction, and the bytes per row of what comes stick by
        stick for any of them: all of it is there at once, since the next stick of columns begins while this one ends."""
        number = {op: i for i, op in enumerate(self.facts.ops)}
        for walk in self.facts.walks:
            at = [number[m.op] for m in walk]
            tensors = [self.facts.tensors[m.g.inputs[0]] for m in walk if m.g.inputs[0] in streamed]
            yield min(at), max(at), sum(tiles.ROW_STICKS * t.row_bytes // t.sticks for t in tensors)

    def _blocks(self, need: Need) -> Iterator[tuple[int, int]]:
        """Rows of the blocks to try, with the bytes that they leave free. A block that is all there is needs one buffer for each stream."""
        whole = even(self.facts.share)
        alone = self.facts.matmuls and not self.facts.loops and whole <= 2 * self.target.pt_accumulator_rows
        if alone and (not self.wanted or even(self.wanted) >= whole) and need.bytes(whole, 1) <= self.budget:
            yield whole, self.budget - need.bytes(whole, 1)
        buffers = tiles.ROW_BUFFERS
        while buffers and need.bytes(2, buffers) > self.budget:
            buffers -= 1
        if not buffers:
            return
        per_row = need.bytes(1, buffers) - need.fixed
        most = min((self.budget - need.fixed) // max(per_row, 1) // 2 * 2, 2 * self.target.pt_accumulator_rows)
        if self.wanted:
            candidates = iter([min(most, even(self.wanted), even(self.facts.share))])
        else:
            candidates = self._rows(most if self.facts.matmuls or self.seen_together else min(most, self._overlapping()))
        for rows in candidates:
            yield rows, self.budget - need.bytes(rows, buffers)

    def _rows(self, most: int) -> Iterator[int]:
        """Blocks of at most `most` rows that share the rows equally, the largest first; smaller ones only where they may be better."""
        share = self.facts.share
        trips = -(-share // most)
        rows = even(-(-share // trips))
        yield rows
        while self.facts.matmuls and rows > (LANES if self.facts.loops else 2):
            trips = max(trips + 1, trips * 5 // 4, -(-share // (rows - 2)))
            rows = even(-(-share // trips))
            yield rows

    def _overlapping(self) -> int:
        """Rows of a block with which successive blocks overlap."""
        sticks = max((t.sticks for t in self.facts.tensors.values() if t.is_loaded), default=1)
        return tiles.overlapping_rows(self.facts.share, prod(self.facts.loops.values()), sticks)

    def _stay(self, rows: int, free: int) -> tuple[Resident, ...]:
        """The second operands that stay in LX, the one that saves most first.

        In batch loops they are loaded before they are used. Without one the first block of rows would wait for all of it; so it loads what
        it needs, block by block, and leaves that for the others.
        """
        facts = self.facts
        found: list[Resident] = []
        for m in facts.matmuls if facts.loops or facts.walked_alone else ():
            users = m.users * facts.trips(rows)
            if users > 1 and not m.second_is_resident:
                held = m.second_bytes * (tiles.ROW_BUFFERS if m.taken > 1 else 1)
                found.append(Resident(m, held, m.second_bytes * m.taken * (users - 1), filled=not facts.loops))
        kept: list[Resident] = []
        for resident in sorted(found, key=lambda r: -r.saved):
            if resident.takes <= free:
                free -= resident.takes
                kept.append(resident)
        return tuple(kept)

    # What it costs

    def _price(self, rows: int, streamed: Collection[ir.Value], residents: Sequence[Resident]) -> float:
        """What the matmuls of a kernel take in blocks of `rows` rows: cycles; in batch loops the bytes of second operands."""
        facts = self.facts
        trips = facts.trips(rows)
        if facts.loops:
            return sum(m.taken * m.users * trips * m.second_bytes for m in facts.matmuls) - sum(r.saved for r in residents)
        kept = {r.matmul for r in residents}
        cycles, loaded = 0.0, set[ir.Value]()
        for m, share in zip(facts.matmuls, self._shares, strict=True):
            first = m.g.inputs[0]
            own = share._replace(first=0.0) if first in loaded else share
            if first not in streamed:
                loaded.add(first)
            cycles += tiles.tile_cycles(own, rows, trips, first in streamed, m in kept, self.target)
        return cycles * (_STREAMED if streamed else 1.0)

    def _ended(self, plan: TilePlan) -> TilePlan:
        """The plan with how results leave: of a kernel that is one walk over sticks of columns and stores its results so."""
        facts = self.facts
        if len(facts.walks) != 1 or not facts.walked_alone or not facts.stores_sticks or plan.covers or plan.part:
            return plan
        share = tiles.one_walk(self._shares, streamed=bool(plan.streamed))
        how = facts.trips(plan.block_rows), bool(plan.streamed), len(plan.residents) == len(facts.matmuls)
        last = tiles.last_rows(share, plan.block_rows, *how, self.target) if facts.in_equal_rows else ()
        return replace(plan, stored_rows=tiles.stored_rows(share, *how), last=last)

    @cached_property
    def _shares(self) -> list[tiles.Share]:
        """Per contraction of a kernel without batch loops what the cost model has to know of a core's part."""
        columns, parts, rate = self.facts.column_parts, prod(self.facts.row_parts), self.target.dram_bytes_per_cycle
        found = []
        for m in self.facts.matmuls:
            first = max(m.first_bytes * parts / rate, delivery_cycles(m.first_bytes, columns, self.target))
            second = max(m.second_bytes * columns / rate, delivery_cycles(m.second_bytes, parts, self.target))
            result = m.result_bytes * parts * columns / rate
            found.append(tiles.Share(m.rows, m.n, m.k, first, second, result, widening=m.widening(self.target)))
        return found

    def too_large(self) -> Unsupported:
        """Why not even two rows fit."""
        need = self._need(self.forms[-1])
        op = need.at
        tensors = [v for v in (*op.results, *op.operands) if isinstance(v.type, ir.RankedTensorType)]
        shape = f" of {max(tensors, key=tensor_bytes).type}" if tensors else ""
        generics = [Generic(o) for o in self.facts.ops if is_a(o, linalg.GenericOp)]
        softmax = any(not g.is_pointwise and not g.is_contraction for g in generics) and len(self.facts.matmuls) > 1
        way_out = "fewer keys, or a softmax that can be computed block by block of them" if softmax else "shorter rows"
        return Unsupported(
            f"'{op.name}' op{shape} is in a kernel that needs {need.bytes(2, 1)} bytes of scratchpad for two rows ({need.fixed}, and "
            f"{need.streamed + need.live} per row), most at this op, but {self.budget} are available; "
            f"the nearest supported form has {way_out}",
            location_text(op.location),
        )
