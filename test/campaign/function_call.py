"""One operator applied to nodes of a program: its Python source, and what is known of its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from campaign.function_model import UNIT, Apply, Bounded, compute_unit, converted, exactly, number, rounded
from torch import Tensor
from torch.nn import functional

Rule = Callable[..., Tensor]
"""(apply, *operands) -> the error of the result that comes from the errors of the operands."""
Own = Callable[..., Tensor]
"""(apply, *operands) -> the magnitude of which one rounding of the computing type is the error of computing it."""
Check = Callable[[Tensor, list[Bounded]], Tensor]
"""(our result, operands) -> where it is wrong, for results that have no bound of their own, such as the place of a maximum."""


@dataclass(frozen=True)
class Call:
    """`text` is an expression over {0}, {1}, ... , or statements that assign to {out}; `operands` are numbers of nodes, or Python floats
    and ints wrapped in `Number`. `kept`: operands that are no numbers of the arithmetic (indices, conditions): they keep their type.
    """

    text: str
    operands: tuple[Any, ...]
    rule: Rule
    own: Own | None = None
    steps: Own | None = None
    """The magnitude of which one rounding of the result's type is the error of rounding within: eager PyTorch takes several steps."""
    kept: tuple[int, ...] = ()
    oracle: str = ""
    """The text in the oracle, where it is another one."""
    errors: str = ""
    """The text that moves the errors, where it is another one than that of the oracle."""
    check: Check | None = None
    mutates: int | None = None
    """The operand that is changed in place."""
    views: bool = False
    """Whether the result may share the memory of an operand."""
    local: bool = False
    """Whether an element of the result depends on the elements of its own place alone. Then its infinities and NaNs are sure where the rule
    says so, whatever else the operands hold."""
    unrounded: bool = False
    """Whether the result is a number of its type without being rounded, as those of moves are."""


@dataclass(frozen=True)
class Number:
    """A Python number as an operand."""

    value: float | int


@cache
def _compiled(text: str) -> tuple[Any, bool]:
    statements = "{out}" in text
    source = _named(text, [f"a{k}" for k in range(8)], "out")
    return compile(source, "<program>", "exec" if statements else "eval"), statements


def _named(text: str, names: Sequence[str], out: str) -> str:
    for k, name in enumerate(names):
        text = text.replace(f"{{{k}}}", name)
    return text.replace("{out}", out)


def source(call: Call, names: Sequence[str], out: str) -> str:
    """The lines of Python that compute a call."""
    shown: list[str] = [repr(o.value) if isinstance(o, Number) else str(names[o]) for o in call.operands]
    shown = [f"({s})" if s.startswith("-") else s for s in shown]
    line = _named(call.text, shown, out)
    return line if "{out}" in call.text else f"{out} = {line}"


def apply(text: str, operands: Sequence[Any]) -> Tensor:
    """Run a call's text on operands."""
    code, statements = _compiled(text)
    env: dict[str, Any] = {"torch": torch, "np": np, "F": functional, **{f"a{k}": o for k, o in enumerate(operands)}}
    if statements:
        exec(code, env)
        return env["out"]
    return eval(code, env)


def evaluate(call: Call, known: Sequence[Bounded], eager: Tensor) -> Bounded:
    """What a call's result may be, from what its operands may be; `eager` has the type (and, without operands, the value) of the result."""
    dtype = eager.dtype
    float_operands = any(not isinstance(o, Number) and known[o].value.is_floating_point() for o in call.operands)
    wide = dtype.is_floating_point or float_operands
    number_type = dtype if dtype.is_floating_point else torch.float32
    operands: list[Bounded] = []
    for position, o in enumerate(call.operands):
        if isinstance(o, Number):
            operands.append(number(o.value, number_type) if wide else exactly(torch.tensor(o.value)))
        else:
            operands.append(converted(known[o], number_type) if wide and position not in call.kept else known[o])
    places = [k for k in range(len(operands)) if k not in call.kept]
    text = call.oracle or call.text

    def on(text: str) -> Apply:
        def run(*values: Tensor) -> Tensor:
            every: list[Any] = [o.value for o in operands]
            for place, value in zip(places, values, strict=True):
                every[place] = value
            plain = [v.item() if isinstance(o, Number) and not wide else v for v, o in zip(every, call.operands, strict=True)]
            result = apply(text, plain)
            return result.double() if dtype.is_floating_point and result.dtype != torch.float64 else result

        return run

    arithmetic = [operands[k] for k in places]
    value = on(text)(*(x.value.clone() for x in arithmetic)).clone()
    unsure = [operands[k].error for k in call.kept if not torch.all(operands[k].error == 0)]
    if arithmetic and not all((x.error == 0).all() for x in arithmetic):
        error = call.rule(on(call.errors or text), *arithmetic).double()
    else:
        error = torch.zeros(value.shape, dtype=torch.float64)
    error = error.expand(value.shape)
    for kept in unsure:  # an index or a condition that may be anything
        error = torch.where((kept != 0) if call.local else torch.tensor(True), torch.inf, error)
    if call.local:
        error = torch.where(torch.isnan(error) & _open(arithmetic, value.shape), torch.inf, error)
    if not dtype.is_floating_point:
        value = value.to(dtype) if value.dtype != dtype else value
        return Bounded(value, torch.where(error > 0, torch.inf, 0.0).double(), kind=dtype)
    for more, unit in ((call.own, compute_unit(dtype)), (call.steps, UNIT[dtype])):
        if more is not None:
            off = more(on(text), *arithmetic)
            off = unit * torch.nan_to_num(torch.where(torch.isnan(off) & ~torch.isfinite(value), 0.0, off), nan=torch.inf, posinf=torch.inf)
            error = torch.where(torch.isinf(off), off, error + off)
    if call.unrounded:
        return Bounded(value, torch.nan_to_num(error, nan=torch.inf, posinf=torch.inf), kind=dtype)
    result = rounded(value, error, dtype)
    return replace(result if call.local else _finite(result, value, arithmetic), wide=value, kind=dtype)


def _open(operands: Sequence[Bounded], shape: Sequence[int]) -> Tensor:
    """Where an operand, spread to this shape, may be anything."""
    return torch.stack([torch.isinf(x.error).expand(shape) for x in operands]).any(0) if operands else torch.zeros(shape, dtype=torch.bool)


def _finite(result: Bounded, value: Tensor, operands: Sequence[Bounded]) -> Bounded:
    """Infinities and NaNs are sure where no operand is unsure; else anything."""
    special = ~torch.isfinite(value)
    if special.any() and any((x.error != 0).any() for x in operands):
        unsure = any(torch.isinf(x.error).any() for x in operands)
        touched = special & (torch.full_like(special, unsure) | (result.error != 0))
        return Bounded(result.value, torch.where(touched, torch.inf, result.error))
    return result
