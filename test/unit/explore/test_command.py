"""`ktir-explore`: what it writes, what it says of a wrong call, and the commands of its page."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from ktir.explore import page
from ktir.tools.pages.ktir_explore import main

ROOT = Path(__file__).parents[3]


def test_the_command_of_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = re.findall(r"^\$ ktir-explore (.*)$", (ROOT / "docs" / "explore.md").read_text(), re.MULTILINE)
    arguments = shlex.split(command)
    written = tmp_path / arguments[-1]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 0, capsys.readouterr().err
    data = page.read(written)
    assert data["title"] == arguments[0]
    assert {"graph", "level", "assembly"} == {v["kind"] for v in data["views"]}
    assert main([*arguments, "--before", arguments[-1]]) == 0
    assert any(v["kind"] == "before" for v in page.read(written)["views"])


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["missing.py:f"], 2, "ktir-explore: error: cannot open script 'missing.py': no such file"),
        (["no colon"], 2, "expects SCRIPT.py:FUNCTION"),
        (["model.py:other"], 2, "has no function 'other'; it has made, refused, failing"),
        (["model.py:made", "-o", "no/such/folder.html"], 1, "cannot write 'no/such/folder.html': No such file or directory"),
        (["model.py:made", "--before", "model.py"], 1, "'model.py' is no page"),
        (["model.py:refused"], 1, "error:"),
        (["model.py:failing"], 2, "the model of 'failing' fails on its example inputs: model.py:9: RuntimeError"),
    ],
)
def test_wrong_calls(
    arguments: list[str], status: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = "import torch\n\ndef made():\n    return torch.neg, torch.ones(4)\n\n"
    refused = "def refused():\n    return (lambda x: x.view(2, 2)), torch.ones(4)\n"
    failing = "def failing():\n    return (lambda x: x @ x.new_ones(5)), torch.ones(4)\n"
    (tmp_path / "model.py").write_text(made + refused + failing)
    assert main(arguments) == status
    found = capsys.readouterr()
    assert said in found.err
    assert "Traceback" not in found.err
    assert found.out == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_how_far_it_is(
    terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text("import torch\n\ndef made():\n    return (lambda x: (x + 1).amax(-1)), torch.ones(4, 70)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert main(["model.py:made"]) == 0
    said = capsys.readouterr().err
    if not terminal:
        assert said == ""
        return
    shown = [line.strip() for line in said.split("\r") if line.strip()]
    assert shown[0] == "ktir: model.py:made: traced by PyTorch"
    assert "ktir: program 1 of 1: ktir-plan" in shown
    assert shown[-1] == "ktir: program 1 of 1: the machine's timeline"
    assert said.endswith("\r")
