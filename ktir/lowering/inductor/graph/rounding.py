"""One value, one meaning: which float16 and bfloat16 results of the user's program are rounded before anything reads them.

The program is the graph of ATen operators as they are called. A decomposition writes several nodes for one operator; `as_one` notes which,
so that what passes between them, mostly in float32, stays as it is. `mark` then puts a `ktir.rounded` behind each narrow value: every
reader has the number that eager would store. Left out is what a single operator reads that works element for element, is continuous and
stays in the same type: it may see more digits. Lowered, `ktir.rounded` rounds, or does nothing to what lies in memory.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.proxy_tensor import get_proxy_mode

aten = torch.ops.aten

NARROW = (torch.float16, torch.bfloat16)
_CALL = "ktir_call"
_OPERANDS = "eager_input_vals"
"""Under this PyTorch keeps what a custom operator was called with."""
_calls = itertools.count()
_depth: ContextVar[int] = ContextVar("ktir_decompositions", default=0)
"""Decompositions that are being written, one inside of the other."""

_LIBRARY = torch.library.Library("ktir", "DEF")
_LIBRARY.define("rounded(Tensor x) -> Tensor", tags=(torch.Tag.pointwise, torch.Tag.flexible_layout))
_LIBRARY.impl("rounded", lambda x: x.clone(), "CompositeExplicitAutograd")
ROUNDED = torch.ops.ktir.rounded.default
"""The values of a tensor as its type holds them."""

_SAME = (aten._unsafe_view, aten.clone)
"""Operators that hand on the values of their operand, besides views."""
_MOVES = {
    *(aten.cat, aten.copy_, aten.index, aten.index_select, aten.gather, aten.embedding, aten.index_put, aten.index_copy, aten.scatter),
    *(aten.slice_scatter, aten.select_scatter, aten.as_strided_scatter, aten.constant_pad_nd, aten.flip, aten.roll, aten.repeat),
    *(aten.full, aten.empty, aten.new_empty, aten.new_zeros, aten.empty_strided),
}
"""Operators whose results are elements of their operands, or constants: rounded where those are."""
_NUMBERS = {aten.full: 1, aten.scalar_tensor: 0}
"""Operators whose result is a number, and which of their arguments that is."""
_JUMPS = {
    *(aten.floor, aten.ceil, aten.round, aten.trunc, aten.fix, aten.frac, aten.sign, aten.sgn, aten.fmod, aten.remainder),
    *(aten.floor_divide, aten.heaviside, aten.copysign, aten.nextafter, aten.threshold, aten.hardshrink, aten.nan_to_num),
}
"""Operators on elements whose results jump, as do those of `div` with a mode. Comparisons and conversions give another type."""


def as_one(op: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition; the nodes that it writes are noted as one call of `op`."""

    @functools.wraps(decomposition)
    def run(*args: Any, **kwargs: Any) -> Any:
        mode = get_proxy_mode()
        graph = mode.tracer.graph if mode is not None else None
        last = next(iter(reversed(graph.nodes)), None) if graph is not None else None
        token = _depth.set(_depth.get() + 1)
        try:
            result = decomposition(*args, **kwargs)
        finally:
            _depth.reset(token)
        if graph is not None:
            call = (next(_calls), op)
            for node in itertools.takewhile(lambda n: n is not last, reversed(graph.nodes)):
                node.meta[_CALL] = call  # that of a decomposition inside of this one gives way
        return result

    return run


def is_outermost() -> bool:
    """Asked by a decomposition: whether the program calls its operator, not another decomposition."""
    return _depth.get() == 1


def mark(graph: fx.Graph) -> None:
    """Put a `ktir.rounded` behind each node whose value has to be one number for all who read it."""
    results: dict[Any, list[fx.Node]] = {}  # by call
    for node in graph.nodes:
        _hold(node)
        call = _call_of(node)[0]
        if any(_call_of(user)[0] != call for user in node.users):
            results.setdefault(call, []).extend(_computed(node, call))
    for node in dict.fromkeys(n for made in results.values() for n in made):
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or value.dtype not in NARROW or _keeps_values(node):
            continue
        if _may_stay(value.dtype, list(_readers(node)), results):
            continue
        with graph.inserting_after(node):
            rounded = graph.call_function(ROUNDED, (node,))
        rounded.meta = {k: v for k, v in node.meta.items() if k not in (_CALL, _OPERANDS)}
        node.replace_all_uses_with(rounded, delete_user_cb=lambda user, rounded=rounded: user is not rounded)


def _computed(node: fx.Node, call: Any) -> list[fx.Node]:
    """A node, or where it hands on values that its call has computed, those."""
    found, waiting = dict[fx.Node, list[fx.Node]](), [node]
    while waiting:
        at = waiting.pop()
        found[at] = own = [n for n in at.all_input_nodes if _keeps_values(at) and _call_of(n)[0] == call]
        waiting += [n for n in own if n not in found]
    return [n for n, own in found.items() if not own]


def _hold(node: fx.Node) -> None:
    """A constant of a narrow type is the number that its type holds."""
    value, place = node.meta.get("val"), _NUMBERS.get(_packet(node.target))
    if place is None or not isinstance(value, torch.Tensor) or value.dtype not in NARROW:
        return
    if isinstance(number := node.args[place], float):
        with unset_fake_temporarily():
            node.update_arg(place, torch.tensor(number, dtype=value.dtype).item())


def _packet(op: Any) -> Any:
    return getattr(op, "overloadpacket", op)


def _is_same(node: fx.Node) -> bool:
    """Whether a node hands on its operand's values, element by element; a part of several views is one too."""
    made = node.args[0] if node.target is operator.getitem else node
    return isinstance(made, fx.Node) and (_packet(made.target) in _SAME or getattr(made.target, "is_view", False))


def _keeps_values(node: fx.Node) -> bool:
    return _is_same(node) or _packet(node.target) in _MOVES


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """What computes with a value, moves or returns it; views and copies are looked through."""
    for user in node.users:
        if _is_same(user):
            yield from _readers(user)
        else:
            yield user


def _call_of(node: fx.Node) -> tuple[Any, Any]:
    """What stands for the call that a node belongs to, and its operator."""
    return node.meta.get(_CALL) or (node, node.target)


def _may_stay(dtype: torch.dtype, readers: list[fx.Node], results: dict[Any, list[fx.Node]]) -> bool:
    """Whether the only reader is one that may see a value with more digits than its type has, or one that stores it."""
    calls = dict(map(_call_of, readers))
    if len(calls) != 1:
        return not calls
    ((call, op),) = calls.items()
    if op == "output" or _packet(op) is aten.copy_:
        return True
    if not isinstance(op, torch._ops.OpOverload) or torch.Tag.pointwise not in op.tags:
        return False
    made = [r.meta.get("val") for r in results.get(call, ())]
    same = all(isinstance(v, torch.Tensor) and v.dtype == dtype for v in made)
    return same and op.overloadpacket not in _JUMPS and not op._overloadname.endswith("_mode")
