"""Autograd on several cards: the device guard that torch makes for a device in Python knows one card, in compiled code.

It is an object of libc10 with a table of functions. Five of them are replaced by ours, in a copy of the table, after the table has been
asked what it should say; where it says something else, nothing is touched, and autograd works on card 0 alone.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ktir.device.tensors import current, tables
from ktir.device.tensors.tables import Pointer

_PRIVATEUSE1 = 20
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_TYPES = 22  # DeviceTypes, each with a place in the registry
_SLOTS = 30
_TYPE, _EXCHANGE, _GET, _SET, _SET_UNCHECKED, _COUNT = 0, 1, 2, 3, 4, 15
"""Places in the table, in the order of c10/core/impl/DeviceGuardImplInterface.h of torch 2.13."""


def install() -> str | None:
    """Let the guard know all cards; why that cannot be, or None."""
    try:
        guard = (Pointer * _TYPES).in_dll(tables.library("libc10.so"), _REGISTRY)[_PRIVATEUSE1]
    except (OSError, ValueError) as error:
        return f"libc10 has no registry of guards: {error}"
    if not guard:
        return "no guard is registered"
    asked = ((_TYPE, ctypes.c_int8), (_COUNT, ctypes.c_uint8), (_GET, ctypes.c_uint16))
    said = tuple(tables.function_at(guard, slot, ctypes.CFUNCTYPE(kind, Pointer))(guard) for slot, kind in asked)
    if said != (_PRIVATEUSE1, 1, _PRIVATEUSE1):
        return f"the guard's table is not the one that is known: it says {said}"
    tables.replace(guard, _SLOTS, _functions())
    return None


def _functions() -> dict[int, Any]:
    """Ours, by place. A device is a number of 16 bits: its type, and above it the card, 255 for none."""

    def device() -> int:
        return _PRIVATEUSE1 | current.get() << 8

    def put(wanted: int) -> None:
        if (card := wanted >> 8) < current.count():
            current.put(card)

    @ctypes.CFUNCTYPE(ctypes.c_uint8, Pointer)
    def count(_: Any) -> int:
        return current.count()

    @ctypes.CFUNCTYPE(ctypes.c_uint16, Pointer)
    def get(_: Any) -> int:
        return device()

    @ctypes.CFUNCTYPE(ctypes.c_uint16, Pointer, ctypes.c_uint16)
    def exchange(_: Any, wanted: int) -> int:
        before = device()
        put(wanted)
        return before

    @ctypes.CFUNCTYPE(None, Pointer, ctypes.c_uint16)
    def set_device(_: Any, wanted: int) -> None:
        put(wanted)

    return {_COUNT: count, _GET: get, _EXCHANGE: exchange, _SET: set_device, _SET_UNCHECKED: set_device}
