"""States, ranks, ids and files of runs, by cases made by hand for every rule of RFC 2834."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from ktir.diagnostics import KtirError
from ktir.enablement import outcomes, page
from ktir.enablement.outcomes import Run, State, Status, Suite, Variant


def suite(name: str, **statuses: str) -> Suite:
    """A model whose operators' variants have these statuses: `mul="XPASS XFAIL"`."""
    variants = [Variant(f"torch.{op}", "operator", f"test_{op}", Status(word)) for op, words in statuses.items() for word in words.split()]
    return Suite(name, variants, 1.5)


@pytest.mark.parametrize(
    ("statuses", "state"),
    [
        ("XPASS", "spyre_enabled"),
        ("XPASS XPASS", "spyre_enabled"),
        ("XFAIL", "not_implemented"),
        ("XFAIL XFAIL", "not_implemented"),
        ("XPASS XFAIL", "spyre_failed"),
        ("XFAIL XPASS XPASS", "spyre_failed"),
        ("FALLBACK", "cpu_fallback"),
        ("FALLBACK XPASS", "cpu_fallback"),
        ("XFAIL FALLBACK", "cpu_fallback"),
        ("XPASS XFAIL FALLBACK", "cpu_fallback"),
    ],
)
def test_the_first_rule_that_applies(statuses: str, state: str) -> None:
    assert suite("m", mul=statuses).states() == {("operator", "torch.mul"): State(state)}


@pytest.mark.parametrize("statuses", ["XPASS", "XFAIL", "FALLBACK"])
def test_operators_have_their_states_apart(statuses: str) -> None:
    """From other operators, from a module of the same name, and from other models."""
    found = suite("m", mul="XPASS XFAIL", add=statuses)
    found.variants.append(Variant("torch.add", "module", "t", Status.XPASS))
    states = found.states()
    assert states["operator", "torch.mul"] == "spyre_failed"
    assert states["operator", "torch.add"] == suite("n", add=statuses).states()["operator", "torch.add"]
    assert states["module", "torch.add"] == "spyre_enabled"
    assert suite("none").states() == {}


def test_a_rise_of_rank_is_a_regression() -> None:
    """The ranks that RFC 2834 gives, and 99 for a state that it gives none."""
    ranks = {"spyre_enabled": 0, "cpu_fallback": 1, "not_implemented": 2}
    for before, after in itertools.product(State, State):
        assert outcomes.is_regression(before, after) == (ranks.get(after.value, 99) > ranks.get(before.value, 99)), (before, after)
    assert outcomes.is_regression(State.ENABLED, State.FAILED), "some calls fail that did not"


def test_changes_of_the_models_that_both_runs_have() -> None:
    before = Run("1", suites=[suite("a", add="XPASS", mul="XFAIL", sub="XPASS", neg="XPASS"), suite("gone", add="XPASS")])
    after = Run("2", suites=[suite("a", add="XPASS", mul="XPASS", sub="XFAIL", exp="XPASS"), suite("new", add="XFAIL")])
    found = [(c.suite, c.operation, c.before, c.after, c.is_regression) for c in outcomes.changes(before, after)]
    assert found == [
        ("a", "torch.sub", "spyre_enabled", "not_implemented", True),
        ("a", "torch.exp", None, "spyre_enabled", False),
        ("a", "torch.mul", "not_implemented", "spyre_enabled", False),
        ("a", "torch.neg", "spyre_enabled", None, False),
    ]
    assert outcomes.changes(after, after) == []


def test_ids_are_of_the_published_parts() -> None:
    """By sha256sum: printf 'r\\0m\\0torch.add\\0spyre_enabled\\0test_add\\0%s' 0."""
    run = Run("r", suites=[suite("m", add="XPASS XPASS", mul="XFAIL", sub="FALLBACK")])
    assert outcomes.suite_id(run, run.suites[0]) == "6474c4abaa3047239d1fe0c76b8822c3d8fe1f914684f5dca27e2998be4dbbc7"
    assert [name for name, _ in outcomes.variant_ids(run, run.suites[0])] == [
        "600a62be826724156256d18a354c028cd11bc321527bcce06af1cf19eb6616ca",
        "ea985e8820ce0b1099a382f5760c2c79cde1b4e3ee89eca14ae863840ca68834",
        "2b6f610fcad6051cdaeaab46e8002610b97c0d82f2a45419de0827eebe83852d",
        "0a301e76f04d2d3603c86a6d19b3567970ff52e1df18fed4f92b55f38dc3b6a4",
    ]


def test_counts_and_ratios() -> None:
    found = suite("m", add="XPASS", mul="XFAIL XPASS", sub="FALLBACK")
    found.variants.append(Variant("torch.nn.Linear", "module", "t", Status.XPASS))
    assert (found.ratio("operator"), found.ratio("module"), found.ratio("other")) == ((1, 3), (1, 1), (0, 0))
    counts = {"spyre_enabled": 2, "spyre_failed": 1, "cpu_fallback": 1, "XPASS": 3, "XFAIL": 1, "FALLBACK": 1}
    assert found.counts() == counts


def full_run() -> Run:
    odd = Variant("torch.cat", "operator", 't,"1"\n', Status.XFAIL, [[[2, 3]]], [[3, 1]], ["float16"], ["dim=<1>"], [[4, 3]], 3, "no & why")
    return Run("r", "abc", "2026-01-02", [Suite("a <b>", [odd], 2.25, 124, {"torch.x: why": 2}, "stopped"), suite("b", add="XPASS")])


def test_what_is_written_is_read(tmp_path: Path) -> None:
    run = full_run()
    outcomes.write(run, tmp_path / "r.json")
    assert outcomes.read(tmp_path / "r.json") == run
    data = json.loads((tmp_path / "r.json").read_text())
    assert data["suites"][1]["states"] == [["operator", "torch.add", "spyre_enabled"]]
    assert data["suites"][1]["id"] == outcomes.suite_id(run, run.suites[1])


def changed(key: str, value: Any) -> str:
    data = {"format": 1, "id": "r", "commit": "", "date": "", "suites": []}
    return json.dumps(data | {key: value})


NO_SUITE = {"name": "a", "variants": [{"status": "no"}], "seconds": 0, "exit_code": 0, "left": {}, "ended": ""}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "\0", "[" * 100_000, changed("format", 2), *(changed("suites", s) for s in ([1], [{}], 3, [NO_SUITE]))],
)
def test_what_is_no_run(text: str, tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text(text)
    with pytest.raises(KtirError, match=r"no\.json' is no run of ktir-models"):
        outcomes.read(tmp_path / "no.json")


def test_files_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(KtirError, match=r"cannot open '.*': No such file"):
        outcomes.read(tmp_path / "none.json")
    with pytest.raises(KtirError, match=r"cannot open '.*': Is a directory"):
        outcomes.read(tmp_path)
    for write in (outcomes.write, page.write, page.write_csv):
        with pytest.raises(KtirError, match=r"cannot write '.*': No such file"):
            write(full_run(), tmp_path / "none" / "x")
