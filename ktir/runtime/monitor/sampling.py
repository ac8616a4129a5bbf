"""What `ktir-smi` shows: how a card did between two readings of its metric file.

Shares and rates are over emulated time, in which a card works as fast as one would; requests (`n_…`) are counted in the period as it is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from ktir.diagnostics import KtirError
from ktir.runtime.monitor.files import MetricFile
from ktir.runtime.monitor.power import power, temperature

ALWAYS = ("ID", "Date", "Time", "hostcpu", "hostmem", "pwr", "gtemp", "busy")
GROUPS: dict[str, tuple[str, ...]] = {
    "D": ("rdmem", "wrmem", "rxpci", "txpci", "rdrdma", "wrrdma"),
    "R": ("n_launch", "n_rxpci", "n_txpci"),
    "U": ("actmem", "peakmem"),
    "P": ("pt_active",),
    "L": ("pid", "launches"),
}
"""Letter of a group -> its columns: GB/s, requests per second, GiB, percent; the process, and the programs that it ran in the period."""
OLD = {"M": "rsvmem", "S": "rsvmem by segment"}
"""Groups of an older runtime, which reserved memory."""
_GIB = 1 << 20  # KiB
_KIB_PER_NS = 1024.0
"""A KiB per nanosecond in GB/s."""


def columns(groups: str) -> tuple[str, ...]:
    """The columns of groups, by letters; `A`: all. Raises KtirError."""
    wanted = "".join(GROUPS) if "A" in groups else groups
    for letter in wanted:
        if letter in OLD:
            raise KtirError(f"group '{letter}' ({OLD[letter]}) is of an older runtime, which reserved memory; 'U' has the memory in use")
        if letter not in GROUPS:
            raise KtirError(f"expects groups of {', '.join([*GROUPS, 'A'])}, but got '{letter}'")
    return (*ALWAYS, *(name for letter in GROUPS if letter in wanted for name in GROUPS[letter]))


class Host:
    """The machine that the cards are in, as Linux tells it; elsewhere nothing is known."""

    def __init__(self) -> None:
        self._before = self._times()

    def sample(self) -> tuple[float | None, float | None]:
        """Since the last call: percent of a processor, summed over processors; and percent of the memory in use now."""
        now, before = self._times(), self._before
        self._before = now
        cpu = None
        if now and before and now[0] > before[0]:
            cpu = 100 * now[2] * (1 - (now[1] - before[1]) / (now[0] - before[0]))
        return cpu, self._memory()

    def _times(self) -> tuple[int, int, int] | None:
        """Ticks of all processors, those in which they had nothing to do, and how many they are."""
        try:
            lines = Path("/proc/stat").read_text().splitlines()
        except OSError:
            return None
        ticks = [int(n) for n in lines[0].split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4], sum(line.startswith("cpu") for line in lines) - 1

    def _memory(self) -> float | None:
        try:
            found = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        except OSError:
            return None
        total, free = (int(found[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
        return 100 * (1 - free / total)


class Source:
    """A card that is watched."""

    def __init__(self, number: int, path: Path) -> None:
        """Raises KtirError where there is no metric file."""
        self.number = number
        self.file = MetricFile(path)
        self._before = self._read()

    def sample(self, host: tuple[float | None, float | None]) -> dict[str, str]:
        """Since the last call, by column."""
        now, before = self._read(), self._before
        self._before = now
        d = {name: now[name] - before[name] for name in now}
        ns, seconds = d["elapsed"], max(d["seconds"], 1e-9)
        busy, pt = (d["busy"] / ns, d["pt"] / ns) if ns else (0.0, 0.0)
        watts = power(busy, pt)
        day, hour = time.strftime("%Y%m%d %H:%M:%S").split()
        shown = {"ID": str(self.number), "Date": day, "Time": hour, "pwr": f"{watts:.1f}", "gtemp": f"{temperature(watts):.1f}"}
        shown |= {name: "-" if value is None else f"{value:.1f}" for name, value in zip(("hostcpu", "hostmem"), host, strict=True)}
        shown |= {"busy": f"{100 * busy:.0f}", "pt_active": f"{100 * pt:.1f}"}
        shown |= {name: f"{d[name] / ns * _KIB_PER_NS if ns else 0:.3f}" for name in GROUPS["D"]}
        shown |= {name: f"{d[name] / seconds:.1f}" for name in GROUPS["R"]}
        shown |= {name: f"{now[name] / _GIB:.3f}" for name in GROUPS["U"]}
        return shown | {"pid": f"{now['pid']:.0f}", "launches": f"{d['n_launch']:.0f}"}

    def _read(self) -> dict[str, float]:
        values = {metric.name: value for metric, value in self.file.read_metrics()}
        return values | {"seconds": self.file.timestamp / 1e9}


def table(rows: Sequence[dict[str, str]], wanted: Sequence[str], *, head: bool) -> str:
    """Rows in columns of a fixed width, so that later rows stand below."""
    lines = [{name: f"#{name}" if name == "ID" else name for name in wanted}] if head else []
    return "\n".join(" ".join(row[name].rjust(max(len(name) + 1, _WIDTHS.get(name, 8))) for name in wanted) for row in [*lines, *rows])


_WIDTHS = {"ID": 3, "busy": 6}
