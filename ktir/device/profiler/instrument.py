"""`torch.spyre.instrument`: what happens inside of the kernels that a block launches, op by op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ktir.diagnostics import KtirError, close_to
from ktir.emulator.machine import Machine
from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.reports import inside
from ktir.emulator.machine.reports.inside import Area, Inside
from ktir.emulator.machine.reports.report import aligned
from ktir.emulator.machine.reports.scratchpad import ScratchpadUse, scratchpad_use
from ktir.emulator.machine.trace.trace import Trace
from ktir.explore.of_ops import is_of
from ktir.isa.program import Source, own_nodes
from ktir.lowering.inductor import instrumented
from ktir.runtime.executable import Launch, recorded_everywhere

METRICS = ("execution_time", "dma_latency", "pe_util", "stalls", "hot_areas", "scratchpad")
"""What can be asked for."""
_BY = ("op", "line", "kernel")
_MOST_AREAS = 10

_journals: WeakKeyDictionary[Machine, Trace] = WeakKeyDictionary()


class Row(NamedTuple):
    """An op, a line or a kernel over all launches. Times in microseconds: `execution_time` in which a unit works for it, `dma_latency` of a
    transfer, the mean; `pe_util` is the share of the execution time in which PT multiplies; `stalls` by cause, of a core's units together.
    """

    name: str
    launches: int
    execution_time: float
    dma_latency: float
    pe_util: float
    stalls: dict[str, float]
    bytes: int
    """Over the memory channel."""


class Report:
    """What a block has launched; it is read after the block. `print(report)` shows the metrics that were asked for."""

    def __init__(self, metrics: Sequence[str], ops: Sequence[str]) -> None:
        self.metrics = tuple(metrics)
        self.ops = tuple(ops)
        self._launches: list[Launch] = []

    def rows(self, by: str = "op") -> list[Row]:
        """By `op` (the nodes of the graph that became one, else an op of KTIR), source `line`, or `kernel`; what takes longest comes first.
        Raises KtirError for another grouping.
        """
        if by not in _BY:
            raise KtirError(f"rows are by {', '.join(_BY)}, but got '{by}'{close_to(by, _BY)}")
        totals: dict[str, tuple[Inside, float, int]] = {}
        for machine, times in self._machines().items():
            for name, part in self._inside(machine, by).items():
                known, us, count = totals.get(name, (Inside(), 0.0, 0))
                _more(known, part, times)
                totals[name] = known, us + machine.target.microseconds(part.cycles) * times, count + times
        clock = next((m.target for m, _ in self._machines().items()), None)
        rows = []
        for name, (total, us, count) in totals.items():
            assert clock is not None
            stalls = {cause: clock.microseconds(cycles) for cause, cycles in total.stalls.most_common()}
            rows.append(Row(name, count, us, clock.microseconds(total.dma_latency), total.pe_util, stalls, total.moved))
        return sorted(rows, key=lambda row: -row.execution_time)

    @property
    def hot_areas(self) -> list[tuple[str, Area]]:
        """Per program, by its name, the areas of memory and LX by the bytes that go there and come from there."""
        found = []
        for machine, times in self._machines().items():
            for area in inside.hot_areas(machine.program, _journal(machine)):
                found.append((machine.program.name, area._replace(read=area.read * times, written=area.written * times)))
        return sorted(found, key=lambda each: -(each[1].read + each[1].written))

    @property
    def scratchpad(self) -> list[tuple[str, ScratchpadUse]]:
        """Per program how it uses LX."""
        return [(m.program.name, scratchpad_use(m.program, _journal(m), m.target)) for m in self._machines()]

    def ir(self, op: str, after: str | None = None) -> dict[str, list[str]]:
        """The lines of an op's IR by the name of the pass that left them; `after`: of one pass alone. Of graphs that this process compiled
        with the option `spyre_instrument_ops`. Raises KtirError where the op, or the pass, is in none.
        """
        return instrumented.ir(op, after)

    def __str__(self) -> str:
        lines = self._unknown()
        for by in ("op", "line"):
            shown = [m for m in self.metrics if m in _CELLS]
            if shown:
                rows = [[by, "launches", *(_CELLS[m][0] for m in shown), ""]]
                rows += [[r.name, str(r.launches), *(_CELLS[m][1](r) for m in shown), ""] for r in self.rows(by)]
                lines += [*aligned(rows), ""]
        if "hot_areas" in self.metrics:
            head = ["program", "area", "sticks", "bytes read", "bytes written", ""]
            areas = [[p, a.space, f"{a.first}:{a.last + 1}", f"{a.read:,}", f"{a.written:,}", ""] for p, a in self.hot_areas[:_MOST_AREAS]]
            lines += [*aligned([head, *areas]), ""]
        if "scratchpad" in self.metrics:
            head = ["program", "peak", "average", "fragmentation", "reuse", ""]
            uses = [[p, *(f"{x:.1%}" for x in (u.peak, u.average, u.fragmentation, u.reuse)), ""] for p, u in self.scratchpad]
            lines += aligned([head, *uses])
        return "\n".join(lines).rstrip()

    def _unknown(self) -> list[str]:
        """A line for each of the ops asked for that no kernel has."""
        nodes = sorted({n for m in self._machines() for s in own_nodes(m.program.sources).values() for n in s.split(",") if n})
        missing = [op for op in self.ops if not any(is_of(node, op) for node in nodes)]
        return [
            f"no kernel that was launched has a node '{op}'{close_to(op, nodes) or ': nodes are ' + ', '.join(nodes)}" for op in missing
        ]

    def _machines(self) -> Counter[Machine]:
        return Counter(launch.machine for launch in self._launches)

    def _inside(self, machine: Machine, by: str) -> dict[str, Inside]:
        nodes = own_nodes(machine.program.sources)

        def key(kernel: str, source: Source) -> str:
            return self._name(by, kernel, source, nodes.get(source, ""))

        return {name: part for name, part in inside.inside(machine.program, _journal(machine), key).items() if name}

    def _name(self, by: str, kernel: str, source: Source, nodes: str) -> str:
        """What a word counts for; empty for ops that are not asked for."""
        if self.ops and not any(is_of(node, op) for node in nodes.split(",") for op in self.ops):
            return ""
        if by == "kernel":
            return kernel
        if by == "line":
            file, _, number = source.location.rpartition(":")[0].rpartition(":")
            return f"{Path(file).name}:{number}" if file else source.location if source.location.startswith("module") else "(no line)"
        return nodes or source.op or "(no op)"


def _number(value: float) -> str:
    return f"{value:,.3f}"


_CELLS = {
    "execution_time": ("us", lambda row: _number(row.execution_time)),
    "dma_latency": ("us per transfer", lambda row: _number(row.dma_latency) if row.dma_latency else "-"),
    "pe_util": ("PE", lambda row: f"{row.pe_util:.1%}"),
    "stalls": ("us waited", lambda row: ", ".join(f"{cause} {us:.2f}" for cause, us in [*row.stalls.items()][:3]) or "-"),
}


def _journal(machine: Machine) -> Trace:
    if machine not in _journals:
        _journals[machine] = control(machine.program, machine.target, checks=False, journal=True)
    return _journals[machine]


def _more(to: Inside, part: Inside, times: int) -> None:
    to.cycles += part.cycles * times
    to.multiplying += part.multiplying * times
    to.transfers += part.transfers * times
    to.latency += part.latency * times
    to.moved += part.moved * times
    for cause, cycles in part.stalls.items():
        to.stalls[cause] += cycles * times


@contextmanager
def instrument(metrics: Sequence[str] = METRICS[:3], ops: Sequence[str] = ()) -> Iterator[Report]:
    """Measure inside of the kernels that are launched while the block runs, by all threads; values and their order stay as they are.

    metrics: of METRICS. ops: nodes of the graph (`mm` stands for `mm_1` too) to which rows are limited; without them, those of the option
    `spyre_instrument_ops` with which graphs were compiled, else all. Raises KtirError for an unknown metric.
    """
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    for name in names:
        if name not in METRICS:
            raise KtirError(f"instrument expects metrics of {', '.join(METRICS)}, but got '{name}'{close_to(name, METRICS)}")
    report = Report(names, [ops] if isinstance(ops, str) else ops)
    with recorded_everywhere() as launches:
        yield report
    report.ops = report.ops or instrumented.asked()
    report._launches = list(launches)
