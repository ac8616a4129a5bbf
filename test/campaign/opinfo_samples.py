"""One variant of PyTorch's operator database, compiled sample by sample and compared with eager PyTorch."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from campaign.function_run import Warnings, first_line
from campaign.opinfo_page import DTYPES
from torch._dynamo.exc import Unsupported, UserError
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo, SampleInput
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ktir.device.operators import fallback
from ktir.diagnostics import KtirError
from ktir.runtime import metrics

TYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in (*DTYPES, "float64", "int16", "int8")}

UNDEFINED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
"""Their results have no defined values: only shapes and types are compared."""

_MEMORY = {*UNDEFINED, "resize_", "resize_as_", "set_"}
"""Operators that give memory, and nothing in it."""

_OPEN_PLACES = {"topk": 2, "kthvalue": 2, "mode": 1}
"""Of equal elements PyTorch leaves open which one's place these give; and which argument the dim is."""

_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}
_EAGER_ERRORS = 1.5
_COMPARING_TESTS = ("TestInductorOpInfo", "TestCommon")


@dataclass
class Outcome:
    """What became of a variant: the number of samples by outcome, and the first reason for each that has one."""

    counts: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, outcome: str, reason: str = "") -> None:
        """Count a sample."""
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
        if reason:
            self.reasons.setdefault(outcome, reason)


def variants() -> dict[str, OpInfo]:
    """All variants of the database by name, in its order."""
    from torch.testing._internal.common_methods_invocations import op_db  # it takes a second and more

    found: dict[str, OpInfo] = {}
    for op in op_db:
        found.setdefault(op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""), op)
    return found


def has(op: OpInfo, dtype: str) -> bool:
    """Whether a variant computes in a dtype on the host."""
    return TYPES[dtype] in op.supported_dtypes("cpu")


def _samples(op: OpInfo, dtype: str, most: int) -> list[SampleInput]:
    """At most so many of the variant's samples, evenly spread over all of them; 0 = all."""
    torch.manual_seed(0)
    found = list(op.sample_inputs("cpu", TYPES[dtype], requires_grad=False))
    if not most or len(found) <= most:
        return found
    return [found[(2 * k + 1) * len(found) // (2 * most)] for k in range(most)]


def check(op: OpInfo, dtype: str, samples: int, engine: str = "spyre", device: str = "cpu", **_: Any) -> Outcome:
    """Compile, for tensors of the host or of the device, and compare so many samples of a variant."""
    outcome = Outcome()
    for sample in _samples(op, dtype, samples):
        try:
            expected = _expected(op, sample, TYPES[dtype])
        except Exception:  # eager PyTorch has no result for it: nothing to compare with
            continue
        outcome.add(*_sample(op, sample, TYPES[dtype], expected, engine, device))
    return outcome


def _sample(op: OpInfo, sample: SampleInput, dtype: torch.dtype, expected: Sequence[Any], engine: str, device: str) -> tuple[str, str]:
    """The outcome of a sample, and a reason where it has one."""
    described = _described(sample)
    if engine == "eager":
        return _eager(op, sample, dtype, expected, described)
    torch._dynamo.reset()
    with torch.no_grad(), Warnings() as heard, metrics.counted() as launches:
        arguments = _arguments(sample) if device == "cpu" else pytree.tree_map(_to_device, _arguments(sample))
        compiled = torch.compile(_function(op), backend="ktir", fullgraph=True, dynamic=False, options={"engine": engine})
        torch.manual_seed(0)
        try:
            got = [compiled(*arguments), arguments]
        except (Unsupported, UserError) as error:
            return "untraced", first_line(error)
        except KtirError as error:
            return "fails", f"{first_line(error)} ({described})"
        except Exception as error:
            if _fails_alike(op, sample):
                return "untraced", "PyTorch's own compiler fails too"
            return "fails", f"{type(error).__name__}: {first_line(error)} ({described})"
    if reason := _difference(op, dtype, _to_host(got), expected):
        return "wrong", f"{reason} ({described}; {launches()})"
    ran = launches()
    place = "PyTorch" if ran.torch else "executor" if ran.executor else "chip" if ran.chip else "no code"
    why = [f"a fault: {fault}" for fault in heard.faults] + heard.reasons
    return place, why[0] if why and place in ("executor", "PyTorch") else ""


def _eager(op: OpInfo, sample: SampleInput, dtype: torch.dtype, expected: Sequence[Any], described: str) -> tuple[str, str]:
    """The same without a compiled graph, on tensors of the device."""
    arguments = pytree.tree_map(_to_device, _arguments(sample))
    with torch.no_grad(), warnings.catch_warnings(record=True) as said, metrics.counted() as launches:
        warnings.simplefilter("always")
        fallback._said.clear()
        torch.manual_seed(0)
        try:
            got = [_function(op)(*arguments), arguments]
        except Exception as error:
            return "fails", f"{type(error).__name__}: {first_line(error)} ({described})"
    if reason := _difference(op, dtype, _to_host(got), expected):
        return "wrong", f"{reason} ({described}; {launches()})"
    left = [str(w.message) for w in said if issubclass(w.category, fallback.FallbackWarning)]
    if left:
        return "PyTorch", left[0]
    return "chip" if launches().chip else "copied" if _makes_elements(op, sample) else "no code", ""


class _Watching(TorchDispatchMode):
    """Notes whether an operator gives elements, or an answer about them, that were not there before."""

    def __init__(self) -> None:
        super().__init__()
        self.made = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view and func._schema.name.removeprefix("aten::") not in _MEMORY:
            self.made |= any(t.numel() for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)) or isinstance(result, bool)
        return result


def _makes_elements(op: OpInfo, sample: SampleInput) -> bool:
    """Whether there is something in a sample that a program could do: on the host, it is not views, memory and metadata alone."""
    arguments = _arguments(sample)
    with torch.no_grad(), _Watching() as watching:
        _function(op)(*arguments)
    return watching.made


def _to_device(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_nested or value.is_complex():
            return value.to("spyre")
        whole = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())  # operators may ask for more of the storage
        there = whole.to("spyre").as_strided(value.shape, value.stride(), value.storage_offset())
        return torch.ops.aten._neg_view(there) if value.is_neg() else there
    return "spyre" if isinstance(value, (str, torch.device)) and str(value) == "cpu" else value


def _to_host(found: Any) -> Any:
    return pytree.tree_map(lambda x: x.cpu() if isinstance(x, torch.Tensor) else x, found, is_leaf=lambda x: isinstance(x, torch.Size))


# ------------------------------------------------------------------------------------------------------------------------- running


def _function(op: OpInfo) -> Callable[..., Any]:
    function = op.op
    return lambda *args: function(*args[0], **args[1])


def _fails_alike(op: OpInfo, sample: SampleInput) -> bool:
    """Whether PyTorch's own compiler has no result for a sample either."""
    torch._dynamo.reset()
    try:
        torch.compile(_function(op), backend="inductor", fullgraph=True, dynamic=False)(*_arguments(sample))
    except Exception:
        return True
    return False


def _arguments(sample: SampleInput, convert: Callable[[torch.Tensor], torch.Tensor] = lambda x: x) -> tuple[Any, Any]:
    """Own copies of a sample's arguments, of the same strides."""

    def own(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_nested:
            return copy.deepcopy(value)
        return convert(_copy(value))

    return pytree.tree_map(own, ((sample.input, *sample.args), dict(sample.kwargs)))


def _copy(value: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, and the same offset into memory of its own."""
    storage = value.detach().untyped_storage().clone()
    result = torch.empty(0, dtype=value.dtype).set_(storage, value.storage_offset(), value.shape, value.stride())
    return torch.ops.aten._neg_view(result) if value.is_neg() else torch.conj(result) if value.is_conj() else result


def _expected(op: OpInfo, sample: SampleInput, dtype: torch.dtype) -> list[Any]:
    """Results of eager PyTorch, with the arguments as the call leaves them, and those of a computation in the next wider type."""
    results = []
    for kind in (dtype, *filter(None, [_WIDER.get(dtype)])):
        arguments = _arguments(sample, lambda x, to=kind: x.to(to) if x.dtype == dtype else x)
        arguments = pytree.tree_map(lambda x, to=kind: to if x is dtype else x, arguments)  # factories are told their dtype
        torch.manual_seed(0)
        try:
            with torch.no_grad():
                results.append([_function(op)(*arguments), arguments])
        except Exception:
            if kind == dtype:
                raise
    return results


# ----------------------------------------------------------------------------------------------------------------------- comparing


def _tolerance(op: OpInfo, dtype: torch.dtype) -> tuple[float, float] | None:
    """(rtol, atol) that the database states for comparing implementations of a variant; None = that of the dtype."""
    found = []
    for each in op.decorators:
        if isinstance(each, DecorateInfo) and each.cls_name in _COMPARING_TESTS and each.device_type in (None, "cpu"):
            found += [d.d[dtype] for d in each.decorators if isinstance(d, toleranceOverride) and dtype in d.d]
    return (max(t.rtol for t in found), max(t.atol for t in found)) if found else None


def _difference(op: OpInfo, dtype: torch.dtype, got: Any, expected: Sequence[Any]) -> str:
    """Where the results differ; empty if they do not.

    A chain of float16 is computed in float32 here and rounded once, eager PyTorch rounds after each of its steps; sums of float32 are taken
    in another order. So each element must be that of eager PyTorch, or that of eager PyTorch in the next wider type, rounded, within the
    tolerance. Where digits are lost to cancellation, it may be as far from the wider result as 1.5 times the largest error of eager.
    """
    got_leaves, got_spec = pytree.tree_flatten(got)
    leaves = [pytree.tree_flatten(e)[0] for e in expected]
    if got_spec != pytree.tree_flatten(expected[0])[1]:
        return "another structure of results"
    for position, (mine, theirs) in enumerate(zip(got_leaves, leaves[0], strict=True)):
        if not isinstance(theirs, torch.Tensor):
            if isinstance(theirs, (int, float, complex)) and mine != theirs and theirs == theirs:
                return f"result {position} is {mine}, not {theirs}"
            continue
        if (mine.shape, mine.dtype, mine.layout) != (theirs.shape, theirs.dtype, theirs.layout):
            return f"result {position} is {mine.dtype} {tuple(mine.shape)}, not {theirs.dtype} {tuple(theirs.shape)}"
        if (
            op.name in UNDEFINED
            or theirs.is_nested
            or (position == 1 and op.name in _OPEN_PLACES and _lie_there(got, _OPEN_PLACES[op.name]))
        ):
            continue
        choices = [theirs] + [o[position] for o in leaves[1:] if len(o) == len(leaves[0]) and o[position].shape == theirs.shape]
        if reason := _elements(mine, choices, _tolerance(op, dtype) if theirs.dtype == dtype else None):
            return f"result {position}: {reason}"
    return ""


def _lie_there(got: Any, position: int) -> bool:
    """Whether the values that were found lie in the operand where the places say, no two at one; argument `position` is the dim."""
    (values, places), (arguments, options) = got
    x, dim = arguments[0], options.get("dim", arguments[position] if len(arguments) > position else -1)
    x, values, places = (t.reshape(1) if x.dim() == 0 else t for t in (x, values, places))
    if places.dim() < x.dim():
        values, places = values.unsqueeze(dim), places.unsqueeze(dim)
    if bool(((places < 0) | (places >= x.shape[dim])).any()) or bool((places.sort(dim).values.diff(dim=dim) == 0).any()):
        return False
    return torch.allclose(x.gather(dim, places), values, rtol=0, atol=0, equal_nan=True)


def _elements(mine: torch.Tensor, choices: Sequence[torch.Tensor], tolerance: tuple[float, float] | None) -> str:
    if mine.layout != torch.strided:
        mine, choices = mine.to_dense(), [c.to_dense() for c in choices]
    mine, choices = mine.resolve_conj().resolve_neg(), [c.resolve_conj().resolve_neg() for c in choices]
    if mine.is_quantized:
        mine, choices = mine.dequantize(), [c.dequantize() for c in choices]
    rtol, atol = tolerance or torch.testing._comparison.default_tolerances(mine, choices[0])
    good = torch.zeros(mine.shape, dtype=torch.bool)
    for choice in choices:
        good |= torch.isclose(mine, choice.to(mine.dtype), rtol=rtol, atol=atol, equal_nan=True)
    if good.all():
        return ""
    if len(choices) > 1 and choices[1].dtype == _WIDER.get(mine.dtype):
        good |= (mine - choices[1]).abs() <= _EAGER_ERRORS * (choices[0] - choices[1]).abs().nan_to_num(0, 0, 0).max()
        if good.all():
            return ""
    where = tuple((~good).nonzero()[0].tolist())
    return f"{int((~good).sum())} of {good.numel()} elements differ, at {list(where)} {mine[where].item()}, not {choices[0][where].item()}"


# --------------------------------------------------------------------------------------------------------------------------- words


def _described(sample: SampleInput) -> str:
    def text(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}[{','.join(map(str, value.shape))}]"
        return repr(value)

    arguments = [text(a) for a in pytree.tree_leaves((sample.input, *sample.args))]
    return ", ".join(arguments + [f"{k}={pytree.tree_map(text, v)}" for k, v in sample.kwargs.items()])[:300]
