"""The conformance suite through ktir, in this process and as commands; and that the runner notices what is wrong."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "conformance"
_spec = importlib.util.spec_from_file_location("conformance_run", FOLDER / "run.py")
assert _spec is not None
assert _spec.loader is not None
run: Any = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = run
_spec.loader.exec_module(run)

OURS = ["--command", "ktir-opt {file}", "--strict-command", "ktir-opt --strict {file}"]
EXECUTE = ["--execute-command", f"{sys.executable} {FOLDER / 'run.py'} --execute {{file}} {{values}}"]


@pytest.mark.parametrize("case", run.cases(), ids=lambda c: c.path.stem)
def test_case(case: Any) -> None:
    assert run.check(case, run.Ours()) is None


@pytest.fixture
def _tools(path_of_tools: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", path_of_tools)


@pytest.mark.usefixtures("_tools")
def test_as_commands(capsys) -> None:
    chosen = ["--only", "C008,C019,C066,C071,C113,C121,C151,C210,C220"]
    assert run.main([*OURS, *EXECUTE, "--messages", *chosen]) == 0
    assert "9 of 9 cases hold" in capsys.readouterr().out
    assert run.main([*OURS, "--level", "L1", *chosen]) == 0
    assert "4 of 4 cases hold" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.usefixtures("_tools")
def test_all_as_commands() -> None:
    assert run.main([*OURS, *EXECUTE, "--messages"]) == 0


def test_an_implementation_that_accepts_everything_fails(capsys) -> None:
    assert run.main(["--command", "cat {file}", "--only", "C001,C019"]) == 1
    out = capsys.readouterr().out
    assert "C019" in out
    assert "accepted, but must be rejected" in out
    assert "1 of 2 cases hold" in out


def test_an_implementation_that_rejects_everything_fails(capsys) -> None:
    assert run.main(["--command", "false {file}", "--only", "C001,C019"]) == 1
    assert "C001 L0 a module may be empty: rejected" in capsys.readouterr().out


def test_wrong_values_are_noticed(tmp_path, capsys) -> None:
    answer = tmp_path / "answer.json"
    for values, message in (
        ([0, 2, 5], "instead of 4.0 at 2"),
        ([0, 2], "2 values instead of 3"),
        ([0, 2, 4], None),
        ([-0.0, 2, 4], "-0.0"),
    ):
        answer.write_text(json.dumps({"y": values}))
        status = run.main(["--command", "cat {file}", "--execute-command", f"cat {answer}", "--only", "C101"])
        assert status == int(message is not None)
        assert (message or "1 of 1") in capsys.readouterr().out


def test_malformed_cases_and_calls_are_refused(tmp_path, capsys) -> None:
    case = tmp_path / "C900_x.mlir"
    for text in ("module {}", "// C901: x\n// level: L1\n// expected: ok\n", "// C900: x\n// level: L2\n// expected: values\n"):
        case.write_text(text)
        with pytest.raises(ValueError, match="C900"):
            run.Case.read(case)
    for wrong in (["--only", "C999"], ["--execute-command", "x"], ["--level", "L9"]):
        with pytest.raises(SystemExit):
            run.main(wrong)
    capsys.readouterr()


def test_the_cases_are_numbered_once_and_have_their_values() -> None:
    cases = run.cases()
    assert len(cases) >= 60
    assert len({c.number for c in cases}) == len(cases)
    assert {p.stem for p in run.CASES.glob("*.json")} == {c.path.stem for c in cases if c.values is not None}
