"""What users are told while things go on: warnings, each once per process, worded and placed as errors are."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from threading import Lock

from ktir.diagnostics import Diagnostic, KtirError

log = logging.getLogger("ktir")

NOT_HERE = 'fallback="error" makes this an error'
WITHOUT_CHIP = 'options={"engine": "ktir"} runs everything on the KTIR executor'

_NUMBERS = re.compile(r"\[[\d, ]*\]|\d+")
_said: set[tuple[str, str]] = set()
_lock = Lock()


def is_new(subject: str, reason: str) -> bool:
    """Whether this is the first warning about a subject for a reason, whatever the numbers in it; from now on it is not."""
    key = (subject, _NUMBERS.sub("", reason))
    with _lock:
        if key in _said:
            return False
        _said.add(key)
        return True


def warning_text(error: Exception, *notes: str) -> str:
    """The text of a warning: what an error says, with notes on what is done about it."""
    if isinstance(error, KtirError):
        found = [replace(d, severity="warning") if d.severity == "error" else d for d in error.diagnostics]
    else:
        found = [Diagnostic("warning", f"{type(error).__name__}: {error}")]
    return "\n".join(str(d).removeprefix("<unknown>: ") for d in [*found, *(Diagnostic("note", n) for n in notes)])


def warn(error: Exception, *notes: str) -> None:
    """Say it, even if it was said before."""
    log.warning("%s", warning_text(error, *notes))


def warn_once(subject: str, reason: str, error: Exception, *notes: str) -> None:
    """Say it unless it is said already about this subject for this reason."""
    if is_new(subject, reason):
        warn(error, *notes)


def forget() -> None:
    """Say everything anew, as in a new process."""
    with _lock:
        _said.clear()
