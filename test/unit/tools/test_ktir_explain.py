"""`ktir-explain`: the report's figures are those of the program, and bad input is an error of one line."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import ktir
from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.lowering.compile import compile_logical
from ktir.mlir import func, ir
from ktir.package import read
from ktir.runtime.executable import Executable
from ktir.target import DATASHEET
from ktir.tools import ktir_report
from ktir.tools.ktir_explain import explain, main
from ktir.tools.shared.explain import buffers

PROGRAMS = sorted((Path(__file__).parents[2] / "lit" / "lowering" / "inductor").glob("*.mlir"))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Package folders by program."""
    places = {}
    for path in PROGRAMS:
        with context(), ir.Location.unknown():
            files = compile_logical(parse_module(path.read_text(), path.name))
        places[path.stem] = tmp_path_factory.mktemp(path.stem)
        for name, data in files.items():
            (places[path.stem] / name).write_bytes(data)
    return places


@pytest.mark.parametrize("name", [p.stem for p in PROGRAMS])
def test_figures_are_those_of_the_program(packages: dict[str, Path], name: str) -> None:
    text = explain(str(packages[name]))
    kernels = Executable(read(packages[name])).machine.report.kernels
    assert [int(n.replace(",", "")) for n in re.findall(r"emulated: .*\(([\d,]+) cycles\)", text)] == [k.cycles for k in kernels]
    moved = [(int(r.replace(",", "")), int(w.replace(",", ""))) for r, w in re.findall(r"traffic: ([\d,]+) bytes read, ([\d,]+) wr", text)]
    assert moved == [(k.dram_read, k.dram_written) for k in kernels]
    assert [int(n) for n in re.findall(r"grid: (\d+) of 32 cores", text)] == [k.cores for k in kernels]


@pytest.mark.parametrize("name", [p.stem for p in PROGRAMS])
def test_there_is_one_roofline(packages: dict[str, Path], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """That of `ktir-report`; at the predicted time, too, a kernel has as many operations per byte."""
    assert ktir_report.main([str(packages[name])]) == 0
    reported = re.findall(r"^  kernel '.*': (.*(?:below the roof of|of memory).*)", capsys.readouterr().out, re.MULTILINE)
    found = re.findall(r"roofline: (.*)", explain(str(packages[name])))
    assert found == reported != []
    predicted = re.findall(r"roofline: (.*)", explain(str(packages[name]), machine=False))
    assert [words.split(",")[0] for words in predicted] == [words.split(",")[0] for words in found]


@pytest.mark.parametrize("name", [p.stem for p in PROGRAMS])
def test_scratchpad_map(packages: dict[str, Path], name: str) -> None:
    """The map shows what the allocation says: its top, and places side by side where nothing is reused."""
    with context(), ir.Location.unknown():
        module = parse_module((packages[name] / "allocated.ktir.mlir").read_text())
        for op in module.body.operations:
            if isinstance(op, func.FuncOp) and "ktir.lx_bytes" in op.attributes:
                places = buffers(op.regions[0].blocks[0])
                assert max(b.end for b in places) == ir.IntegerAttr(op.attributes["ktir.lx_bytes"]).value
                assert all(a.end <= b.address for a, b in pairwise(places))


def test_outline_of_a_linear_layer(packages: dict[str, Path]) -> None:
    text = explain(str(packages["linear_relu"]))
    for part in (
        "program 'forward' on datasheet: 1 kernel",
        "15 parts of 4 rows (the last one 1), 2 parts of 1 stick of columns",
        "loop: 1 trip of 1, sums in PT",
        "matmul 1x4x64",
        "pointwise 1x4x64",
        "8,192 bytes, 1x64x64xf16",
        "read  arg0_1:",
        "each byte for 15 cores at once",
        "bound by the memory",
        "fewer cycles without it; ",
        "below the roof of memory",
    ):
        assert part in text


def test_command(packages: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    place = packages["softmax"] / "allocated.ktir.mlir"
    assert main([str(place), "--target", "fitted", "--predict-only", "--figures"]) == 0
    out = capsys.readouterr().out
    assert "on fitted" in out
    assert "emulated" not in out
    assert "pt_efficiency = 0.742188 , fitted: torch-spyre cost_model.py" in out
    assert out.count("\n  ") > len(DATASHEET.figures())


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.mlir"
    for text, message in (
        ("module {}", "'ktir-explain' expects a module at level 'allocated', but got a module without 'ktir.level'"),
        ("module {", "x.mlir:1:"),
        ((PROGRAMS[0]).read_text(), "expects a module at level 'allocated', but got 'logical'"),
    ):
        path.write_text(text)
        assert main([str(path)]) == 1
        error = capsys.readouterr().err
        assert message in error
        assert "Traceback" not in error
    assert main([str(tmp_path / "none.mlir")]) == 1
    assert "cannot open input file" in capsys.readouterr().err


def test_text_without_locations(packages: dict[str, Path], tmp_path: Path) -> None:
    with context(), ir.Location.unknown():
        text = print_module(parse_module((packages["residual"] / "allocated.ktir.mlir").read_text()), debuginfo=False)
    (tmp_path / "x.mlir").write_text(text)
    assert "kernel 'forward_kernel0'" in explain(str(tmp_path / "x.mlir"))


def test_an_op_is_called_by_the_nodes_that_it_does_itself(tmp_path: Path) -> None:
    """Not by all that went into it; a kernel without a line is that of its module."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64)).half()
    (tmp_path / "x.mlir").write_text(ktir.capture(model, torch.ones(4, 64).half(), stage="allocated", debuginfo=True))
    text = explain(str(tmp_path / "x.mlir"), machine=False)
    assert re.findall(r"matmul \S+ of (.*)", text) == ["addmm, permute", "addmm_1, permute_1"]
    assert "unknown" not in text
    assert "kernel 'forward_kernel0' (module '0')" in text
