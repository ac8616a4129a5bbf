"""What of a post-grad ATen graph is supported; everything else is refused by name, shape, dtype and source line before lowering.

The list is positive: an operator that is not in it is an error, because whatever Inductor has no loops for would otherwise run as a call
into ATen on the host, unnoticed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import fx

from ktir.lowering.inductor.origins import refuse, tensors

_POINTWISE = """
    add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Scalar mul.Tensor mul.Scalar div.Tensor div.Scalar neg.default abs.default
    relu.default sigmoid.default tanh.default exp.default erf.default sqrt.default rsqrt.default reciprocal.default square.default
    maximum.default minimum.default clamp_min.default clamp_max.default clamp_min.Tensor clamp_max.Tensor clamp.default
    hardtanh.default addcmul.default addcdiv.default clone.default copy.default full.default full_like.default
    ones_like.default zeros_like.default scalar_tensor.default lift_fresh_copy.default _to_copy.default
"""
_VIEWS = """
    view.default reshape.default _unsafe_view.default permute.default t.default transpose.int unsqueeze.default squeeze.default
    squeeze.dim squeeze.dims expand.default slice.Tensor select.int split.Tensor split_with_sizes.default unbind.int alias.default
    detach.default as_strided.default
"""
_PRIMS = "convert_element_type.default broadcast_in_dim.default"

_OUTSIDE = "compute it outside of the compiled function and pass the result in"
_MASK = "for a mask, add a float16 tensor of 0 and -65504 that is passed in; for a bound, maximum and minimum"
_NEAREST = {
    "aten.convolution.default": "a matmul of unfolded patches (torch.nn.functional.unfold outside of the compiled function)",
    "aten.embedding.default": "the rows, looked up outside of the compiled function and passed in",
    **dict.fromkeys(
        ("aten.index.Tensor", "aten.gather.default", "aten.index_select.default"), f"a slice with constant bounds, or {_OUTSIDE}"
    ),
    **dict.fromkeys([f"aten.{op}.{form}" for op in ("gt", "ge", "lt", "le", "eq", "ne") for form in ("Scalar", "Tensor")], _MASK),
    "aten.where.self": _MASK,
    "aten.constant_pad_nd.default": "the padded tensor, passed in",
    "prims.iota.default": "the positions, passed in as a float16 tensor",
    "aten.argmax.default": "amax; take the index outside of the compiled function",
    "aten.argmin.default": "amin; take the index outside of the compiled function",
    "aten.max.dim": "amax, which has no indices",
    "aten.min.dim": "amin, which has no indices",
    "aten._scaled_dot_product_flash_attention_for_cpu.default": "torch.softmax(q @ k.t() * scale, -1) @ v on 2-d tensors, head by head",
    "aten.pow.Tensor_Tensor": "a power with a small constant integer exponent",
    "aten.copy_.default": "an out-of-place op that returns the new value; inputs cannot be changed in place",
    "aten.cat.default": "separate results, joined outside of the compiled function",
    "aten.log.default": _OUTSIDE,
    **dict.fromkeys(("prims.inductor_seeds.default", "prims.inductor_random.default"), "model.eval(), which switches dropout off"),
}
_FLOATS = (torch.float16, torch.float32)
_DTYPE_HINTS = {
    torch.bfloat16: "float16: model.half()",
    torch.float64: "float32, or float16 for a model with matmuls: model.half()",
    torch.bool: "a float16 tensor of 0 and 1",
}


def check_graph(gm: fx.GraphModule) -> None:
    """Raise Unsupported at the first node, in program order, that is not supported."""
    for node in gm.graph.nodes:
        if node.op == "call_function":
            _check_call(node)
        elif node.op in ("call_module", "call_method"):
            raise refuse(node)
    for node in gm.graph.nodes:  # after the operators: `embedding` says more than `int64 input`
        if node.op in ("placeholder", "get_attr") and node.users:
            _check_values(node)


def _check_call(node: fx.Node) -> None:
    if node.target is operator.getitem:
        return
    rule = _RULES.get(str(node.target))
    if rule is None:
        raise refuse(node, "", _NEAREST.get(str(node.target), ""))
    rule(node)
    _check_values(node)


def _check_values(node: fx.Node) -> None:
    for value in tensors(node):
        if value.dtype not in _FLOATS:
            raise refuse(node, "the types are float16 and float32", _DTYPE_HINTS.get(value.dtype, _OUTSIDE))
        if any(not isinstance(n, int) for n in value.shape):
            raise refuse(node, "the shape is dynamic", "torch.compile(..., dynamic=False), which compiles once per shape")
        if value.numel() == 0:
            raise refuse(node, "the tensor is empty")
        if value.layout != torch.strided:
            raise refuse(node, f"the layout is {value.layout}", "a dense tensor")


def _value(argument: object) -> torch.Tensor:
    assert isinstance(argument, fx.Node)
    return argument.meta["val"]


def _plain(node: fx.Node) -> None:
    for argument in (*node.args, *node.kwargs.values()):
        if isinstance(argument, complex):
            raise refuse(node, "the scalar is complex")


def _div(node: fx.Node) -> None:
    if node.kwargs.get("rounding_mode") is not None:
        raise refuse(node, f"rounding_mode is {node.kwargs['rounding_mode']!r}", "plain division")


def _power(node: fx.Node) -> None:
    exponent = node.args[1]
    if not isinstance(exponent, (int, float)) or (exponent not in (0.5, -0.5) and (exponent != int(exponent) or abs(exponent) >= 32)):
        raise refuse(node, f"the exponent is {exponent}", "an integer exponent below 32, or sqrt")


def _matmul(node: fx.Node) -> None:
    for value in (_value(a) for a in node.args[-2:]):
        if value.dtype != torch.float16:
            raise refuse(node, f"operands of matmul are float16, but got {str(value.dtype)[6:]}", "model.half()")
    if node.kwargs.get("beta", 1) != 1 or node.kwargs.get("alpha", 1) != 1:
        raise refuse(node, "beta and alpha must be 1", "beta * bias + alpha * (a @ b)")


def _batched_matmul(node: fx.Node) -> None:
    _matmul(node)
    if _value(node.args[0]).shape[0] != 1 and not shares_weight(node):
        raise refuse(
            node,
            f"the batch is {_value(node.args[0]).shape[0]}",
            "a batch of 1, a loop over 2-d matmuls, or a second operand without the batch dim",
        )


def shares_weight(node: fx.Node) -> bool:
    """Whether the second operand of a bmm is one matrix expanded over the batch, so that the batch folds into the rows."""
    weight = node.args[1]
    if not isinstance(weight, fx.Node) or str(weight.target) != "aten.expand.default":
        return False
    shape = _value(weight.args[0]).shape
    return len(shape) == 2 or shape[0] == 1


def _reduced_dims(node: fx.Node) -> set[int]:
    """The dims that a reduction sums away; all of them where none is given."""
    value = _value(node.args[0])
    dims: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if dims is None or dims == [] or value.dim() == 0:
        return set(range(value.dim()))
    return {d % value.dim() for d in ([dims] if isinstance(dims, int) else dims)}


def _reduction(node: fx.Node) -> None:
    value = _value(node.args[0])
    reduced = {d for d in _reduced_dims(node) if value.shape[d] != 1}
    last = max((d for d, n in enumerate(value.shape) if n != 1), default=None)
    if reduced - {last}:
        raise refuse(
            node,
            f"it reduces dims {sorted(reduced)} of an operand of shape {list(value.shape)}",
            "a reduction over the last dim only; several dims one after the other, last first",
        )


def _variance(node: fx.Node) -> None:
    _reduction(node)
    correction: Any = node.kwargs.get("correction", 1)
    count = prod(_value(node.args[0]).shape[d] for d in _reduced_dims(node))
    if correction is not None and count <= correction:
        raise refuse(node, f"{count} values with correction {correction} have no variance")


def _names(prefix: str, text: str) -> list[str]:
    return [f"{prefix}.{name}" for name in text.split()]


_RULES: dict[str, Callable[[fx.Node], None]] = {
    **dict.fromkeys(_names("aten", _POINTWISE + _VIEWS) + _names("prims", _PRIMS), _plain),
    **dict.fromkeys(_names("aten", "div.Tensor_mode div.Scalar_mode"), _div),
    "aten.pow.Tensor_Scalar": _power,
    **dict.fromkeys(_names("aten", "mm.default addmm.default"), _matmul),
    "aten.bmm.default": _batched_matmul,
    **dict.fromkeys(
        _names("aten", "sum.default sum.dim_IntList mean.default mean.dim amax.default amin.default max.default min.default"), _reduction
    ),
    **dict.fromkeys(_names("aten", "var_mean.correction var.correction"), _variance),
}
