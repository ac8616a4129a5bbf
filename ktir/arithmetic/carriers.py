"""Carriers: how the emulator holds the elements of an argument, 32 bits each: values of floats, the bits of all else.

What a program only reads may wait in fewer: floats of 16 bits as such, and bits that fit into 8 or 16 as integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.floats import f16_to_f32

Carrier = NDArray[Any]


def waits(carrier: Carrier) -> bool:
    """Whether elements wait in fewer than 32 bits."""
    return carrier.dtype != np.float32


def bits_of(carrier: Carrier) -> NDArray[Any]:
    """The bits of elements, as integers of some width."""
    return carrier if carrier.dtype.kind in "iu" else carrier.view(np.int32)


def put(target: NDArray[np.float32], elements: Carrier) -> None:
    """Elements to a carrier of 32 bits, or a part of one."""
    if elements.dtype.kind in "iu":
        np.copyto(target.view(np.int32), elements)
    elif elements.dtype == np.float16 and target.flags.c_contiguous and elements.flags.c_contiguous:
        f16_to_f32(elements, target)
    else:
        np.copyto(target, elements)


def wide(carrier: Carrier) -> NDArray[np.float32]:
    """A carrier of 32 bits; itself, where it is one."""
    if not waits(carrier):
        return carrier
    found = np.empty(carrier.shape, np.float32)
    put(found, carrier)
    return found


def waiting_type(dtype: str, layout: str) -> type:
    """What elements of a tensor of the host, of a type by its name, are held as where they wait in a layout of `layout`: a type of KTIR."""
    if layout == "f16":
        return np.float16
    if layout == "i32":
        return {"bool": np.uint8, "int8": np.int8, "uint8": np.int16, "int16": np.int16}.get(dtype, np.float32)
    return np.float32


__all__ = ["Carrier", "bits_of", "put", "waiting_type", "waits", "wide"]
