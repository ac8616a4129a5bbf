"""Objects of torch's compiled code: some functions of their tables are replaced by ours, in a copy of the table."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

Pointer = ctypes.c_void_p
_WORD = ctypes.sizeof(Pointer)
_kept: list[Any] = []
"""Tables and their functions, which live as long as the process."""


def library(name: str) -> ctypes.CDLL:
    """A library of torch's that is loaded. OSError where it is not there."""
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / name))


def function_at(at: int, slot: int, kind: Any) -> Any:
    """A function of the table of the object at an address."""
    return kind(Pointer.from_address((Pointer.from_address(at).value or 0) + _WORD * slot).value)


def replace(at: int, size: int, functions: Mapping[int, Any], to: int | None = None) -> None:
    """Give the object at an address, or that at `to`, a copy of its table of `size` functions, with ours in some places."""
    table = Pointer.from_address(at).value or 0
    copy = (Pointer * (size + 2))(*[Pointer.from_address(table + _WORD * k).value for k in range(-2, size)])  # two words come before
    for slot, function in functions.items():
        copy[2 + slot] = ctypes.cast(function, Pointer).value
    _kept.extend((copy, functions))
    Pointer.from_address(at if to is None else to).value = ctypes.addressof(copy) + 2 * _WORD
