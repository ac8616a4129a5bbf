"""Tokens between units: who must wait for whom, derived from what the units touch in LX.

A kernel is a tree of loops and actions in program order. Two parts of different units that touch the same sticks, one of them writing,
are a dependence. It is lifted to the innermost loop that contains both: the sender posts after its child of that loop's body, the
receiver waits before its own. A dependence on an earlier trip has initial credits, one per slot of a rotating buffer, posted by the
sender's prologue. Every wait is for something earlier in program order, so the program cannot deadlock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ktir.isa.program import Channel, Word, word
from ktir.isa.units import Unit


@dataclass(frozen=True)
class Access:
    """Sticks [start, end) of LX that a unit reads or writes, in a buffer of `slots` rotating slots."""

    unit: Unit
    writes: bool
    start: int
    end: int
    slots: int = 1


@dataclass
class Action:
    """One KTIR op: words per unit and what they touch."""

    words: dict[Unit, list[Word]]
    accesses: list[Access] = field(default_factory=list)


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


@dataclass(frozen=True)
class _Dependence:
    sender: Unit
    receiver: Unit
    source: int
    target: int
    distance: int

    def implies(self, other: _Dependence) -> bool:
        """Whether waiting for this one makes `other` (same units, same body) redundant."""
        if self.distance == other.distance or (self.distance and other.distance and self.distance < other.distance):
            return self.source >= other.source and self.target <= other.target
        return False


def _overlap(a: Access, b: Access) -> bool:
    return a.unit != b.unit and (a.writes or b.writes) and a.start < b.end and b.start < a.end


def _ordered_by_fifo(sender: Unit, receiver: Unit) -> bool:
    """LXSU stores what came through the FIFOs that LXLU fills, op after op: its stores follow all earlier reads of LXLU anyway."""
    return sender == Unit.LXLU and receiver == Unit.LXSU


class Synchroniser:
    """Inserts WAIT and SIG words into a tree and collects credits and leftovers."""

    def __init__(self, root: Loop) -> None:
        self.root = root
        self.credits: dict[Unit, list[Word]] = {}
        self.channels: list[Channel] = []
        self._tokens: dict[tuple[Unit, Unit], int] = {}
        self._body(root, True)

    def _accesses(self, node: Action | Loop) -> list[Access]:
        if isinstance(node, Action):
            return node.accesses
        return [a for child in node.children for a in self._accesses(child)]

    def _body(self, loop: Loop, outermost: bool) -> None:
        for child in loop.children:
            if isinstance(child, Loop):
                self._body(child, False)
        touched = [self._accesses(child) for child in loop.children]
        found: set[_Dependence] = set()
        for i, first in enumerate(touched):
            for j, second in enumerate(touched):
                carried = j <= i
                if carried and outermost:
                    continue
                if i == j and isinstance(loop.children[i], Loop):
                    continue  # the inner loop's own tokens order its trips, across its re-entry too
                for a in first:
                    for b in second:
                        if _overlap(a, b) and not _ordered_by_fifo(a.unit, b.unit):
                            same_buffer = (a.start, a.end, a.slots) == (b.start, b.end, b.slots)
                            distance = (a.slots if same_buffer else 1) if carried else 0
                            found.add(_Dependence(a.unit, b.unit, i, j, distance))
        for d in sorted(found, key=lambda d: (d.sender, d.receiver, d.distance, d.source, d.target)):
            if not any(e != d and (e.sender, e.receiver) == (d.sender, d.receiver) and e.implies(d) for e in found):
                self._insert(loop, d)

    def _insert(self, loop: Loop, d: _Dependence) -> None:
        token = self._tokens.get((d.sender, d.receiver), 0)
        self._tokens[d.sender, d.receiver] = token + 1
        posts = loop.after.setdefault(d.source, {}).setdefault(d.sender, [])
        waits = loop.before.setdefault(d.target, {}).setdefault(d.receiver, [])
        posts.append(word("sig", token=token, receiver=d.receiver.name, count=1))
        waits.append(word("wait", token=token, sender=d.sender.name, count=1))
        if d.distance:
            self.credits.setdefault(d.sender, []).append(word("sig", token=token, receiver=d.receiver.name, count=d.distance))
            self.channels.append(Channel(d.sender, d.receiver, token, d.distance))

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
