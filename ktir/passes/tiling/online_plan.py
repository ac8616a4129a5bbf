"""What a softmax over blocks of keys takes: rows and keys of a block that fit the scratchpad, and whether it is worth it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from math import prod

from ktir.analysis.scalars.expressions import Node, Tree, nodes
from ktir.analysis.seen_keys import Seen, hull, open_keys, seen_keys
from ktir.analysis.softmax import WEIGHT, Softmax
from ktir.cost.attention import KEY_STICKS, RESCALE, streamed_blocks, subsets
from ktir.cost.bodies import scalar_cycles, stick_cycles
from ktir.cost.softmax import Matrix, SoftmaxPrice, SoftmaxWork, Sticks, Visible, softmax_price
from ktir.cost.tiles import BLOCK_BYTES, ROW_BUFFERS
from ktir.diagnostics import Unsupported, location_text
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic
from ktir.mlir import ir, is_a, linalg
from ktir.passes.tiling.plan.tile_facts import TileFacts
from ktir.passes.tiling.plan.tile_plan import Keys, TilePlan, even, in_whole_rows
from ktir.target import LANES, STICK_BYTES, Target, element_bytes

_WIDE = element_bytes("f32") * LANES
"""Bytes of an entry of f32."""
MOST_HULLS = 16
"""Ranges of keys for which a kernel has loops."""
FULL, FULL_COST = 0.875, 1.25
"""From which share of its room on a scratchpad is full, and how many times longer it takes then: measured on attention of 2048 keys."""
_FINER = (32, 64, 96, 128, 192, 256, 384)
"""Rows of a block that are tried under a mask."""


def plan_of(facts: TileFacts, wanted: int, online: str, target: Target, budget: int) -> TilePlan:
    """The plan of a kernel in blocks of `wanted` rows (0: as many as are best) that fit `budget` bytes.

    `online` says when a softmax runs over blocks of keys: `auto`, `always` or `never`.
    """
    softmax = None if online == "never" else facts.softmax
    if softmax is None:
        return in_whole_rows(facts, wanted, target, budget)
    try:
        plain = in_whole_rows(facts, wanted, target, budget) if online == "auto" else None
    except Unsupported:
        plain = None
    try:
        keyed = over_keys(facts, softmax, wanted, target, budget)
    except Unsupported:
        if plain is None:
            raise
        return plain
    assert keyed.keys is not None
    price, kept = keyed.keys.price, len(keyed.keys.kept)
    new = f"softmax over blocks of {keyed.keys.sticks * LANES} keys, {keyed.block_rows} rows at once"
    if kept:
        new += f", {kept} of its matrices kept in LX"
    if plain is None:
        why = "as the option says" if online == "always" else "no two whole rows of scores fit the scratchpad"
        return replace(keyed, reason=f"{new}: {price}; {why}")
    residents = {r.matmul for r in plain.residents}
    stay = frozenset(i for i, m in enumerate(facts.matmuls) if m in residents)
    whole = Visible.of_all(facts.trips(plain.block_rows), 1, softmax.sticks)
    old_price = softmax_price(_whole_work(facts, softmax, target), plain.block_rows, whole, stay, target)
    old = f"softmax of whole rows of scores, {plain.block_rows} rows at once"
    if price.cycles < old_price.cycles:  # else, as `takes_whole_rows` has it, nothing is scaled anew
        return replace(keyed, reason=f"{new}: {price}; the runner-up is a {old}: {old_price}")
    return replace(plain, reason=f"{old}: {old_price}; the runner-up is a {new}: {price}")


def over_keys(facts: TileFacts, softmax: Softmax, wanted: int, target: Target, budget: int) -> TilePlan:
    """The fastest blocks of rows and keys: pipelined where that is possible and fits. Raises Unsupported where none fit."""
    search = _Search(facts, softmax, wanted, target, budget, softmax.pipelined)
    best = search.best()
    if best is None and search.pipelined:
        search = replace(search, pipelined=False)
        best = search.best()
    if best is None:
        raise Unsupported(
            f"kernel needs more than the {budget} bytes of scratchpad that are available for two rows and {LANES} keys of a softmax; "
            "the nearest supported form has shorter rows of queries and values",
            location_text(facts.source.location),
        )
    rows, price, sticks, kept = best
    along = {*softmax.keyed, *(p.contraction.op.results[0] for p in softmax.products)}
    epilogues = {op: chain for op, chain in facts.epilogues.items() if op.results[0] not in along}
    whole = frozenset(facts.matmuls[i].op for i in kept)
    keys = Keys(softmax, sticks, whole, price, search.parts(rows, sticks), search.pipelined)
    return TilePlan(rows, search.bytes(rows, sticks, kept), epilogues, {}, keys=keys)


_Candidate = tuple[int, SoftmaxPrice, int, frozenset[int]]
"""Rows, price, sticks of keys, and numbers of the matrices that are kept."""


@dataclass(frozen=True)
class _Search:
    facts: TileFacts
    softmax: Softmax
    wanted: int
    target: Target
    budget: int
    pipelined: bool
    _seen: dict[int, list[Sticks]] = field(default_factory=dict)
    _open: dict[int, Seen] = field(default_factory=dict)

    def best(self) -> _Candidate | None:
        """The fastest candidate, of those that take as long the one that moves and computes least."""
        return min(self.candidates(), key=self._order, default=None)

    def _order(self, candidate: _Candidate) -> tuple[float, ...]:
        rows, price, sticks, kept = candidate
        return price.cycles * self.waits(rows, sticks, kept), price.bytes, price.terms["compute"], len(kept), -sticks

    def candidates(self) -> Iterator[_Candidate]:
        """Blocks that fit."""
        share, softmax = self.facts.share, self.softmax
        work = _online_work(self.facts, softmax, self.target)
        for sticks in KEY_STICKS:
            if sticks > max(softmax.columns // LANES, 1):
                break
            for kept in subsets(len(self.facts.matmuls)):
                free = self.budget - self._fixed(sticks, kept)
                most = min(free // self._per_row(sticks) // 2 * 2, 2 * self.target.pt_accumulator_rows)
                if most < 2:
                    continue
                for rows in self._rows(most, share):
                    parts = self.parts(rows, sticks)
                    if parts:
                        seen = Visible.of_hulls(parts, sticks, softmax.sticks)
                    else:
                        seen = Visible.of_all(self.facts.trips(rows), -(-softmax.sticks // sticks), softmax.sticks)
                    rest = softmax.columns % (sticks * LANES) > 0
                    turns = seen.turns(chained=bool(parts), rest=rest and not parts) if self.pipelined else 1.0
                    yield rows, softmax_price(work, rows, seen, kept, self.target, turns=turns, pieces=bool(parts)), sticks, kept

    def _rows(self, most: int, share: int) -> Iterator[int]:
        """Rows of a block: as many as there may be; under a mask, which fewer rows follow better, also fewer of them."""
        if self.wanted:
            yield min(most, even(self.wanted), even(share))
            return
        fewest = -(-share // most)
        finer = {-(-share // n) for n in _FINER if n < most} if self.masked else set()
        for blocks in sorted({fewest, *(n for n in finer if n > fewest)}):
            yield min(even(-(-share // blocks)), even(share))

    def seen(self, rows: int) -> list[Sticks]:
        """Per block of rows the keys that a mask leaves; none where all see all of them, or something is stored for each key."""
        s = self.softmax
        if rows not in self._seen:
            stored = any(is_a(op, ktdp.StoreOp) for op in s.inside)
            found = None if stored else seen_keys(self.facts.source, s.most, rows)
            self._seen[rows] = [] if found is None else hull(found)
        return self._seen[rows]

    def parts(self, rows: int, sticks: int) -> tuple[Sticks, ...]:
        """The same in whole parts of so many sticks, with those that all rows see."""
        found = in_parts(self.seen(rows), sticks, self.softmax.sticks)
        if not found:
            return found
        if rows not in self._open:
            self._open[rows] = open_keys(self.facts.source, self.softmax.most, rows)
        return with_open(found, self._open[rows])

    @cached_property
    def masked(self) -> bool:
        """Whether blocks of rows see other keys, so that what stays comes in pieces, which are loaded anew as they are free."""
        return any(self.seen(2 * LANES))

    def bytes(self, rows: int, sticks: int, kept: frozenset[int]) -> int:
        """What a block takes of the scratchpad."""
        return self._fixed(sticks, kept) + rows * self._per_row(sticks)

    def waits(self, rows: int, sticks: int, kept: frozenset[int]) -> float:
        """How many times longer pipelined work takes where little room is left, since loads wait for buffers at the same addresses. Under
        a mask what is loaded has places of its own."""
        full = self.pipelined and not self.masked and self.bytes(rows, sticks, kept) > FULL * self.budget
        return FULL_COST if full else 1.0

    @cached_property
    def _around(self) -> tuple[int, int]:
        """Bytes per row of what is not along the keys: beside the loop over them, and after it."""
        s, tensors = self.softmax, self.facts.tensors
        before = [tensors[op.results[0]] for op in s.before if is_a(op, ktdp.LoadOp, linalg.GenericOp)]
        streams = sum(t.row_bytes for t in before if t.is_loaded and t.has_rows)
        others = sum(t.row_bytes for t in before if not t.is_loaded)
        products = sum(tensors[p.contraction.op.results[0]].row_bytes for p in s.products)
        columns = tensors[s.most.op.results[0]].row_bytes * 3 + _WIDE * (1 + 2 * len(s.sums))
        after = sum(tensors[op.results[0]].row_bytes for op in s.after if is_a(op, linalg.GenericOp)) + products
        return ROW_BUFFERS * streams + others + products + columns, after

    def _per_row(self, sticks: int) -> int:
        """Bytes of the scratchpad per row of a block."""
        beside, after = self._around
        return beside + max(after, self._per_stick * sticks)

    @cached_property
    def _per_stick(self) -> int:
        """Bytes per row and stick of keys."""
        s = self.softmax
        operands = sum(STICK_BYTES for p in s.products if p.operand != WEIGHT)
        return max(self._of_stick(s.inside) + 2 * _WIDE + operands, self._of_stick(s.again))

    def _of_stick(self, ops: Iterable[ir.Operation]) -> int:
        """Of loads and results; scores are counted beside them, and computed on accumulators."""
        found = 0
        for op in (op for op in ops if is_a(op, ktdp.LoadOp, linalg.GenericOp)):
            t = self.facts.tensors[op.results[0]]
            if op not in self.facts.matmul_of and (not t.is_loaded or t.has_rows):
                found += (ROW_BUFFERS if t.is_loaded else 1) * t.row_bytes // self.softmax.sticks
        return found

    def _fixed(self, sticks: int, kept: Collection[int]) -> int:
        """Bytes of a block that do not depend on its rows."""
        facts = self.facts
        vectors = [t for t in facts.tensors.values() if t.is_loaded and not t.has_rows and t.value not in facts.second_operands]
        along = sum(t.row_bytes for t in vectors if t.value in self.softmax.keyed)
        keyed = along if self.masked else ROW_BUFFERS * (along // self.softmax.sticks) * sticks
        others = sum(t.row_bytes for t in vectors if t.value not in self.softmax.keyed)
        buffers = 1 if self.masked else ROW_BUFFERS
        whole = sum(m.second_bytes * (buffers if m.taken > 1 else 1) for i, m in enumerate(facts.matmuls) if i in kept)
        along = {p.contraction.op for p in self.softmax.products}
        streamed = [m for i, m in enumerate(facts.matmuls) if i not in kept]
        blocks = sum(streamed_blocks(m.n if m.op in along else 0, sticks, pipelined=self.pipelined) for m in streamed)
        return keyed + ROW_BUFFERS * others + whole + blocks * BLOCK_BYTES


def in_parts(hulls: Sequence[Sticks], sticks: int, whole: int) -> tuple[Sticks, ...]:
    """Hulls in whole parts of `sticks` of the `whole` sticks, and at most `MOST_HULLS` different ones, for each has loops of its own."""
    together = -(-len(hulls) // MOST_HULLS)
    found: list[Sticks] = []
    for first in range(0, len(hulls), max(together, 1)):
        some = hulls[first : first + together]
        hull_ = Sticks.around(some)
        start = hull_.first // sticks * sticks
        found += [Sticks(start, min(-(-hull_.end // sticks) * sticks, whole) - start) if hull_.count else hull_] * len(some)
    return tuple(found) if any(h != Sticks(0, whole) for h in found) else ()


def with_open(seen: Sequence[Sticks], all_: Seen) -> tuple[Sticks, ...]:
    """What blocks of rows see, with the longest run of sticks of which `all_` rows of each block that sees the same see all keys."""
    found: list[Sticks] = []
    for sticks, blocks in groupby(range(len(seen)), lambda i: seen[i]):
        numbers = list(blocks)
        whole = {i for i in range(sticks.first, sticks.end) if all_[numbers, i].all()}
        runs = [list(run) for is_open, run in groupby(range(sticks.first, sticks.end), whole.__contains__) if is_open]
        longest = max(runs, key=len, default=[0])
        found += [replace(sticks, open=(longest[0], longest[-1] + 1 if runs else 0))] * len(numbers)
    return tuple(found)


def _online_work(facts: TileFacts, softmax: Softmax, target: Target) -> SoftmaxWork:
    """What a core does for a softmax over blocks of keys."""
    trees = [softmax.exponential.above[0], *(t for _, t in softmax.sums), *(p.operand for p in softmax.products)]
    per_stick = 1 + len(softmax.sums) + sum(max(_cycles(t, softmax.exponential.score, target), 1) for t in trees)
    per_stick += sum(stick_cycles(Generic(op), target) for op in softmax.again if is_a(op, linalg.GenericOp))
    reductions = target.sfp_lane_reduction_cycles * (1 + len(softmax.sums))
    rescaled = sum(2 * facts.tensors[p.contraction.op.results[0]].sticks for p in softmax.products)
    return _work(facts, softmax, per_stick, reductions + rescaled + RESCALE)


def _whole_work(facts: TileFacts, softmax: Softmax, target: Target) -> SoftmaxWork:
    """The same by whole rows of scores."""
    fused = {chain[0] for chain in facts.epilogues.values() if chain}
    generics = [Generic(op) for op in facts.ops if is_a(op, linalg.GenericOp) and op not in fused]
    keyed = [g for g in generics if not g.is_contraction and any(v in softmax.keyed for v in (*g.inputs, g.op.results[0]))]
    return _work(facts, softmax, sum(stick_cycles(g, target) for g in keyed), 0)


def _work(facts: TileFacts, softmax: Softmax, per_key_stick: int, per_part: int) -> SoftmaxWork:
    along = {p.contraction.op for p in softmax.products}
    matrices = []
    for m in facts.matmuls:
        members = facts.members(m.axes)
        matrices.append(Matrix(m.second_bytes // BLOCK_BYTES, m.second_bytes, m.taken, members, m.n, m.op in along))
    loads = [t for t in facts.tensors.values() if t.is_loaded and t.value not in facts.second_operands]
    stores = [facts.tensors[op.operands[0]] for op in facts.ops if is_a(op, ktdp.StoreOp)]
    moved = sum(t.row_bytes / facts.members(t.axes) for t in (*loads, *stores) if t.has_rows)
    positions = prod(facts.loops.values())
    return SoftmaxWork(prod(facts.row_parts), facts.share, positions, moved, tuple(matrices), per_key_stick, per_part, softmax.sticks)


def _cycles(tree: Tree, stop: Tree, target: Target) -> int:
    """Cycles of the vector unit for a stick of a tree, without what is behind `stop`."""
    return sum(scalar_cycles(t.op, target) for t in set(nodes(tree)) - set(nodes(stop)) if isinstance(t, Node))
