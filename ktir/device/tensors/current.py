"""How many cards there are for this process, and which one each thread uses."""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import Any

import torch

MOST = 8


class _Current(threading.local):
    index: int | None = None


_current = _Current()


@cache
def count() -> int:
    """Cards of the process: those that `SPYRE_DEVICES` lists, at most `AIU_WORLD_SIZE`, else `AIU_WORLD_SIZE`, else 1. With
    `FLEX_DEVICE=MOCK` no list counts. Raises RuntimeError for what these variables cannot be.
    """
    from ktir.runtime.memory.hardware import hardware  # of no use to a process that only imports torch

    world = _number("AIU_WORLD_SIZE", os.environ.get("AIU_WORLD_SIZE", ""))
    listed, mock = os.environ.get("SPYRE_DEVICES", ""), hardware().mock
    if listed and not mock:
        cards = [_number("SPYRE_DEVICES", text) for text in listed.split(",")]
        if None in cards or len(set(cards)) < len(cards):
            raise RuntimeError(f"SPYRE_DEVICES must list different cards, but got {listed!r}")
        return min(len(cards), world or MOST)
    return world or 1


def _number(variable: str, text: str) -> int | None:
    if not text:
        return None
    if not text.strip().isdigit() or int(text) > MOST or (variable == "AIU_WORLD_SIZE" and not int(text)):
        raise RuntimeError(f"{variable} must be {'1 to 8' if variable == 'AIU_WORLD_SIZE' else 'cards from 0 on'}, but got {text!r}")
    return int(text)


@cache
def _first() -> int:
    """The card that threads begin with: the one that `LOCAL_RANK` names, else 0. Raises RuntimeError where there is none."""
    text = os.environ.get("LOCAL_RANK", "0")
    if not text.strip().isdigit() or int(text) >= count():
        raise RuntimeError(f"LOCAL_RANK must be a card of this process, 0 to {count() - 1}, see AIU_WORLD_SIZE, but got {text!r}")
    return int(text)


def get() -> int:
    """The card that this thread uses where none is named."""
    index = _current.index
    if index is None:
        index = _current.index = _first()
    return index


def put(index: int) -> int:
    """Use another card in this thread; the one before."""
    before, _current.index = get(), checked(index)
    return before


def checked(index: int) -> int:
    """A number that is one of a card."""
    if not 0 <= index < count():
        there = f"there is no device 'spyre:{index}', this process has {count()}, see AIU_WORLD_SIZE"
        raise RuntimeError(f"The device index is out of range: {there}")
    return index


def index_of(device: Any = None) -> int:
    """The card that a device, a text, a number or None names."""
    if device is None:
        return get()
    if isinstance(device, int):
        return get() if device < 0 else checked(device)
    device = torch.device(device)
    if device.type != "spyre":
        raise ValueError(f"expected a device 'spyre', but got '{device}'")
    return get() if device.index is None else checked(device.index)
