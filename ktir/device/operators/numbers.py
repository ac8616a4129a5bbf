"""Python numbers of operators outside of graphs, as an optimizer has another one at each step: they are arguments of one program for all.

A number is first a constant of its program. Where a second one comes for the same operands, a program is compiled that takes it at each
launch, as a compiled graph takes Python floats (`ktir/lowering/inductor/graph/numbers.py`), with the same bits. Numbers for which PyTorch
or the compiler has another program, such as an exponent of 2, stay constants; so do integers beside tensors of integers, whose range is
proved, and whatever guards of the trace say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._dynamo.source import FloatTensorSource, LocalSource
from torch._dynamo.symbolic_convert import TensorifyState
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._sympy.printers import PythonPrinter

from ktir.device.operators.trial import key_of

_PLAIN = 32
"""Up to this, whole numbers and halves may have programs of their own."""
_EXACT = 1 << 53
"""Whole numbers up to this are floats of Python."""
_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_KINDS = ("number", "Tensor", "Optional[number]", "Optional[Tensor]")
"""Types of arguments that take a number; one that is declared as a float of C++ is a constant also in compiled graphs."""


class Number:
    """Stands for an argument in the key of a program for all numbers."""


def changing(op: Any, args: Sequence[Any], kwargs: dict[str, Any], leaves: Sequence[Any]) -> tuple[int, ...]:
    """The places among the leaves of a call, in order, of numbers that may be arguments of its program."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    floats = [t for t in tensors if t.is_floating_point()]
    if not floats or any(t.dtype not in _FLOATS for t in floats):
        return ()
    whole = len(floats) == len(tensors)
    kinds = _kinds(op, args, kwargs)
    return tuple(k for k, (leaf, kind) in enumerate(zip(leaves, kinds, strict=True)) if kind in _KINDS and _changes(leaf, whole))


def _kinds(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[str]:
    """The declared type of the argument that each leaf is, or is part of."""
    arguments = op._schema.arguments
    named = {a.name: str(a.type) for a in arguments}
    for value, kind in [*((v, str(a.type)) for v, a in zip(args, arguments, strict=False)), *((v, named[n]) for n, v in kwargs.items())]:
        yield from (kind for _ in pytree.tree_leaves(value))


def _changes(leaf: Any, whole: bool) -> bool:
    """whole: whether an integer is a float, for all beside it are."""
    if type(leaf) is int:
        return whole and _PLAIN < abs(leaf) <= _EXACT
    return type(leaf) is float and math.isfinite(leaf) and not (abs(leaf) <= _PLAIN and (2 * leaf).is_integer())


def key_of_kind(op: Any, tree: Any, leaves: Sequence[Any], places: Sequence[int]) -> Hashable:
    """What a program for all numbers at some places depends on."""
    return op, tree, (torch.get_default_dtype(), *(Number if k in places else key_of(leaf) for k, leaf in enumerate(leaves)))


class Traced:
    """The numbers of a graph while it is made and compiled: what it gets, and for which numbers what was compiled holds."""

    def __init__(self, mode: FakeTensorMode, numbers: dict[int, float]) -> None:
        """mode: what the graph is traced in, with an environment of shapes. numbers: those of the call, by place."""
        assert mode.shape_env is not None
        self._mode, self._environment = mode, mode.shape_env
        self._numbers = numbers
        self._symbols: list[Any] = []
        self.examples: list[torch.Tensor] = []
        """Tensors of float64 without dims, as Dynamo hands numbers over."""
        TensorifyState.clear()  # of what PyTorch has once taken for a constant, it takes all that is called alike for one

    def nodes(self, graph: fx.Graph) -> dict[int, fx.Node]:
        """Placeholders behind all others, and the node of each number by its place."""
        made = [graph.placeholder(f"n{k}") for k in self._numbers]
        found: dict[int, fx.Node] = {}
        for (place, value), node in zip(self._numbers.items(), made, strict=True):
            source = FloatTensorSource(LocalSource(node.name))
            example = self._mode.from_tensor(torch.tensor(value, dtype=torch.float64, device="cpu"), static_shapes=False, source=source)
            self.examples.append(example)
            number = graph.call_method("item", (node,))
            with self._mode:
                symbolic: Any = example.item()
            node.meta["example_value"], number.meta["example_value"] = example, symbolic
            self._symbols.append(symbolic.node.expr)
            found[place] = number
        return found

    def program(self, compiled: Callable[..., Any]) -> ForNumbers:
        """What was compiled, with what was decided of the numbers while it was traced."""
        guards = [f"({PythonPrinter().doprint(guard.expr)})" for guard in self._environment.guards]
        names = ", ".join(map(str, self._symbols))
        return ForNumbers(compiled, eval(f"lambda {names}: {' and '.join(guards) or True}", {"math": math}))


class ForNumbers(NamedTuple):
    """A program that takes numbers behind its tensors, and whether it is one for some."""

    compiled: Callable[..., Any]
    takes: Callable[..., bool]

    def program_of(self, numbers: Sequence[float]) -> Callable[..., Any]:
        """The program with some numbers."""
        return lambda tensors: self.compiled([*tensors, *(torch.scalar_tensor(n, dtype=torch.float64, device="cpu") for n in numbers)])
