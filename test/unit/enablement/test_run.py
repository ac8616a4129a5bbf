"""Models run on the device call by call, each judged by PyTorch on the host, and the page of it."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ktir.device.autoload import register
from ktir.enablement import outcomes, page
from ktir.enablement.outcomes import Status, Variant
from ktir.enablement.record import record
from ktir.enablement.run import run_recorded
from ktir.runtime import metrics
from ktir.tools.pages.ktir_models import main

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
SCRIPT = """
import os, torch
from torch import nn

def small(): return nn.Sequential(nn.Linear(64, 64), nn.ReLU()).half(), torch.ones(4, 64).half()
def dies(): return (lambda x: os._exit(7) if x.device.type == "cpu" and torch.exp(x).sum() > 0 else x), torch.ones(2)
def slow():
    import time
    return (lambda x: (time.sleep(60), x)[1]), torch.ones(2)
def failing(): return (lambda x: x @ x), torch.ones(2, 3)
"""


class Net(nn.Module):
    """One call that works, one that the host computes, one that is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.linear(x)
        return y, torch.linalg.qr(y.float()[:4, :4]), torch.fft.fft(y.float()).real


@pytest.mark.parametrize("backend", ["inductor", "eager"])
def test_each_call_is_held_against_the_host(backend: str) -> None:
    register()
    torch.manual_seed(0)
    found: list[Variant] = []
    with metrics.counted() as launches:
        run_recorded("net", record(Net().half(), torch.randn(8, 64).half()), backend, found.append)
    by_name = {v.operation: v for v in found}
    assert by_name["torch.nn.functional.linear"].status is Status.XPASS
    assert by_name["torch.nn.Linear"].status is Status.XPASS
    assert launches().chip >= 2, "both ran on the chip"
    assert by_name["torch.linalg.qr"].status is Status.FALLBACK
    assert (by_name["torch.nn.functional.linear"].where, by_name["torch.linalg.qr"].where) == ("chip", "PyTorch")
    assert "linalg_qr" in by_name["torch.linalg.qr"].reason
    assert by_name["torch.fft.fft"].status is Status.XFAIL
    assert "complex" in by_name["torch.fft.fft"].reason
    linear = by_name["torch.nn.functional.linear"]
    assert (linear.input_shapes, linear.input_strides) == ([[8, 64], [64, 64], [64]], [[64, 1], [64, 1], [1]])
    assert (linear.input_dtypes, linear.target_shape) == (["float16"] * 3, [[8, 64]])
    assert linear.test_name == "test_model_ops_db_torch_nn_functional_linear__1_spyre_float16"


def test_another_value_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    register()
    wrong = lambda x: x.cpu() + (x.device.type != "cpu")  # noqa: E731 - one element off by 1 where it runs elsewhere
    monkeypatch.setattr(torch, "tanh", wrong)
    found: list[Variant] = []
    recorded = record(torch.exp, torch.ones(3))
    (call,) = recorded.operators.values()
    object.__setattr__(call, "op", "torch.tanh")
    run_recorded("m", recorded, "eager", found.append)
    assert [v.status for v in found] == [Status.XFAIL]


@pytest.mark.long
def test_models_that_die_or_take_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    models = ["s.py:dies", "s.py:slow", "s.py:failing", "s.py:none", "other.yaml"]
    assert main(["run", *models, "--timeout", "25", "--jobs", "5"]) == 1
    run = outcomes.read(tmp_path / "models.json")
    ended = {s.name: (s.exit_code, s.ended) for s in run.suites}
    assert ended["dies"] == (7, "")
    assert ended["slow"] == (124, "stopped after 25 s")
    assert ended["failing"][0] == 2
    assert "the model of 'failing' fails on its example inputs: s.py:10: RuntimeError" in ended["failing"][1]
    assert ended["none"][0] == 2
    assert "has no function 'none'" in ended["none"][1]
    assert ended["other"] == (1, "error: cannot open 'other.yaml': No such file or directory")
    assert "not run to its end" in capsys.readouterr().out


@pytest.mark.turn
def test_from_models_to_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    assert main(["record", "s.py:small", "-o", "small.yaml"]) == 0
    assert main(["run", "s.py:small", "-o", "a.json"]) == 0
    assert "small: 2 of 2 operators, 2 of 2 modules enabled" in capsys.readouterr().out
    assert main(["run", "small.yaml", "-o", "b.json"]) == 0
    assert "small: 2 of 2 operators, 0 of 0 modules enabled" in capsys.readouterr().out
    worse = outcomes.read(tmp_path / "a.json")
    worse.suites[0].variants[0] = Variant("torch.nn.functional.linear", "operator", "t", Status.FALLBACK)
    outcomes.write(worse, tmp_path / "c.json")
    assert main(["compare", "a.json", "c.json"]) == 1
    assert "regression: small: torch.nn.functional.linear: spyre_enabled -> cpu_fallback" in capsys.readouterr().out
    assert main(["compare", "c.json", "a.json"]) == 0
    assert main(["page", "c.json", "--before", "a.json", "-o", "p.html", "--csv", "p.csv"]) == 0
    rows = list(csv.DictReader((tmp_path / "p.csv").open()))
    assert [(r["operation"], r["status"]) for r in rows][:2] == [
        ("torch.nn.functional.linear", "FALLBACK"),
        ("torch.nn.functional.relu", "XPASS"),
    ]
    text = (tmp_path / "p.html").read_text()
    assert "1 changed, 1 of them regressions" in text
    assert not re.findall(r"(?:src|href)=", text), "the page asks for nothing"


def test_texts_of_others_are_no_markup() -> None:
    bad = "<img src=x onerror=alert(1)>"
    suite = outcomes.Suite(bad, [Variant(bad, "operator", bad, Status.XFAIL, arg_values=[bad], reason=bad)], ended=bad, left={bad: 1})
    assert "<img" not in page.page(outcomes.Run(bad, bad, bad, [suite]), outcomes.Run(bad))


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)")
def test_in_a_browser(tmp_path: Path) -> None:
    variants = [Variant(f"torch.{op}", "operator", f"t{k}", Status(s)) for k, (op, s) in enumerate([("add", "XPASS"), ("mul", "XFAIL")])]
    run = outcomes.Run("r", suites=[outcomes.Suite("a", variants), outcomes.Suite("b", variants[:1])])
    driven = """
        window.onerror = (text) => { document.title = "error: " + text; };
        addEventListener("load", () => {
          const shown = () => document.getElementById("shown").textContent, seen = [shown()];
          form.elements.text.value = "mul"; form.dispatchEvent(new Event("input")); seen.push(shown());
          document.querySelector('td[data-model="a"][data-operation="torch.add"]').click(); seen.push(shown());
          form.elements.status.value = "XFAIL"; form.dispatchEvent(new Event("input")); seen.push(shown());
          document.title = seen.join(", ");
        });"""
    text = page.page(run).replace("<body>", f"<body><script>{driven}</script>")
    (tmp_path / "p.html").write_text(text)
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", (tmp_path / "p.html").as_uri()]
    out = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, check=False).stdout
    assert re.findall(r"<title>(.*?)</title>", out) == ["3 of 3, 1 of 3, 1 of 3, 0 of 3"]


@pytest.mark.turn
def test_the_commands_of_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[3]
    (tmp_path / "examples").symlink_to(root / "examples")
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ ktir-models (.*)$", (root / "docs" / "enablement.md").read_text(), re.MULTILINE)
    assert [c.split()[0] for c in commands] == ["run", "page", "compare", "record"]
    for command in commands:
        assert main(command.split()) == 0
        if (today := tmp_path / "today.json").exists():
            shutil.copy(today, tmp_path / "yesterday.json")
    assert {"models.html", "softmax.yaml"} <= {p.name for p in tmp_path.iterdir()}
