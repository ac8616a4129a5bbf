"""Pooling, and convolutions with a filter per channel, on the vector unit: one loop nest that reads a padded tensor with its channels last
once per place of the window, so that channels lie in the lanes."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor import lowering as builtin
from torch._inductor.virtualized import ops

from ktir.lowering.inductor.graph.formulas.window_dot import is_computed, padded, with_channels_last

aten = torch.ops.aten

Window = tuple[Sequence[int], Sequence[int], Sequence[int]]
"""Extents of a window, its strides and its dilations."""


def _reduced(
    x: Any,
    window: Window,
    pads: Sequence[tuple[int, int]],
    fill: float,
    dtype: torch.dtype,
    term: Callable[..., Any],
    combine: Callable[..., Any],
    finish: Callable[..., Any] = lambda value, _: value,
) -> Any:
    """What windows over x come to. x: [batch, channels, spatial ..], with `fill` around it; the result: [batch, channels, places ..].

    `combine` combines what `term(element, channel, tap)` makes of each element, where a tap is a place of the window, and `finish(value,
    channel)` makes the result of that. `pads`: elements before and behind, per spatial dim.
    """
    extents, strides, dilations = window
    spatial = len(extents)
    x.realize()
    with_channels_last(x)
    x = builtin.lowerings[aten.permute](x, [0, *range(2, spatial + 2), 1])
    batch, *sizes, channels = x.get_size()
    sizes = [n + low + high for n, (low, high) in zip(sizes, pads, strict=True)]
    if not is_computed(x) and not any(map(any, pads)) and any(d * (w - 1) >= s for w, s, d in zip(*window, strict=True)):
        # windows of an input that overlap: a row that nobody reads makes a copy of it, of which they are views; else each is packed apart
        pads = [*pads[:-1], (0, 1)]
    flat = [n for pair in reversed(pads) for n in pair]
    x = padded(x, [0, 0, *flat] if any(flat) else [], fill)
    load = x.make_loader()
    places = [(n - d * (w - 1) - 1) // s + 1 for n, w, s, d in zip(sizes, extents, strides, dilations, strict=True)]

    def inner(index: Sequence[Any]) -> Any:
        found = []
        for tap in itertools.product(*map(range, extents)):
            at = [p * s + t * d for p, s, t, d in zip(index[1:-1], strides, tap, dilations, strict=True)]
            found.append(term(load([index[0], *at, index[-1]]), index[-1], tap))
        return finish(functools.reduce(combine, found), index[-1])

    made: Any = ir.Pointwise.create(device=x.get_device(), dtype=dtype, inner_fn=inner, ranges=[batch, *places, channels])
    made.realize()  # so that what comes next, as padding does, does not stand around each place
    return builtin.lowerings[aten.permute](made, [0, spatial + 1, *range(1, spatial + 1)])


def largest(x: Any, window: Window, pads: Sequence[tuple[int, int]]) -> Any:
    """The largest element of each window, or NaN."""
    return _reduced(x, window, pads, -math.inf, x.get_dtype(), lambda element, *_: element, ops.maximum)


def total(x: Any, window: Sequence[int], stride: Sequence[int], pads: Sequence[int]) -> Any:
    """The sum of each window, in float32; `pads` as `pad` has them, the last dim first."""
    return _reduced(x, (window, stride, [1] * len(window)), _pairs(pads), 0.0, torch.float32, lambda element, *_: _wide(element), ops.add)


def filtered(x: Any, weight: Any, bias: Any, stride: Sequence[int], pads: Sequence[int], dilation: Sequence[int]) -> Any:
    """A convolution with a filter per channel, in float32, rounded at the end. weight: [channels, 1, window ..]; `pads` as above."""
    weight.realize()
    factors, dtype = weight.make_loader(), x.get_dtype()

    def product(element: Any, channel: Any, tap: Sequence[int]) -> Any:
        return ops.mul(_wide(element), _wide(factors([channel, *(sympy.Integer(t) for t in (0, *tap))])))

    def rounded(total: Any, channel: Any) -> Any:
        return ops.to_dtype(total if bias is None else ops.add(total, _wide(bias.make_loader()([channel]))), dtype)

    window = [int(n) for n in weight.get_size()[2:]], stride, dilation
    return _reduced(x, window, _pairs(pads), 0.0, dtype, product, ops.add, rounded)


def _pairs(pads: Sequence[int]) -> list[tuple[int, int]]:
    """Pads as `pad` has them, the last dim first, as one pair per dim."""
    return list(zip(pads[::2], pads[1::2], strict=True))[::-1]


def _wide(value: Any) -> Any:
    return ops.to_dtype(value, torch.float32)
