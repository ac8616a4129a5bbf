"""Autograd on the device: the device guard that torch makes for a device in Python asks Python where autograd leaves a node, and knows one
card.

A node is left with the error of a hook, too. Python that is asked then fails, and torch ends the process. So what is done there is the
host's guard's, which does nothing. What a guard does to the current card is nothing either: every kernel has the card from its tensors, and
the threads of autograd have theirs for good.

A guard is an object of libc10 with a table of functions. Some of them are replaced, in a copy of the table, after the tables have been
asked what they should say; where they say something else, nothing is touched.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ktir.device.tensors import current, tables
from ktir.device.tensors.tables import Pointer

_HOST, _PRIVATEUSE1 = 0, 20
_NO_CARD = 255
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_TYPES = 22  # DeviceTypes, each with a place in the registry
_SLOTS = 30
_TYPE, _EXCHANGE, _GET, _SET, _SET_UNCHECKED, _EXCHANGE_STREAM, _COUNT = 0, 1, 2, 3, 4, 9, 15
"""Places in the table, in the order of c10/core/impl/DeviceGuardImplInterface.h of torch 2.13."""


def install() -> str | None:
    """Let the guard know all cards, and keep errors of hooks; why that cannot be, or None."""
    try:
        registry = (Pointer * _TYPES).in_dll(tables.library("libc10.so"), _REGISTRY)
    except (OSError, ValueError) as error:
        return f"libc10 has no registry of guards: {error}"
    host, guard = registry[_HOST], registry[_PRIVATEUSE1]
    if not host or not guard:
        return "no guard is registered"
    asked = ((_TYPE, ctypes.c_int8), (_COUNT, ctypes.c_uint8), (_GET, ctypes.c_uint16))
    said = tuple(tables.function_at(at, slot, ctypes.CFUNCTYPE(kind, Pointer))(at) for at in (host, guard) for slot, kind in asked)
    if said != (_HOST, 1, _HOST | _NO_CARD << 8, _PRIVATEUSE1, 1, _PRIVATEUSE1):
        return f"the tables of guards are not those that are known: they say {said}"
    nothing = {slot: tables.function_at(host, slot, Pointer) for slot in (_EXCHANGE_STREAM, _SET_UNCHECKED)}
    tables.replace(guard, _SLOTS, {**nothing, **(_functions() if current.count() > 1 else {})})
    return None


def _functions() -> dict[int, Any]:
    """Ours, by place. A device is a number of 16 bits: its type, and above it the card, `_NO_CARD` for none."""

    @ctypes.CFUNCTYPE(ctypes.c_uint8, Pointer)
    def count(_: Any) -> int:
        return current.count()

    @ctypes.CFUNCTYPE(ctypes.c_uint16, Pointer)
    def get(_: Any) -> int:
        return _PRIVATEUSE1 | current.get() << 8

    @ctypes.CFUNCTYPE(ctypes.c_uint16, Pointer, ctypes.c_uint16)
    def exchange(_: Any, wanted: int) -> int:
        return _PRIVATEUSE1 | current.get() << 8

    @ctypes.CFUNCTYPE(None, Pointer, ctypes.c_uint16)
    def set_device(_: Any, wanted: int) -> None:
        if (card := wanted >> 8) < current.count():
            current.put(card)

    return {_COUNT: count, _GET: get, _EXCHANGE: exchange, _SET: set_device}
