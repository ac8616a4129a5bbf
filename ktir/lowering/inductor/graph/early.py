"""Operators that torch takes apart before any table of decompositions is asked: what does that is exchanged while a graph is compiled."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import DispatchKey

from ktir.lowering.inductor.graph.decompositions import wide
from ktir.lowering.inductor.graph.formulas import interpolation


def _dropped(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """`dropout`, which is its operand where nothing is dropped; torch's function makes a copy then, so that writes would not be seen."""
    return lambda x, p, train: theirs(x, p, train) if train and p != 0 and x.numel() != 0 else x


def _of_integers(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """What tracing knows of `histc`, which counts integers on a device and refuses them on the host, where a graph is shown."""

    def histc(x: torch.Tensor, bins: int = 100, *limits: Any, **rest: Any) -> torch.Tensor:
        return theirs(x, bins, *limits, **rest) if x.is_floating_point() else x.new_empty(bins)

    return histc


def _attention(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Attention on [.., rows, dim] is that on [batch, heads, rows, dim]: of another rank torch writes it out, in matmuls of f32."""

    def attention(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any = None, *rest: Any, **options: Any
    ) -> torch.Tensor:
        tensors = (query, key, value)
        mask = options.pop("attn_mask", mask)
        alike = mask is None or mask.dim() <= 2 or mask.shape[:-2] == query.shape[:-2]
        if query.dim() in (0, 1, 4) or any(t.shape[:-2] != query.shape[:-2] for t in tensors) or not alike:
            return theirs(*tensors, mask, *rest, **options)
        q, k, v = (t.reshape(1, -1, *t.shape[-2:]) for t in tensors)
        if mask is not None and mask.dim() > 2:
            mask = mask.reshape(1, -1, *mask.shape[-2:])
        found = theirs(q, k, v, mask, *rest, **options)
        return found.reshape(*query.shape[:-1], value.shape[-1])

    return attention


_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
_OURS: dict[Any, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    **{packet.vec: functools.partial(interpolation.whole, packet) for packet in interpolation.PACKETS},
    torch.ops.aten.dropout.default: _dropped,
    torch.ops.aten.scaled_dot_product_attention.default: _attention,
    torch.ops.aten.softshrink.default: wide,  # a comparison of half precision would be one with the number as the type holds it
}
"""What takes the place of torch's function, which it is given."""
_KNOWN: dict[Any, Callable[[Callable[..., Any]], Callable[..., Any]]] = {torch.ops.aten.histc.default: _of_integers}
"""The same of functions that give a result without values."""


@contextmanager
def exchanged() -> Iterator[None]:
    """Inside the block this thread traces these operators our way."""
    tables = ((_OURS, _KEYS), (_KNOWN, (DispatchKey.Meta,)))
    saved = {op: dict(op.py_kernels) for table, _ in tables for op in table}
    thread = threading.get_ident()
    for op, ours, keys in ((op, ours, keys) for table, keys in tables for op, ours in table.items()):
        for key in keys:
            theirs = saved[op].get(key) or (_taken_apart(op) if key is DispatchKey.CompositeImplicitAutograd else None)
            if theirs is not None:
                op.py_kernels[key] = _in_thread(thread, ours(theirs), theirs)
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernels in saved.items():
            op.py_kernels.clear()
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()


def _taken_apart(op: Any) -> Callable[..., Any] | None:
    """What torch takes an operator apart with where that is no function of Python's; None where it does not."""
    key = DispatchKey.CompositeImplicitAutograd
    return functools.partial(op._op_dk, key) if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key) else None


def _in_thread(thread: int, ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *operands, **options: (ours if threading.get_ident() == thread else theirs)(*operands, **options)
