"""Writes in place of copies that Inductor takes for safe and that are not.

The result of an operator may lie in the memory of an input that gets another value at the end of the graph, where nothing reads the old
value any more. Torch's pass asks whether the input is read; it does not ask whether the result is read after the input has got its value:
of `y = x.index_copy(...)` and `x.add_(1)` both `y` and `x` are what is in `x` then. It also overlooks overlaps, see `overlaps`, and that a
value of half precision which is rounded again is not copied. Where an operator that is called writes to a tensor, Inductor puts what has
been computed of the old value behind the call, and around the call of a nested region it orders no reads of what the region writes to. And
of two inputs that exchange their values both get that of one.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import fx
from torch._inductor.fx_passes import post_grad
from torch._inductor.fx_passes import reinplace as of_torch
from torch._inductor.fx_utils import get_node_storage
from torch._inductor.ir import FallbackKernel, InvokeSubgraph, MutationOutput, NoneLayout, TensorBox
from torch._inductor.virtualized import V
from torch._library.utils import zip_schema

from ktir.lowering.inductor.graph.rounding import ROUNDED
from ktir.lowering.inductor.running import overlaps

aten = torch.ops.aten


@contextmanager
def careful() -> Iterator[None]:
    """Inside the block Inductor writes in place where values stay what they are."""
    changed: dict[tuple[Any, str], Any] = {
        (of_torch, "reinplace_inplaceable_ops_core"): _after(keep_values, of_torch.reinplace_inplaceable_ops_core),
        (of_torch, "compute_overlapping_tensors"): overlaps.with_overlooked(vars(of_torch)["compute_overlapping_tensors"]),
        (of_torch, "get_node_storage"): memory_of,
        (post_grad, "get_node_storage"): memory_of,
        (FallbackKernel, "create"): classmethod(_after(read_before, vars(FallbackKernel)["create"].__func__)),
        (InvokeSubgraph, "__init__"): _writing(InvokeSubgraph.__init__),
    }
    theirs = {(where, name): vars(where)[name] for where, name in changed}
    try:
        for (where, name), value in changed.items():
            setattr(where, name, value)
        yield
    finally:
        for (where, name), value in theirs.items():
            setattr(where, name, value)


def _after(first: Callable[..., None], then: Callable[..., Any]) -> Callable[..., Any]:
    """Both, one after the other, with the same arguments."""

    def run(*args: Any, **kwargs: Any) -> Any:
        first(*args, **kwargs)
        return then(*args, **kwargs)

    return run


def memory_of(node: Any) -> Any:
    """What names the memory of a node's result: that of the node which it is a view of, or which it rounds. A rounded value may be its
    operand, and what a pass before has put in place of a copy has the meta of the copy: the graph says where it lies. None where the
    result is no tensor, as the list of views is that a split gives.
    """
    if not isinstance(node.meta.get("val"), torch.Tensor):
        return None
    while (source := _viewed(node)) is not None:
        node = source
    return get_node_storage(node)


def _viewed(node: fx.Node) -> fx.Node | None:
    """What the result of a node may lie in the memory of, by its operator."""
    if not node.args or not isinstance(source := node.args[0], fx.Node):
        return None
    if node.target is operator.getitem:  # of views, or of results of their own
        return _viewed(source)
    views = node.target in (ROUNDED, aten._unsafe_view.default) or getattr(node.target, "is_view", False)
    return source if views else None


def read_before(cls: type, kernel: Any, *args: Any, **kwargs: Any) -> None:
    """Let everything that reads what a call writes to be computed, before the call stands in the program."""
    if not isinstance(kernel, torch._ops.OpOverload):
        return
    for info, value in zip_schema(kernel._schema, args, kwargs):
        if info.alias_info is not None and info.alias_info.is_write:
            for tensor in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(tensor, TensorBox):
                    tensor.realize()
                    V.graph.mark_buffer_mutated(tensor.get_name())


def _writing(make: Callable[..., None]) -> Callable[..., None]:
    """Let a call of a nested region stand between what reads the tensors that it writes to before and behind it, as that of an operator
    or of a loop does: torch orders nothing around such a call but its operands and results.
    """

    def run(self: InvokeSubgraph, subgraph: Any, operands: Sequence[Any], *args: Any, **kwargs: Any) -> None:
        inputs = zip(subgraph.graph.graph_input_names, operands, strict=True)
        written = [operand for name, operand in inputs if name in subgraph.graph.mutated_buffers]
        for operand in written:
            V.graph.mark_buffer_mutated(operand.get_name())
        make(self, subgraph, operands, *args, **kwargs)
        self.mutation_outputs = [MutationOutput(NoneLayout(device=operand.get_device()), operand, self) for operand in written]

    return run


def keep_values(graph: fx.Graph) -> None:
    """Copy what would be overwritten before it is read."""
    keep_inputs(graph)
    keep_results(graph)


def keep_inputs(graph: fx.Graph) -> None:
    """Copy the old value of an input that another one gets at the end of the graph, after the input itself has got its new value: torch
    has taken the user's copy out, as of one that nothing writes to.
    """
    last = [node for node in graph.nodes if node.op == "placeholder"][-1:]
    changed: set[Any] = set()
    for node in list(graph.nodes):
        if node.target is aten.copy_.default:
            target, source = node.args[:2]
            if memory_of(source) is not None and memory_of(source) in changed:
                node.replace_input_with(source, _copied(graph, source, *(last if source.op == "placeholder" else [source])))
            changed.add(memory_of(target))


def _copied(graph: fx.Graph, source: fx.Node, behind: fx.Node) -> fx.Node:
    with graph.inserting_after(behind):
        copied = graph.call_function(aten.clone.default, (source,))
    copied.meta["val"] = source.meta["val"].clone()
    return copied


def keep_results(graph: fx.Graph) -> None:
    """Let operators write to a copy of an input where their results are read after the input has got another value."""
    order = {node: k for k, node in enumerate(graph.nodes)}
    same_memory: defaultdict[Any, list[fx.Node]] = defaultdict(list)
    for node in graph.nodes:
        same_memory[memory_of(node)].append(node)
    given: defaultdict[Any, list[fx.Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.target is aten.copy_.default:
            given[memory_of(node.args[0])].append(node)
    given.pop(None, None)
    for node in list(graph.nodes):
        for target, results in _written(node):
            if copies := given.get(memory_of(target)):
                held = _held(results, same_memory)
                others = ((copy, n) for copy in copies for n in held if memory_of(n) != memory_of(copy.args[1]))
                if any(order[user] > order[copy] for copy, n in others for user in n.users):
                    node.replace_input_with(target, _copied(graph, target, node.prev))


def _written(node: fx.Node) -> list[tuple[fx.Node, list[fx.Node]]]:
    """What an operator may write to in place of a copy, each with the nodes of what is in it then."""
    if node.op != "call_function":
        return []
    if node.target is torch.ops.higher_order.auto_functionalized_v2:
        bases = cast(list[fx.Node], node.kwargs["_all_bases"])
        first = len(node.meta["val"]) - len(bases)  # behind the operator's own results
        return [(base, [user for user in node.users if user.args[1] == first + k]) for k, base in enumerate(bases)]
    op = of_torch.inplaceable_ops.get(cast(Any, node.target))
    return [(cast(fx.Node, node.args[k]), [node]) for k in op.mutated_args] if op is not None else []


def _held(results: Sequence[fx.Node], same_memory: dict[Any, list[fx.Node]]) -> set[fx.Node]:
    """The nodes that lie in the memory of results: their views, and what is written to these in place."""
    found: set[fx.Node] = set()
    todo = list(results)
    while todo:
        if (n := todo.pop()) not in found:
            found.add(n)
            todo += [made for user in n.users for target, results in _written(user) if target is n for made in results]
            if (storage := memory_of(n)) is not None:
                todo += same_memory[storage]
    return found
