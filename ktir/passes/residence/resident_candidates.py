"""Which tensors between kernels may stay in the scratchpad, since kernels agree on slices or exchange them: what each takes and saves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ktir.dialects._foundation import affine
from ktir.mlir import func, ir
from ktir.passes.residence.exchange_price import SURE, Traffic, exchange_cycles
from ktir.passes.residence.pool_accesses import Footprint, PoolAccess
from ktir.passes.residence.resident_choice import Candidate, Stay
from ktir.passes.residence.rounds import Round, rounds
from ktir.passes.residence.shares import Disagreement, Share, check_owners, entries_moved, share_of, side_by_side
from ktir.target import LANES, STICK_BYTES

ENTRY_BYTES = 2 * STICK_BYTES
"""Places are multiples of an entry of f32."""

Access = tuple[int, Footprint]
"""By which kernel."""


def moment(kernel: int) -> int:
    """The moment at which a kernel runs; the one before is that of exchanges in front of it."""
    return 2 * kernel + 1


@dataclass(frozen=True)
class Copy:
    """What kernels `readers` read instead of the cores' shares: `entries` entries from entry `first` on, there from kernel `at` on."""

    readers: frozenset[int]
    at: int
    first: int
    entries: int
    cores: int
    """Of the exchange."""
    rounds: tuple[Round, ...]


class Candidates:
    """What may stay, of the arguments that `accesses` touch in the kernels of a program. Without `exchange` nothing goes over the ring."""

    def __init__(
        self, kernels: Sequence[func.FuncOp], accesses: Mapping[int, Sequence[PoolAccess]], traffic: Traffic, *, exchange: bool
    ) -> None:
        self.kernels, self.accesses, self.traffic, self.exchange = kernels, accesses, traffic, exchange
        self.shares: dict[int, Share] = {}
        self.copies: dict[int, Copy] = {}
        self.reasons: dict[int, str] = {}
        """Argument -> why it does not stay."""
        for argument in accesses:
            try:
                self._share(argument)
            except Disagreement as why:
                self.reasons[argument] = str(why)
        for argument in self._slower_over_the_ring():
            del self.shares[argument], self.copies[argument]
        self.found = [self._priced(argument) for argument in self.shares]

    def _split(self, argument: int, belongs: Callable[[PoolAccess], bool]) -> list[Access]:
        return [(a.kernel, a.footprint) for a in self.accesses[argument] if a.footprint is not None and belongs(a)]

    def _share(self, argument: int) -> None:
        """Note how an argument may stay. Raises Disagreement."""
        accesses = self.accesses[argument]
        for access in accesses:
            if access.footprint is None:
                raise Disagreement(access.reason)
            kernel = self.kernels[access.kernel]
            if self.kernels.count(kernel) > 1:
                raise Disagreement(f"kernel '{kernel.name.value}' is called several times")
        writes, reads = self._split(argument, lambda a: a.writes), self._split(argument, lambda a: not a.writes)
        if not reads:
            raise Disagreement("nothing reads it")
        if not writes:
            raise Disagreement("nothing writes it")
        try:
            self.shares[argument] = share_of(writes, reads)
        except Disagreement as why:
            if not self.exchange:
                raise
            self._copy(argument, writes, reads, str(why))

    def _copy(self, argument: int, writes: Sequence[Access], reads: Sequence[Access], why: str) -> None:
        """Note what must go from core to core. Raises Disagreement where that is not possible; `why` it is necessary."""
        check_owners(writes, [])
        near: list[Access] = []
        far: list[Access] = []
        for kernel in sorted({k for k, _ in reads}):
            own = [r for r in reads if r[0] == kernel]
            try:
                share_of(writes, near + own)
                near += own
            except Disagreement:
                far += own
        at = min(k for k, _ in far)
        if max(k for k, _ in writes) >= at:
            raise Disagreement(f"{why}; nor can it go from core to core, since not all of it is written before it is read")
        if any(_is_cut(access.view) for access in self.accesses[argument] if access.writes):
            raise Disagreement(f"{why}; nor can it go from core to core, since lanes of its last stick are never written")
        written, wanted = (np.unique(np.concatenate([f.touched() for _, f in some])) for some in (writes, far))
        if not np.isin(wanted, written).all():
            raise Disagreement("a part of it is read that nothing has written")
        share = share_of(writes, near) if near else side_by_side(writes)
        cores = max(a.cores for a in self.accesses[argument])
        found = rounds([f for _, f in writes], share.walks[: len(writes)], [f for _, f in far], cores, self.traffic.target.cores)
        first = min(min(r.places) for r in found)
        last = max(max(r.places) + sum((n - 1) * s for n, s in zip(r.extents, r.place_strides, strict=True)) for r in found)
        self.shares[argument] = share
        self.copies[argument] = Copy(frozenset(k for k, _ in far), at, first, last + 1 - first, cores, found)

    def _slower_over_the_ring(self) -> set[int]:
        """Arguments whose exchange would take longer than it saves, with a reason noted; those of one exchange are judged together."""
        elsewhere = set(self.shares).difference(self.copies)
        slower: set[int] = set()
        for at in sorted({copy.at for copy in self.copies.values()}):
            group = [a for a, copy in self.copies.items() if copy.at == at]
            while group:
                prices = {a: self._ring_price(a) for a in group}
                price = max(way for _, way in prices.values()) + sum(cycles for cycles, _ in prices.values())
                saved = self.traffic.saved(group, elsewhere)
                if saved > SURE * price:
                    elsewhere |= set(group)
                    break
                worst = min(group, key=lambda a: self.traffic.saved([a], elsewhere) - prices[a][0])
                self.reasons[worst] = f"slices disagree, and the ring would take {price} cycles where memory costs {saved:.0f}"
                slower.add(worst)
                group.remove(worst)
        return slower

    def _ring_price(self, argument: int) -> tuple[int, int]:
        """Cycles for the entries of an argument, and for the way of the last one."""
        return exchange_cycles(self.copies[argument].rounds, self.accesses[argument][0].element_bytes // 2, self.traffic.target)

    def _priced(self, argument: int) -> Candidate:
        """What an argument takes in the scratchpad, and the bytes of traffic that it saves."""
        share, copy = self.shares[argument], self.copies.get(argument)
        writes = self._split(argument, lambda a: a.writes)
        near = self._split(argument, lambda a: not a.writes and not (copy and a.kernel in copy.readers))
        width = self.accesses[argument][0].element_bytes * LANES
        last = max([moment(k) for k, _ in near], default=0)
        stays = [Stay(_whole(share.entries * width), moment(min(k for k, _ in writes)), last)]
        saved = entries_moved(writes, near)
        if copy:
            exchange = moment(copy.at) - 1
            stays[0] = Stay(stays[0].bytes, stays[0].first, max(last, exchange))
            stays.append(Stay(_whole(copy.entries * width), exchange, moment(max(copy.readers))))
            saved += sum(f.entry_count() for _, f in self._split(argument, lambda a: not a.writes and a.kernel in copy.readers))
        return Candidate(argument, tuple(stays), saved * width)


def _is_cut(view: ir.Operation) -> bool:
    """Whether some lanes of a view are masked: what lies in their place is unknown."""
    bounds, others = affine.lane_bounds(view.attributes["coordinate_set"])
    return view.opview.masked and bool(bounds or others)


def _whole(size: int) -> int:
    return -(-size // ENTRY_BYTES) * ENTRY_BYTES
