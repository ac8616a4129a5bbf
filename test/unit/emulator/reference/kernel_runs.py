"""A kernel from a body, run by the executor."""

from __future__ import annotations

import numpy as np
from kernel_texts import (
    kernel,
    store,
)

from ktir.emulator.policy import Policy
from ktir.emulator.reference import execute

F16, F32 = np.float16, np.float32


TYPES = {"f16": F16, "f32": F32, "i32": np.int32}


def run(body: str, *arrays: np.ndarray, out: tuple[int, ...], element: str = "f16", policy: Policy | None = None) -> np.ndarray:
    """Runs `body`, which defines %y from arguments %arg0, %arg1, ..; returns %y."""
    y = np.zeros(out, TYPES[element])
    names = [f"%arg{i}" for i in range(len(arrays) + 1)]
    text = kernel(names, body + store("%y", names[-1], out, element=element))
    execute(text, args=[*arrays, y], policy=policy)
    return y
