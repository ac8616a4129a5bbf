"""Forms: what a memory looks like to programs, arranged once and kept from launch to launch.

A *form* is a view of a memory in a layout: its carrier, and the state of the memory that it is of. It is valid while the memory is in that
state. Memory of a card counts its writes (`ktir.runtime.memory.allocation`). Memory of the host is written by others: its state is what it
holds, and its forms are kept here. They are arranged anew, in place, where they are not valid. All programs of a process share the forms of
a memory, so that a weight is there once per layout, whatever the number of programs that read it. A form lives no longer than its memory;
all together are bounded in bytes.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from math import nan
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.carriers import BF16, Carrier, bits_of, wide
from ktir.layout import Layout
from ktir.package import ValueRange
from ktir.runtime.memory.content import Content
from ktir.runtime.memory.transfer import check_range, extremes, numbers_of

_SPARE = 1 << 25
"""Bytes of carriers that are kept when their memory is gone, for the next one of their layout: activations come and go at each launch."""
_SMALL = 1 << 22
"""Bytes of the largest such carrier; what is larger, as weights are, goes with its memory."""


def carrier(layout: Layout, dtype: Any = np.float32) -> Carrier:
    """A carrier for what programs only read; its padding is zero."""
    return np.zeros((layout.entries, layout.lanes), dtype)


@dataclass(eq=False, slots=True)
class Form:
    """A view of a memory, arranged. `state`: of the memory that it holds; None: not valid."""

    layout: Layout
    carrier: NDArray[Any]
    state: Hashable | None = None
    stamp: object | None = None
    users: int = 0
    """Launches that read the carrier at this moment."""
    _largest: float | None = None
    _extremes: tuple[float, float] | None = None
    _around: tuple[float, float] | None = None
    """Of the elements and the padding, which are found sooner."""

    def largest(self) -> float:
        """The largest magnitude in the carrier of floats, NaN if there is one; looked for once per state."""
        if self._largest is None:
            self._largest = _largest(self.carrier)
        return self._largest

    def check(self, allowed: ValueRange, name: str) -> None:
        """Raises OutOfRange unless all elements are in the range of an argument; they are looked at once per state."""
        if allowed.is_all_of(self.layout.dtype):
            return
        if self._extremes is None:
            values = (
                bits_of(self.carrier) if self.layout.dtype == "i32" else wide(self.carrier) if self.carrier.dtype == BF16 else self.carrier
            )
            if self.layout.is_byte:
                values = numbers_of(self.layout.unpack(values), self.layout.dtype)
                self._around = self._extremes = extremes(values) if values.size else (allowed.low, allowed.low)
            elif self.layout.is_number:
                self._around = (values.item(0), values.item(0))
            if self._around is None:
                self._around = extremes(values) if values.size else (allowed.low, allowed.low)
            if allowed.low <= self._around[0] and self._around[1] <= allowed.high:
                return
            if self._extremes is None:
                values = self.layout.unpack(values)
                self._extremes = extremes(values) if values.size else (allowed.low, allowed.low)
        check_range(*self._extremes, allowed, name)

    def now_holds(self, state: Hashable, stamp: object | None = None) -> None:
        """The carrier has been filled."""
        self.state, self.stamp = state, stamp
        self._largest = self._extremes = self._around = None

    def holds(self, content: Content) -> bool:
        """Whether the form is one of this content."""
        if self.state is None:
            return False
        if self.stamp is None or self.stamp != content.stamp:
            if self.state != content.digest:
                return False
            self.stamp = content.stamp
        return True


def _largest(carrier: NDArray[Any]) -> float:
    if carrier.dtype in (np.float16, BF16):  # by their bits, which order magnitudes; NumPy has no fast maximum of halves
        bits = carrier.view(np.uint16)
        found = max(int(bits.view(np.int16).max()), int(bits.max()) - 0x8000)  # of the positive and of the negative ones
        return float(wide(np.array([max(found, 0)], np.uint16).view(carrier.dtype))[0])
    if carrier.dtype.kind in "iu":
        return nan
    with np.errstate(invalid="ignore"):
        return float(np.maximum(carrier.max(), -carrier.min()))


@dataclass
class _Memory:
    """A memory that has forms: where it is referred to, without keeping it, and the places of its forms."""

    owner: weakref.ref[Any]
    places: set[Hashable] = field(default_factory=set)


@cache
def _half_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


class Forms:
    """The forms of the memories of a process. May be used by several threads."""

    _ending = staticmethod(sys.is_finalizing)
    """Whether the interpreter is at its end: it has taken away what modules hold, and nothing need be given back."""

    def __init__(self, limit: int | None = None) -> None:
        self.bytes = 0
        """What all forms take."""
        self._limit = _half_of_memory() if limit is None else limit
        self._forms: OrderedDict[tuple[int, Hashable], Form] = OrderedDict()
        self._memories: dict[int, _Memory] = {}
        self._gone: deque[int] = deque()  # memories that have died; filled by callbacks, which come at any time
        self._spare: defaultdict[Layout, list[NDArray[Any]]] = defaultdict(list)
        self._spare_bytes = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._forms)

    def take(self, owner: Any, place: Hashable, layout: Layout, content: Content, arrange: Callable[[Form], None]) -> Form:
        """The form in `layout` of a memory's `content`; `arrange` fills its carrier if it is not valid.

        owner: the object whose life is that of the memory. place: what, besides content and layout, decides what the carrier looks like.
        The carrier is only to be read, and the form to be given to `release` after that.
        """
        if content.stamp is None:
            _ = content.digest  # takes its time, so not under the lock
        with self._locked():
            form = self._find(owner, place, layout, content)
            form.users += 1
        if form.state is None:
            try:
                arrange(form)
            except BaseException:
                self.release([form])
                raise
            form.now_holds(content.digest, content.stamp)
        return form

    def release(self, forms: Iterable[Form]) -> None:
        """A launch has read these."""
        with self._locked():
            for form in forms:
                form.users -= 1
            self._shrink()

    def set_limit(self, limit: int | None) -> None:
        """Bytes that forms may take together, beyond those that a launch is reading: the ones used longest ago go first. None: half of what
        the machine has.
        """
        with self._locked():
            self._limit = _half_of_memory() if limit is None else limit
            self._shrink()

    def clear(self) -> None:
        """Drop everything that no launch is reading."""
        with self._locked():
            for key in [k for k, form in self._forms.items() if not form.users]:
                self._drop(key)
            self._spare.clear()
            self._spare_bytes = 0

    def _find(self, owner: Any, place: Hashable, layout: Layout, content: Content) -> Form:
        """The form at a place, or one to be arranged there."""
        name = id(owner)
        key = (name, place)
        memory = self._memories.get(name)
        if memory is None:
            memory = self._memories[name] = _Memory(weakref.ref(owner, lambda _: self._died(name)))
        form = self._forms.get(key)
        if form is not None and not form.holds(content):
            if form.users:  # what a launch is reading stays as it is
                self._drop(key)
                form = None
            else:
                form.state = None  # of a carrier that is half arranged, should an error come
        if form is None:
            form = self._forms[key] = Form(layout, self._carrier(layout))
            memory.places.add(place)
            self.bytes += form.carrier.nbytes
        self._forms.move_to_end(key)
        return form

    def _carrier(self, layout: Layout) -> NDArray[Any]:
        """A carrier whose padding is zero."""
        if spare := self._spare.get(layout):
            found = spare.pop()
            self._spare_bytes -= found.nbytes
            return found
        return carrier(layout)

    def _drop(self, key: tuple[int, Hashable]) -> Form:
        form = self._forms.pop(key)
        self.bytes -= form.carrier.nbytes
        if memory := self._memories.get(key[0]):
            memory.places.discard(key[1])
        return form

    def _shrink(self) -> None:
        """Keep to the limit."""
        if self.bytes > self._limit:
            for key in [k for k, form in self._forms.items() if not form.users]:
                if self.bytes <= self._limit:
                    break
                self._drop(key)

    def _died(self, name: int) -> None:
        """A memory is gone. This may come in the middle of anything that this thread does, also under the lock."""
        if self._ending():
            return
        self._gone.append(name)
        if self._lock.acquire(blocking=False):
            try:
                self._bury()
            finally:
                self._lock.release()

    def _bury(self) -> None:
        """Drop the forms of memories that are gone."""
        while self._gone:
            name = self._gone.popleft()
            memory = self._memories.get(name)
            if memory is None or memory.owner() is not None:
                continue  # another memory of this name has taken the place
            del self._memories[name]
            for place in memory.places:
                form = self._forms.pop((name, place))
                self.bytes -= form.carrier.nbytes
                if not form.users and form.carrier.nbytes <= _SMALL and self._spare_bytes + form.carrier.nbytes <= _SPARE:
                    self._spare[form.layout].append(form.carrier)
                    self._spare_bytes += form.carrier.nbytes

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            self._bury()
            yield
        if self._gone and self._lock.acquire(blocking=False):  # a memory died meanwhile
            try:
                self._bury()
            finally:
                self._lock.release()


shared = Forms()
"""The forms of this process."""
