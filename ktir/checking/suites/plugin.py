"""What `ktir-test` adds to pytest: tags are known marks, a test may take so long only, and outcomes are noted one by one."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ktir.checking.suites import steering


class Stopped(BaseException):
    """A test took too long. Handlers of errors, those of the device's operators too, let it through."""


def pytest_configure(config: Any) -> None:
    """Make the tags known."""
    for file in steering.config().files:
        for tag in {tag for entry in file.entries for tag in entry.tags}:
            config.addinivalue_line("markers", f"{tag}: a tag of the configuration")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Steer the tests that torch makes no variants of, before marks choose."""
    for item in items:
        if isinstance(item, pytest.Function) and not (item.cls and issubclass(item.cls, steering.Steered)):
            steering.steer_plain(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    """Stop a test that takes too long."""
    seconds = float(os.environ.get("KTIR_TEST_SECONDS", "0"))

    def stop(*_: Any) -> None:
        raise Stopped(f"stopped after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)  # again and again: what is not Python may swallow one
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def pytest_runtest_logreport(report: Any) -> None:
    """Note what became of a test."""
    expected = hasattr(report, "wasxfail")
    names = {"passed": "xpassed" if expected else "passed", "skipped": "xfailed" if expected else "skipped", "failed": "failed"}
    outcome = names[report.outcome]
    if report.when == "call" or outcome in ("failed", "skipped"):
        reason = ""
        if outcome == "failed":
            lines = [line for line in str(report.longrepr).splitlines() if line.startswith("E ")] or str(report.longrepr).splitlines()[-1:]
            reason = lines[0].removeprefix("E").strip() if lines else ""
        _note({"test": report.nodeid, "outcome": outcome, "reason": reason})


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Note which tests there were."""
    _note({"seen": sorted(steering.instantiated)})


def _note(what: dict[str, Any]) -> None:
    if path := os.environ.get("KTIR_TEST_RESULTS"):
        with Path(path).open("a", encoding="utf-8") as file:
            print(json.dumps(what), file=file)
