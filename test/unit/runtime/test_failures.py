"""Reports of failures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ktir.diagnostics import KtirError, OutOfRange, Unsupported
from ktir.runtime import failures, notices
from ktir.runtime.memory.card import Card


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    notices.forget()
    return tmp_path / "failures"


def test_what_a_report_says(place: Path) -> None:
    assert failures.latest() is None
    try:
        raise KtirError("the scratchpad is full", "model.py:3:1")
    except KtirError as error:
        failures.capture(error, "compile", kernel_name="forward")
    (path,) = place.iterdir()
    report = json.loads(path.read_text())
    assert set(report) == {"metadata", "failure", "environment", "runtime", "hardware_state"}
    assert (report["failure"]["category"], report["failure"]["exception_type"]) == ("compile", "KtirError")
    assert "the scratchpad is full" in report["failure"]["message"]
    assert "test_failures.py" in report["failure"]["traceback"]
    assert report["environment"]["KTIR_CACHE_DIR"] == str(place.parent)
    assert report["runtime"]["kernel_name"] == "forward"
    assert failures.latest() == report | {"_report_path": str(path)}


def test_categories_follow_from_the_error() -> None:
    with pytest.raises(KtirError) as full:
        Card(segment_bytes=1 << 20).take(1 << 21)
    for error, category in ((Unsupported("no sort"), "unimplemented"), (full.value, "out_of_memory"), (ValueError("what"), "unknown")):
        failures.capture(error)
        report = failures.latest()
        assert report is not None
        assert report["failure"]["category"] == category


def test_the_same_again_and_what_is_no_failure_leave_none(place: Path) -> None:
    for n in range(3):
        failures.capture(KtirError(f"fault at {n}"), "runtime_launch")
    failures.capture(OutOfRange("2147483648 does not fit"), "runtime_launch")
    assert len(list(place.iterdir())) == 1


def test_the_newest_stay(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MOST", 3)
    for word in "abcde":
        failures.capture(KtirError(word))
    kept = [json.loads(path.read_text())["failure"]["message"][-1] for path in sorted(place.iterdir())]
    assert kept == ["c", "d", "e"]


def test_a_damaged_report_and_a_place_that_cannot_be_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures.capture(KtirError("whole"))
    (place / "failure_99999999999999999999_1_unknown.json").write_text("{")
    report = failures.latest()
    assert report is not None
    assert "whole" in report["failure"]["message"]
    monkeypatch.setenv("KTIR_CACHE_DIR", "/proc/nowhere")
    failures.capture(KtirError("elsewhere"))
    assert failures.latest() is None
