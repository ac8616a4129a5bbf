"""What a terminal shows while a model is compiled, and the line that sums up what runs where."""

from __future__ import annotations

import logging
import sys

from ktir.runtime.metrics import Launches

log = logging.getLogger("ktir")

_WIDTH = 100


def show(program: str, stage: str) -> None:
    """The stage of a program, on a terminal only, in place of the one before."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{f'ktir: {program}: {stage}':{_WIDTH}.{_WIDTH}}")
        sys.stderr.flush()


def clear() -> None:
    """Remove what `show` has written."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{'':{_WIDTH}}\r")
        sys.stderr.flush()


def summarize(name: str, graphs: int, launches: Launches, breaks: int) -> None:
    """One line for a call that compiled something: logged as information, and shown on a terminal."""
    parts = [_count(launches.chip, "program") + " on the chip", _count(launches.executor, "program") + " on the KTIR executor"]
    parts.append(_count(launches.torch, "operator") + " in PyTorch")
    if breaks:
        parts.append(_count(breaks, "break") + " where eager PyTorch goes on")
    line = f"{name}: compiled {_count(graphs, 'graph')}; a call runs {', '.join(parts)}"
    log.info("%s", line)
    if sys.stderr.isatty():
        sys.stderr.write(line + "\n")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
