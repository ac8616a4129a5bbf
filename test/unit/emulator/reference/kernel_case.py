"""What a kernel is here, and the arithmetic of its error bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["EXP", "Kernel", "U", "per_tile", "rounded"]

U = 2.0**-24
"""Unit roundoff of f32: one operation is off by at most this part of its result."""
EXP = 6 * U
"""The same of NumPy's f32 exp, whose error is below 2.6 ulp."""


@dataclass(frozen=True)
class Kernel:
    """KTIR text, arguments by name (outputs hold NaN), and per output its value in f64 and the largest error that rounding explains.

    The bounds hold for every order of sums, so for every numerics policy.
    """

    text: str
    arguments: Mapping[str, Any]
    expected: Mapping[str, tuple[np.ndarray, np.ndarray]]


def rounded(value: np.ndarray, error: np.ndarray | float) -> np.ndarray:
    """The bound of a result that f32 arithmetic has with at most `error`, after its rounding to f16: half a unit in the last place."""
    return error + 2.0**-11 * (np.abs(value) + error) + 2.0**-25


def per_tile(total: int, tiles: int, unit: str = "rows") -> str:
    """Text of the division of `total` rows: tile %t has `unit` rows from row %first on, the last tiles fewer or none."""
    return f"""%t = ktdp.get_compute_tile_id : index
%share = arith.constant {-(-total // tiles)} : index
%total = arith.constant {total} : index
%zero = arith.constant 0 : index
%one = arith.constant 1 : index
%first = arith.muli %t, %share : index
%left = arith.subi %total, %first : index
%some = arith.maxsi %left, %zero : index
%{unit} = arith.minsi %some, %share : index
"""
