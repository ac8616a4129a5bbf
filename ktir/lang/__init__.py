"""The kernel language: Python functions on NumPy's operators become KTIR (docs/lang.md).

from ktir import lang

@lang.kernel
def double(x, y):
    for rows in lang.blocks(x.shape[0], 8):
        y[rows] = 2 * x[rows]

double[4](a, b)
"""

from ktir.lang.base.mistakes import Mistake
from ktir.lang.control import (
    all_gather,
    all_reduce,
    all_to_all,
    blocks,
    broadcast,
    buffer,
    dot,
    erf,
    full,
    range,
    reduce_scatter,
    rsqrt,
    shift,
    sigmoid,
    tile_id,
    tiles,
    when,
    zeros,
)
from ktir.lang.kernel import Kernel, Tuned, autotune, kernel

__all__ = [
    "Kernel",
    "Mistake",
    "Tuned",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "autotune",
    "blocks",
    "broadcast",
    "buffer",
    "dot",
    "erf",
    "full",
    "kernel",
    "range",
    "reduce_scatter",
    "rsqrt",
    "shift",
    "sigmoid",
    "tile_id",
    "tiles",
    "when",
    "zeros",
]
