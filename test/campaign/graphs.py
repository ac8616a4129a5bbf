"""Random logical programs on tensors of any rank: what a front end may write, with awkward sizes, also 1.

Ops are drawn one by one: views of inputs (transposed, sliced, spread, backwards, repeated), pointwise chains with permuted and broadcast
operands, reductions, contractions, reshapes, slices, pads, concatenations, masks by position, in f16 and f32; arithmetic, comparisons,
conversions and reductions of i32, i64 and i1; gathers and scatters of rows, scans, sorts. What no op used is stored at the end, so nothing
is dead.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from campaign import graph_indices, graph_integers, graph_ops
from campaign.graph_draws import Draws

_OPS: dict[Callable[[Draws], None], int] = {**graph_ops.OPS, **graph_integers.OPS, **graph_indices.OPS}


def graph(seed: int, ops: int = 5) -> tuple[str, list[np.ndarray]]:
    """The program of a seed, of about so many ops, and its arguments."""
    g = Draws(random=random.Random(seed))
    kinds = _OPS if seed % 2 else graph_ops.OPS  # half of the programs move floats through sticks alone
    while ops > 0 or not g.unused:
        g.random.choices(list(kinds), list(kinds.values()))[0](g)
        ops -= 1
    for value in list(g.unused.values()):
        g.store(value)
    return g.module(), [g.array(i, v) for i, (_, v) in enumerate(g.arguments)]


def each(seeds: range, check: Callable[[int], None]) -> None:
    """Check seeds in turn; an error names its seed."""
    for seed in seeds:
        try:
            check(seed)
        except Exception as error:
            raise AssertionError(f"graph({seed})") from error
