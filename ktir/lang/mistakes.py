"""Mistakes in kernels, and the line of Python at which they are."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import numpy as np

from ktir.diagnostics import KtirError

_OWN = (str(Path(__file__).parent), str(Path(np.__file__).parent), "<frozen ")


def here() -> str | None:
    """The place in the user's source that is being run: `file:line:col`."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    if frame is None:
        return None
    line, _, column, _ = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    return f"{frame.f_code.co_filename}:{line or frame.f_lineno}:{(column or 0) + 1}"


class Mistake(KtirError):
    """A kernel says something that has no meaning, or that the language does not have. Placed at the line that says it."""

    def __init__(self, message: str, location: str | None = None) -> None:
        super().__init__(message, location or here())


def kind_of(value: object) -> str:
    """What a value is, for a message."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"{dtype} of shape {tuple(shape)}"
    return f"{type(value).__name__} {value!r:.40}" if isinstance(value, bool | int | float | str) else type(value).__name__
