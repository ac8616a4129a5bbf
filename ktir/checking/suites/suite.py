"""Runs the test files of a configuration, each by pytest in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ktir.checking.suites.config import Config
from ktir.diagnostics import KtirError

_BASE = Path(__file__).parent / "spyre_test_base_common.py"


@dataclass
class Outcome:
    """What became of a file: counts by outcome, failed tests with reasons, and `Class::method` of all tests."""

    counts: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    crash: str = ""

    @property
    def good(self) -> bool:
        """Whether all is as the configuration says."""
        return not self.failed and not self.crash

    def __str__(self) -> str:
        parts = [f"{self.counts[kind]} {kind}" for kind in ("passed", "failed", "xfailed", "xpassed", "skipped") if self.counts[kind]]
        return ", ".join(parts + ([self.crash] if self.crash else [])) or "no tests"


def files(config: Config) -> list[Path]:
    """All test files, each once."""
    return list(dict.fromkeys(path for file in config.files for path in file.paths))


def absent(config: Config) -> Iterator[str]:
    """Devices of the configuration that are not there."""
    import torch

    for name in config.devices or ():
        module = getattr(torch, name, None)
        if name not in ("cpu", "privateuse1") and not (module and getattr(module, "is_available", lambda: False)()):
            yield name


def run(config: Config, path: Path, arguments: Sequence[str] = (), timeout: float | None = None, test_timeout: float = 0) -> Outcome:
    """Run one file; what pytest prints goes where ours does. A process that ends early costs the tests that it did not come to."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.jsonl"
        plain = Path(folder) / "pytest.ini"
        plain.write_text("[pytest]\n")
        command = [sys.executable, "-m", "pytest", str(path), "-c", str(plain), f"--rootdir={path.parent}", f"--confcutdir={path.parent}"]
        command += ["-p", "no:cacheprovider", "-p", "ktir.checking.suites.plugin", "-q", "--tb=short", *arguments]
        own = {"KTIR_TEST_RESULTS": str(results), "KTIR_TEST_SECONDS": str(test_timeout)}
        crash = ""
        try:
            status = subprocess.run(command, env=environment(config) | own, timeout=timeout, check=False).returncode
            if status not in (0, 1, 5):
                crash = f"pytest ended with status {status}"
        except subprocess.TimeoutExpired:
            crash = f"stopped after {timeout:.0f} s"
        return _outcome(results.read_text(encoding="utf-8") if results.exists() else "", crash)


def _outcome(lines: str, crash: str) -> Outcome:
    found: dict[str, Any] = {}
    seen: set[str] = set()
    for line in map(json.loads, lines.splitlines()):
        if "seen" in line:
            seen.update(line["seen"])
        elif line["test"] not in found or found[line["test"]]["outcome"] != "failed":
            found[line["test"]] = line
    failed = {name: line["reason"] for name, line in found.items() if line["outcome"] == "failed"}
    return Outcome(Counter(line["outcome"] for line in found.values()), failed, seen, crash)


def environment(config: Config) -> dict[str, str]:
    """The variables that steer torch's device tests."""
    devices = [name for name in config.devices or ("spyre",) if name not in set(absent(config))]
    own = ["privateuse1" if name == "spyre" else name for name in devices]
    return {
        **os.environ,
        "PYTORCH_TEST_CONFIG": str(Path(config.path).resolve()),
        "PYTORCH_TESTING_DEVICE_ONLY_FOR": ",".join(dict.fromkeys(own)),
        "TORCH_TEST_DEVICES": str(_BASE),
    }


def check_operators(config: Config) -> Iterator[str]:
    """Warnings for supported operators that torch's database does not have, as another version of it may. Raises KtirError for one that a
    test is to run for.
    """
    from torch.testing._internal import common_methods_invocations as database

    known = {op.name for op in (*database.op_db, *vars(database)["python_ref_db"])}
    for file in config.files:
        for entry in file.entries:
            for name, place in entry.ops.include.items():
                if name not in known:
                    raise KtirError(f"torch's database has no operator '{name}'", place)
    for name, operator in (config.ops or {}).items():
        if name not in known:
            yield f"{operator.place}: warning: torch's database has no operator '{name}', so no test of it runs"


def unknown(config: Config, seen: set[str]) -> Iterator[str]:
    """Warnings for tests of the configuration that no file has."""
    for file in config.files:
        for entry in file.entries:
            for name, place in entry.names.items():
                if name not in seen:
                    yield f"{place}: warning: no file has a test '{name}' for devices"
