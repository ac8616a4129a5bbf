"""The scalar values of a nest as a graph, and the generics that compute them.

Every tensor is labelled by loop variables: dim k of it is walked by variable `labels[k]`. So the maps of all generics are projected
permutations, however a value was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ktir.lowering.region_to_ktir import scalars
from ktir.lowering.region_to_ktir.dtypes import ELEMENTS, is_float, literal
from ktir.lowering.region_to_ktir.indices import Call, FloorDiv, Index, Mod
from ktir.lowering.region_to_ktir.radix import Loops
from ktir.lowering.region_to_ktir.scalar_body import Body, Scalar
from ktir.lowering.region_to_ktir.text import Memory, Tensor, Writer, affine_map


@dataclass(frozen=True)
class Operand:
    """A tensor and, per dim, the variable that walks it. `memory`: the view that is the same as the tensor, if it was loaded whole."""

    tensor: Tensor
    labels: tuple[str, ...]
    memory: Memory | None = None


@dataclass(eq=False)
class Node:
    """A value at every point of a nest. `op` is `tensor` (operand), `index` (index), `constant` (number), or a pointwise op of `args`."""

    op: str
    dtype: str
    args: tuple[Node, ...] = ()
    operand: Operand | None = None
    index: Index | None = None
    number: float = 0.0
    source: str = ""
    """Of `to_dtype_bitcast`: the dtype whose bits are taken."""

    def __post_init__(self) -> None:
        if self.operand is not None:
            self.variables = frozenset(self.operand.labels)
        elif self.index is not None:
            self.variables = self.index.variables
        else:
            self.variables = frozenset().union(*(a.variables for a in self.args))


def tensor_node(operand: Operand, dtype: str) -> Node:
    """The node of a tensor."""
    return Node("tensor", dtype, operand=operand)


def constant_node(number: float, dtype: str) -> Node:
    """The node of a number."""
    return Node("constant", dtype, number=number)


def index_node(index: Index, values: Mapping[str, Node]) -> Node:
    """An index expression as an int64 node; `values` are the nodes of the symbols that are no loop variables."""
    if not index.variables & values.keys():
        return Node("index", "int64", index=index)
    total: Node | None = constant_node(index.constant, "int64") if index.constant else None
    for coefficient, atom in index.terms:
        node = _atom_node(atom, values)
        if coefficient != 1:
            node = Node("mul", "int64", (node, constant_node(coefficient, "int64")))
        total = node if total is None else Node("add", "int64", (total, node))
    assert total is not None
    return total


def _atom_node(atom: str | FloorDiv | Mod | Call, values: Mapping[str, Node]) -> Node:
    match atom:
        case FloorDiv(operand, number) | Mod(operand, number):
            op = "floordiv" if isinstance(atom, FloorDiv) else "remainder"
            return Node(op, "int64", (index_node(operand, values), constant_node(number, "int64")))
        case Call("abs", (operand,)):
            return Node("abs", "int64", (index_node(operand, values),))
        case Call(function, (first, *others)):
            op = {"max": "maximum", "min": "minimum", "mul": "mul"}[function]
            total = index_node(first, values)
            for other in others:
                total = Node(op, "int64", (total, index_node(other, values)))
            return total
        case name:
            name = str(name)
            if name in values:
                return Node("to_dtype", "int64", (values[name],))
            return Node("index", "int64", index=Index(0, ((1, name),)))


def _operands(roots: Sequence[Node]) -> list[Operand]:
    """The tensors that the nodes read, each once."""
    found: dict[tuple[str, tuple[str, ...]], Operand] = {}
    for node in _reachable(roots):
        if node.operand is not None:
            found.setdefault((node.operand.tensor.name, node.operand.labels), node.operand)
    return list(found.values())


def _reachable(roots: Sequence[Node]) -> Iterator[Node]:
    seen: set[Node] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend(reversed(node.args))


class Evaluator:
    """Writes nodes inside the body of a generic, each once."""

    def __init__(self, body: Body, arguments: Mapping[tuple[str, tuple[str, ...]], str]) -> None:
        self.body = body
        self._arguments = arguments
        self._values: dict[Node, Scalar] = {}
        self._inputs: dict[tuple[str, str], Scalar] = {}

    def scalar(self, node: Node) -> Scalar:
        """The value of a node at the current point; without recursion, for chains may be long."""
        stack = [node]
        while stack:
            top = stack[-1]
            missing = [a for a in top.args if a not in self._values]
            if top in self._values or not missing:
                stack.pop()
                if top not in self._values:
                    self._values[top] = self._compute(top)
            else:
                stack.extend(reversed(missing))
        return self._values[node]

    def _compute(self, node: Node) -> Scalar:
        if node.operand is not None:
            name = self._arguments[(node.operand.tensor.name, node.operand.labels)]
            return self._inputs.setdefault((name, node.dtype), Scalar(node.dtype, name))
        if node.op == "constant":
            return Scalar(node.dtype, number=node.number)
        if node.index is not None:
            return self.body.index(node.index, node.dtype)
        operands = [self._values[a] for a in node.args]
        if node.op == "to_dtype_bitcast":
            return self.body.bitcast(operands[0], node.source, node.dtype)
        return scalars.record(self.body, node.op, operands, node.dtype)


Combine = Callable[[Body, Sequence[Scalar], Sequence[str]], Sequence[str]]
"""What a generic yields: from the values of its roots and the names of its accumulators."""


def generic(
    writer: Writer, loops: Loops, roots: Sequence[Node], inits: Sequence[Tensor], labels: Sequence[Sequence[str]], combine: Combine
) -> list[Tensor]:
    """A generic over `loops` that evaluates `roots`; init k is labelled `labels[k]`, loops that label none are reduced."""
    positions = {v: k for k, (v, _) in enumerate(loops)}
    operands = _operands(roots)
    inputs = [o.tensor for o in operands]
    maps = [affine_map(len(loops), [positions[v] for v in o.labels]) for o in operands]
    covered = {v for o in operands for v in o.labels} | {v for group in labels for v in group}
    missing = [(v, n) for v, n in loops if v not in covered]
    if missing:  # an operand that is not read tells the number of trips
        inputs.append(writer.empty([n for _, n in missing], "i1"))
        maps.append(affine_map(len(loops), [positions[v] for v, _ in missing]))
    maps += [affine_map(len(loops), [positions[v] for v in group]) for group in labels]
    kept = {v for group in labels for v in group}

    def body(arguments: Sequence[str]) -> Sequence[str]:
        names = {(o.tensor.name, o.labels): a for o, a in zip(operands, arguments, strict=False)}
        written = Body(writer, positions)
        evaluator = Evaluator(written, names)
        return combine(written, [evaluator.scalar(r) for r in roots], arguments[len(inputs) :])

    return writer.generic(inputs, inits, maps, ["parallel" if v in kept else "reduction" for v, _ in loops], body)


def tensor_of(writer: Writer, node: Node, loops: Loops, labels: Sequence[str], dtype: str) -> Tensor:
    """The values of a node as a tensor of element type `dtype`, dim k walked by `labels[k]`; `loops` give the trips and their order."""
    trips = dict(loops)
    shape = [trips[v] for v in labels]
    operand = node.operand
    if operand is not None and node.dtype == dtype and not set(operand.labels) - set(labels):
        if operand.labels == tuple(labels):
            return operand.tensor
        if len(operand.labels) == len(labels):
            return writer.transpose(operand.tensor, [operand.labels.index(v) for v in labels])
        if operand.labels == tuple(v for v in labels if v in operand.labels):
            return writer.broadcast(operand.tensor, shape, [k for k, v in enumerate(labels) if v not in operand.labels])
    if node.op == "constant":
        number = node.number if is_float(dtype) or not is_float(node.dtype) else int(node.number)
        return writer.filled(shape, ELEMENTS[dtype], literal(number, dtype))
    used = [(v, n) for v, n in loops if v in labels]
    init = writer.empty(shape, ELEMENTS[dtype])
    (result,) = generic(writer, used, [node], [init], [labels], lambda body, values, _: [body.name(values[0], dtype)])
    return result
