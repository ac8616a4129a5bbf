"""What `ktir-test` adds to pytest: tags are known marks, and outcomes are counted for the summary."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ktir.checking.suites import steering

_outcomes: dict[str, str] = {}
_reasons: dict[str, str] = {}


def pytest_configure(config: Any) -> None:
    """Make the tags known."""
    for file in steering.config().files:
        for tag in {tag for entry in file.entries for tag in entry.tags}:
            config.addinivalue_line("markers", f"{tag}: a tag of the configuration")


def pytest_runtest_logreport(report: Any) -> None:
    """Note what became of a test."""
    expected = hasattr(report, "wasxfail")
    outcome = {"passed": "xpassed" if expected else "passed", "skipped": "xfailed" if expected else "skipped", "failed": "failed"}[
        report.outcome
    ]
    if report.when == "call" or outcome in ("failed", "skipped"):
        _outcomes[report.nodeid] = outcome
        if outcome == "failed":
            lines = [line for line in str(report.longrepr).splitlines() if line.startswith("E ")] or str(report.longrepr).splitlines()[-1:]
            _reasons[report.nodeid] = lines[0].removeprefix("E").strip() if lines else ""


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the counts over."""
    if path := os.environ.get("KTIR_TEST_RESULTS"):
        found = {"counts": Counter(_outcomes.values()), "failed": _reasons, "seen": sorted(steering.instantiated)}
        Path(path).write_text(json.dumps(found), encoding="utf-8")
