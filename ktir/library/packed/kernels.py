"""The matmul of weights of four bits, eight of which lie in a word of 32 bits.

Words move from memory as they are. The vector unit takes the weights of one place in the words out of them, and computes of each what the
program does before its matmul; a block of 64 x 64 goes to the array. Both work while the next words are loaded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ktir import lang
from ktir.library.kernels import OnEachCore
from ktir.library.operators import operator

WORD = 8
"""Weights of a word: the first one in the lowest bits."""
WEIGHTS = {torch.int32: WORD, torch.uint8: 2, torch.int8: 2}
"""Weights of an element of what they are packed in."""
_STEPS = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def dequantized(weights: Any, steps: str, tables: tuple[Any, ...]) -> Any:
    """What is made of weights. Steps, as in "to:float16 sub:8 mul:@0", are conversions, and operations with a number or a row of a
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


def _weights(word: Any, place: int, signed: bool) -> Any:
    """Those of one place, from 0 to 15, or from -8 to 7."""
    if signed:
        last = 4 * (WORD - 1)
        return (word << last - 4 * place if place < WORD - 1 else word) >> last
    return (word >> 4 * place if place else word) & 15


@lang.kernel
def product(
    x: Any,
    words: Any,
    table: Any,
    other: Any,
    totals: Any,
    y: Any,
    *,
    parts: int,
    spread: int,
    rows: int,
    shared: int,
    wide: int,
    steps: str,
    signed: bool,
    after: bool,
) -> None:
    """The sums y[parts, spread, M, C] of x[steps, blocks, M, L] times the weights in words[R, C], where K is cut in so many parts.

    spread: 1 where the places of a word are rows of the second operand; 8 where they are columns, each place some of its own. Tables are
    [groups, spread, C]. In a step one load after the other takes `rows` rows of words; `shared` loads have a row of each table in common,
    or all loads have one. Blocks have the loads one after the other, in each the places of a word that are rows, and in these its rows.
    after: the first table is a factor of the sums of a group, which is a step; the second one, if it has elements, is what each weight of
    the group is more, and totals[steps, M, 1] are the sums of x over each. L is 64, or fewer where groups are smaller.
    """
    each, blocks, m, lanes = x.shape
    along, fill = WORD // spread, lanes // rows
    loads = blocks * lanes // (along * rows)
    for part, columns in lang.blocks((parts, y.shape[3]), (1, wide)):
        sums = [lang.zeros((m, wide)) for _ in range(spread)]
        for number in lang.range(each // parts):
            step = part.start * (each // parts) + number if parts > 1 else number

            def row_of(t: Any, load: int, s: int, step: Any = step, columns: Any = columns) -> Any:
                return t[0 if t.shape[0] == 1 else step * (loads // shared) + load // shared, s, columns]

            pieces: list[list[Any]] = [[] for _ in range(spread)]
            for load in range(loads):
                first = (step * loads + load) * rows
                word = words[first : first + rows, columns]
                for place in range(WORD):
                    s = place if spread > 1 else 0
                    own = tuple(row_of(t, load, s) for k, t in enumerate((table, other)) if f"@{k}" in steps)
                    pieces[s].append(dequantized(_weights(word, place, signed), steps, own))
            for s in range(spread):
                found = lang.zeros((m, wide))[...]
                for block in range(blocks):
                    piece = np.concatenate(pieces[s][block * fill : (block + 1) * fill]) if fill > 1 else pieces[s][block]
                    if after:
                        found = lang.dot(x[step, block], piece, found)
                    else:
                        sums[s][...] = lang.dot(x[step, block], piece, sums[s][...])
                if after:
                    sums[s][...] = sums[s][...] + found * row_of(table, 0, s)
                    if other.shape[0]:
                        sums[s][...] = sums[s][...] + totals[step] * row_of(other, 0, s).astype(np.float32)
        for s in range(spread):
            y[part, s, :, columns] = sums[s][...].astype(y.dtype)


@operator("ktir::int4_product", OnEachCore(product))
def int4_product(
    x: torch.Tensor,
    words: torch.Tensor,
    table: torch.Tensor,
    other: torch.Tensor,
    totals: torch.Tensor,
    parts: int,
    spread: int,
    rows: int,
    shared: int,
    wide: int,
    steps: str,
    signed: bool,
    after: bool,
) -> torch.Tensor:
    """The product. Tables and sums that have no part in it have no elements. In one part it may have the type of x, else float32."""
    return x.new_empty(parts, spread, x.shape[2], words.shape[1], dtype=x.dtype if parts == 1 and (spread == 1 or after) else torch.float32)
