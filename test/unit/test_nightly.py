"""A night: what its levels record, how two are compared, and the page."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nightly import history, levels, report, run
from nightly.history import FAILED, PASSED, SKIPPED, Case, Level, Night

TESTS = """
import pytest

def test_good(): pass

@pytest.mark.parametrize("n", [1, 2])
def test_by(n): assert n == 1, "two is <wrong>"

def test_not_here(): pytest.skip("no card")

@pytest.fixture
def broken():
    yield
    raise RuntimeError("at the end")

def test_ends_badly(broken): pass

@pytest.mark.xfail
def test_expected(): assert False
"""


@pytest.fixture
def plan(tmp_path: Path) -> levels.Plan:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    path = tmp_path / "test_some.py"
    path.write_text(TESTS)
    return levels.Plan("some", "a few", (str(path),), 1)


def short(level: Level) -> dict[str, str]:
    return {name.split("::")[-1]: case.outcome for name, case in level.cases.items()}


def test_a_level_records_every_case(plan: levels.Plan) -> None:
    level = levels.run(plan, ["-p", "no:xdist"])
    assert level.ended == ""
    assert short(level) == {
        "test_good": PASSED,
        "test_by[1]": PASSED,
        "test_by[2]": FAILED,
        "test_not_here": SKIPPED,
        "test_ends_badly": FAILED,
        "test_expected": SKIPPED,
    }
    assert level.rate == 2 / 4
    assert any("at the end" in case.text or "RuntimeError" in case.text for case in level.cases.values())


@pytest.mark.turn
def test_what_keeps_a_level_from_its_end(plan: levels.Plan, tmp_path: Path) -> None:
    """Time that is over, after some cases; a process that dies; an environment that is not there."""
    script = "import time\ndef test_a(): pass\ndef test_b(): time.sleep(60)\n"
    Path(plan.places[0]).write_text(script)
    late = levels.run(dataclasses.replace(plan, minutes=0.1), ["-p", "no:xdist"])
    assert short(late) == {"test_a": PASSED}
    assert late.ended == "stopped after 0.1 minutes"
    Path(plan.places[0]).write_text("import os\ndef test_a(): pass\ndef test_b(): os._exit(7)\n")
    dead = levels.run(plan, ["-p", "no:xdist"])
    assert short(dead) == {"test_a": PASSED}
    assert dead.ended == "ended with status 7"
    refused = levels.run(plan, ["--none-such"])
    assert refused.ended.startswith("ended with status 4: ")
    assert refused.ended.endswith("unrecognized arguments: --none-such")
    away = levels.run(dataclasses.replace(plan, python=tmp_path / "none" / "bin" / "python"))
    assert away.cases == {}
    assert "is missing" in away.ended


@pytest.mark.turn
def test_operators_of_models_are_cases(tmp_path: Path) -> None:
    """By the states of ktir-models: what falls back has not passed."""
    script = tmp_path / "model.py"
    script.write_text("import torch\ndef make(): return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), torch.zeros(1, 8)\n")
    level = levels.run(levels.Plan("modules", "of one model", (f"{script}:make",), 10))
    assert level.ended == ""
    assert {name: case.outcome for name, case in level.cases.items() if "module" in name} == {
        "make: module torch.nn.Linear": PASSED,
        "make: module torch.nn.ReLU": PASSED,
    }
    cut = levels.run(levels.Plan("modules", "of two models", (f"{script}:make", f"{script}:none"), 20))
    assert cut.cases == level.cases, "what one does not come to is nothing to the other"
    assert cut.ended.startswith("none: ")
    found = tmp_path / "found"
    found.write_text(json.dumps({"suites": [{"name": "m.py:f", "states": [["operator", "torch.add", "cpu_fallback"]]}]}))
    assert levels._of_models(found) == {"f: operator torch.add": Case(FAILED, 0.0, "cpu_fallback")}


def night(ended: str = "", **outcomes: str) -> Night:
    return Night("abc", "2026-01-02T03:04:05", {"ops": Level(1.0, {name: Case(o) for name, o in outcomes.items()}, ended)})


def test_changes() -> None:
    before = night(a=PASSED, b=PASSED, c=FAILED, d=SKIPPED, e=PASSED, f=FAILED)
    after = night(a=PASSED, b=FAILED, c=PASSED, d=PASSED, f=FAILED, g=FAILED)
    found = {c.case: (c.before, c.after, c.is_regression) for c in history.changes(before, after)}
    assert found == {
        "b": (PASSED, FAILED, True),
        "c": (FAILED, PASSED, False),
        "d": (SKIPPED, PASSED, False),
        "e": (PASSED, "", True),
        "g": ("", FAILED, False),
    }
    cut = night("stopped after 3 minutes", a=PASSED)
    assert history.changes(before, cut) == []  # it did not come to them
    assert history.changes(cut, before) == []


def test_a_night_is_kept_and_found_by_commit(tmp_path: Path) -> None:
    first, second = night(a=PASSED), dataclasses.replace(night(a=FAILED), commit="def", date="2026-01-03T03:04:05")
    for each in (first, second):
        history.write(each, tmp_path)
    assert history.earlier(tmp_path) == second
    assert history.earlier(tmp_path, "abc") == first
    assert history.earlier(tmp_path, "fff") is None
    (tmp_path / "2026-02-01-fff.json").write_text('{"levels": []}')
    with pytest.raises(ValueError, match="is no record of a night"):
        history.earlier(tmp_path)


def test_the_page_says_what_is_there() -> None:
    before, after = night(a=PASSED, b=PASSED, s=SKIPPED), night("stopped", a=PASSED, b=FAILED, s=SKIPPED)
    after.levels["ops"].cases["b"] = Case(FAILED, 1.0, "1 < 2 & <script>")
    page = report.page(after, before)
    assert "1 &lt; 2 &amp; &lt;script&gt;" in page
    assert "<script" not in page
    assert "http" not in page
    assert "50.0%" in page
    assert "stopped" in page
    assert "not there" not in page
    assert "<h2>Changes</h2>" not in report.page(after, None)
    nothing = report.page(Night("abc", "2026-01-02", {"ops": Level(1.0, {}, "nothing ran")}), None)
    assert "%" not in nothing.split("</style>")[1], "a rate of nothing"


@pytest.mark.turn
def test_the_command_compares_with_the_last_night(
    plan: levels.Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "PLANS", (plan,))
    Path(plan.places[0]).write_text("def test_a(): pass\n")
    folder = tmp_path / "nights"
    asked = ["-o", str(folder), "--", "-p", "no:xdist"]
    assert run.main(asked) == 0
    assert "1 of 1      100.0%" in capsys.readouterr().out
    Path(plan.places[0]).write_text("def test_a(): assert 0\n")
    assert run.main(asked) == 1
    assert "regressed: some: " in capsys.readouterr().out
    assert "test_a" in (folder / "index.html").read_text()
    assert run.main(["--against", "nonesuch", *asked]) == 2
    assert "has no night of commit nonesuch" in capsys.readouterr().err


def test_minutes_are_shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Among the levels that run, as they are among all."""
    given: dict[str, float] = {}
    monkeypatch.setattr(run, "run", lambda plan, rest: given.update({plan.name: plan.minutes}) or Level(0.0))
    run.main(["--minutes", "10", "--level", "ops", "--level", "modules", "-o", str(tmp_path)])
    whole = {plan.name: plan.minutes for plan in levels.PLANS}
    assert given == {name: pytest.approx(10 * whole[name] / (whole["ops"] + whole["modules"])) for name in ("ops", "modules")}
    with pytest.raises(SystemExit):
        run.main(["--minutes", "0"])


def test_all_levels_end_within_three_hours() -> None:
    assert sum(p.minutes for p in levels.PLANS) < 180
    for p in levels.PLANS:
        assert all((levels.ROOT / place.split(":")[0]).exists() for place in p.places), p.name


@pytest.mark.turn
def test_what_a_level_started_ends_with_the_night(tmp_path: Path) -> None:
    """Also a process that the level's own process has started."""
    (tmp_path / "test_long.py").write_text(
        "import pathlib, subprocess, sys\n"
        "def test_a():\n"
        "    other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"    pathlib.Path({str(tmp_path)!r}, 'pid').write_text(str(other.pid))\n"
        "    other.wait()\n"
    )
    code = (
        "import runpy, sys; from pathlib import Path; from nightly import levels\n"
        f"levels.PLANS = (levels.Plan('a', 'b', ({str(tmp_path / 'test_long.py')!r},), 1),)\n"
        f"sys.argv = ['run', '-o', {str(tmp_path / 'nights')!r}]; runpy.run_module('nightly.run', run_name='__main__')\n"
    )
    night = subprocess.Popen([sys.executable, "-c", code], cwd=levels.ROOT / "test")
    waited = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < waited
        assert night.poll() is None
        time.sleep(0.1)
    night.terminate()
    assert night.wait(30) == 128 + signal.SIGTERM
    other = int((tmp_path / "pid").read_text())
    while Path(f"/proc/{other}/stat").exists() and Path(f"/proc/{other}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < waited
        time.sleep(0.1)
