"""`torch.spyre.instrument`: rows by op and line of what a block launches, and the IR of ops of interest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from torch import nn

from ktir import config
from ktir.diagnostics import KtirError
from ktir.lowering.inductor import instrumented
from ktir.runtime.executable import recorded
from ktir.target import DATASHEET

spyre: Any = torch.spyre  # type: ignore[attr-defined]
ALL = ("execution_time", "dma_latency", "pe_util", "stalls", "hot_areas", "scratchpad")


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    instrumented._kept.clear()
    torch._dynamo.reset()
    yield
    instrumented._kept.clear()


def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.mm(x, w)
    return torch.softmax(y, -1)


def line(text: str) -> str:
    number = next(k for k, each in enumerate(Path(__file__).read_text().splitlines(), 1) if each.strip() == text)
    return f"{Path(__file__).name}:{number}"


def given() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.linspace(-1, 1, 40 * 64).reshape(40, 64).half().to("spyre"), torch.ones(64, 128).half().to("spyre")


def test_rows_are_what_ran(on_chip: None) -> None:
    compiled, (x, w) = torch.compile(model, backend="spyre"), given()
    compiled(x, w)
    with recorded() as launches:
        expected = compiled(x, w).cpu()
    with spyre.instrument(ALL) as report:
        found = [compiled(x, w).cpu() for _ in range(3)]
    assert all(torch.equal(y, expected) for y in found)
    machine = launches[0].machine
    (kernel,) = {k.name for k in machine.report.kernels}
    (row,) = report.rows("kernel")
    assert (row.name, row.launches) == (kernel, 3)
    assert 0 < row.execution_time <= 3 * machine.report.microseconds
    assert row.bytes == 3 * machine.report.dram_bytes
    waited = sum(cycles for unit in machine.report.kernels[0].units for cycles in unit.stalls.values())
    assert sum(row.stalls.values()) == pytest.approx(3 * DATASHEET.microseconds(waited))
    lines = {r.name: r for r in report.rows("line")}
    assert set(lines) == {line("y = torch.mm(x, w)"), line("return torch.softmax(y, -1)")}
    assert lines[line("y = torch.mm(x, w)")].pe_util > 0 == lines[line("return torch.softmax(y, -1)")].pe_util
    ops = report.rows()
    assert [r.name for r in ops if r.pe_util] == ["mm"]
    assert sum(r.bytes for r in ops) == row.bytes
    text = str(report)
    for word in ("us per transfer", "PE", "us waited", "mm", "argument arg0_1", "fragmentation", "reuse"):
        assert word in text
    ((name, use),) = report.scratchpad
    assert name == machine.program.name
    assert 0 < use.average <= use.peak <= 1
    assert report.hot_areas[0][1].read > 0


def test_ops_of_interest(on_chip: None) -> None:
    options: Any = {"spyre_instrument_ops": ["mm"]}
    compiled, (x, w) = torch.compile(model, backend="spyre", options=options), given()
    with spyre.instrument() as report:
        compiled(x, w)
    assert [r.name for r in report.rows()] == ["mm"]
    assert "us waited" not in str(report), "only what was asked for"
    levels = report.ir("mm")
    assert {"logical", "ktir-tile", "ktir-allocate-scratchpad"} <= set(levels)
    assert any("linalg.matmul" in text or "linalg.generic" in text for text in levels["logical"])
    assert not any("math.exp" in text for lines in levels.values() for text in lines)
    assert report.ir("mm", after="ktir-tile") == {"ktir-tile": levels["ktir-tile"]}
    with spyre.instrument(ops=["amax"]) as other:
        compiled(x, w)
    assert all("amax" in r.name for r in other.rows())
    assert other.rows()


def test_wrong_use() -> None:
    with pytest.raises(KtirError, match="got 'pe_utl'; did you mean 'pe_util'"), spyre.instrument(["pe_utl"]):
        pass
    with spyre.instrument() as report:
        pass
    assert report.rows() == []
    with pytest.raises(KtirError, match="rows are by op, line, kernel, but got 'ops'; did you mean 'op'"):
        report.rows("ops")
    with pytest.raises(KtirError, match="got 'mm'; none was compiled with it"):
        report.ir("mm")
    with pytest.raises(ValueError, match="spyre_instrument_ops must be names of ops"), config.patch(spyre_instrument_ops="mm"):
        pass
    assert config.from_environment({"KTIR_SPYRE_INSTRUMENT_OPS": "mm,exp"}).spyre_instrument_ops == ("mm", "exp")


def test_passes_that_are_not_there(on_chip: None) -> None:
    options: Any = {"spyre_instrument_ops": ["mm", "bmm"]}
    compiled, (x, w) = torch.compile(model, backend="spyre", options=options), given()
    with spyre.instrument() as report:
        compiled(x, w)
    with pytest.raises(KtirError, match="no pass of theirs is 'ktir-tiel'; did you mean 'ktir-tile'"):
        report.ir("mm", "ktir-tiel")
    with pytest.raises(KtirError, match="no node of what was compiled is 'bmm'"):
        report.ir("bmm")
    with pytest.raises(KtirError, match="names, but got 'bm'; did you mean 'bmm'"):
        report.ir("bm")


def test_eager_operators_and_modules(on_chip: None) -> None:
    layer = nn.Linear(64, 64).half().to("spyre")
    x = given()[0]
    layer(x)
    with spyre.instrument(["execution_time"]) as report:
        layer(x)
    assert report.rows("kernel")
    assert sum(r.execution_time for r in report.rows("kernel")) > 0


def test_other_threads(on_chip: None) -> None:
    """What a block's threads launch is in its report."""
    compiled, (x, w) = torch.compile(model, backend="spyre"), given()
    compiled(x, w)
    with spyre.instrument() as report:
        threads = [Thread(target=compiled, args=(x, w)) for _ in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    compiled(x, w)  # outside
    assert [row.launches for row in report.rows("kernel")] == [3]


def test_ops_that_are_nowhere(on_chip: None) -> None:
    compiled, (x, w) = torch.compile(model, backend="spyre"), given()
    with spyre.instrument(ops=["softmx", "mm"]) as report:
        compiled(x, w)
    assert str(report).startswith("no kernel that was launched has a node 'softmx'")
    assert {row.name for row in report.rows()} == {"mm"}


def test_ops_of_a_program_without_a_file() -> None:
    """Of what `exec` made, and of modules of torch alone, nodes have no line."""
    made: dict[str, Any] = {}
    exec("def scores(x, w):\n    return torch.softmax(torch.mm(x, w), -1)\n", {"torch": torch}, made)
    x, w = torch.ones(40, 64, device="spyre").half(), torch.ones(64, 128, device="spyre").half()
    options: Any = {"spyre_instrument_ops": ["mm", "exp"]}
    compiled = torch.compile(made["scores"], backend="spyre", options=options)
    with torch.no_grad(), spyre.instrument() as report:
        compiled(x, w)
    for op in ("mm", "exp"):
        found = report.ir(op)
        assert len(found) > 2
        assert all(found.values())
