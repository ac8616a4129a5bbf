"""Streams and events of the device, in emulated time, and what `torch.Stream` and `torch.Event` are for it.

The guard that torch makes for a device in Python has one stream and events without effect. So `torch.Stream` and `torch.Event` are
replaced by classes that make ours for the device and torch's own for all others.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ktir.device.tensors import current

if TYPE_CHECKING:
    from ktir.runtime.time import clock as clocks

_PRIVATEUSE1 = 20
_ids = itertools.count(1)


class _Entered(threading.local):
    def __init__(self) -> None:
        self.before: list[tuple[int, Stream]] = []
        """Of each block of this thread: the card and the stream that were current."""


_entered = _Entered()


def _clocks() -> Any:
    from ktir.runtime.time import clock

    return clock


class Stream(torch.Stream):
    """A queue of what a card is to do: one of the 32 of its priority in turn, or one that is there."""

    def __new__(
        cls,
        device: Any = None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int | None = None,
    ) -> Stream:
        if stream_id is None:
            _, stream_id = place = _clocks().clock.stream(current.index_of(device), high=priority != 0)
            device_index = place.card
        return super().__new__(cls, stream_id=stream_id, device_index=current.index_of(device_index), device_type=_PRIVATEUSE1)  # type: ignore[call-overload]

    @property
    def place(self) -> clocks.Stream:
        """The stream of the clock."""
        return _clocks().Stream(self.device_index, self.stream_id)

    @property
    def id(self) -> int:
        """Its number on its card."""
        return self.stream_id

    @property
    def priority(self) -> int:
        """-1 where its steps come first, else 0."""
        return -self.place.is_high

    def query(self) -> bool:
        """Whether all that it was given is done."""
        return _clocks().clock.reached(_clocks().clock.record(self.place))

    def synchronize(self) -> None:
        """The host waits until all that it was given is done."""
        _clocks().clock.finish(_clocks().clock.record(self.place))

    def record_event(self, event: Any = None) -> Event:
        """An event behind all that it was given so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """What it is given from now on is done after the event."""
        event.wait(self)

    def wait_stream(self, other: Any) -> None:
        """What it is given from now on is done after all that another stream was given so far."""
        _clocks().clock.wait(self.place, _clocks().clock.record(_ours(other).place))

    def is_capturing(self) -> bool:
        """There are no graphs to capture."""
        return False

    @property
    def native_handle(self) -> int:
        """Its number: there is nothing behind it."""
        return self.stream_id

    def __enter__(self) -> Stream:
        _entered.before.append((current.get(), current_stream(self.device_index)))
        set_stream(self)
        return self

    def __exit__(self, *_: object) -> None:
        card, stream = _entered.before.pop()
        set_stream(stream)
        current.put(card)


class Event(torch.Event):
    """A point in a stream."""

    _mark: clocks.Mark | None = None
    _timed = False
    _card: int | None = None
    """Its own: the one that it was made for, or in whose stream it was first recorded."""
    _id = 0

    def __new__(cls, device: Any = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Event:
        card = current.index_of(device)
        if interprocess:
            raise NotImplementedError("events of the device 'spyre' are of one process")
        made = super().__new__(cls, torch.device("spyre"), enable_timing=enable_timing, blocking=blocking)
        made._timed = enable_timing
        if _names_a_card(device):
            made._card = card
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """That of the stream that it was recorded in; of no card before, as torch's own."""
        recorded = self._card if self._mark is not None else None
        return torch.device("spyre") if recorded is None else torch.device("spyre", recorded)

    @property
    def event_id(self) -> int:  # type: ignore[override]
        """Another number each time that it is recorded; 0 before."""
        return self._id

    def record(self, stream: Any = None) -> None:
        """Be the point behind all that a stream was given so far, by default the current one."""
        place = _place(stream)
        if self._card not in (None, place.card):
            raise RuntimeError(f"Event device {self._card} does not match recording stream's device {place.card}.")
        self._mark, self._card, self._id = _clocks().clock.record(place), place.card, next(_ids)

    def wait(self, stream: Any = None) -> None:
        """What a stream, by default the current one, is given from now on is done after the event; nothing where it was not recorded."""
        place = _place(stream)
        if self._mark is not None:
            _clocks().clock.wait(place, self._mark)

    def query(self) -> bool:
        """Whether it is reached, or was not recorded."""
        return self._mark is None or _clocks().clock.reached(self._mark)

    def synchronize(self) -> None:
        """The host waits for it."""
        if self._mark is not None:
            _clocks().clock.finish(self._mark)

    def elapsed_time(self, other: Any) -> float:
        """Emulated milliseconds from this event to another one. Raises as events of other devices do."""
        if not isinstance(other, Event):
            raise RuntimeError(f"Event device type spyre does not match other's device type {other.device.type}.")
        if not (self._timed and other._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._mark is None or other._mark is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if self._card != other._card:
            raise RuntimeError(f"Event device {self._card} does not match other's device {other._card}.")
        if not (self.query() and other.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        assert self._mark.ns is not None
        assert other._mark.ns is not None
        return (other._mark.ns - self._mark.ns) / 1e6

    def __repr__(self) -> str:
        index = -1 if self.device.index is None else self.device.index
        return f"torch.Event device_type=spyre, device_index={index}, event_flag={int(self._timed)}, event_id={self._id}"


def _names_a_card(device: Any) -> bool:
    return isinstance(device, int) or (device is not None and torch.device(device).index is not None)


def _ours(stream: Any) -> Stream:
    if not isinstance(stream, torch.Stream) or stream.device.type != "spyre":
        raise RuntimeError(f"expected a stream of the device 'spyre', but got {stream!r}")
    return stream if type(stream) is Stream else Stream(stream_id=stream.stream_id, device_index=stream.device_index)


def _place(stream: Any) -> clocks.Stream:
    return (current_stream() if stream is None else _ours(stream)).place


def current_stream(device: Any = None) -> Stream:
    """The stream of a card that this thread gives its work to."""
    card = current.index_of(device)
    return Stream(stream_id=_clocks().current(card).number, device_index=card)


def default_stream(device: Any = None) -> Stream:
    """The stream of a card that is current until another one is chosen."""
    return Stream(stream_id=0, device_index=current.index_of(device))


def set_stream(stream: torch.Stream | None) -> None:
    """Give what this thread wants done to another stream, and to its card."""
    if stream is not None:
        _clocks().use(_ours(stream).place)
        current.put(stream.device_index)


def stream(stream: Stream | None) -> AbstractContextManager[Any]:
    """Inside the block, a stream is the current one."""
    return nullcontext() if stream is None else stream


def synchronize(device: Any = None) -> None:
    """The host waits for all streams of a card."""
    _clocks().clock.synchronize(current.index_of(device))


@contextmanager
def trace(path: str | os.PathLike[str]) -> Iterator[None]:
    """Write what the cards do in a block, in emulated time, to a file: a Chrome trace. Where the block raises, what they did till then."""
    from ktir.runtime.time.trace import chrome_trace, watched

    with open(path, "a", encoding="utf-8"):  # a place that is not there is known before the block runs
        pass
    with ExitStack() as after:
        with watched(_clocks().clock) as spans:
            after.callback(lambda: Path(path).write_text(json.dumps(chrome_trace(spans)), encoding="utf-8"))
            yield


class _StandsFor(type):
    """The class of a class that is taken for another one, and makes objects of ours for the device."""

    native: type
    ours: type

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "native" not in cls.__dict__:  # somebody's own class, derived from it
            return super().__call__(*args, **kwargs)
        device = args[0] if args else kwargs.get("device")
        kind = torch.device(device).type if isinstance(device, str | torch.device) else None
        mine = kind == "spyre" or (kind is None and kwargs.get("device_type", _PRIVATEUSE1) == _PRIVATEUSE1)
        return (cls.ours if mine else cls.native)(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.native) if "native" in cls.__dict__ else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.native) if "native" in cls.__dict__ else super().__subclasscheck__(subclass)


def install() -> None:
    """Let `torch.Stream`, `torch.Event` and `torch.accelerator` know our streams and events."""
    for native, ours in ((torch.Stream, Stream), (torch.Event, Event)):
        members = {"native": native, "ours": ours, "__doc__": native.__doc__, "__module__": "torch"}
        setattr(torch, native.__name__.rpartition(".")[2], _StandsFor(native.__name__.rpartition(".")[2], (native,), members))
