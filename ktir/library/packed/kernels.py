"""The matmul of weights of four bits, eight of which lie in a word of 32 bits.

Words move from memory as they are. The vector unit takes the weights of one place in the words out of them, and computes of each what the
program does before its matmul; a block of 64 x 64 goes to the array. Both work while the next words are loaded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ktir import lang
from ktir.library.operators import operator
from ktir.target import LANES, PRESETS

WORD = 8
"""Weights of a word: the first one in the lowest bits."""
CORES = PRESETS["datasheet"].cores
_STEPS = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def dequantized(weights: Any, steps: str, tables: tuple[Any, ...]) -> Any:
    """What is made of weights 0 to 15. Steps, as in "to:float16 sub:8 mul:@0", are conversions, and operations with a number or a row of a
    table."""
    for step in steps.split():
        name, operand = step.split(":")
        if name == "to":
            weights = weights.astype(_dtype(operand))
        else:
            other = tables[int(operand[1:])] if operand[0] == "@" else weights.dtype.type(float(operand))
            weights = _STEPS[name](weights, other)
    return weights


def _dtype(name: str) -> Any:
    if name != "bfloat16":
        return np.dtype(name)
    from ktir.lang.base.arguments import bfloat16

    return bfloat16()


def _product(x: Any, words: Any, tables: tuple[Any, ...], y: Any, rows: int, wide: int, steps: str) -> None:
    """The sums y[M, N] in float32 of x [steps, blocks, M, 64] times the weights in words [K / 8, N].

    A step has `rows` rows of words for each of its groups, which share a row of each table, or all share one. Blocks have the groups one
    after the other, in each the places of a word, and in these its rows.
    """
    each, blocks, m, _ = x.shape
    groups = blocks * LANES // (WORD * rows)
    for columns in lang.blocks(y.shape[1], wide):
        sums = lang.zeros((m, wide))
        for step in lang.range(each):
            parts = []
            for group in range(groups):
                first = (step * groups + group) * rows
                word = words[first : first + rows, columns]
                own = tuple(t[0 if t.shape[0] == 1 else step * groups + group, columns] for t in tables)
                parts += [dequantized((word >> 4 * place) & 15, steps, own) for place in range(WORD)]
            fill = LANES // rows
            for block in range(blocks):
                weights = np.concatenate(parts[block * fill : (block + 1) * fill])
                sums[...] = lang.dot(x[step, block], weights, sums[...])
        y[:, columns] = sums[...]


@lang.kernel
def plain(x: Any, words: Any, y: Any, *, rows: int, wide: int, steps: str) -> None:
    """Without tables."""
    _product(x, words, (), y, rows, wide, steps)


@lang.kernel
def scaled(x: Any, words: Any, table: Any, y: Any, *, rows: int, wide: int, steps: str) -> None:
    """With one table."""
    _product(x, words, (table,), y, rows, wide, steps)


@lang.kernel
def shifted(x: Any, words: Any, table: Any, other: Any, y: Any, *, rows: int, wide: int, steps: str) -> None:
    """With two tables."""
    _product(x, words, (table, other), y, rows, wide, steps)


def _result(x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[2], words.shape[1], dtype=torch.float32)


@operator("ktir::int4_plain", plain[CORES])
def int4_plain(x: torch.Tensor, words: torch.Tensor, rows: int, wide: int, steps: str) -> torch.Tensor:
    """The product with weights that no table has a part in."""
    return _result(x, words)


@operator("ktir::int4_scaled", scaled[CORES])
def int4_scaled(x: torch.Tensor, words: torch.Tensor, table: torch.Tensor, rows: int, wide: int, steps: str) -> torch.Tensor:
    """The product with weights of one table [groups, N]."""
    return _result(x, words)


@operator("ktir::int4_shifted", shifted[CORES])
def int4_shifted(
    x: torch.Tensor, words: torch.Tensor, table: torch.Tensor, other: torch.Tensor, rows: int, wide: int, steps: str
) -> torch.Tensor:
    """The product with weights of two tables [groups, N]."""
    return _result(x, words)


PRODUCTS = (int4_plain, int4_scaled, int4_shifted)
"""By the number of tables."""
