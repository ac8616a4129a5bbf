"""Mistakes in kernels, and the line of Python at which they are."""

from __future__ import annotations

import sys
from bdb import BdbQuit
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

import numpy as np

from ktir.diagnostics import Diagnostic, KtirError

UNFINISHED = "a device loop expects to run to its end, without 'break' and 'return'"
UNFINISHED_BRANCH = "what runs under a condition expects to run to its end, without an exception that the kernel catches"
RETURNS = "a kernel returns nothing: it stores into its arguments"
INTERLEAVED = "a loop ends inside of another one that began in it"
_OWN = (str(Path(__file__).parents[1]), str(Path(np.__file__).parent), "<frozen ")


def place_of(function: Any) -> str:
    """Where a function of the user's begins."""
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}:1"


def here() -> str | None:
    """The place in the user's source that is being run: `file:line:col`."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return None if frame is None else _place(frame.f_code, frame.f_lasti, frame.f_lineno)


def _place(code: CodeType, last: int, line: int) -> str:
    at, _, column, _ = next(islice(code.co_positions(), last // 2, None), (None,) * 4)
    return f"{code.co_filename}:{at or line}:{(column or 0) + 1}"


def _places(trace: TracebackType | None) -> list[str]:
    """Where an error passed through source that is not ours, the innermost place first."""
    found = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(_OWN):
            found.append(_place(code, trace.tb_lasti, trace.tb_lineno))
        trace = trace.tb_next
    return found[::-1]


def _innermost(error: Exception) -> str:
    """The file in which it was raised."""
    trace, file = error.__traceback__, ""
    while trace is not None:
        trace, file = trace.tb_next, trace.tb_frame.f_code.co_filename
    return file


@contextmanager
def of_python() -> Iterator[None]:
    """An error of Python's is a mistake at the line of a kernel that made it, also where NumPy, or the language on the way to it, was the
    first to trip over what the line gave; a debugger that is left, and a broken assertion of ours, are none."""
    try:
        yield
    except (KtirError, BdbQuit):
        raise
    except Exception as error:
        places = _places(error.__traceback__)
        if not places or (isinstance(error, AssertionError) and _innermost(error).startswith(_OWN[0])):
            raise
        words = str(error)
        notes = tuple(Diagnostic("note", "called from here", place) for place in places[1:])
        raise Mistake(type(error).__name__ + (f": {words}" if words else ""), places[0], notes) from None


class Mistake(KtirError):
    """A kernel says something that has no meaning, or that the language does not have. Placed at the line that says it."""

    def __init__(self, message: str, location: str | None = None, notes: tuple[Diagnostic, ...] = ()) -> None:
        super().__init__(message, location or here(), notes)


def kind_of(value: object) -> str:
    """What a value is, for a message."""
    if isinstance(value, type):
        return f"the type {value.__name__}"
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"{dtype} of shape {tuple(shape)}"
    return f"{type(value).__name__} {value!r:.40}" if isinstance(value, bool | int | float | str) else type(value).__name__
