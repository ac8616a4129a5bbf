"""What a notebook shows of executions, reports and kernels: well-formed, escaped, of a bounded size."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np

import ktir
from ktir import lang
from ktir.emulator import notebook
from ktir.emulator.machine.reports.report import KernelReport, MachineReport, UnitReport
from ktir.emulator.reference.run import Execution
from ktir.isa.units import Unit

ADD = Path(__file__).parents[3] / "examples" / "add.mlir"


class Reader(HTMLParser):
    """Text of HTML, whose tags must close in order and be those that we write."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.parts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in "div b table tr th td details summary pre span".split(), tag
        assert {name for name, _ in attrs} <= {"style", "colspan"}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.parts)


def test_executions_and_reports() -> None:
    x, y, out = np.arange(256, dtype=np.float16).reshape(4, 64), np.ones((4, 64), np.float16), np.zeros((4, 64), np.float16)
    done = ktir.execute(ADD, args={"x": x, "y": y, "out": out})
    text = Reader(done._repr_html_()).text
    assert "float16[4,64]" in text
    assert "1.0 2.0 3.0 4.0 5.0 6.0 …" in text
    assert "arith.addf" in text
    assert "1,024" in text  # bytes read
    assert Reader(done.report._repr_html_()).text in text
    given = Execution({"<script>": x}, {("lx", 0, 4): y}, done.report)
    assert "<script>" in Reader(given._repr_html_()).text
    assert "lx 0 4" in Reader(given._repr_html_()).text


def test_machine_reports() -> None:
    unit = UnitReport(Unit.MNIL, 1, 10, 400, 500, 0.4, {"<fifo>": 3})
    kernel = KernelReport("<k>", 32, 1000, 1.0, (unit,), 2048, 64, 0.25, {}, (), 0)
    report = MachineReport("<p>", "datasheet", 1.1, (kernel,) * 50)
    text = Reader(report._repr_html_()).text
    assert "50,000 cycles" in text
    assert "<p>" in text
    assert "<fifo> 3" in text
    assert "and 30 more" in text
    assert "MNIL" in Reader(kernel._repr_html_()).text


@lang.kernel
def double(x, y):
    """Twice <x> & more."""
    y[:] = x[:] * 2  # in place


def test_kernels() -> None:
    text = Reader(double._repr_html_()).text
    assert "on a grid of 4 tiles" in Reader(double[4]._repr_html_()).text
    assert "kernel 'double', divided by the compiler, runs on executor" in text
    assert "Twice <x> & more." in text
    assert "KTIR of the last trace" not in text
    x, y = np.ones((2, 64), np.float16), np.zeros((2, 64), np.float16)
    double(x, y)
    html = double._repr_html_()
    assert ">arith.mulf</span>" in html
    assert "loc(" not in html
    assert '<span style="color:#7a7a7a"># in place</span>' in html
    tuned = lang.Tuned(double, {"n": 1}, 10, (("n=<1>", 10),))
    assert "n=<1>" in Reader(tuned._repr_html_()).text


def test_source_keeps_its_text() -> None:
    for text in (ADD.read_text(), 'x = "<b>" # & \'\n"""open', '%x = "a.b"(%y) : () -> !k.t<1x2xf16> loc("<":1:2)\n'):
        assert "".join(Reader(notebook.source(text, "ktir")).parts) == text
        assert "".join(Reader(notebook.source(text, "python")).parts) == text
