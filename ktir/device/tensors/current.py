"""How many cards there are for this process, and which one each thread uses."""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import Any

import torch

from ktir.config import whole_number

MOST = 8
_LISTS = "SPYRE_DEVICES", "SPYRE_VISIBLE_DEVICES"
_HIGHEST = (1 << 31) - 1
"""Number of a card in a list, of which only counts how many there are."""


class _Current(threading.local):
    index: int | None = None


_current = _Current()


@cache
def count() -> int:
    """Cards of the process: those that `SPYRE_DEVICES` lists, at most `AIU_WORLD_SIZE`, else `AIU_WORLD_SIZE`, else 1. With
    `FLEX_DEVICE=MOCK` no list counts. Raises RuntimeError for what these variables cannot be.
    """
    from ktir.runtime.memory.hardware import hardware  # of no use to a process that only imports torch

    text, (name, listed) = os.environ.get("AIU_WORLD_SIZE"), _listed()
    world = whole_number("AIU_WORLD_SIZE", text, 1, MOST) if text else None
    if hardware().mock or not listed:
        return world or 1
    cards = {whole_number(name, number, 0, _HIGHEST, "cards from 0 on") for number in listed.split(",")}
    if len(cards) <= listed.count(",") or len(cards) > MOST:
        raise RuntimeError(f"{name} must list 1 to {MOST} different cards, but got {listed!r}")
    return min(len(cards), world or MOST)


def _listed() -> tuple[str, str]:
    """The list of cards, and the variable that has it: both names are in use. Raises RuntimeError where they do not list the same."""
    given = [(name, os.environ[name]) for name in _LISTS if os.environ.get(name)]
    if len({text for _, text in given}) > 1:
        raise RuntimeError("{} and {} must list the same cards, but got {!r} and {!r}".format(*_LISTS, *(text for _, text in given)))
    return given[0] if given else (_LISTS[0], "")


@cache
def _first() -> int:
    """The card that threads begin with: the one that `LOCAL_RANK` names, else 0. Raises RuntimeError where there is none."""
    last = count() - 1
    what = f"a card of this process, 0 to {last}, see AIU_WORLD_SIZE"
    return whole_number("LOCAL_RANK", os.environ.get("LOCAL_RANK") or "0", 0, last, what)


def get() -> int:
    """The card that this thread uses where none is named."""
    index = _current.index
    if index is None:
        index = _current.index = _first()
    return index


def put(index: int) -> int:
    """Use another card in this thread, unless the number is negative; the one before."""
    before = get()
    if index >= 0:
        _current.index = checked(index)
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
