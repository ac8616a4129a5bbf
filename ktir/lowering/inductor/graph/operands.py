"""Operands that are converted to float16 or bfloat16 are numbers of that type, as in eager: `x + 0.3` adds what the type holds of 0.3.

Inductor computes in float32 with the number as it was written. PyTorch's kernels convert the operands of an operator first, be they Python
numbers, tensors of one number or of integers; only a factor and a divisor that are one number keep their digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from ktir.arithmetic.floats import round_to
from ktir.lowering.inductor.graph import rounding

aten = torch.ops.aten

_KINDS = {torch.float16: "f16", torch.bfloat16: "bf16"}
_EXACT = (torch.bool, torch.uint8, torch.int8)
"""Types whose numbers all fit."""

_BOTH = (
    *(aten.add.Tensor, aten.sub.Tensor, aten.rsub.Tensor, aten.rsub.Scalar, aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar),
    *(aten.pow.Scalar, aten.remainder.Tensor, aten.remainder.Scalar_Tensor, aten.fmod.Tensor, aten.maximum.default),
    *(aten.minimum.default, aten.fmax.default, aten.fmin.default, aten.atan2.default, aten.hypot.default, aten.copysign.Tensor),
    *(aten.logaddexp.default, aten.logaddexp2.default, aten.xlogy.Tensor, aten.xlogy.Scalar_Other, aten.xlogy.Scalar_Self),
    *(aten.special_xlog1py.default, aten.special_xlog1py.other_scalar, aten.special_xlog1py.self_scalar, aten.nextafter.default),
    *(aten.lt.Tensor, aten.le.Tensor, aten.gt.Tensor, aten.ge.Tensor, aten.eq.Tensor, aten.ne.Tensor),
)
_FIRST = (aten.mul.Tensor, aten.div.Tensor, aten.div.Tensor_mode, aten.floor_divide.default)
"""The second operand keeps its digits, those of float32, if it is one number."""
_TENSORS = (aten.addcmul.default, aten.addcdiv.default)
"""Only tensors are converted."""


def of_their_type(table: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """A table of decompositions in which the operators that the program calls have operands of one type."""
    return table | {op: _converting(op, table.get(op)) for op in (*_BOTH, *_FIRST, *_TENSORS)}


def _converting(op: Any, usual: Callable[..., Any] | None) -> Callable[..., Any]:
    """The usual decomposition, or none, of `op` once its operands are of its type."""

    def run(*given: Any, **options: Any) -> Any:
        numbers = [x for x in given if x is not None]
        _, dtype = elementwise_dtypes(*numbers, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)
        if dtype in _KINDS and rounding.is_outermost():
            operands = [x if op in _TENSORS and not isinstance(x, torch.Tensor) else _operand(x, dtype) for x in given]
            if op in _FIRST and _is_one(given[1]):
                operands[1] = given[1].float() if _is_other_half(given[1], dtype) else given[1]
            named = {k: x if op in _TENSORS else _operand(x, dtype) for k, x in options.items()}
            if any(now is not before for now, before in zip((*operands, *named.values()), (*given, *options.values()), strict=True)):
                return op(*operands, **named)
        return NotImplemented if usual is None else usual(*given, **options)

    return run


def _is_one(operand: Any) -> bool:
    return not isinstance(operand, torch.Tensor) or operand.dim() == 0


def _is_other_half(operand: Any, dtype: torch.dtype) -> bool:
    """Whether Inductor, which converts float16 and bfloat16 to each other by rounding, would take digits away."""
    return isinstance(operand, torch.Tensor) and operand.dtype in _KINDS and operand.dtype != dtype


def _operand(operand: Any, dtype: torch.dtype) -> Any:
    """The same object where nothing changes."""
    if isinstance(operand, torch.Tensor):
        same = operand.dtype == dtype or operand.dtype in _EXACT
        return operand if same else rounding.ROUNDED(operand.to(dtype))
    if type(operand) not in (int, float):
        return operand  # one that changes: see `floats`
    with np.errstate(over="ignore"):
        number = float(round_to(_KINDS[dtype], np.array([operand], np.float32))[0])
    return number if number != operand and operand == operand else operand


_LISTED = ("add", "sub", "mul", "div", "pow", "lerp", "addcmul", "addcdiv", "clamp_min", "clamp_max", "maximum", "minimum")
_OF_NUMBERS = {"maximum": "clamp_min", "minimum": "clamp_max"}
"""What the operators of two tensors are called where one is a number."""
_LISTS = ("Scalar", "ScalarList", "List", "ScalarAndTensor")


def _each(name: str) -> Callable[..., list[torch.Tensor]]:
    def run(*operands: Any, **options: Any) -> list[torch.Tensor]:
        count = next(len(x) for x in operands if isinstance(x, list | tuple))
        return [_one(name, [x[k] if isinstance(x, list | tuple) else x for x in operands], options) for k in range(count)]

    return run


def _one(name: str, operands: list[Any], options: dict[str, Any]) -> torch.Tensor:
    if name.startswith("addc") and len(operands) > 3:
        return getattr(torch, name)(*operands[:3], value=operands[3])
    if not isinstance(operands[-1], torch.Tensor):
        name = _OF_NUMBERS.get(name, name)
    return getattr(torch, name)(*operands, **options)


def of_each() -> dict[Any, Callable[..., Any]]:
    """Decompositions of operators on lists as those on each tensor, which PyTorch's kernels for the host are. Inductor lowers a list at
    once, with a number as it was written. What they write is what the program calls, not steps of one operator.
    """
    packets = {name: getattr(torch.ops.aten, f"_foreach_{name}") for name in _LISTED}
    return {getattr(p, o): _each(name) for name, p in packets.items() for o in p.overloads() if o in _LISTS}
