"""Operators that are made of kernels (`ktir.library`), as graphs see them.

A kernel that the chip's compiler takes becomes a part of the program around it: one loop nest whose body is the call of a function.
Inductor knows bodies with assembly of others, which is what such a call looks like to it; what else a call writes is an output of its node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import sympy
import torch
from torch import fx
from torch._inductor import ir
from torch._inductor import lowering as builtin
from torch._inductor.virtualized import V, ops
from torch.utils import _pytree as pytree

from ktir.lowering.inductor.running.origins import source


@dataclass(frozen=True)
class Part:
    """A kernel as a function of a logical program: its symbol, its text in generic form, and the names of the memory that it takes."""

    symbol: str
    text: str
    arguments: tuple[str, ...]


class Operator(Protocol):
    """An operator that is made of a kernel."""

    @property
    def name(self) -> str:
        """As in `torch.ops`, with `::`."""
        ...

    @property
    def made(self) -> Sequence[str]:
        """The names of its results in the kernel."""
        ...

    @property
    def mutates(self) -> Sequence[str]:
        """The names of the operands that it writes."""
        ...

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name."""
        ...

    def check_call(self, args: Sequence[Any], kwargs: Mapping[str, Any], where: str | None) -> None:
        """Raise KtirError at that place for a call, as the user wrote it, on memory that it may not have."""
        ...

    def of_call(self, args: Sequence[Any], kwargs: Mapping[str, Any], results: Any, where: str | None) -> Any:
        """The program for tensors of these shapes and types. Raises KtirError at that place where the kernel does not take them."""
        ...

    def part(self, program: Any) -> Part | None:
        """Such a program as a part of others; None for one that is launched on its own."""
        ...


operators: dict[Any, Operator] = {}
"""By overload."""


@dataclass(frozen=True)
class Implementation:
    """A kernel for an operator of PyTorch's, as a decomposition into the operator that is made of it."""

    call: Callable[..., Any]
    """Gives NotImplemented for calls that the kernel is not for."""
    identity: Callable[[], str]
    """What tells the kernel from others."""


implementations: dict[Any, Implementation] = {}
"""By overload."""


def decompositions(kernels: Iterable[tuple[Any, Implementation]], table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Those of operators that have such implementations; for other calls those of the table."""
    return {op: _first_of(found.call, table.get(op)) for op, found in kernels}


def _first_of(ours: Callable[..., Any], theirs: Callable[..., Any] | None) -> Callable[..., Any]:
    def decompose(*args: Any, **kwargs: Any) -> Any:
        found = ours(*args, **kwargs)
        return theirs(*args, **kwargs) if found is NotImplemented and theirs is not None else found

    return decompose


def called_in(gm: fx.GraphModule) -> list[tuple[fx.Node, Operator]]:
    """The calls of such operators in a graph."""
    overloads = ((n, getattr(n.target, "default", n.target)) for n in gm.graph.nodes if n.op == "call_function")
    return [(node, operators[o]) for node, o in overloads if o in operators]


def program_of(node: fx.Node, operator: Operator) -> Any:
    """The program of a call that a user has written. Raises KtirError at its line for one that is not what the operator takes."""
    operator.check_call(*_given(node, "example_value"), source(node))
    return program_at(node, operator, "example_value")


def _given(node: fx.Node, kind: str) -> tuple[Any, Any]:
    return pytree.tree_map(lambda x: x.meta[kind] if isinstance(x, fx.Node) else x, (node.args, node.kwargs))


def program_at(node: fx.Node, operator: Operator, kind: str) -> Any:
    """The program of a call whose operands and results are in the nodes' meta data of that kind."""
    args, kwargs = _given(node, kind)
    return operator.of_call(args, kwargs, node.meta.get(kind), source(node))


def lowerings() -> dict[Any, Callable[..., Any]]:
    """Per operator the lowering of a call; what it gives None for is launched on its own."""
    return dict.fromkeys(operators, _lowered)


def _lowered(*args: Any, **kwargs: Any) -> Any:
    node: Any = V.graph.current_node
    operator = operators[node.target]
    part = operator.part(program_at(node, operator, "val"))
    made = node.meta["val"] if operator.made else []
    several = isinstance(made, tuple | list)
    values = list(made) if several else [made]
    if part is None or any(0 in v.shape for v in values):
        return None
    given = operator.bound(args, kwargs)
    operands, back = _operands({n: given[n] for n in part.arguments if n in given}, operator.mutates)
    rest = [builtin.empty_strided(v.shape, None, dtype=v.dtype, device=torch.device("cpu")) for v in values[1:]]
    written = [operands[n] for n in operator.mutates if n in operands]
    if not (values or written):
        return None
    places = {n: f"{'written' if n in operator.mutates else 'operand'}:{i}" for i, n in enumerate(operands)}
    places |= {n: f"result:{k}" for k, n in enumerate(operator.made)}
    loads = [_first(x) for x in (*operands.values(), *rest)]
    dtype = values[0].dtype if values else written[0].get_dtype()
    constraints = f"{part.symbol} {len(operands)} {' '.join(places[n] for n in part.arguments)}"

    def call(_: Sequence[Any]) -> Any:
        return ops.inline_asm_elementwise(*(load() for load in loads), asm=part.text, constraints=constraints, dtype=dtype)

    if values:
        first = _Call.of(call, ir.FixedLayout(torch.device("cpu"), dtype, list(values[0].shape)), [*written, *rest])
    else:
        first = _Call.of(call, ir.MutationLayoutSHOULDREMOVE(_storage(written[0])), [*written[1:], *rest])
    for target, copy in back:
        builtin.lowerings[torch.ops.aten.copy_.default](target, copy)
    results = [first, *rest]
    return results if several else first


def _operands(given: dict[str, Any], mutates: Sequence[str]) -> tuple[dict[str, Any], list[tuple[Any, Any]]]:
    """The operands as memory that lies row by row, those that are written in their own; and what else has to be copied back."""
    found = {name: _dense(x) for name, x in given.items()}
    back: list[tuple[Any, Any]] = []
    names = set[str]()
    for name in (n for n in mutates if n in given):
        own = ir.ExternKernel.realize_input(given[name])
        if own.get_name() in names or found[name].get_name() != own.get_name():
            found[name] = ir.ExternKernel.require_contiguous(ir.ExternKernel.copy_input(own))
            back.append((given[name], found[name]))
        names.add(found[name].get_name())
    for name, x in found.items():
        if name not in mutates and x.get_name() in names:
            found[name] = ir.ExternKernel.copy_input(x)
    for name in names:
        V.graph.mark_buffer_mutated(name)
    return found, back


class _Call(ir.ComputedBuffer):
    """The loop nest of a call, with the memory that it writes besides its own."""

    mutation_outputs: Sequence[ir.MutationOutput] = ()

    def get_outputs(self) -> list[ir.Buffer]:
        return [self, *self.mutation_outputs]

    @staticmethod
    def of(call: Callable[[Sequence[Any]], Any], layout: Any, written: Sequence[Any]) -> Any:
        """The call as a value: of the memory that it makes, or of the first that it writes."""
        data = ir.Pointwise(device=torch.device("cpu"), dtype=layout.dtype, inner_fn=call, ranges=list(layout.size))
        made = _Call(name=None, layout=layout, data=data)
        made.name = V.graph.register_buffer(made)
        V.graph.register_operation(made)
        made.origin_node = V.graph.current_node
        made.mutation_outputs = [ir.MutationOutput(ir.NoneLayout(device=x.get_device()), x, made) for x in written]
        return ir.TensorBox.create(made)


def _dense(x: Any) -> Any:
    """A tensor whose elements lie row by row from the beginning of its memory on."""
    x = ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(x))
    if isinstance(_storage(x), ir.ReinterpretView):
        x = ir.ExternKernel.require_contiguous(ir.ExternKernel.copy_input(x))
    return x


def _storage(x: Any) -> Any:
    while isinstance(x, ir.MutableBox):
        x = x.data
    return x


def _first(x: Any) -> Callable[[], Any]:
    """A read of the first element, for that of all; of memory, which a loader would not read where constants were stored."""
    name = x.get_name()
    return lambda: ops.load(name, sympy.Integer(0))
