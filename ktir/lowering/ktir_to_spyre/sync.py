"""Tokens between units: who must wait for whom, derived from what the units touch in LX.

A kernel is a tree of loops and actions in program order. Two parts of different units that touch the same sticks, one of them writing,
are a dependence. It is lifted to the innermost loop that contains both: the sender posts after its child of that loop's body, the
receiver waits before its own. A dependence on an earlier trip has initial credits, one per slot of a rotating buffer, posted by the
sender's prologue. Every wait is for something earlier in program order, so the program cannot deadlock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

import numpy as np

from ktir.isa.instructions import Does
from ktir.isa.program import Channel, Word, word
from ktir.isa.units import Unit


@dataclass(frozen=True)
class Parts:
    """How a nest of loops, `levels` as a bit mask, walks a buffer once: each of its `trips` trips touches another part, `steps` apart."""

    trips: int
    levels: int
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Advance:
    """Sticks [start, end) that an access without slots touches in the first trip of all loops; `steps`: per loop level with several trips
    the sticks that a trip moves on by, and the trips."""

    start: int
    end: int
    steps: tuple[tuple[int, int, int], ...]

    def stays_before(self, later: Advance, trips: list[int]) -> bool:
        """Whether it touches nothing that `later` touches in a later trip of the innermost one of nested loops of `trips` trips."""
        level = len(trips) - 1
        if prod(trips[:-1]) > 1:
            return False
        mine, other = ({at: (step, count) for at, step, count in x.steps} for x in (self, later))
        step = mine.get(level, (0, 0))[0]
        if step != other.get(level, (0, 0))[0] or step <= 0 or any(step < 0 for step, _ in other.values()):
            return False
        end = self.end + sum(s * (n - 1) for at, (s, n) in mine.items() if at > level and s > 0)
        return later.start + step >= end


@dataclass(frozen=True)
class Access:
    """Sticks [start, end) of LX that a unit reads or writes, in a buffer of `slots` slots that rotate with the counters of `levels`."""

    unit: Unit
    writes: bool
    start: int
    end: int
    slots: int = 1
    levels: int = 0
    """Bit mask."""
    element_bytes: int = 2
    halved: bool = True
    """Each corelet touches its own half of the rows."""
    parts: Parts | None = None
    """How inner loops walk through a slot, or through a buffer without slots."""
    reach: tuple[int, int] | None = None
    """What of the buffer is touched in all trips of all loops, where that is less than all of it."""
    advance: Advance | None = None
    """How it moves on with the loops, of one without slots that is at the same place on all cores."""
    rows: tuple[int, ...] | None = None
    """Which rows of the buffer are halved: how many, the first one, and the loop levels and steps with which it moves on; None where cores
    differ."""

    @property
    def extent(self) -> tuple[int, int]:
        """Sticks [start, end) beyond which it never touches any."""
        return self.reach or (self.start, self.end)

    def meets(self, other: Access) -> bool:
        """Whether both may ever touch one stick."""
        (a, b), (c, d) = self.extent, other.extent
        return a < d and c < b

    def same_place(self, other: Access) -> bool:
        """Whether both see one buffer with its rows at the same addresses."""
        mine = (self.start, self.end, self.slots, self.levels, self.element_bytes)
        return mine == (other.start, other.end, other.slots, other.levels, other.element_bytes)

    def returns_after(self, other: Access, trips: list[int]) -> int:
        """After how many trips of the innermost of nested loops of `trips` trips this access may touch what `other`, which sees the same
        buffer, touches now."""
        parts, walked = 1, 0
        if self.parts is not None and self.parts == other.parts and self.parts.levels >> len(trips) == 0:
            parts, walked = self.parts.trips, self.parts.levels
        if self._turns(self.levels, walked, trips):
            return self.slots * parts
        return parts if self._turns(walked, 0, trips) else 1

    @staticmethod
    def _turns(levels: int, walked: int, trips: list[int]) -> bool:
        """Whether nothing but the loops `walked` runs several times in a trip of the innermost one of `levels`."""
        innermost = levels.bit_length() - 1
        inner = range(innermost + 1, len(trips))
        return 0 <= innermost < len(trips) and all(trips[level] == 1 or walked >> level & 1 for level in inner)


@dataclass
class Action:
    """One KTIR op: words per unit and what they touch."""

    words: dict[Unit, list[Word]]
    accesses: list[Access] = field(default_factory=list)

    def with_vector(self, other: Action) -> Action | None:
        """A block that is multiplied and the vector op behind it as one action, if neither waits for the other: LXLU feeds the array and
        the vector unit at the same time. None if they cannot be one."""
        feeds, works = self.words.keys(), other.words.keys()
        if feeds != {Unit.LXLU, Unit.PT} or Unit.PT in works or not works >= {Unit.LXLU, Unit.SFP}:
            return None
        if any((a.writes or b.writes) and a.meets(b) for a in self.accesses for b in other.accesses):
            return None
        pushes = [w for w in (*self.words[Unit.LXLU], *other.words[Unit.LXLU]) if w.does is not Does.TOGETHER]
        together = word("par", pushes[0].source, streams=len(pushes))
        return Action({**self.words, **other.words, Unit.LXLU: [together, *pushes]}, [*self.accesses, *other.accesses])


@dataclass
class Loop:
    """A counted loop in every unit that has words (or tokens) inside."""

    trips: int
    level: int
    region: int
    children: list[Action | Loop] = field(default_factory=list)
    before: dict[int, dict[Unit, list[Word]]] = field(default_factory=dict)
    """Child -> unit -> waits in front of it."""
    after: dict[int, dict[Unit, list[Word]]] = field(default_factory=dict)

    def add(self, action: Action) -> None:
        """An action behind the others, together with the last one where that can be."""
        last = self.children[-1] if self.children else None
        both = last.with_vector(action) if isinstance(last, Action) else None
        if both is None:
            self.children.append(action)
        else:
            self.children[-1] = both


@dataclass(frozen=True)
class _Dependence:
    """`receiver` at child `target` waits for `sender` at child `source`, `distance` trips ago; `relayed` = in both corelets."""

    sender: Unit
    receiver: Unit
    source: int
    target: int
    distance: int
    relayed: bool

    def implies(self, other: _Dependence) -> bool:
        """Whether waiting for this one makes `other` (same units, same body) redundant."""
        closer = self.distance == other.distance or 0 < self.distance < other.distance
        stronger = self.relayed or not other.relayed
        return closer and stronger and self.source >= other.source and self.target <= other.target


def _meeting(touched: list[list[Access]]) -> Iterator[tuple[int, Access, int, Access]]:
    """Of what a loop's children touch all pairs that may touch one stick, one of them writing: (child, access, child, access)."""
    every = [(child, access) for child, accesses in enumerate(touched) for access in accesses]
    starts, ends = np.array([access.extent for _, access in every], np.int64).reshape(-1, 2).T
    writes = np.array([access.writes for _, access in every], bool)
    for source, a in every:
        start, end = a.extent
        for other in np.flatnonzero((starts < end) & (start < ends) & (writes | a.writes)):
            yield source, a, *every[other]


def _dependence(a: Access, b: Access, source: int, target: int, trips: list[int]) -> _Dependence | None:
    """The order that two accesses of a loop's children `source` and `target` need, if any, of which one writes what the other touches;
    `trips` of the loop and those around it."""
    if a.unit == b.unit and not a.unit.per_corelet:
        return None
    same = a.same_place(b)
    apart = same and a.halved and b.halved and a.rows == b.rows  # each corelet meets its own rows only
    if apart and (a.unit == b.unit or (a.unit == Unit.LXLU and b.unit == Unit.LXSU)):
        # LXSU stores what came through the FIFOs that LXLU fills, op after op: its stores follow all earlier reads of its corelet
        return None
    if target <= source and a.advance is not None and b.advance is not None and a.advance.stays_before(b.advance, trips):
        return None  # as of rows that each trip adds to those which it reads
    distance = 0 if target > source else a.returns_after(b, trips) if same else 1
    return _Dependence(a.unit, b.unit, source, target, distance, relayed=a.unit.per_corelet and b.unit.per_corelet and not apart)


def _needed(found: set[_Dependence]) -> Iterator[_Dependence]:
    """Those that no other one makes redundant, in time that grows with their number: whatever could make one redundant comes before it, and
    of those that are alike but for their places the one with the earliest target does so for all."""
    earliest: dict[tuple[Unit, Unit], dict[tuple[int, bool], _Dependence]] = defaultdict(dict)
    for d in sorted(found, key=lambda d: (-d.source, d.target, d.distance, not d.relayed)):
        before = earliest[d.sender, d.receiver]
        if not any(e.implies(d) for e in before.values()):
            yield d
        alike = d.distance, d.relayed
        if alike not in before or d.target < before[alike].target:
            before[alike] = d


class Synchroniser:
    """Inserts WAIT and SIG words into a tree and collects credits and leftovers."""

    def __init__(self, root: Loop) -> None:
        self.root = root
        self.credits: dict[Unit, list[Word]] = {}
        self.channels: list[Channel] = []
        self._tokens: dict[tuple[Unit, Unit], int] = {}
        self._body(root, [])

    def _accesses(self, node: Action | Loop) -> list[Access]:
        every = node.accesses if isinstance(node, Action) else [a for child in node.children for a in self._accesses(child)]
        return list(dict.fromkeys(every))

    def _body(self, loop: Loop, trips: list[int]) -> None:
        """`trips`: of this loop and those around it, the innermost last."""
        for child in loop.children:
            if isinstance(child, Loop):
                self._body(child, [*trips, child.trips])
        touched = [self._accesses(child) for child in loop.children]
        found: set[_Dependence] = set()
        for i, a, j, b in _meeting(touched):
            if i == j and isinstance(loop.children[i], Loop):
                continue  # the inner loop's own tokens order its trips, across its re-entry too
            d = _dependence(a, b, i, j, trips)
            if d is not None and d.distance < prod(trips):
                found.add(d)
        for d in sorted(_needed(found), key=lambda d: (d.sender, d.receiver, d.distance, d.source, d.target)):
            self._insert(loop, d)

    def _insert(self, loop: Loop, d: _Dependence) -> None:
        """Post after the source, wait before the target.

        A token between corelet units stays in its corelet. Where a corelet reuses what the other one held, MNIL, which takes from both and
        posts to both, passes the token on.
        """
        first = self._channel(d.sender, Unit.MNIL if d.relayed else d.receiver, d.distance)
        self._words(loop.after, d.source, d.sender).append(first[0])
        if not d.relayed:
            self._words(loop.before, d.target, d.receiver).append(first[1])
            return
        second = self._channel(Unit.MNIL, d.receiver, 0)
        self._words(loop.before, d.target, Unit.MNIL).extend([first[1], second[0]])
        self._words(loop.before, d.target, d.receiver).append(second[1])

    @staticmethod
    def _words(table: dict[int, dict[Unit, list[Word]]], child: int, unit: Unit) -> list[Word]:
        return table.setdefault(child, {}).setdefault(unit, [])

    def _channel(self, sender: Unit, receiver: Unit, credits: int) -> tuple[Word, Word]:
        """A new channel with initial credits: its SIG and its WAIT."""
        token = self._tokens.get((sender, receiver), 0)
        self._tokens[sender, receiver] = token + 1
        if credits:
            self.credits.setdefault(sender, []).append(word("sig", token=token, receiver=receiver.name, count=credits))
            self.channels.append(Channel(sender, receiver, token, credits))
        return (
            word("sig", token=token, receiver=receiver.name, count=1),
            word("wait", token=token, sender=sender.name, count=1),
        )

    # Emission

    def program(self, unit: Unit) -> list[Word]:
        """The unit's words of the whole kernel, ending in HALT."""
        return [*self.credits.get(unit, []), *self._emit(self.root, unit), word("halt")]

    def _emit(self, loop: Loop, unit: Unit) -> list[Word]:
        words: list[Word] = []
        for i, child in enumerate(loop.children):
            words += loop.before.get(i, {}).get(unit, [])
            if isinstance(child, Action):
                words += child.words.get(unit, [])
            else:
                inner = self._emit(child, unit)
                if inner:
                    words.append(word("loop", trips=child.trips, level=child.level, region=child.region))
                    words += inner
                    words.append(word("endl", level=child.level))
            words += loop.after.get(i, {}).get(unit, [])
        return words
