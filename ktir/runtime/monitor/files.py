"""Where metric files are, one per card and process, and how they are read. `MetricFile` is the published interface (RFC 2676)."""

from __future__ import annotations

import glob
import mmap
import os
import re
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from ktir.diagnostics import KtirError
from ktir.runtime.monitor import form
from ktir.runtime.monitor.form import MetricDataType

VARIABLE = "KTIR_METRICS"
BUS = "%BUSID"
_OFF = ("0", "off", "false", "no")
_TRIES = 1000
_BUS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:00\.0"


def pattern() -> str | None:
    """The path of metric files, with `%BUSID` in it: `KTIR_METRICS`, or `metrics.%BUSID` in the temporary directory. None: none are
    written.
    """
    asked = os.environ.get(VARIABLE) or str(Path(tempfile.gettempdir()) / f"metrics.{BUS}")
    if asked.lower() in _OFF:
        return None
    return asked if BUS in asked else f"{asked}.{BUS}"


def path(pattern: str, process: int, card: int) -> Path:
    """Of a card of a process. An emulated card has its process for a domain of the bus, since no two share one."""
    return Path(pattern.replace(BUS, f"{process:04x}:{card:02x}:00.0"))


def found(pattern: str) -> list[Path]:
    """The files of processes that are alive."""
    return [p for p in _all(pattern) if _is_alive(p, pattern)]


def left(pattern: str) -> list[Path]:
    """The files of processes that ended without taking theirs away."""
    return [p for p in _all(pattern) if not _is_alive(p, pattern)]


def _all(pattern: str) -> list[Path]:
    before, _, after = pattern.partition(BUS)
    paths = sorted(Path(p) for p in glob.glob(f"{glob.escape(before)}*{glob.escape(after)}"))
    return [p for p in paths if re.fullmatch(_BUS, _bus(p, pattern))]


def _bus(file: Path, pattern: str) -> str:
    before, _, after = pattern.partition(BUS)
    return str(file)[len(before) : len(str(file)) - len(after)]


def _is_alive(file: Path, pattern: str) -> bool:
    domain = _bus(file, pattern).partition(":")[0]
    try:
        os.kill(int(domain, 16), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class MetricFile:
    """A metric file, to be read as often as wanted:

    with MetricFile("metrics.1a2b:00:00.0") as file:
        file.set_filters(["pwr", "rdmem"])
        for metric, value in file.read_metrics():
            print(metric.name, value, metric.unit)
    """

    def __init__(self, path: str | os.PathLike[str], *, mapped: bool = True) -> None:
        """mapped: map the file, or read it anew each time. Raises KtirError where there is none, or it is none."""
        self.path = Path(path)
        self.timestamp = 0
        """Nanoseconds since the epoch: when what was read last was written."""
        self._names: Collection[str] = ()
        self._map: mmap.mmap | None = None
        data = self._bytes()
        form.read(data, str(self.path))
        if mapped:
            try:
                with self.path.open("rb") as file:
                    self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except OSError as e:
                raise KtirError(f"cannot read {self.path}: {e.strerror or e}") from None

    def __enter__(self) -> MetricFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None

    def set_filters(self, names: Collection[str]) -> None:
        """Only these from now on; of none, all. Raises KtirError for names that there are not."""
        for name in names:
            if name not in form.METRICS:
                raise KtirError(f"expects a metric of {', '.join(form.METRICS)}, but got {name!r}")
        self._names = tuple(names)

    def read_metrics(self) -> Iterator[tuple[MetricDataType, float]]:
        """What holds at one moment. Raises KtirError."""
        for _ in range(_TRIES):
            data = self._bytes()
            values, timestamp, sequences = form.read(data, str(self.path))
            if len(sequences) == 1 and not sequences.pop() % 2 and data == self._bytes():
                self.timestamp = timestamp
                return iter([(m, v) for m, v in values.items() if not self._names or m.name in self._names])
            time.sleep(1e-4)
        raise KtirError(f"{self.path}: somebody writes it all the time")

    def _bytes(self) -> bytes:
        if self._map is not None:
            return self._map[:]
        try:
            return self.path.read_bytes()
        except OSError as e:
            raise KtirError(f"cannot read {self.path}: {e.strerror or e}") from None
