"""Allocations on a card, told to torch's profiler by the function by which allocators in compiled code tell theirs."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

from ktir.device.tensors.tables import library
from ktir.runtime.memory.card import Card

_REPORT = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
"""c10::reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, c10::Device): the name says what it takes."""
_PRIVATEUSE1 = 20
_KIND = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint16)


@cache
def _report() -> Any:
    try:
        address = ctypes.cast(library("libc10.so")[_REPORT], ctypes.c_void_p).value
        return _KIND(address) if address else None
    except (OSError, AttributeError) as error:
        logging.getLogger("ktir").warning("warning: profiles have no memory of the device 'spyre': %s", error)
        return None


def holder(card: Card) -> Callable[[int, int], None] | None:
    """What tells torch's profiler, if it records, of allocations of a card; None where torch is another one."""
    report = _report()
    if report is None:
        return None
    total = card.statistics.nested()["requested_bytes"]["all"]["current"]
    device = _PRIVATEUSE1 | card.index << 8

    def told(handle: int, nbytes: int) -> None:
        nonlocal total
        total += nbytes
        report(handle, nbytes, total, total, device)

    return told
