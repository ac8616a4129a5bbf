"""An emulated card: its memory as a space of addresses, what lies where, and what that takes.

A card has eight segments of 16 GiB. Seven are for tensors, the last one is for programs. Bytes of the host are taken where a segment is
first touched, page by page, so that eight cards of 128 GiB cost nothing until they hold something.
"""

from __future__ import annotations

import gc
import mmap
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir import config
from ktir.diagnostics import KtirError
from ktir.runtime.memory.hardware import EMULATED, Hardware, hardware
from ktir.runtime.memory.pool import Pool
from ktir.runtime.memory.statistics import Statistics
from ktir.runtime.monitor import writer as monitor
from ktir.runtime.time.clock import Clock, current, host_streams
from ktir.runtime.time.clock import clock as process_clock
from ktir.runtime.time.steps import Kind, Step, moving
from ktir.target import DATASHEET, LANES, Target

SEGMENTS = 8
SEGMENT_BYTES = 1 << 34
MOST_CARDS = 8
_NOWHERE = -1
"""The address of a range without bytes."""

_KEPT = 1 << 26
"""Bytes of ranges given back whose pages a card keeps for the next ones."""
FEW = 1 << 20
"""Bytes of a range that keeps its pages while it is taken."""
_SPARE = 1 << 25
"""Bytes of carriers that a card keeps for programs to write."""
_PENDING = 64
"""Ranges given back that are kept apart, for the next one of the same size: results come and go at each launch."""
_NOTED = 1 << 12
"""Notes of the statistics that are kept uncounted."""
_PAGE = mmap.PAGESIZE
_NORESERVE = 0x4000 if sys.platform == "linux" else 0
"""Takes no memory of the host before something is written. Python 3.11 has no name for it; without it, no process of two cards forks."""


class DeviceOutOfMemory(KtirError):
    """No segment of a card has room for a range of `requested` bytes; the numbers are those of the moment, in bytes."""

    def __init__(self, card: int, pool: Pool, requested: int, what: str) -> None:
        self.card = card
        self.requested = requested
        self.capacity = pool.capacity
        self.used = pool.used
        self.free = self.capacity - self.used
        self.largest = pool.largest
        super().__init__(
            f"card {card} has no room for {requested} bytes: of {self.capacity} bytes for {what} {self.used} are taken, and the largest "
            f"free range has {self.largest}"
        )


class Segment:
    """A part of a card's addresses, and the bytes behind it."""

    def __init__(self, base: int, size: int) -> None:
        self.base = base
        self.size = size
        self.mapped: mmap.mmap | None = None
        """`memory`, where that was touched."""

    def bytes(self, address: int, size: int) -> NDArray[np.uint8]:
        """The bytes of a range, to read and to write. Those never written are zero."""
        return np.ndarray((size,), np.uint8, self.memory, address - self.base)

    @property
    def memory(self) -> mmap.mmap:
        """The bytes of all ranges."""
        if self.mapped is None:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
            self.mapped = mmap.mmap(-1, self.size, flags=flags)
        return self.mapped

    def drop(self, address: int, size: int) -> None:
        """Give whole pages of a range back to the host."""
        first, last = -(-(address - self.base) // _PAGE) * _PAGE, (address - self.base + size) // _PAGE * _PAGE
        if self.mapped is not None and last > first:
            self.mapped.madvise(mmap.MADV_DONTNEED, first, last - first)


class Card:
    """A card of a process. May be used by several threads; allocations may be freed at any time, also by finalizers."""

    def __init__(
        self,
        index: int = 0,
        segment_bytes: int = SEGMENT_BYTES,
        target: Target = DATASHEET,
        clock: Clock | None = None,
        hardware: Hardware = EMULATED,
    ) -> None:
        self.index = index
        self.computes = hardware.computes
        """Whether programs are run; else what they write is 0."""
        self.target = target
        self.clock = clock or process_clock
        """When its steps are done."""
        self.compute = RLock()
        """Held by whoever changes forms, and by a launch: a card runs one program at a time."""
        self._statistics = Statistics()
        self.observers: list[Callable[[Step], None]] = []
        """Told of each step before it is given to its stream, in program order; while there are any, a step is an object of its own, by
        which they know it again where the clock places it."""
        self.holders: list[Callable[[int, int], None]] = []
        """Told of each allocation, and of its end: the handle, and the bytes, negative at its end. Called by finalizers too."""
        self.unpacked: tuple[int, int, NDArray[np.uint8]] | None = None
        """Linear bytes made last from another form: handle, version, and they themselves."""
        self._spare: defaultdict[int, list[NDArray[np.float32]]] = defaultdict(list)
        self._spare_bytes = 0
        self._segment_bytes = segment_bytes
        self.segments = [Segment(k * segment_bytes, segment_bytes) for k in range(SEGMENTS)]
        self._tensors = Pool(hardware.of_tensors([(s.base, s.size) for s in self.segments[:-1]]))
        self._programs = Pool([(s.base, s.size) for s in self.segments[-1:]])
        self._first_program = (SEGMENTS - 1) * segment_bytes
        self._given_back: deque[tuple[int, int]] = deque()  # filled by finalizers, which come at any time
        self._stale = 0
        self._lock = Lock()

    @property
    def statistics(self) -> Statistics:
        """Counts of what there is at this moment."""
        with self._locked():
            self._statistics.settle()
            return self._statistics

    @property
    def capacity(self) -> int:
        """Bytes for tensors."""
        return self._tensors.capacity

    @property
    def used(self) -> int:
        """Bytes that tensors take, in all of their forms."""
        with self._locked():
            return self._tensors.used

    def occupied(self) -> tuple[int, int]:
        """Bytes that tensors take, and the most that they have taken."""
        count = self.statistics.allocated
        return count.now, count.peak

    @property
    def largest(self) -> int:
        """Bytes of the largest allocation that has room."""
        with self._locked():
            return self._tensors.largest

    def take(self, size: int, *, program: bool = False) -> int:
        """The address of a range of `size` bytes, a multiple of the granule. Where there is none, garbage is collected, and a second try
        made; then DeviceOutOfMemory is raised. No bytes take no range.
        """
        if not size:
            return _NOWHERE
        statistics, given_back, address = self._statistics, self._given_back, None
        with self._lock:
            if len(statistics.asked) > _NOTED or len(statistics.steps) > _NOTED:
                statistics.settle()
            if given_back:  # the range given back last, if it is one of this size
                last = given_back.pop()
                if last[1] == size and (last[0] >= self._first_program) is program:
                    address = last[0]
                else:
                    given_back.append(last)
        if address is None:
            address = self._found(size, program)
        if not program:
            statistics.ranges.append(size)
        return address

    def _found(self, size: int, program: bool) -> int:
        pool = self._programs if program else self._tensors
        for attempt in range(2):
            with self._lock:
                self._collect()
                address = pool.take(size)
            if address is not None:
                return address
            if not attempt:
                self._statistics.retries += 1
                gc.collect()
        self._statistics.failures += 1
        raise DeviceOutOfMemory(self.index, pool, size, "programs" if program else "tensors")

    def give(self, address: int, size: int) -> None:
        """Give a range back; may be called at any time, also by finalizers."""
        if not size:
            return
        self._given_back.append((address, size))
        if address < self._first_program:
            self._statistics.ranges.append(-size)
        if (size > FEW or len(self._given_back) > _PENDING) and self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()

    def vacate(self, address: int, size: int) -> None:
        """The bytes of a range are not needed any more, while its address is: pages go back to the host, where they are more than `FEW`."""
        if size > FEW:
            self._segment(address).drop(address, size)

    def clear(self, address: int, size: int) -> None:
        """The bytes of a range are zero from now on; pages that these fill are none of the host's until they are written again."""
        if size > FEW and sys.platform == "linux":  # elsewhere pages that were given back may hold what they held
            segment = self._segment(address)
            segment.drop(address, size)
            first, last = address - segment.base, address - segment.base + size
            segment.bytes(address, -first % _PAGE)[...] = 0
            tail = last % _PAGE
            segment.bytes(address + size - tail, tail)[...] = 0
        else:
            self.bytes(address, size)[...] = 0

    def asked(self, handle: int, nbytes: int) -> None:
        """An allocation asks for bytes; negative: it is gone. May be called at any time, also by finalizers."""
        self._statistics.asked.append(nbytes)
        for holder in self.holders:
            holder(handle, nbytes)

    def bytes(self, address: int, size: int) -> NDArray[np.uint8]:
        """The bytes of a range."""
        return self._segment(address).bytes(address, size) if size else np.empty(0, np.uint8)

    def memory(self, address: int) -> tuple[mmap.mmap, int]:
        """A buffer in which the bytes at an address are, and where."""
        segment = self.segments[address // self._segment_bytes]
        return segment.mapped or segment.memory, address - segment.base

    def record(self, kind: Kind, nbytes: int, name: str = "", *, wait: bool = False) -> None:
        """Something moves bytes: count it, and give it to the stream of this thread. name: of the program that they are. wait: until it
        is done.
        """
        self.run(moving(kind, nbytes, self.target, name), wait=wait)

    def run(self, *steps: Step, wait: bool = False) -> None:
        """Steps for the stream of this thread, counted where they move bytes; those who want to know are told."""
        self._statistics.steps.extend(steps)
        if self.observers:
            steps = tuple(step.alone() for step in steps)
            for step in steps:
                for observer in self.observers:
                    observer(step)
        if self.clock is process_clock:
            noted = monitor.own.noted.get(self.index)
            if noted is None:
                noted = monitor.own.open(self.index, self.occupied)
            noted.extend(steps)
        self.clock.give(current(self.index), *steps, wait=wait)

    def carrier(self, entries: int) -> NDArray[np.float32]:
        """A carrier for a program to write, with anything in it. Who asks holds `compute`."""
        spare = self._spare[entries]
        if not spare:
            return np.empty((entries, LANES), np.float32)
        found = spare.pop()
        self._spare_bytes -= found.nbytes
        return found

    def put_back(self, carrier: NDArray[Any]) -> None:
        """A carrier that nobody reads any more; may be called at any time."""
        entries, lanes = carrier.shape
        room = self._spare_bytes + carrier.nbytes
        if entries and lanes == LANES and room <= _SPARE and carrier.itemsize == 4:
            self._spare_bytes = room
            self._spare[entries].append(carrier)

    def trim(self) -> None:
        """Give what is kept for later back to the host: pages of free ranges, and carriers."""
        with self.compute, self._locked():
            self._drop_pages()
            self._spare.clear()
            self._spare_bytes, self.unpacked = 0, None

    def _segment(self, address: int) -> Segment:
        return self.segments[address // self._segment_bytes]

    def _collect(self) -> None:
        while self._given_back:
            address, size = self._given_back.popleft()
            if address >= self._first_program:
                self._programs.give(address, size)
                continue
            self._tensors.give(address, size)
            self._stale += size
        if self._stale > _KEPT:
            self._drop_pages()

    def _drop_pages(self) -> None:
        for address, size in self._tensors.holes:
            self._segment(address).drop(address, size)
        self._stale = 0

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            self._collect()
            yield


_cards: dict[int, Card] = {}
_lock = Lock()


def cards() -> list[Card]:
    """The cards that this process has made."""
    return list(_cards.values())


def card(index: int = 0) -> Card:
    """A card of this process, made, with the figures of the target in force, when it is first asked for. Raises KtirError for one that no
    process has, RuntimeError for what the environment cannot say.
    """
    found = _cards.get(index)
    if found is None:
        if not 0 <= index < MOST_CARDS:
            raise KtirError(f"expects a card of 0 to {MOST_CARDS - 1}, but got {index}")
        host_streams()  # what the environment cannot say is refused before there is a card
        with _lock:
            found = _cards.setdefault(index, Card(index, target=config.current().machine(), hardware=hardware()))
    return found
