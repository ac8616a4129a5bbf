"""A plugin of pytest: a line of JSON for each test as soon as it is over, to the file that KTIR_NIGHTLY names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Of a test the call, and whatever goes wrong before or after it."""
    path = os.environ.get("KTIR_NIGHTLY")
    if path is None or "PYTEST_XDIST_WORKER" in os.environ or (report.when != "call" and report.passed):
        return
    text = ""
    if report.skipped:
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
    elif report.failed:
        text = report.longreprtext.strip().splitlines()[-1] if report.longreprtext.strip() else report.when or ""
    line = {"case": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 3), "text": text[:300]}
    with Path(path).open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")
