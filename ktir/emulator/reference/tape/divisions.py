"""Divisions that have no result, as findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.integers import DIVISIONS, no_quotient, width
from ktir.emulator.findings import DivisionByZero, DivisionOverflow, Finding

__all__ = ["faults_of"]

Faults = Callable[[Any, Any], Iterator[tuple[NDArray[np.bool_], type[Finding], str]]]


def faults_of(name: str, element: str) -> Faults | None:
    """For a division: where operands have no quotient, with the finding that this is."""
    if name.split(".")[1] not in DIVISIONS:
        return None
    find = no_quotient(name, element)
    least = -1 << (width(element) - 1)

    def faults(a: Any, b: Any) -> Iterator[tuple[NDArray[np.bool_], type[Finding], str]]:
        zero, over = find(a, b)
        if zero.any():
            yield zero, DivisionByZero, "divides by zero"
        if over is not None and over.any():
            yield over, DivisionOverflow, f"divides {least} by -1, which {element} cannot hold"

    return faults
