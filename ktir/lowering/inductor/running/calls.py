"""Operators that are made of kernels (`ktir.library`), as graphs see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import fx
from torch._inductor.virtualized import V
from torch.utils import _pytree as pytree

from ktir.lowering.inductor.running.origins import source


class Operator(Protocol):
    """An operator that is made of a kernel."""

    @property
    def name(self) -> str:
        """As in `torch.ops`, with `::`."""
        ...

    def of_call(self, args: Sequence[Any], kwargs: dict[str, Any], results: Any, where: str | None) -> Any:
        """The program for tensors of these shapes and types. Raises KtirError at that place where the kernel does not take them."""
        ...


operators: dict[Any, Operator] = {}
"""By overload."""


def called_in(gm: fx.GraphModule) -> list[Operator]:
    """The operators of this kind that a graph calls."""
    overloads = (getattr(n.target, "default", n.target) for n in gm.graph.nodes if n.op == "call_function")
    return [operators[o] for o in overloads if o in operators]


def lowerings() -> dict[Any, Callable[..., Any]]:
    """Per operator what looks at a call of it; the call itself is left to Inductor."""
    return dict.fromkeys(operators, _checked)


def _checked(*_: Any, **__: Any) -> None:
    node: Any = V.graph.current_node
    args, kwargs = pytree.tree_map(lambda x: x.meta["val"] if isinstance(x, fx.Node) else x, (node.args, node.kwargs))
    operators[node.target].of_call(args, kwargs, node.meta.get("val"), source(node))
