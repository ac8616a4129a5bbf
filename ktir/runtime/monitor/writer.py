"""Writes the metric files of this process: launches only note what they did, and a thread adds it up, 20 times a second."""

from __future__ import annotations

import atexit
import logging
import mmap
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ktir.runtime.monitor import files, form
from ktir.runtime.monitor.power import power, temperature

if TYPE_CHECKING:
    from ktir.runtime.time.steps import Step

log = logging.getLogger("ktir")
PERIOD = 0.05
"""Seconds."""
_COPIES = {"H2D": "rxpci", "D2H": "txpci"}


class _Card:
    """What is known of a card."""

    def __init__(self, index: int, path: Path) -> None:
        self.noted: deque[Step] = deque()
        self.memory: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """Bytes that tensors take, and the most of them."""
        self.path = path
        self._values = dict.fromkeys(form.METRICS, 0.0) | {"pid": os.getpid(), "card": index}
        self._sequence = 0
        self._begun = self._before = time.monotonic()
        data = self._data()
        path.unlink(missing_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            os.write(file, data)
            self._map = mmap.mmap(file, len(data))
        finally:
            os.close(file)

    def write(self) -> None:
        """Add up what is noted, and write it."""
        values = self._values
        before = [values[name] for name in ("elapsed", "busy", "pt")]
        steps = [self.noted.popleft() for _ in range(len(self.noted))]
        times = Counter(map(id, steps))  # of a kind, or of a program, they share one object
        for key, step in {id(step): step for step in steps}.items():
            self._add(step, times[key])
        elapsed, busy, pt = (values[name] - b for name, b in zip(("elapsed", "busy", "pt"), before, strict=True))
        values["pwr"] = power(busy / elapsed, pt / elapsed) if elapsed else power(0, 0)
        values["tempr"] = temperature(values["pwr"])
        used, peak = self.memory()
        now = time.monotonic()
        if now > self._begun:
            values["avgmem"] += (used / 1024 - values["avgmem"]) * (now - self._before) / (now - self._begun)
        self._before = now
        values["actmem"], values["peakmem"] = used / 1024, peak / 1024
        self._sequence += 1
        self._map[:] = self._data()  # nobody believes what has an odd sequence
        self._sequence += 1
        self._map[:] = self._data()

    def _data(self) -> bytes:
        return form.write(self._values, self._sequence, time.time_ns())

    def _add(self, step: Step, times: int) -> None:
        values = self._values
        values["elapsed"] += times * (step.ns + step.host_ns)
        moved = times * step.nbytes / 1024
        if step.kind in _COPIES:
            name = _COPIES[step.kind]
            values[name] += moved
            values[f"n_{name}"] += times
        elif step.kind in ("D2D", "Relayout"):  # their bytes are those read and those written
            values["rdmem"] += moved / 2
            values["wrmem"] += moved / 2
        elif step.machine is not None:
            load = step.machine.report.load
            values["busy"] += times * step.ns
            values["pt"] += times * step.ns * load.pt
            values["rdmem"] += times * load.read / 1024
            values["wrmem"] += times * load.written / 1024
            values["n_launch"] += times


def _sweep(pattern: str) -> None:
    """Remove the files of the dead."""
    for old in files.left(pattern):
        old.unlink(missing_ok=True)


class Monitor:
    """The cards of this process. A process that forks holds it meanwhile, so that its child has all locks free."""

    def __init__(self) -> None:
        self.cards: dict[int, _Card | None] = {}
        """None: one that no file can be written for; a monitor is no reason to fail."""
        self.noted: dict[int, deque[Step]] = {}
        """By card, where its steps are noted; see `open`."""
        self._stop = threading.Event()
        self._told = False
        self.lock = threading.RLock()

    def open(self, index: int, memory: Callable[[], tuple[int, int]] | None = None) -> deque[Step]:
        """Where the steps are to be noted that a card has done. memory: of the card, bytes now and at most."""
        card = self.cards[index] if index in self.cards else self._open(index)
        if card is not None and memory is not None:
            card.memory = memory
        noted = self.noted[index] = deque(maxlen=0) if card is None else card.noted
        return noted

    def write(self) -> None:
        """Write what is known at this moment."""
        with self.lock:
            for card in self.cards.values():
                if card is not None:
                    card.write()

    def close(self) -> None:
        """The files go, and those of processes that ended without taking theirs along, such as children of a fork."""
        self._stop.set()
        with self.lock:
            wrote = any(self.cards.values())
            for index, card in self.cards.items():
                if card is not None:
                    card.path.unlink(missing_ok=True)
                self.cards[index] = None
                self.noted[index] = deque(maxlen=0)
            if wrote and (pattern := files.pattern()):
                with suppress(OSError):
                    _sweep(pattern)

    def _open(self, index: int) -> _Card | None:
        with self.lock:
            if index in self.cards:
                return self.cards[index]
            pattern, first = files.pattern(), not any(self.cards.values())
            self.cards[index] = None
            if pattern is None:
                return None
            try:
                _sweep(pattern)
                self.cards[index] = _Card(index, files.path(pattern, os.getpid(), index))
            except OSError as error:
                if files.VARIABLE in os.environ and not self._told:
                    self._told = True
                    why = error.strerror or error
                    log.warning("warning: %s: no metric file can be written at '%s': %s", files.VARIABLE, pattern, why)
                return None
            if first:
                threading.Thread(target=self._run, args=(self._stop,), name="ktir-monitor", daemon=True).start()
            return self.cards[index]

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(PERIOD):
            self.write()


own = Monitor()
"""That of this process."""


def _anew() -> None:
    """The child of a fork has cards of its own, and no thread."""
    global own
    own = Monitor()


atexit.register(lambda: own.close())
os.register_at_fork(before=lambda: own.lock.acquire(), after_in_parent=lambda: own.lock.release(), after_in_child=_anew)
