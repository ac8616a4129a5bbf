"""The levels of a night, from single operators to a server, and how each is run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nightly.families import NAMES
from nightly.history import FAILED, PASSED, Case, Level

ROOT = Path(__file__).parents[2]
VLLM = ROOT / ".venv-vllm" / "bin" / "python"


@dataclass(frozen=True)
class Plan:
    """`places` are what pytest runs, or models for `ktir-models`; `minutes` what it may take at most, all of them below three hours."""

    name: str
    does: str
    places: tuple[str, ...]
    minutes: float
    python: Path = Path(sys.executable)

    @property
    def is_of_models(self) -> bool:
        return all(":" in place for place in self.places)


PLANS = (
    Plan("ops", "operators on the device, kernels by hand", ("test/unit/device", "test/unit/library", "test/unit/lang"), 35),
    Plan("inductor", "graphs of torch.compile", ("test/unit/lowering/inductor",), 40),
    Plan("modules", "operators and modules of seven families", tuple(f"test/nightly/families.py:{name}" for name in NAMES), 15),
    Plan("models", "whole models", ("test/models",), 30),
    Plan("serving", "vLLM on the chip", ("test/serving",), 55, VLLM),
)


def run(plan: Plan, options: Sequence[str] = ()) -> Level:
    """One level, by processes that are ended when their time is over: one of pytest, to which `options` go, or one for each model."""
    if not plan.python.exists():
        return Level(0.0, {}, f"{plan.python.name} of {plan.python.parents[1].name} is missing: make vllm")
    if not plan.is_of_models:
        return _run(plan, ["pytest", "-q", "-p", "nightly.recorder", *plan.places, *options], _of_pytest)
    whole = Level(0.0)
    for place in plan.places:  # a run of ktir-models is written at its end; one that hangs takes half of what is left
        left = plan.minutes - whole.seconds / 60
        share = replace(plan, minutes=max(left, 0) / (1 if place == plan.places[-1] else 2))
        part = _run(share, ["ktir.tools.pages.ktir_models", "run", place, "--timeout", str(max(1, int(54 * share.minutes)))], _of_models)
        whole.cases |= part.cases
        whole.seconds = round(whole.seconds + part.seconds, 1)
        if part.ended:
            whole.ended = "; ".join(filter(None, (whole.ended, f"{_model(place)}: {part.ended}")))
    return whole


def _run(plan: Plan, command: Sequence[str], cases_of: Callable[[Path], dict[str, Case]]) -> Level:
    """A module of Python and its arguments."""
    with tempfile.TemporaryDirectory() as folder:
        log, found = Path(folder) / "log", Path(folder) / "found"
        own = ["-o", str(found)] if plan.is_of_models else []
        path = os.pathsep.join(filter(None, (str(ROOT / "test"), str(ROOT), os.environ.get("PYTHONPATH", ""))))
        start = time.monotonic()
        ended = _ended([str(plan.python), "-m", *command, *own], log, {"PYTHONPATH": path, "KTIR_NIGHTLY": str(found)}, plan.minutes)
        cases = cases_of(found)
        if not cases:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["nothing ran"]
            said = next((line for line in lines if " error: " in line), lines[-1])
            ended = ": ".join(filter(None, (ended, said)))[:300]
        return Level(round(time.monotonic() - start, 1), cases, ended)


def _ended(command: Sequence[str], log: Path, environment: dict[str, str], minutes: float) -> str:
    """What kept the process from its end, with all that it started."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}  # it is no worker of who starts it
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, env={**outside, **environment}, start_new_session=True)
        try:
            status = process.wait(60 * minutes)
        except subprocess.TimeoutExpired:
            return f"stopped after {minutes:.3g} minutes"
        finally:  # as where the night itself is stopped
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return "" if status in (0, 1) else f"ended with status {status}"


def _of_pytest(found: Path) -> dict[str, Case]:
    """A test that fails beside its call, before or after it, has failed."""
    cases: dict[str, Case] = {}
    for line in found.read_text(encoding="utf-8").splitlines() if found.exists() else ():
        held = json.loads(line)
        name = held.pop("case")
        if name not in cases or held["outcome"] == FAILED:
            cases[name] = Case(**held)
    return cases


def _model(place: str) -> str:
    return place.split(":")[-1]


def _of_models(found: Path) -> dict[str, Case]:
    """Each operator and module of each model; what does not work on the device was computed by the host."""
    cases: dict[str, Case] = {}
    for suite in json.loads(found.read_text(encoding="utf-8"))["suites"] if found.exists() else ():
        name = _model(suite["name"])
        for kind, operation, state in suite["states"]:
            good = state == "spyre_enabled"
            cases[f"{name}: {kind} {operation}"] = Case(PASSED if good else FAILED, 0.0, "" if good else state)
    return cases
