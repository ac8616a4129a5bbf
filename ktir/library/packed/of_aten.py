"""`aten._weight_int4pack_mm_for_cpu`: weights that PyTorch packs as its own kernel for this host wants them.

Its weights are `(q - 8) * scale + zero` in float32, for groups along K. The array multiplies whole numbers: the scales of a group are a
factor of its sums, and the zeros one of the sum of x over the group.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ktir.library.packed.calling import Builder, Plan, Rewrite, Table, Words, call, in_rows
from ktir.library.packed.expressions import Digits, Leaf
from ktir.library.packed.lying import Numbers, digits_of, lying, shares
from ktir.target import LANES

aten, prims = torch.ops.aten, torch.ops.prims
_BITS = 4


def product(words: Words, node: fx.Node, dtypes: tuple[torch.dtype, ...]) -> Rewrite | None:
    """What takes the place of a node; None where PyTorch packs in no way that the kernel knows, and for x of other types."""
    x, packed, size, pairs = node.args
    assert isinstance(x, fx.Node)
    assert isinstance(packed, fx.Node)
    assert isinstance(pairs, fx.Node)
    value, each = x.meta["val"], int(str(size))
    if value.dtype not in dtypes or not all(isinstance(n, int) for n in value.shape) or not words.has(packed):
        return None
    depth, columns = value.shape[1], packed.meta["val"].shape[0]
    weights = None if depth % each else _weights(packed, depth, columns)
    own = None if weights is None else lying(weights)
    split = None if own is None else shares(own.depth, [np.arange(depth) // each], after=True)
    if weights is None or own is None or split is None:
        return None
    kind = str(value.dtype)[6:]

    def rewrite(build: Builder) -> fx.Node:
        of_groups: Digits = ((depth // each, columns), (each, 0))
        tables = [Leaf(build.add(aten.select.int, pairs, 2, k), (of_groups, ((columns, 1),))) for k in range(2)]
        plan = Plan(weights, own, split, f"to:{kind} sub:8", tuple(Table(leaf, depth // each, kind) for leaf in tables))
        return in_rows(build, x, lambda rows: call(build, plan, words.of(packed), rows))

    return rewrite


def _weights(packed: fx.Node, depth: int, columns: int) -> Leaf | None:
    """The weights [K, N] of a packed tensor; None where they lie in no order of their dims."""
    if columns % LANES or depth % 2:
        return None
    with unset_fake_temporarily():
        places = _places(depth)
    if places is None:
        return None
    down, across = places
    blocks = (columns // LANES, LANES * depth)
    return Leaf(packed, (down, (blocks, *across)), 0, "weight")


@functools.cache
def _places(depth: int) -> tuple[Digits, Digits] | None:
    """Where PyTorch puts the weights of each row, and of each of 64 columns, beyond which all repeats itself."""
    found = _packed(2 * LANES, depth)
    base = found[0, 0]
    down, across = found[0] - base, found[:LANES, 0] - base
    if (
        base
        or not np.array_equal(found[:LANES], across[:, None] + down)
        or not np.array_equal(found[LANES:], found[:LANES] + LANES * depth)
    ):
        return None
    digits = _of_places(down), _of_places(across)
    return None if digits[0] is None or digits[1] is None else (digits[0], digits[1])


def _of_places(places: Numbers) -> Digits | None:
    """The dims along which places count, perhaps with gaps."""
    digits = digits_of(places)
    found = np.zeros(1, np.int64)
    for n, distance in digits:
        found = (found[:, None] + np.arange(n) * distance).reshape(-1)
    return digits if np.array_equal(found, places) else None


def _packed(columns: int, depth: int) -> Numbers:
    """[columns, depth]: the place of each weight in what PyTorch packs, in weights."""
    number = torch.arange(columns * depth).reshape(columns, depth)
    held: Any = np.zeros(columns * depth, np.int64)
    for shift in range(0, (columns * depth - 1).bit_length(), _BITS):
        part = aten._convert_weight_to_int4pack_for_cpu((number >> shift & 15).int(), 2).reshape(-1).numpy().astype(np.int64)
        held |= np.stack([part & 15, part >> _BITS], -1).reshape(-1) << shift
    found = np.empty(columns * depth, np.int64)
    found[held] = np.arange(len(held))
    return found.reshape(columns, depth)
