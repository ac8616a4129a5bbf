"""The operators and modules that a model uses, with the shapes, types and arguments that it uses them with."""

from __future__ import annotations

import inspect
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn
from torch.overrides import TorchFunctionMode, get_testing_overrides, resolve_name

from ktir.checking.suites.source import yaml


class _Left(Exception):
    """Why a call cannot be written down."""


@dataclass(frozen=True)
class Operator:
    """A call as RFC 0186 writes it: `op`, `inputs` and `attrs` of a case."""

    op: str
    inputs: tuple[dict[str, Any], ...]
    attrs: dict[str, Any]

    @property
    def key(self) -> str:
        """Equal for equal calls."""
        return json.dumps([self.op, self.inputs, self.attrs], sort_keys=True, default=str)


@dataclass
class Module:
    """A module that torch has, and the arguments of its first call of each kind."""

    kind: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass
class Recorded:
    """What a model uses. `left` says of calls that are not written down why, and how many there are."""

    operators: dict[str, Operator] = field(default_factory=dict)
    """By key."""
    calls: Counter[str] = field(default_factory=Counter)
    """How often each is made."""
    modules: dict[str, Module] = field(default_factory=dict)
    left: Counter[str] = field(default_factory=Counter)


def record(model: Callable[..., Any], *inputs: Any) -> Recorded:
    """Run `model(*inputs)` on the host in eager PyTorch, and write down what it calls.

    Operators are functions of torch and methods of tensors, at the outermost: what a function of `torch.nn.functional` calls itself is not
    counted. Modules are those of `torch.nn` without children, and layers of vLLM without any, but of those that keep a cache.
    """
    found = Recorded()
    handles = [
        m.register_forward_pre_hook(_note_of(found, m), with_kwargs=True)
        for m in (model.modules() if isinstance(model, nn.Module) else ())
        if type(m).__module__.startswith(tuple(_MODULES)) and not any(True for _ in m.children()) and not hasattr(m, "kv_cache")
    ]
    try:
        with torch.no_grad(), _Watch(found):
            model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found


_MODULES = {"torch.nn.modules": "torch.nn", "vllm.model_executor": "vllm"}
"""Where modules are defined, and how they are called."""


def _note_of(found: Recorded, module: nn.Module) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with torch._C.DisableTorchFunction():  # what is done here is none of the model's calls
            seen(args, kwargs)

    def seen(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        owner = next(owner for place, owner in _MODULES.items() if type(module).__module__.startswith(place))
        kind = f"{owner}.{type(module).__name__}"
        if any(isinstance(leaf, nn.Module) for leaf in pytree.tree_leaves((args, kwargs))):
            found.left[f"{kind}: an argument is a module"] += 1
            return
        said = pytree.tree_map(lambda x: (list(x.shape), str(x.dtype)) if isinstance(x, torch.Tensor) else repr(x), (args, kwargs))
        sizes = [(name, list(p.shape), str(p.dtype)) for name, p in module.named_parameters()]
        key = json.dumps([kind, module.extra_repr(), sizes, said], default=str)
        if key not in found.modules:
            copied = pytree.tree_map(lambda x: x.detach().clone() if isinstance(x, torch.Tensor) else x, (args, kwargs))
            found.modules[key] = Module(kind, module, *copied)

    return note


class _Watch(TorchFunctionMode):
    """Sees every call of a function of torch."""

    def __init__(self, found: Recorded) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        name = _name_of(func)
        if name and _tensors((args, kwargs)):
            try:
                call = _written(name, func, args, kwargs)
            except _Left as why:
                self.found.left[f"{name}: {why}"] += 1
            else:
                self.found.operators.setdefault(call.key, call)
                self.found.calls[call.key] += 1
        return func(*args, **kwargs)


def operation_of(op: str) -> str:
    """What reports call an operator: a method, also one that works in place, as the function of the same name, if there is one."""
    for owner in ("torch.Tensor.", "torch.functional."):
        for last in (op.removeprefix(owner), op.removeprefix(owner).removesuffix("_")):
            if op.startswith(owner) and callable(getattr(torch, last, None)):
                return f"torch.{last}"
    return op


def _tensors(value: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))


def _name_of(func: Any) -> str:
    """Where torch has a function, or one that does the same as an operator of Python's. Empty for what computes nothing."""
    name = resolve_name(func) or ""
    if name.endswith((".__get__", ".__set__", ".__delete__")) or not name.startswith("torch."):
        return ""
    if name == "torch.Tensor.__getitem__":
        return "torch.getitem"
    last = name.rpartition(".")[2]
    if last.startswith("__"):
        return _OPERATORS.get(last, "")
    return "" if last in _NO_WORK else name


_OPERATORS = {
    f"__{prefix}{mark}__": f"torch.{name}"
    for mark, name in {
        "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "pow": "pow",
        "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    }.items()
    for prefix in ("", "r", "i")
} | {
    f"__{mark}__": f"torch.{name}"
    for mark, name in {
        "neg": "neg", "abs": "abs", "invert": "bitwise_not", "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
        "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
    }.items()
}  # fmt: skip
_REVERSED = {"torch.sub", "torch.div", "torch.floor_divide", "torch.remainder", "torch.pow", "torch.matmul"}
_NO_WORK = frozenset({
    "size", "dim", "stride", "numel", "data_ptr", "is_contiguous", "is_floating_point", "is_complex", "storage_offset", "element_size",
    "untyped_storage", "requires_grad_", "register_hook", "is_nonzero", "cpu", "cuda", "item", "tolist", "numpy", "type", "get_device",
    "is_storage", "is_tensor", "is_autocast_enabled", "ndimension", "result_type", "promote_types", "can_cast",
})  # fmt: skip


def _written(name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Operator:
    method = (resolve_name(func) or "").rpartition(".")[2]
    if method.startswith("__r") and method != "__rshift__" and name in _REVERSED:
        args = (args[1], args[0], *args[2:])
    given = dict(kwargs)
    for at, value in enumerate(args):
        if isinstance(value, torch.dtype) and at == len(args) - 1:
            args, given["dtype"] = args[:at], value
    if _tensors(given):
        args, given = _by_position(func, args, given)
    return Operator(name, tuple(map(_argument, args)), {n: _attr(v) for n, v in given.items() if v is not None})


def _by_position(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Tensors among the keywords go where the function has them; keywords of a case are no tensors."""
    known = get_testing_overrides().get(func)
    try:
        parameters = list(inspect.signature(known or func).parameters.values())
    except (ValueError, TypeError):
        raise _Left("a tensor as keyword of a function without signature") from None
    last = max((at for at, p in enumerate(parameters) if _tensors(kwargs.get(p.name))), default=-1)
    values = list(args)
    rest = dict(kwargs)
    for p in parameters[len(values) : last + 1]:
        if p.default is p.empty and p.name not in rest:
            raise _Left(f"a tensor as keyword behind '{p.name}'")
        values.append(rest.pop(p.name, p.default))
    if _tensors(rest):
        raise _Left("a tensor as keyword")
    return values, rest


def _argument(value: Any) -> dict[str, Any]:
    if isinstance(value, torch.Tensor):
        return {"tensor": _tensor(value)}
    if isinstance(value, (list, tuple)) and value and all(isinstance(x, torch.Tensor) for x in value):
        return {"tensor_list": [_tensor(x) for x in value]}
    if isinstance(value, (bool, int)) or (isinstance(value, float) and abs(value) < float("inf")):
        return {"value": value}
    return {"py": _literal(value)}


def _literal(value: Any) -> str:
    """As `ktir.checking.suites.names.literal` reads it."""
    match value:
        case slice():
            return f"slice({', '.join(_literal(x) for x in (value.start, value.stop, value.step))})"
        case tuple():
            return f"({''.join(f'{_literal(x)}, ' for x in value)})"
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case None | bool() | int() | float() | str():
            return repr(value)
    if value is ...:
        return "Ellipsis"
    raise _Left(f"an argument of type {type(value).__name__}")


def _attr(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, (tuple, list)):
        return [_attr(x) for x in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise _Left(f"a keyword of type {type(value).__name__}")


def _tensor(value: torch.Tensor) -> dict[str, Any]:
    """A tensor of the same shape and type, with random values from about the same range."""
    if 0 in value.shape:
        raise _Left("a tensor without elements")
    if value.is_complex() or value.is_sparse or value.is_quantized:
        raise _Left("a tensor that is complex, sparse or quantized")
    said: dict[str, Any] = {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    if value.dtype.is_floating_point:
        finite = value.detach().double()
        finite = finite[finite.isfinite()]
        low, high = (min(finite.min().item(), 0), max(finite.max().item(), 0)) if finite.numel() else (0.0, 0.0)
        return said | {"init": "rand", "init_args": {"low": -_around(-low), "high": _around(high)}}
    low, high = int(value.min()), int(value.max())
    return said | {"init": "randint", "init_args": {"low": low, "high": high + 1}}


def _around(value: float) -> float:
    """The next power of two, so that calls that differ by chance are one."""
    return 2.0 ** math.ceil(math.log2(value)) if value else 0.0


def to_yaml(name: str, found: Recorded) -> str:
    """The operators as a file of RFC 0186, which `ktir-test` runs. Cases are named by their number, and say how often they are called."""
    cases = [
        {"name": str(number), "op": call.op, "description": f"called {found.calls[key]} times", "inputs": list(call.inputs)}
        | ({"attrs": call.attrs} if call.attrs else {})
        for number, (key, call) in enumerate(found.operators.items(), 1)
    ]
    return yaml.safe_dump({"model": name, "cases": cases}, sort_keys=False, width=140, default_flow_style=None)
