"""The conformance suite through ktir, in this process and as commands; and that the runner notices what is wrong."""

from __future__ import annotations

import importlib.util
import json
import re
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
    assert run.check(case, run.ours()) is None


@pytest.fixture
def _tools(path_of_tools: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", path_of_tools)


@pytest.mark.turn
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
    header = "// C900: x\n// level: {}\n// expected: {}\n"
    for text in (
        "module {}",
        "// C901: x\n// level: L1\n// expected: ok\n// tags: text\n",
        header.format("L2", "values") + "// tags: f16\n",
        header.format("L0", "ok"),
    ):
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


def chosen(*words: str) -> list[str]:
    wanted = {words[k]: set(words[k + 1].split(",")) for k in range(0, len(words), 2)}
    return [c.number for c in run.cases(tags=wanted.get("tags"), without=wanted.get("without"))]


def test_tags_choose_cases() -> None:
    assert {"C113", "C117"} <= set(chosen("tags", "masks"))
    assert "C100" not in chosen("tags", "masks,order")
    assert set(chosen("tags", "masks,order")) == {*chosen("tags", "masks"), *chosen("tags", "order")}
    assert not {*chosen("tags", "masks", "without", "order")} & {*chosen("tags", "order")}
    assert "C117" in {*chosen("tags", "masks")} - {*chosen("tags", "masks", "without", "order")}
    with pytest.raises(ValueError, match="no case has tag mask; there are affine-subscripts"):
        chosen("without", "mask")


NEEDS = {
    "order": ("(d1, d0)", "(d2, d0, d1)", "(d0, d0)"),
    "distributed": ("construct_distributed_memory_view",),
    "indirect": ("construct_indirect_access_tile",),
    "inter-tile": ("inter_tile_",),
    "scratchpad": ("ct_local",),
    "runtime-args": ("runtime_arg",),
    "programs": ("call @",),
    "spyreop": ("spyreop.",),
    "bodies": ("linalg.generic",),
    "i64": ("xi64>", "<i64>", ": i64"),
    "grid": ("grid = [",),
}


@pytest.mark.parametrize("tag", NEEDS)
def test_tags_name_what_stands_in_a_case(tag: str) -> None:
    for case in run.cases():
        text = case.path.read_text().partition("// tags:")[2].partition("\n")[2]
        has = any(word in text for word in NEEDS[tag])
        assert has == (tag in case.tags) or (has and tag in ("order", "i64", "spyreop") and case.level == "L0"), case.path.name


def test_subscripts_are_numbers_only_where_a_case_says_so() -> None:
    for case in run.cases():
        found = re.findall(r"construct_access_tile %[\w#]+\[([^\]]*)\]", case.path.read_text())
        numbers = any(re.fullmatch(r"\s*-?\d+\s*", item) for items in found for item in items.split(","))
        assert not numbers or "literal-subscripts" in case.tags, case.path.name


def test_an_adapter_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter = tmp_path / "careless.py"
    adapter.write_text(
        "def accept(path, strict):\n    return None\n"
        "def execute(path, values):\n    return {a['name']: [0] * len(a['values']) for a in values['arguments'] if 'shape' in a}\n"
    )
    assert run.main(["--adapter", str(adapter), "--only", "C001,C019,C101"]) == 1
    out = capsys.readouterr().out
    assert "C019 L0" in out
    assert "C101 L2" in out
    assert "1 of 3 cases hold" in out
    assert run.main(["--adapter", str(adapter), "--adapter", "executor", "--table", "--only", "C019,C101,C113"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0] == "| cases | how many | careless | ktir |"
    assert "| level L0 | 1 | 0, 1 not rejected | 1 |" in table
    assert "| masks | 1 | 0, 1 otherwise | 1 |" in table


def test_calls_of_adapters_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, message in (
        (["--adapter", "nobody"], "no adapter 'nobody'"),
        (["--adapter", "executor", "--adapter", "stream"], "several implementations need --table"),
        (["--tags", "mask"], "no case has tag mask"),
    ):
        with pytest.raises(SystemExit):
            run.main(wrong)
        assert message in capsys.readouterr().err


def test_the_stream_is_an_implementation(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--adapter", "stream", "--only", "C019,C100,C127,C191,C201,C210,C361"]) == 1
    out = capsys.readouterr().out
    assert "C127 L2" in out  # rows of the scratchpad that begin inside of a stick: refused by op
    assert "'ktdp.construct_memory_view' op" in out
    assert "6 of 7 cases hold" in out  # C210 is a race, which no machine reports


def test_the_page_of_results_has_all_cases() -> None:
    """Its first columns; that all hold here, `test_case` shows."""
    rows = [line.split("|")[1:4] for line in (FOLDER.parent / "docs" / "spec" / "results.md").read_text().splitlines() if line[:1] == "|"]
    found = {name.strip(): (count.strip(), ours.strip()) for name, count, ours in rows[2:]}
    cases = run.cases()
    wanted = {f"level {level}": sum(c.level == level for c in cases) for level in run.LEVELS}
    wanted |= {tag: sum(tag in c.tags for c in cases) for tag in {t for c in cases for t in c.tags}}
    assert found == {name: (str(n), str(n)) for name, n in wanted.items()}
