"""What each element of a tensor of a kernel is: a tree of scalar ops over tensors that exist, and numbers.

Splats, broadcasts and transposes are nothing but another way from the dims of a value to those of what it is made of: none is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ktir.diagnostics import refused
from ktir.mlir import arith, i32_type, ir

Walk = tuple[int | None, ...]
"""Per dim of a tensor the dim of the value along it; None where it has one position."""


@dataclass(frozen=True)
class Number:
    """The same everywhere."""

    type: ir.Type
    value: ir.Attribute

    def moved(self, dims: Mapping[int, int | None]) -> Number:
        return self

    def leaves(self) -> Iterator[Leaf]:
        yield from ()


@dataclass(frozen=True)
class Leaf:
    """An element of `source`, a tensor that the kernel has."""

    type: ir.Type
    source: Any
    walk: Walk

    def moved(self, dims: Mapping[int, int | None]) -> Leaf:
        """The same, where dim d of the value has become `dims[d]`."""
        return Leaf(self.type, self.source, tuple(None if d is None else dims[d] for d in self.walk))

    def leaves(self) -> Iterator[Leaf]:
        yield self


@dataclass(frozen=True)
class Below:
    """Whether the position along `dim`, which lies in the sticks, is less than a number."""

    type: ir.Type
    dim: int
    limit: int

    def moved(self, dims: Mapping[int, int | None]) -> Below:
        dim = dims[self.dim]
        assert dim is not None
        return Below(self.type, dim, self.limit)

    def leaves(self) -> Iterator[Leaf]:
        yield from ()


@dataclass(frozen=True, eq=False)
class Kind:
    """A scalar op that the author has not written."""

    name: str
    attributes: Mapping[str, ir.Attribute]
    location: ir.Location


@dataclass(frozen=True)
class Apply:
    """A scalar op; `op` is the author's, of scalars or of tensors element by element, or one that stands for a part of it."""

    type: ir.Type
    op: ir.Operation | Kind
    operands: tuple[Element, ...]

    def moved(self, dims: Mapping[int, int | None]) -> Apply:
        return Apply(self.type, self.op, tuple(o.moved(dims) for o in self.operands))

    def leaves(self) -> Iterator[Leaf]:
        for operand in self.operands:
            yield from operand.leaves()

    def build(self, operands: Sequence[ir.Value]) -> ir.Value:
        """The op on scalars, at the insertion point."""
        attributes = {name: self.op.attributes[name] for name in self.op.attributes}
        own = self.op.location  # what a named op stands for has no place of its own
        place = ir.Location.current if own == ir.Location.unknown() else own
        return ir.Operation.create(self.op.name, results=[self.type], operands=list(operands), attributes=attributes, loc=place).results[0]


Element = Number | Leaf | Below | Apply


@dataclass(frozen=True)
class Value:
    """A tensor of the author: its shape, and what an element is by its dims. Where he has joined dims they stay apart here."""

    shape: tuple[int, ...]
    element: Element

    @property
    def type(self) -> ir.Type:
        return self.element.type


def number(truth: Element) -> Element:
    """1 where something holds, else 0."""
    f32 = ir.F32Type.get()
    one, zero = (Number(f32, ir.FloatAttr.get(f32, n)) for n in (1.0, 0.0))
    return chosen(truth, one, zero)


def true(element: Element) -> Element:
    """Whether such a number is 1."""
    f32, bit = ir.F32Type.get(), ir.IntegerType.get_signless(1)
    above = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _GREATER)
    kind = Kind(arith.CmpFOp.OPERATION_NAME, {"predicate": above}, ir.Location.unknown())
    return Apply(bit, kind, (element, Number(f32, ir.FloatAttr.get(f32, 0.0))))


def integer(n: int) -> Number:
    """A number of 32 bits."""
    return of_type(i32_type(), n)


def of_type(type_: ir.Type, value: float) -> Number:
    """A number of an element type."""
    return Number(type_, ir.IntegerAttr.get(type_, int(value)) if isinstance(type_, ir.IntegerType) else ir.FloatAttr.get(type_, value))


def combined(op: type[ir.OpView], a: Element, b: Element) -> Element:
    """An op of two integers; a number of two numbers' sum or product."""
    if isinstance(a, Number) and isinstance(b, Number) and op in (arith.AddIOp, arith.MulIOp):
        return integer(a.value.value + b.value.value if op is arith.AddIOp else a.value.value * b.value.value)
    for x, y in ((a, b), (b, a)):
        if isinstance(y, Number) and y.value.value == (0 if op is arith.AddIOp else 1) and op in (arith.AddIOp, arith.MulIOp):
            return x
    return Apply(i32_type(), Kind(op.OPERATION_NAME, {}, ir.Location.unknown()), (a, b))


def compared(predicate: int, a: Element, b: Element) -> Element:
    """A comparison of integers."""
    asked = {"predicate": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate)}
    return Apply(ir.IntegerType.get_signless(1), Kind(arith.CmpIOp.OPERATION_NAME, asked, ir.Location.unknown()), (a, b))


def chosen(truth: Element, a: Element, b: Element) -> Element:
    """One of two, by a truth."""
    return Apply(a.type, Kind(arith.SelectOp.OPERATION_NAME, {}, ir.Location.unknown()), (truth, a, b))


_GREATER = 2
"""The predicate `ogt`."""


def content(value: ir.Value, values: Mapping[ir.Value, Value], op: ir.Operation) -> Value:
    """What a tensor or a scalar is. Raises Unsupported, which names the op that reads it."""
    if value in values:
        return values[value]
    if isinstance(value.type, ir.RankedTensorType):
        raise refused(op, "reads a tensor without content")
    if isinstance(value.type, ir.IntegerType):
        raise refused(op, f"makes data of an '{value.type}' that is not the same on every tile and in every trip, which is not pinned yet")
    raise refused(op, f"makes data of a value of type '{value.type}', which is not pinned yet")


def is_uniform(element: Element) -> bool:
    """Whether all elements of a tensor are the same one."""
    return all(d is None for leaf in element.leaves() for d in leaf.walk)


def common_shape(values: Sequence[Value], shape: tuple[int, ...], op: ir.Operation) -> tuple[int, ...]:
    """The shape of what is computed element by element: the author's, or that of what he has joined. Raises Unsupported for two."""
    shapes = {v.shape for v in values if not is_uniform(v.element)}
    if len(shapes) > 1:
        raise refused(op, "reads tensors of which dims were joined in several ways, which is not pinned yet")
    return shapes.pop() if shapes else shape


def distinct(element: Element) -> list[Leaf]:
    """The leaves, each once."""
    return list(dict.fromkeys(element.leaves()))


def replaced(element: Element, known: Mapping[Element, Element]) -> Element:
    """The tree with some of its parts replaced."""
    if element in known:
        return known[element]
    if isinstance(element, Apply):
        return Apply(element.type, element.op, tuple(replaced(o, known) for o in element.operands))
    return element


def scalar(element: Element, leaves: Mapping[Leaf, ir.Value], constant: Any, below: Any) -> ir.Value:
    """Build the tree on the scalars that its leaves are, at the insertion point; what stands in it twice is built once."""
    built: dict[Element, ir.Value] = {**leaves}

    def of(e: Element) -> ir.Value:
        if e not in built:
            if isinstance(e, Apply):
                built[e] = e.build([of(o) for o in e.operands])
            else:
                built[e] = constant(e) if isinstance(e, Number) else below(e)  # leaves are known
        return built[e]

    return of(element)
