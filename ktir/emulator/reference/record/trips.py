"""Trips of a loop as one more axis: what several trips do alike is done by one call.

Recording unrolls loops, so a loop over single rows leaves a step per row, and a replay would pay a call for each. Where trips that
carry nothing from one to the next have left the same steps, on memory at equal distances from trip to trip, `merge_trips` puts as many
of them together as fill the cache: every tensor gets an axis of trips before that of the tiles. The order of arithmetic inside a trip
is as before; that trips do not see each other's stores is proved on addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ktir.emulator.reference.tape.tape import Place, Step
from ktir.emulator.reference.tape.values import Storage, Strided, Tensor

__all__ = ["merge_trips"]

_MOST = 1 << 17
"""Elements of a tensor with its axis of trips: 512 KiB, so that a few of them stay in the second-level cache and that above."""


def merge_trips(steps: list[Step]) -> list[Step]:
    """`steps` with trips put together where that is sound and pays."""
    if not any(step.trips for step in steps):
        return steps
    return _Merger(steps).run(0, len(steps), 0)


@dataclass
class _Group:
    """Trips that have been found alike: the steps of the first one, its places, and how each place moves from trip to trip."""

    steps: Sequence[Step]
    places: list[Place]
    count: int = 1
    moves: list[int | None] = field(default_factory=list)
    """Per place: distance in elements from trip to trip; None: in memory of the trip's own."""


class _Merger:
    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.places = [step.places() for step in steps]
        self.uses: dict[Storage, tuple[int, int]] = {}
        """First and last step that touches a temporary."""
        for i, places in enumerate(self.places):
            for place in places or (*steps[i].reads, *steps[i].writes):
                storage = (place.tensor if isinstance(place, Place) else place).storage
                if storage.is_temporary:
                    self.uses[storage] = (self.uses[storage][0] if storage in self.uses else i, i)

    def run(self, first: int, end: int, depth: int) -> list[Step]:
        """The steps from `first` to `end`, which agree in the loops outside of `depth`."""
        result: list[Step] = []
        i = first
        while i < end:
            loops = self.steps[i].trips
            if len(loops) <= depth:
                result.append(self.steps[i])
                i += 1
                continue
            trips: list[tuple[int, int]] = []
            loop = loops[depth][0]
            while i < end and len(self.steps[i].trips) > depth and self.steps[i].trips[depth][0] == loop:
                start, trip = i, self.steps[i].trips[depth]
                while i < end and len(self.steps[i].trips) > depth and self.steps[i].trips[depth] == trip:
                    i += 1
                trips.append((start, i))
            result += self._loop(trips, depth)
        return result

    def _loop(self, trips: list[tuple[int, int]], depth: int) -> list[Step]:
        result: list[Step] = []
        at = 0
        while at < len(trips):
            group = self._group(trips[at:])
            if group is None:
                result += self.run(*trips[at], depth + 1)
                at += 1
            else:
                result += _stacked(group)
                at += group.count
        return result

    def _group(self, trips: list[tuple[int, int]]) -> _Group | None:
        """As many of the trips, from the first on, as are alike and independent; None if that is one."""
        first, end = trips[0]
        places: list[Place] = []
        largest = 1
        for own in self.places[first:end]:
            if own is None:
                return None
            places += own
            largest = max(largest, *(place.tensor.at.present_size for place in own))
        most = min(_MOST // largest, len(trips))
        if most < 2:
            return None
        group = _Group(self.steps[first:end], places)
        while group.count < most and self._joins(group, trips[0], trips[group.count]):
            group.count += 1
        return group if group.count > 1 and _independent(group) else None

    def _joins(self, group: _Group, first: tuple[int, int], other: tuple[int, int]) -> bool:
        """Whether the next trip does what the first one does."""
        if other[1] - other[0] != len(group.steps):
            return False
        places: list[Place] = []
        for mine, i in zip(group.steps, range(*other), strict=True):
            own = self.places[i]
            if own is None or type(self.steps[i]) is not type(mine) or self.steps[i].details() != mine.details():
                return False
            places += own
        if len(places) != len(group.places):
            return False
        moves: list[int | None] = []
        partners: dict[Storage, Storage] = {}
        for mine, its in zip(group.places, places, strict=True):
            a, b = mine.tensor, its.tensor
            if a.element != b.element or a.at.shape != b.at.shape or a.at.strides != b.at.strides:
                return False
            if a.storage is b.storage:
                distance, left = divmod(b.at.offset - a.at.offset, group.count)
                if left:
                    return False
                moves.append(distance)
            elif a.at.offset != b.at.offset:
                return False
            elif a.storage.is_temporary and b.storage.is_temporary:
                same = partners.setdefault(b.storage, a.storage) is a.storage and a.storage.size == b.storage.size
                if not same or not self._inside(a.storage, first) or not self._inside(b.storage, other):
                    return False
                moves.append(None)
            elif _equal_constants(a.storage, b.storage):
                moves.append(0)
            else:
                return False
        if group.moves and group.moves != moves:
            return False
        group.moves = moves
        return True

    def _inside(self, storage: Storage, trip: tuple[int, int]) -> bool:
        first, last = self.uses[storage]
        return trip[0] <= first and last < trip[1]


def _equal_constants(a: Storage, b: Storage) -> bool:
    if a.array is None or b.array is None or a.owner is not None or b.owner is not None or a.dtype is not b.dtype:
        return False
    return a.size == b.size and a.array.tobytes() == b.array.tobytes()


def _independent(group: _Group) -> bool:
    """Whether no trip stores where another one loads or stores."""
    shared = [(place, move) for place, move in zip(group.places, group.moves, strict=True) if move is not None]
    for memory in {place.tensor.storage for place, _ in shared if place.written}:
        found = [(place.tensor.at, move) for place, move in shared if place.tensor.storage is memory]
        moves = {move for _, move in found}
        if len(moves) > 1 or not _apart([at for at, _ in found], moves.pop(), group.count):
            return False
    return True


def _apart(places: list[Strided], move: int, count: int) -> bool:
    """Whether `places`, moved by `move` for each of `count` trips, keep out of each other's way, trip from trip."""
    strides = {at.strides for at in places}
    if len(strides) > 1 or len({len(at.shape) for at in places}) > 1:
        spans = [at.span() for at in places]
        return abs(move) >= max(high for _, high in spans) - min(low for low, _ in spans)
    # A box of coordinates that holds all places, and the rest of their offsets.
    (steps,) = strides
    shape = [max(n) for n in zip(*(at.shape for at in places), strict=True)]
    first, rest = min(at.offset for at in places), 0
    for at in places:
        beyond = at.offset - first
        if steps[0] > 0:
            tiles, beyond = divmod(beyond, steps[0])
            shape[0] = max(shape[0], tiles + at.shape[0])
        rest = max(rest, beyond)
    # Axes nest: each one's stride exceeds all that the smaller ones reach. So no two coordinates meet, and those of different trips
    # do not where trips lie outside of what the rest of the offsets mixes.
    axes = sorted([(abs(s), n, False) for s, n in zip(steps, shape, strict=True) if s and n > 1] + [(abs(move), count, True)])
    reach = 1
    for distance, extent, trips in axes:
        if rest and distance >= reach + rest:
            reach, rest = reach + rest, 0
        if distance < reach or (trips and rest):
            return False
        reach += distance * (extent - 1)
    return True


def _stacked(group: _Group) -> list[Step]:
    """The steps of all trips of a group at once."""
    memories: dict[Storage, Storage] = {}
    tensors: list[Tensor] = []
    for place, move in zip(group.places, group.moves, strict=True):
        tensor, at = place.tensor, place.tensor.at
        storage, distance = tensor.storage, move
        if distance is None:
            distance = storage.size
            if storage not in memories:
                memories[storage] = Storage(storage.dtype, storage.size * group.count)
            storage = memories[storage]
        stacked = Strided((group.count, *at.shape), (distance, *at.strides), at.offset)
        tensors.append(tensor.held_in(storage, stacked))
    result: list[Step] = []
    first = 0
    for step in group.steps:
        count = len(step.places() or ())
        result.append(step.stacked(tensors[first : first + count], group.count))
        first += count
    return result
