"""How the blocks of a stream take turns in a number of slots of the scratchpad."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple


class Rotation(NamedTuple):
    """How a stream takes turns inside nested loops: the counters of `loops` choose one of `turns` groups of `group` slots, and in a group
    the loops `inside` (number, slots per trip) find one slot after the other."""

    turns: int = 1
    loops: tuple[int, ...] = ()
    group: int = 1
    inside: tuple[tuple[int, int], ...] = ()

    @property
    def slots(self) -> int:
        """All of them."""
        return self.turns * self.group


STILL = Rotation()
"""One slot."""


def rotation(trips: Sequence[int], most: int) -> Rotation:
    """The rotation of a stream inside loops of `trips` trips (outermost first) over at most `most` slots, as many as there can be.

    Block t, counted over all loops, lies in slot t mod slots. The address generator adds up counters of which a trip moves on by one slot
    of the same size, so innermost loops whose blocks fit side by side are a group, and the groups take turns.
    """
    best, group, inside = _turns(trips, max(2, most)), 1, ()
    for number in reversed(range(len(trips))):
        inside = (*inside, (number, group)) if trips[number] > 1 else inside
        group *= trips[number]
        if 2 * group > most:
            break
        outer = _turns(trips[:number], most // group)
        if outer.turns > 1 and outer.turns * group > best.slots:
            best = Rotation(outer.turns, outer.loops, group, inside)
    return best


def _turns(trips: Sequence[int], most: int) -> Rotation:
    """A rotation of single slots: counters are added up, so a trip of each loop must move on by no slot or by one; with two slots that is
    always so."""
    for turns in range(min(most, prod(trips)), 1, -1):
        loops, inner = [], 1
        for number in reversed(range(len(trips))):
            if trips[number] > 1 and inner % turns:
                if inner % turns != 1:
                    break
                loops.insert(0, number)
            inner *= trips[number]
        else:
            return Rotation(turns, tuple(loops))
    return STILL
