"""Launches of programs on the literal machine, from and to the carriers of the emulator."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from ktir.arithmetic.numerics import decode, encode
from ktir.checking.literal import run
from ktir.emulator.machine.machine import carrier_shape
from ktir.isa.assembly.text import print_program
from ktir.isa.program import Argument, Program
from ktir.target import NARROW, PAIRS

F32 = np.ndarray


def _bytes(a: Argument, x: F32) -> bytes:
    """Elements as they lie in memory."""
    if a.half in PAIRS:
        return x.view(np.uint32).astype(np.uint16).tobytes()
    return (x if a.element_bytes == 4 else encode(NARROW.get(a.half, a.half), x)).tobytes()


def _values(a: Argument, held: bytearray) -> F32:
    if a.half in PAIRS:
        return np.frombuffer(held, np.uint16).astype(np.uint32).view(np.float32)
    if a.half in NARROW:
        return decode(NARROW[a.half], np.frombuffer(held, np.uint8))
    return np.frombuffer(held, np.float32).copy() if a.element_bytes == 4 else decode(a.half, np.frombuffer(held, np.uint16))


def literal(program: Program, carriers: Sequence[F32 | None], seed: int | None = None, unwritten: int = 0xFF) -> list[F32]:
    """What memory holds after a run; `seed` draws the order of the units. Pools start full of `unwritten`."""
    memory = []
    for a, x in zip(program.arguments, carriers, strict=True):
        size = a.sticks * 128
        memory.append(bytearray([unwritten]) * size if x is None else bytearray(_bytes(a, x))[:size])
    run(print_program(program), memory, order=None if seed is None else random.Random(seed), unwritten=unwritten)
    out = []
    for a, held in zip(program.arguments, memory, strict=True):
        values = _values(a, held)
        values.resize(carrier_shape(a), refcheck=False)  # of an odd number of sticks, half an entry is not there
        out.append(values)
    return out


def differing(program: Program, mine: Sequence[F32], theirs: Sequence[F32 | None]) -> str | None:
    """The first element in which two states of memory differ, pools left out. Any two NaNs are alike."""
    for a, x, y in zip(program.arguments, mine, theirs, strict=True):
        if a.role == "pool" or y is None:
            continue
        unlike = (x.view(np.uint32) != y.view(np.uint32)) & ~(np.isnan(x) & np.isnan(y))
        if unlike.any():
            at = tuple(int(i) for i in np.argwhere(unlike)[0])
            return f"{a.name}{list(at)}: {x[at]!r} ({x.view(np.uint32)[at]:#x}) is not {y[at]!r} ({y.view(np.uint32)[at]:#x})"
    return None
