"""Convolutions as loop nests: a `dot` over the places of a window and channels, on views of a padded tensor that has its channels last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._inductor import ir
from torch._inductor import lowering as builtin
from torch._inductor.virtualized import ops

aten = torch.ops.aten

_STICK = 64
"""Elements of a half in a stick."""


def folded_taps(channels: int, taps: int) -> int:
    """Taps next to each other that are one K with their channels, where these alone would leave most of a stick empty."""
    return max((n for n in range(1, taps + 1) if taps % n == 0 and n * channels <= _STICK), default=1)


def lowered(x: Any, weight: Any, stride: Sequence[int], pads: Sequence[int], dilation: Sequence[int], groups: int) -> Any:
    """A convolution as one loop nest: a `dot` over the places of its window, which are views, and the channels of a group. What windows
    overlap in is a tensor of its own, padded, with its channels last."""
    view, permute, unfold, take, unsqueeze = (
        builtin.lowerings[op] for op in (aten.view, aten.permute, aten.unfold, aten.slice, aten.unsqueeze)
    )
    spatial = len(stride)
    batch, _, *sizes = x.get_size()
    filters, inner, *window = weight.get_size()
    x.realize()
    weight.realize()
    with_channels_last(x)
    lead = [0] if groups == 1 else [1, 0]  # groups, batch
    if groups > 1:
        x, weight = view(x, [batch, groups, inner, *sizes]), view(weight, [groups, filters // groups, inner, *window])
    rows, single = len(lead) + spatial, len(lead) - 1
    x = permute(x, [*lead, *range(rows + 1 - spatial, rows + 1), rows - spatial])
    weight = permute(weight, [*range(single), *range(single + 2, single + 2 + spatial), single + 1, single])  # groups, window, K, N
    if is_computed(weight):
        weight = ir.ExternKernel.require_stride_order(weight, [*reversed(range(single + spatial + 2))])
    if any(n > 1 for n in window) or any(pads):
        x = padded(x, [0, 0, *pads] if any(pads) else [])
    folded = folded_taps(int(inner), int(window[-1])) if dilation[-1] == 1 else 1
    if folded > 1:  # taps next to each other and their channels are one K
        sizes = x.get_size()
        x = view(x, [*sizes[:-2], sizes[-2] * inner])
        weight = view(weight, [*weight.get_size()[: single + spatial - 1], window[-1] // folded, folded * inner, filters // groups])
    for dim, (w, s, d) in enumerate(zip(window, stride, dilation, strict=True)):
        if folded > 1 and dim == spatial - 1:
            x = unfold(unfold(x, rows - 1, w * inner, s * inner), rows + dim, folded * inner, folded * inner)
        else:
            x = unfold(x, len(lead) + dim, d * (w - 1) + 1, s)
            x = take(x, -1, 0, d * (w - 1) + 1, d) if d > 1 else x
    taps = range(rows, rows + spatial) if folded > 1 else range(rows + 1, rows + 1 + spatial)
    a = unsqueeze(permute(x, [*range(rows), *taps, rows + spatial if folded > 1 else rows]), rows)  # groups, batch, places, N, window, K
    b = permute(weight, [*range(single), single + spatial + 1, *range(single, single + spatial + 1)])
    for _ in range(1 + spatial):
        b = unsqueeze(b, single)
    (a, b), _ = builtin.transform_args(args=[a, b], kwargs={}, broadcast=True, type_promotion_kind=None, convert_input_to_bool=False)
    summed = list(range(rows + 1, rows + 2 + spatial))
    result = builtin.to_dtype(builtin.make_reduction("dot", torch.float32)(builtin.make_pointwise(ops.dot)(a, b), summed), x.get_dtype())
    result = permute(result, [*lead, rows, *range(len(lead), rows)])
    return result if groups == 1 else view(result, [batch, filters, *result.get_size()[3:]])


def with_channels_last(x: Any) -> None:
    """Let the buffer of [batch, channels, spatial ..] behind x have its channels last, if it may still lie as it likes."""
    channels = x.get_size()[1]
    while isinstance(x, (ir.MutableBox, ir.BaseView)):
        x = x.data
    dims = len(x.get_size()) if isinstance(x, ir.ComputedBuffer) else 0
    if dims > 2 and isinstance(x.layout, ir.FlexibleLayout) and x.get_size()[1] == channels:
        x.freeze_layout_with_stride_order([dims - 1, 0, *reversed(range(1, dims - 1))])


def padded(x: Any, pads: Sequence[int], fill: float = 0.0) -> Any:
    """A tensor of [.., spatial .., channels] in memory, in this order, with `fill` around it; what is computed lies so already."""
    if any(pads):
        x = builtin.lowerings[aten.constant_pad_nd](x, list(pads), fill)
    elif not is_computed(x):
        x = builtin.clone(x)
    return ir.ExternKernel.require_stride_order(x, [*reversed(range(len(x.get_size())))])


def is_computed(x: Any) -> bool:
    """Whether a view shows what the graph computes."""
    while isinstance(x, (ir.MutableBox, ir.BaseView)):
        x = x.data
    return isinstance(x, ir.ComputedBuffer)
