"""Autograd on several cards: the device guard that torch makes for a device in Python knows one card, in compiled code.

It is an object of libc10 with a table of functions. Five of them are replaced by ours, in a copy of the table, after the table has been
asked what it should say; where it says something else, nothing is touched, and autograd works on card 0 alone.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch

from ktir.device.tensors import current

_PRIVATEUSE1 = 20
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_TYPES = 22  # DeviceTypes, each with a place in the registry
_SLOTS = 30
_TYPE, _EXCHANGE, _GET, _SET, _SET_UNCHECKED, _COUNT = 0, 1, 2, 3, 4, 15
"""Places in the table, in the order of c10/core/impl/DeviceGuardImplInterface.h of torch 2.13."""

_Pointer = ctypes.c_void_p
_kept: list[Any] = []
"""The new table and its functions, which live as long as the process."""


def install() -> str | None:
    """Let the guard know all cards; why that cannot be, or None."""
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    try:
        guard = (_Pointer * _TYPES).in_dll(ctypes.CDLL(str(library)), _REGISTRY)[_PRIVATEUSE1]
    except (OSError, ValueError) as error:
        return f"libc10 has no registry of guards: {error}"
    if not guard:
        return "no guard is registered"
    table = _Pointer.from_address(guard).value
    assert table is not None
    said = tuple(
        _ask(guard, table, slot, kind) for slot, kind in ((_TYPE, ctypes.c_int8), (_COUNT, ctypes.c_uint8), (_GET, ctypes.c_uint16))
    )
    if said != (_PRIVATEUSE1, 1, _PRIVATEUSE1):
        return f"the guard's table is not the one that is known: it says {said}"
    word = ctypes.sizeof(_Pointer)
    copy = (_Pointer * (_SLOTS + 2))(*[_Pointer.from_address(table + word * k).value for k in range(-2, _SLOTS)])  # two words come before
    for slot, function in _functions().items():
        copy[2 + slot] = ctypes.cast(function, _Pointer).value
        _kept.append(function)
    _kept.append(copy)
    _Pointer.from_address(guard).value = ctypes.addressof(copy) + 2 * word
    return None


def _ask(guard: int, table: int, slot: int, kind: Any) -> int:
    at = _Pointer.from_address(table + ctypes.sizeof(_Pointer) * slot).value
    return ctypes.CFUNCTYPE(kind, _Pointer)(at)(guard) if at else -1


def _functions() -> dict[int, Any]:
    """Ours, by place. A device is a number of 16 bits: its type, and above it the card, 255 for none."""

    def device() -> int:
        return _PRIVATEUSE1 | current.get() << 8

    def put(wanted: int) -> None:
        if (card := wanted >> 8) < current.count():
            current.put(card)

    @ctypes.CFUNCTYPE(ctypes.c_uint8, _Pointer)
    def count(_: Any) -> int:
        return current.count()

    @ctypes.CFUNCTYPE(ctypes.c_uint16, _Pointer)
    def get(_: Any) -> int:
        return device()

    @ctypes.CFUNCTYPE(ctypes.c_uint16, _Pointer, ctypes.c_uint16)
    def exchange(_: Any, wanted: int) -> int:
        before = device()
        put(wanted)
        return before

    @ctypes.CFUNCTYPE(None, _Pointer, ctypes.c_uint16)
    def set_device(_: Any, wanted: int) -> None:
        put(wanted)

    return {_COUNT: count, _GET: get, _EXCHANGE: exchange, _SET: set_device, _SET_UNCHECKED: set_device}
