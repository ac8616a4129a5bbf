"""Operators with the shapes, types and arguments that models use them with, each compared with the host (RFC 0186)."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

from ktir.checking.suites import names
from ktir.checking.suites.inputs import TensorSpec, model_tensor, read_arguments, read_kwargs
from ktir.checking.suites.source import Value, read

_ORDINARY = {"dtype": torch.float16, "seed": 123, "rtol": 1e-3, "atol": 1e-3}
EAGER = "eager"


@dataclass(frozen=True)
class Case:
    """One call of an operator."""

    model: str
    name: str
    op: str
    function: Callable[..., Any]
    arguments: tuple[Callable[[Any], Any], ...]
    tensors: tuple[TensorSpec, ...]
    attrs: dict[str, Any]
    marks: tuple[str, ...]
    seed: int
    rtol: float
    atol: float
    description: str
    place: str
    spelled: str
    """Operator, arguments and types as text: equal for equal cases of several models."""

    def run(self, backend: str = "inductor") -> str:
        """Compare with the host; what fell back to it on the way. Raises AssertionError for other values."""
        with falling_back() as left:
            compare_with_cpu(self.function, *self.make(), atol=self.atol, rtol=self.rtol, backend=backend, **self.attrs)
        return left[0] if left else ""

    def make(self) -> list[Any]:
        """The positional arguments."""
        torch.manual_seed(self.seed)
        return [make(None) for make in self.arguments]


@contextmanager
def falling_back() -> Iterator[list[str]]:
    """What falls back to the host inside the block, in words; complete behind it."""
    from ktir.device.operators import fallback

    left: list[str] = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fallback._said.clear()
        yield left
    left += [str(w.message) for w in said if issubclass(w.category, fallback.FallbackWarning)]


def compare_with_cpu(
    function: Callable[..., Any], *args: Any, atol: float = 0.1, rtol: float = 0.1, backend: str = "inductor", **kwargs: Any
) -> None:
    """Call a function or module on the host, and compiled on the device (`backend="eager"`: uncompiled), and compare.

    Raises AssertionError, with the largest difference, where the results differ by more than `atol + rtol * |host's|`.
    """
    torch._dynamo.reset_code_caches()
    there = pytree.tree_map(lambda x: _copied(x, "spyre"), (args, kwargs))
    here = pytree.tree_map(lambda x: _copied(x, "cpu"), (args, kwargs))
    moved = copy.deepcopy(function).to("spyre") if isinstance(function, nn.Module) else function

    def called(*args: Any, **kwargs: Any) -> Any:  # Dynamo traces what calls a builtin, but no builtin alone
        return moved(*args, **kwargs)

    if backend != EAGER:
        called = torch.compile(called, backend=backend, dynamic=False)
    with torch.no_grad():
        found = called(*there[0], **there[1])
        wanted = function(*here[0], **here[1])
    found = pytree.tree_map(lambda x: x.cpu() if isinstance(x, torch.Tensor) else x, found)
    torch.testing.assert_close(found, wanted, equal_nan=True, atol=atol, rtol=rtol, msg=lambda text: f"cpu mismatch\n\n{text}\n")


def _copied(value: Any, device: str) -> Any:
    return value.clone().to(device) if isinstance(value, torch.Tensor) else value


def load(path: str) -> list[Case]:
    """The cases of a file. Raises KtirError at the line that is wrong."""
    root = read(path).fields(("model", "cases"), ("default",))
    model = root["model"].text()
    ordinary = {**_ORDINARY, **_overrides(root["default"].fields(optional=tuple(_ORDINARY)) if "default" in root else {})}
    cases: dict[str, Case] = {}
    for value in root["cases"].items():
        case = _case(value, model, ordinary)
        if case.name in cases:
            raise value.error(f"has the name '{case.name}' of an earlier case")
        cases[case.name] = case
    return list(cases.values())


def _overrides(found: dict[str, Value]) -> dict[str, Any]:
    readers: dict[str, Callable[[Value], Any]] = {
        "dtype": names.short_dtype,
        "seed": lambda v: v.integer(0),
        "rtol": lambda v: v.number(0),
        "atol": lambda v: v.number(0),
    }
    return {name: read(found[name]) for name, read in readers.items() if name in found}


def _case(value: Value, model: str, ordinary: dict[str, Any]) -> Case:
    found = value.fields(("name", "op"), ("inputs", "attrs", "marks", "description", *_ORDINARY))
    settings = {**ordinary, **_overrides(found)}
    function = names.function_path(found["op"])
    arguments, tensors = read_arguments(found.get("inputs"), model_tensor(settings["dtype"]))
    attrs = read_kwargs(found.get("attrs"))
    marks: tuple[str, ...] = ()
    if "marks" in found:
        marks = found["marks"].each(names.identifier) if found["marks"].is_list else (names.identifier(found["marks"]),)
    plain = [_plain(item) for item in (found["inputs"].items() if "inputs" in found else ())]
    return Case(
        model=model,
        name=found["name"].text(),
        op=found["op"].text(),
        function=function,
        arguments=arguments,
        tensors=tensors,
        attrs=attrs,
        marks=marks,
        seed=settings["seed"],
        rtol=settings["rtol"],
        atol=settings["atol"],
        description=found["description"].text() if "description" in found else "",
        place=value.place,
        spelled=json.dumps([found["op"].text(), plain, {n: str(v) for n, v in attrs.items()}, str(settings["dtype"])], sort_keys=True),
    )


def _plain(value: Value) -> Any:
    """A part of the file as JSON has it, to tell equal cases."""
    if value.node.id == "mapping":
        return {name: _plain(each) for name, each in value.pairs().items()}
    if value.is_list:
        return [_plain(each) for each in value.items()]
    return str(value.scalar())


def without_repeats(cases: Sequence[Case]) -> tuple[list[Case], list[tuple[Case, Case]]]:
    """The first of each of equal cases, and the others with the one that they repeat."""
    first: dict[str, Case] = {}
    again = []
    for case in cases:
        if case.spelled in first:
            again.append((case, first[case.spelled]))
        else:
            first[case.spelled] = case
    return list(first.values()), again
