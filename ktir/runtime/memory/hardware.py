"""What stands for the hardware of cards, as the published variables `FLEX_*` say: cards are emulated, and all of them have the same."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ktir.config import whole_number
from ktir.target import STICK_BYTES

_MOCK = "MOCK"
_COMPUTES = {"": True, "SENULATOR": True, "NULL": False}


@dataclass(frozen=True)
class Hardware:
    """What the cards of a process are. Those that are a mock may compute nothing, and have less memory."""

    mock: bool = False
    computes: bool = True
    """Whether programs are run; else what they write is 0."""
    tensor_bytes: int | None = None
    """Memory for tensors, where that is not a card's own."""

    def of_tensors(self, segments: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Of segments for tensors, base and bytes of each, those that there are: the first ones."""
        left, found = sum(size for _, size in segments) if self.tensor_bytes is None else self.tensor_bytes, []
        for base, size in segments:
            if room := min(size, left) // STICK_BYTES * STICK_BYTES:
                found.append((base, room))
            left -= room
        return found


EMULATED = Hardware()
"""Cards of which no variable says anything."""


def hardware() -> Hardware:
    """What the environment says. Raises RuntimeError for what it cannot say."""
    kind = os.environ.get("FLEX_DEVICE", "")
    if kind not in ("", _MOCK):
        raise RuntimeError(f"FLEX_DEVICE must be MOCK, or not set, since the cards of ktir are emulated, but got {kind!r}")
    if not kind:
        for name in ("FLEX_COMPUTE", "FLEX_MOCK_DEVICE_MEMORY_SIZE"):
            if os.environ.get(name):
                _say(f"{name}={os.environ[name]} does not count without FLEX_DEVICE=MOCK")
        return EMULATED
    return Hardware(True, _computes(os.environ.get("FLEX_COMPUTE", "")), _bytes(os.environ.get("FLEX_MOCK_DEVICE_MEMORY_SIZE", "")))


def nothing(carriers: Iterable[NDArray[np.float32] | None]) -> None:
    """What a program writes where nothing is computed."""
    for carrier in carriers:
        if carrier is not None:
            carrier.fill(0)


@cache
def _say(sentence: str) -> None:
    """Once per process."""
    logging.getLogger("ktir").warning("warning: %s", sentence)


def _computes(text: str) -> bool:
    if text not in _COMPUTES:
        raise RuntimeError(f"FLEX_COMPUTE must be SENULATOR or NULL, or not set, since nothing but an emulator computes, but got {text!r}")
    return _COMPUTES[text]


def _bytes(text: str) -> int | None:
    return whole_number("FLEX_MOCK_DEVICE_MEMORY_SIZE", text, 1, 1 << 62, "a number of bytes") if text else None
