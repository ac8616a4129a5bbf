"""Carriers: how the emulator holds the elements of an argument, 32 bits each: values of floats, the bits of all else.

What a program only reads may wait in fewer: floats of 16 bits as such, and bits that fit into 8 or 16 as integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.floats import f16_to_f32

Carrier = NDArray[Any]
BF16 = np.dtype([("bfloat16", np.uint16)])
"""Elements of bfloat16 in memory of the host: their bits, in a type of their own, which no integers have. NumPy has none for them."""
_F32 = np.dtype(np.float32)


def waits(carrier: Carrier) -> bool:
    """Whether elements wait in fewer than 32 bits."""
    return carrier.dtype != np.float32


def bits_of(carrier: Carrier) -> NDArray[Any]:
    """The bits of elements, as integers of some width."""
    return carrier if carrier.dtype.kind in "iu" else carrier.view(np.int32)


def put(target: NDArray[np.float32], elements: Carrier) -> None:
    """Elements to a carrier of 32 bits, or a part of one."""
    if elements.dtype is _F32:  # most of all, and asked first: each launch has many
        np.copyto(target, elements)
    elif elements.dtype.kind in "iu":
        np.copyto(target.view(np.int32), elements)
    elif elements.dtype == BF16:
        np.left_shift(elements.view(np.uint16), np.uint32(16), out=target.view(np.uint32), dtype=np.uint32)
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


def waiting_type(dtype: str, layout: str) -> np.dtype[Any]:
    """What elements of a tensor of the host, of a type by its name, are held as where they wait in a layout of `layout`: a type of KTIR."""
    found: Any = np.float32
    if layout == "f16":
        found = np.float16
    elif layout == "bf16" and dtype == "bfloat16":
        found = BF16
    elif layout == "i32":
        found = {"bool": np.uint8, "int8": np.int8, "uint8": np.int16, "int16": np.int16}.get(dtype, found)
    return np.dtype(found)


__all__ = ["BF16", "Carrier", "bits_of", "put", "waiting_type", "waits", "wide"]
