"""The programs of the page on the device run, and print what it says."""

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from ktir.device.operators import fallback
from ktir.runtime import metrics

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "device.md").read_text()


def test_programs_of_the_page() -> None:
    fallback._said.clear()
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), metrics.counted() as launches:
        for program in re.findall(r"```python\n(.*?)```", PAGE, re.S):
            exec(program, names)
    assert printed.getvalue().splitlines() == [
        "spyre:0 torch.Size([5, 64])",
        "aten.sin is falling back to cpu (the chip has no float64)",
        str(1 << 20),
        "0.0666 ms",
        "SpyreTensorLayout(device_size=[5, 3, 100, 64], stride_map =[15000, 64, 150, 1], device_dtype=DataFormats.SEN169_FP16)",
    ]
    assert (launches().executor, launches().torch) == (0, 1)
    assert "`FallbackWarning: aten.sin is falling back to cpu (the chip has no float64)`" in PAGE


def test_programs_of_the_page_on_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for number, program in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "profiling.md").read_text(), re.S)):
            place = tmp_path / f"program{number}.py"  # nodes of a graph are known by lines of a file
            place.write_text(program)
            exec(compile(program, str(place), "exec"), names)
    kernels, *others = printed.getvalue().splitlines()
    cards = [line for line in others if line.startswith("{'rdmem'")]
    assert any("ktir-tile" in line and "linalg" in line for line in others)
    assert kernels == "['matmul, add: forward_kernel0', 'erf, mul, add: forward_kernel0', 'matmul, add: forward_kernel0']"
    assert cards
    assert all(re.fullmatch(r"{'rdmem': [\d.]+, 'n_launch': \d+}", line) for line in cards)  # other processes' cards, too
    assert all(column in names["table"] for column in ("Self SPYRE", "SPYRE total", "matmul, add: forward_kernel0"))
    assert {"kernel", "privateuse1_runtime", "ac2g"} <= {
        e.get("cat") for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    }


def test_what_is_not_there_is_not_there() -> None:
    for name in ("Generator",):
        assert not hasattr(torch.get_device_module("spyre"), name)
