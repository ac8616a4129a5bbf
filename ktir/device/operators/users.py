"""The program that torch and we were called from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import ktir

_INNER = tuple(str(Path(module.__file__ or "").parent) for module in (torch, ktir))


def line_of_user() -> tuple[str, int]:
    """The line from which; in a thread of autograd, the one that asked for gradients."""
    others = [f for f in sys._current_frames().values() if any(g.f_code.co_name == "_engine_run_backward" for g in _outwards(f))]
    for frame in (sys._getframe(1), *others):
        found = next((f for f in _outwards(frame) if not f.f_code.co_filename.startswith(_INNER)), None)
        if found is not None and not found.f_code.co_filename.endswith("threading.py"):
            return found.f_code.co_filename, found.f_lineno
    return __file__, 0


def _outwards(frame: Any) -> Iterator[Any]:
    while frame is not None:
        yield frame
        frame = frame.f_back
