"""What operators are made of: kernels that become programs for tensors of given shapes and types."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from math import prod
from os import PathLike
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple, Protocol

import numpy as np

from ktir import config
from ktir.analysis.calls import argument_attributes, callee, calls_of, functions_of, put_numbers, set_arguments
from ktir.analysis.interface.parameters import Parameter, argument_names, functions, parameters, roots
from ktir.analysis.program_rules import check_module
from ktir.assembly import parse_module, print_module
from ktir.assembly.names import TextNames
from ktir.context import context
from ktir.diagnostics import Diagnostic, KtirError, Unsupported, close_to
from ktir.dialects import ktdp
from ktir.lang import Kernel
from ktir.lang.base.arguments import bfloat16
from ktir.lang.base.outside import outside
from ktir.lang.base.scalars import ELEMENTS
from ktir.lowering.ktir_lift import LiftPass
from ktir.mlir import func, ir, is_a, operations, scf
from ktir.pipeline import run_pipeline
from ktir.runtime.logical import Argument


class Tensor(NamedTuple):
    """A tensor of a call: its shape, and its type by torch's name."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


Given = Mapping[str, Tensor | int]
"""The arguments of a kernel, by name."""


@dataclass(frozen=True)
class Program:
    """A kernel for given shapes and types: its text, of which all arguments are memory."""

    name: str
    text: str
    file: str
    arguments: tuple[Argument, ...]
    written: frozenset[str]
    """The names of arguments into which it stores."""
    logical: bool
    """Whether nobody has divided the work yet."""

    def lifted(self) -> Program:
        """The program without a division of its work, where its kernel has a grid and lets the compiler choose another; else itself."""
        if self.logical:
            return self
        with context(), ir.Location.unknown():
            module = parse_module(self.text, self.file)
            try:
                LiftPass().run(module)
            except Unsupported:  # it is launched, or refused, on its own
                return self
            if "grid" in functions_of(module)[self.name].attributes or not _is_undivided(module):
                return self
            return replace(self, text=print_module(module, debuginfo=True), logical=True)

    def as_functions(self) -> tuple[str, str]:
        """Symbol, and text in generic form, of the function in a program with others, and of what it calls."""
        suffix = hashlib.sha256(self.text.encode()).hexdigest()[:8]
        with context(), ir.Location.unknown():
            module = parse_module(self.text, self.file)  # held as long as its functions are
            functions = functions_of(module)
            for name, function in functions.items():
                function.attributes["sym_name"] = ir.StringAttr.get(f"{name}_{suffix}")
                for call in calls_of(function):
                    call.attributes["callee"] = ir.FlatSymbolRefAttr.get(f"{callee(call)}_{suffix}")
            texts = (
                f.operation.get_asm(print_generic_op_form=True, enable_debug_info=True, use_local_scope=True) for f in functions.values()
            )
            return f"{self.name}_{suffix}", "\n".join(texts)


class Source(Protocol):
    """A kernel."""

    @property
    def name(self) -> str: ...

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the memory and numbers that it takes, in order."""
        ...

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of what is known when a program is made."""
        ...

    def text(self, given: Given, known: Mapping[str, Any]) -> tuple[str, str]:
        """The KTIR for these arguments and parameters, and the file that its places without one are in."""
        ...

    def state(self) -> Hashable:
        """What the text depends on besides."""
        ...

    def identity(self) -> str:
        """What tells the kernel from others, in other processes too."""
        ...


@dataclass(frozen=True)
class OfLanguage:
    """A kernel of `ktir.lang`."""

    kernel: Kernel

    @property
    def name(self) -> str:
        return self.kernel.function.__name__

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.kernel.arguments

    @property
    def parameters(self) -> tuple[str, ...]:
        return self.kernel.parameters

    def text(self, given: Given, known: Mapping[str, Any]) -> tuple[str, str]:
        arrays = {n: _stand_in(t) if isinstance(t, Tensor) else t for n, t in given.items()}
        return self._kernel().traced(**arrays, **known).text, self.kernel.function.__code__.co_filename

    def _kernel(self) -> Kernel:
        return self.kernel

    def state(self) -> Hashable:
        return outside(self.kernel.function)

    def identity(self) -> str:
        return repr((self.kernel.grid, _written(self.kernel.function), _written(self.state())))


@dataclass(frozen=True)
class OnEachCore(OfLanguage):
    """A kernel of the language with a tile for each core that work is divided over."""

    def _kernel(self) -> Kernel:
        return self.kernel[config.current().cores]

    def state(self) -> Hashable:
        return super().state(), config.current().cores


@dataclass(frozen=True)
class OfFile:
    """A function of a file of KTIR."""

    file: str
    content: str
    name: str
    arguments: tuple[str, ...]
    parameters: tuple[str, ...] = ()

    def text(self, given: Given, known: Mapping[str, Any]) -> tuple[str, str]:
        return self.content, self.file

    def state(self) -> Hashable:
        return None

    def identity(self) -> str:
        return self.content


def _written(value: Any) -> Any:
    """What is in functions and tuples, as text that does not say where they lie."""
    if isinstance(value, FunctionType):
        value = value.__code__
    if isinstance(value, CodeType):
        return value.co_name, value.co_code.hex(), [_written(c) for c in value.co_consts], value.co_names
    return [_written(v) for v in value] if isinstance(value, tuple | list) else repr(value)


def source_of(kernel: Any) -> Source:
    """A kernel of the language, or the file of that path, as what operators are made of."""
    if isinstance(kernel, OfLanguage):
        return kernel
    if isinstance(kernel, Kernel):
        return OfLanguage(kernel)
    if not isinstance(kernel, str | PathLike):
        raise KtirError(f"an operator expects a kernel of ktir.lang or the path of a file of KTIR, but got {type(kernel).__name__}")
    try:
        content = Path(kernel).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise KtirError(f"cannot read '{kernel}': {error}") from None
    with context():
        module = parse_module(content, str(kernel))
        check_module(module)
        name = _root(module, str(kernel))
        found, _ = parameters(module, name, names=argument_names(functions(module)[name], TextNames(content), str(kernel)))
    return OfFile(str(kernel), content, name, tuple(p.name for p in found))


def _root(module: ir.Module, file: str) -> str:
    found = roots(module)
    if len(found) != 1:
        raise KtirError(f"'{file}' expects one function that no other calls, but has {', '.join(f'@{n}' for n in found) or 'none'}")
    return found[0]


def _stand_in(tensor: Tensor) -> np.ndarray:
    """An array of that shape and type without memory of that size."""
    if tensor.dtype not in ELEMENTS:
        raise KtirError(f"element type {tensor.dtype} has no form in KTIR; it has {', '.join(ELEMENTS)}")
    if tensor.dtype == "bfloat16":
        return np.broadcast_to(np.zeros((), bfloat16()), tensor.shape)
    return np.broadcast_to(np.zeros((), tensor.dtype), tensor.shape)


def program_of(source: Source, given: Given, known: Mapping[str, Any]) -> Program:
    """The program for these arguments. Raises KtirError where the kernel does not take them."""
    text, file = source.text(given, known)
    with context(), ir.Location.unknown():
        module = parse_module(text, file)
        name = _root(module, file)
        function = functions_of(module)[name]
        names = dict(enumerate(source.arguments))
        numbers = {n: v for n, v in given.items() if isinstance(v, int)}
        found, _ = parameters(module, name, names=names, numbers=numbers)
        idle = any(isinstance(v, Tensor) and 0 in v.shape for v in given.values())  # then a kernel may look at nothing
        kept: list[Parameter] = []
        attributes: list[ir.DictAttr] = []
        for p, facts in zip(found, argument_attributes(function), strict=True):
            value = given[names[p.position]]
            if isinstance(value, Tensor) and p.is_buffer:
                if isinstance(source, OfFile):  # others are made for these shapes
                    _check(names[p.position], p, value, function.arguments[p.position].location)
                kept.append(p)
                attributes.append(_declared(facts, names[p.position], p.role, value))
            elif isinstance(value, int) == p.is_buffer and not (isinstance(value, Tensor) and idle):
                wanted = "a tensor, for views are built on it" if p.is_buffer else "a number"
                raise KtirError(
                    f"argument '{names[p.position]}' expects {wanted}, but got {value}", function.arguments[p.position].location
                )
        gone = {i: given[n] for i, n in enumerate(source.arguments) if i not in {p.position for p in kept}}
        put_numbers(function, {i: v if isinstance(v, int) else 0 for i, v in gone.items()})  # memory that nobody looks at is not given
        set_arguments(function, attributes)
        if any(isinstance(v, int) for v in gone.values()):
            run_pipeline(module, "canonicalize")  # what they decide are constants, as in a kernel that is called itself
        arguments = tuple(_argument(names[p.position], p.role, given[names[p.position]]) for p in kept)
        written = frozenset(a.name for a in arguments if a.role != "input")
        logical = _is_undivided(module) and "grid" not in function.attributes
        return Program(name, print_module(module, debuginfo=True), file, arguments, written, logical)


def _is_undivided(module: ir.Module) -> bool:
    return not any(is_a(op, scf.ForOp, scf.IfOp, ktdp.GetComputeTileIdOp, func.CallOp) for op in operations(module))


def _check(name: str, p: Parameter, given: Tensor, where: ir.Location) -> None:
    """Raise KtirError where a kernel sees other memory than it is given."""
    if ELEMENTS.get(given.dtype) != p.element or p.shape not in (None, given.shape, (prod(given.shape),)):
        dtype = next((n for n, e in ELEMENTS.items() if e == p.element), p.element)
        shape = "" if p.shape is None else f" of shape {list(p.shape)}"
        raise KtirError(
            f"argument '{name}' expects {dtype}{shape}, but got {given.dtype} of shape {list(given.shape)}",
            notes=(Diagnostic("note", f"the kernel sees it as {dtype}{shape} here", KtirError("", where).location),),
        )


def _declared(facts: ir.DictAttr, name: str, role: str, given: Tensor) -> ir.DictAttr:
    type_ = ir.RankedTensorType.get(list(given.shape), ir.Type.parse(ELEMENTS[given.dtype]))
    own = {a.name: a.attr for a in facts}
    said = {"ktir.name": ir.StringAttr.get(name), "ktir.type": ir.TypeAttr.get(type_), "ktir.role": ir.StringAttr.get(role)}
    return ir.DictAttr.get(own | said)


def _argument(name: str, role: str, given: Tensor | int) -> Argument:
    assert isinstance(given, Tensor)
    stride = tuple(prod(given.shape[d + 1 :]) for d in range(len(given.shape)))
    return Argument(name, "input" if role == "input" else "output", given.dtype, given.shape, stride)


def unknown(name: str, source: Source) -> str:
    """What to say of a name that a kernel does not have."""
    known = [*source.arguments, *source.parameters]
    return f"kernel '{source.name}' has no argument '{name}'{close_to(name, known)}; it has {', '.join(known)}"
