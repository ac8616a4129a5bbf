"""`ktir-report`: tables, roofline and pictures of a package."""

import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import ktir
from ktir.assembly import parse_module
from ktir.context import context
from ktir.emulator.machine import Machine
from ktir.emulator.machine.reports.occupancy import lives
from ktir.emulator.machine.reports.roofline import Roofline, bandwidth, pt_peak, roofline
from ktir.isa.resources import Resource
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.target import DATASHEET
from ktir.tools.ktir_report import main

PROGRAMS = Path(__file__).parents[2] / "lit" / "lowering" / "inductor"


@pytest.fixture(scope="module", params=["linear_relu", "softmax"])
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    with context(), ir.Location.unknown():
        text = (PROGRAMS / f"{request.param}.mlir").read_text()
        for name, data in compile_logical(parse_module(text, f"{request.param}.mlir")).items():
            (folder / name).write_bytes(data)
    return folder


def test_rates_of_the_chip() -> None:
    assert pt_peak(DATASHEET) == pytest.approx(98_304)  # 98.3 TFLOP/s and 204.8 GB/s are the published peaks
    assert bandwidth(DATASHEET) == pytest.approx(204.8)


def test_roofline(package: Path) -> None:
    machine = Machine(read(package).program, DATASHEET)
    for place, kernel in zip(roofline(machine.trace, DATASHEET), machine.report.kernels, strict=True):
        assert place.bytes == kernel.dram_read + kernel.dram_written
        assert 0 < place.share <= 1  # nothing is faster than the chip
        assert place.roof == ("memory" if place.intensity < place.peak / place.bandwidth else "compute")


def test_lives_do_not_overlap(package: Path) -> None:
    machine = Machine(read(package).program, DATASHEET)
    found = lives(machine.program, machine.trace)
    assert found
    by_stick: dict[int, list[tuple[int, int]]] = {}
    for life in found:
        assert life.begin <= life.end <= machine.report.cycles
        for stick in range(life.first, life.last + 1):
            by_stick.setdefault(stick, []).append((life.begin, life.end))
    for spans in by_stick.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert max(by_stick) < machine.trace.lx_sticks


def test_output_and_pictures(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(package)]) == 0
    text = capsys.readouterr().out
    assert "operations per byte" in text
    assert "stalls" in text
    assert main([str(package), "--json", "--target", "fitted"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["report"]["kernels"][0]["units"][0]["unit"] == "MNIL"
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        roof, lx = tmp_path / f"r{suffix}", tmp_path / f"l{suffix}"
        assert main([str(package), "--roofline", str(roof), "--lx", str(lx)]) == 0
        assert roof.read_bytes().startswith(start)
        assert lx.read_bytes().startswith(start)


def test_bounds_and_what_if(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine(read(package).program, DATASHEET)
    (report, *_), (bound, *_) = machine.report.kernels, machine.bottlenecks.kernels
    assert main([str(package), "--what-if", "memory,memory+latency,all"]) == 0
    text = capsys.readouterr().out
    assert f"kernel '{report.name}': bound by the {bound.resource.title}: {bound.share:.0%} fewer cycles without it" in text
    assert f"to relieve the {bound.resource.title}: " in text
    head, row = next((a, b) for a, b in pairwise(text.splitlines()) if a.lstrip().startswith("cycles if this took no time"))
    assert head.split()[6:] == ["as", "it", "is", "memory", "memory+latency", "latency", "ring", "pt", "sfp", "lx", "handover", "launch"]
    # the machine without a limit of memory, and without its latency
    fast = replace(DATASHEET, dram_bytes_per_cycle=float("inf"))
    first = [Machine(machine.program, t).report.kernels[0].cycles for t in (DATASHEET, fast, replace(fast, dram_latency=0))]
    assert row.split()[2:5] == [f"{n:,}" for n in first]
    assert main([str(package), "--json", "--what-if", "memory"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["what if"]["memory"][0] == first[1]
    assert data["bounds"]["kernels"][0]["resource"] == bound.resource.title
    assert sum(data["bounds"]["program"]["chain"].values()) == machine.report.cycles
    assert sum(data["report"]["kernels"][0]["chain"].values()) == report.cycles
    measured, most = (data["bounds"]["kernels"][0][key] for key in ("saves", "saves at most"))
    assert measured[bound.resource.title] == bound.saves[bound.resource]
    assert measured.keys() | most.keys() == {r.title for r in Resource}
    assert not measured.keys() & most.keys()
    assert max(most.values(), default=0) <= max(measured.values())


def several(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x @ w, -1).sum(0)
    return y @ w


def test_the_longest_kernels_come_with_what_they_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of many kernels one wants to know where the time goes, and for which lines of the source."""
    text = ktir.capture(several, torch.zeros(64, 128).half(), torch.zeros(128, 128).half(), debuginfo=True)
    with context(), ir.Location.unknown():
        for name, data in compile_logical(parse_module(text)).items():
            (tmp_path / name).write_bytes(data)
    machine = Machine(read(tmp_path).program, DATASHEET)
    reports = sorted(machine.report.kernels, key=lambda k: -k.cycles)
    assert len(reports) > 1
    assert main([str(tmp_path)]) == 0
    told = capsys.readouterr().out
    _, head, *rows = told[told.index("longest kernels") :].splitlines()
    assert head.split() == ["kernel", "cycles", "share", "bound", "by", "does"]
    assert [row.split()[0] for row in rows] == [k.name for k in reports]
    assert [row.split()[1] for row in rows] == [f"{k.cycles:,}" for k in reports]
    assert [row.split()[2] for row in rows] == [f"{k.cycles / machine.report.cycles:.0%}" for k in reports]
    first = several.__code__.co_firstlineno + 1
    places = {f"test_ktir_report.py:{first}", f"test_ktir_report.py:{first + 1}"}
    assert all(any(place in row for place in places) for row in rows)
    assert any("matmul" in row for row in rows)
    assert main([str(tmp_path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [k["name"] for k in data["kernels"]] == [k.name for k in machine.report.kernels]
    assert {Path(place).name for k in data["kernels"] for place in k["source"]} == places


def test_what_computes_nothing_has_no_place_under_a_roof() -> None:
    copy = Roofline("copy", 0, 204_800, 2.0, 6144.0, 204.8)
    assert str(copy) == "kernel 'copy': no operations, 102.4 of 204.8 GB/s (50%) of memory"
    assert str(replace(copy, bytes=0)) == "kernel 'copy': no operations and no bytes of memory"
    inside = replace(copy, flops=6_144_000, bytes=0)
    assert str(inside) == "kernel 'copy': no bytes of memory, 3072.0 of 6144.0 GFLOP/s (50%) below the roof of compute"


def test_tokens_are_told_by_channel_where_they_are_asked_for(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (report, *_) = Machine(read(package).program, DATASHEET).report.kernels
    channel = max(report.channels, key=lambda c: c.posted)
    row = f"{channel.sender.name} -> {channel.receiver.name}, token {channel.token} {channel.posted} {channel.most}"
    assert main([str(package)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"tokens: {sum(c.posted for c in report.channels):,} on {len(report.channels)} channels" in text
    assert row not in text
    assert main([str(package), "--tokens"]) == 0
    assert row in " ".join(capsys.readouterr().out.split())


def test_wrong_use(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none")]) == 1
    assert main([str(package), "--core", "77"]) == 1
    assert "--core expects 0 to" in capsys.readouterr().err
    assert main([str(package), "--what-if", "memroy"]) == 1
    assert "but got 'memroy'; did you mean 'memory'?" in capsys.readouterr().err
    assert main([str(package), "--kernel", "nope"]) == 1
    assert "neither --division nor --loop is given" in capsys.readouterr().err
    assert main([str(package), "--what-if", ""]) == 1
    assert "--what-if expects all, or some of" in capsys.readouterr().err
    assert main([str(package), "--lx", str(tmp_path / "x.gif")]) == 1
    assert ".svg, .png, .pdf" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([str(package), "--roofline", str(tmp_path / "x.svg")]) == 1
    assert "pip install 'ktir[pictures]'" in capsys.readouterr().err
