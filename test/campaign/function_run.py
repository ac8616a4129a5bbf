"""One generated function on an engine: what became of it, where it ran, and what was refused."""

from __future__ import annotations

import logging
import re
from typing import Any

import torch
from campaign.function_programs import Program, Verdict, drawn, judge
from torch.compiler._cache import CacheArtifactManager

from ktir.runtime import metrics, notices
from ktir.runtime.kernel import OURS
from ktir.runtime.metrics import Launches

_RAISED = "backend='spyre' raised:\n"


class Warnings(logging.Handler):
    """Collects what the backend warns of inside the block."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reasons: list[str] = []
        self.faults: list[str] = []
        """Those that are ours: the compiler failed at what it should have done."""
        self._log = logging.getLogger("ktir")

    def __enter__(self) -> Warnings:
        notices.forget()
        self._propagate, self._log.propagate = self._log.propagate, False
        self._log.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self)
        self._log.propagate = self._propagate

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        (self.faults if OURS in text else self.reasons).append(first_line(text))


def first_line(error: Any) -> str:
    """The first line of a message, without the places in files that begin it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return re.sub(r"^\S*:\d+(:\d+)?: (error: |warning: )?|^warning: ", "", lines[0].strip())[:300] if lines else ""


def reason_class(reason: str) -> str:
    """A reason without its numbers and names, to count by."""
    return re.sub(r"\[[\d, ]*\]|\d+", "N", re.sub(r" of shape \[.*?\] and dtype \w+", "", reason))


def run(program: Program, engine: str = "spyre") -> dict[str, Any]:
    """Compile, call and judge a program. `outcome`: right, wrong, crashes; `launches` and `reasons` say where it ran and why."""
    torch._dynamo.reset()
    CacheArtifactManager.clear()  # torch keeps every artifact of the process
    inputs = program.arguments()
    launches, verdict = Launches(), Verdict()
    with torch.no_grad(), Warnings() as warnings, metrics.counted() as counted:
        try:
            compiled = torch.compile(program.function(), backend="spyre", fullgraph=True, dynamic=False, options={"engine": engine})
            results = compiled(*inputs)
            launches = counted()
            verdict = judge(program, results, inputs)
            outcome = "wrong" if verdict.wrong else "right"
            what = "; ".join(verdict.wrong)
        except Exception as error:
            outcome, what = "crashes", f"{type(error).__name__}: {first_line(str(error).replace(_RAISED, ''))}"
    return {
        "outcome": outcome,
        "what": what,
        "launches": vars(launches),
        "reasons": warnings.reasons,
        "faults": warnings.faults,
        "judged": verdict.judged,
        "elements": verdict.elements,
        "half": {n.dtype for n in program.nodes if n.is_float} == {torch.float16},
        "note": program.note,
    }


def run_seed(seed: int, engine: str) -> dict[str, Any]:
    """As `run`, for a seed."""
    program = drawn(seed)
    result = {"seed": seed, "engine": engine, **run(program, engine)}
    return result if result["outcome"] == "right" else {**result, "inputs": program.described, "text": program.function_text()}
