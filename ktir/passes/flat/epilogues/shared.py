"""What all readers of the sums of a matmul compute of them first is computed once.

A norm reads its operand twice or three times: for the mean, for the variance, and for itself. Where that is a matmul with bias and
residual, each reader would have these, and the sums would have to be kept in f32 for all of them. One op behind the matmul leaves what they
share, in the type that they round it to.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import reduce

from ktir.dialects.structured import SUM_OF_PRODUCTS, Generic, affine_map, clone_ops, element_of, elementwise, generic
from ktir.mlir import arith, func, in_order, ir, is_a, linalg, tensor
from ktir.passes.flat.memory.windows import shape
from ktir.target import element_bytes, is_narrower, type_letter


def compute_once(function: func.FuncOp) -> None:
    """Give the matmuls of `function` that several ops read an op of what these share, if it is narrower than the sums.

    Scores of an attention, which has a matmul for each head, are the business of its softmax, which takes them block by block.
    """
    generics = [Generic(op.operation) for op in function.regions[0].blocks[0].operations if is_a(op, linalg.GenericOp)]
    for matmul in [g for g in generics if (contraction := g.contraction) is not None and not contraction.batch]:
        _share(matmul.op.results[0])


def _share(sums: ir.Value) -> None:
    users = {op for use in sums.uses if not (op := use.owner.operation).results or any(list(value.uses) for value in op.results)}
    readers = [_Reader.of(op, sums) for op in in_order(users)] if len(users) > 1 else []
    found = [reader for reader in readers if reader is not None]
    if not found or len(found) < len(readers):
        return
    shared = reduce(lambda keys, reader: keys & reader.values.keys(), found[1:], set(found[0].values))
    fitting = [key for key in shared if all(reader.can_read(key) for reader in found)]
    if fitting:
        _compute(found, max(fitting, key=lambda key: found[0].worth(key)), sums)


def _compute(readers: Sequence[_Reader], key: Hashable, sums: ir.Value) -> None:
    """Put the op that computes a scalar in front of its readers, and let them read that."""
    g, scalar = readers[0].g, readers[0].values[key]
    needed = readers[0].behind(scalar)
    own = [i for i, argument in enumerate(list(g.body.arguments)[:-1]) if any(argument in list(op.operands) for op in needed)]
    loops = readers[0].loops

    def body(arguments: list[ir.Value]) -> ir.Value:
        mapping = {g.body.arguments[i]: argument for i, argument in zip(own, arguments, strict=False)}
        clone_ops(needed, mapping)
        return mapping[scalar]

    with ir.InsertionPoint(g.op), scalar.owner.location:
        walks = [[None if loop is None else loops.index(loop) for loop in g.walk(i)] for i in own]
        value = elementwise([g.inputs[i] for i in own], tensor.empty(list(shape(sums)), scalar.type), body, walks)
    for reader in readers:
        reader.read(key, value)


@dataclass(frozen=True, eq=False)
class _Reader:
    """An op that reads the sums of a matmul: what it computes of them alone and of what runs along with them."""

    g: Generic
    sums: ir.Value
    """One of them, in its body."""
    loops: list[int]
    """The loop along each dim of the sums."""
    values: dict[Hashable, ir.Value]
    """Such scalars, by what they are."""

    @staticmethod
    def of(op: ir.Operation, sums: ir.Value) -> _Reader | None:
        """None for an op whose scalars are not those of one element of the sums."""
        if not is_a(op, linalg.GenericOp) or len(op.results) != 1:
            return None
        g = Generic(op)
        if g.inputs.count(sums) != 1 or g.is_contraction or g.init == sums:
            return None
        loops = [loop for loop in g.walk(g.inputs.index(sums)) if loop is not None]
        if len(set(loops)) < len(shape(sums)):
            return None
        return _Reader(g, g.body.arguments[g.inputs.index(sums)], loops, _scalars(g, loops, sums))

    def behind(self, scalar: ir.Value, stop: Sequence[ir.Value] = ()) -> list[ir.Operation]:
        """The ops that compute a scalar, in order, of others at which to stop."""
        needed: set[ir.Value] = {scalar}
        found = []
        for op in reversed(self.g.body_ops):
            if op.results[0] in needed and op.results[0] not in stop:
                found.append(op)
                needed.update(op.operands)
        return found[::-1]

    def worth(self, key: Hashable) -> tuple[int, int]:
        """The narrower the better, then the more ops."""
        scalar = self.values[key]
        return -element_bytes(scalar.type), len(self.behind(scalar))

    def can_read(self, key: Hashable) -> bool:
        """Whether all that the op has of the sums comes by this scalar, and it does not become a matmul."""
        rest = self._rest(key)
        left = any(self.sums in list(op.operands) for op in rest) or self.g.yielded in (self.sums, self.values[key])
        return not left and [op.name for op in rest] != SUM_OF_PRODUCTS

    def _rest(self, key: Hashable) -> list[ir.Operation]:
        return self.behind(self.g.yielded, [self.values[key]])

    def read(self, key: Hashable, value: ir.Value) -> None:
        """Read a tensor of the scalar instead of what it is computed of."""
        g = Generic(self.g.op)  # what it reads may have been replaced
        rest, scalar = self._rest(key), self.values[key]
        kept = [i for i, argument in enumerate(list(g.body.arguments)[:-1]) if any(argument in list(op.operands) for op in rest)]

        def body(arguments: list[ir.Value]) -> ir.Value:
            mapping = dict(zip([*(g.body.arguments[i] for i in kept), scalar, g.body.arguments[len(g.inputs)]], arguments, strict=True))
            clone_ops(rest, mapping)
            return mapping[g.yielded]

        maps = [*(g.maps[i] for i in kept), affine_map(len(g.iterators), self.loops), g.maps[-1]]
        with ir.InsertionPoint(g.op), g.op.location:
            result = generic([*(g.inputs[i] for i in kept), value], g.init, maps, g.iterators, body, loc=g.op.location)
        g.op.results[0].replace_all_uses_with(result)
        g.op.erase()


def _scalars(g: Generic, loops: Sequence[int], sums: ir.Value) -> dict[Hashable, ir.Value]:
    """The scalars of a body that depend on the sums and on nothing that the sums do not run along with, narrower than they are; by what
    computes them of which elements.
    """
    keys: dict[ir.Value, Hashable] = {}
    own: set[ir.Value] = set()
    for i, argument in enumerate(list(g.body.arguments)[:-1]):
        walk = g.walk(i)
        if all(loop in loops for loop in walk):
            keys[argument] = (g.inputs[i], *(loops.index(loop) for loop in walk if loop is not None))
            if g.inputs[i] == sums:
                own.add(argument)
    found: dict[Hashable, ir.Value] = {}
    for op in g.body_ops:
        operands = list(op.operands)
        for operand in operands:
            if operand not in keys and not isinstance(operand.owner, ir.Block) and is_a(operand.owner, arith.ConstantOp):
                keys[operand] = str(operand.owner.attributes["value"])
        if is_a(op, linalg.IndexOp) or not all(operand in keys for operand in operands):
            continue
        scalar = op.results[0]
        attributes = tuple(sorted((name, str(op.attributes[name])) for name in op.attributes))
        keys[scalar] = (op.name, attributes, str(scalar.type), *(keys[operand] for operand in operands))
        if own.intersection(operands):
            own.add(scalar)
            if type_letter(scalar.type) in ("f", "i") and is_narrower(scalar.type, element_of(sums)):
                found[keys[scalar]] = scalar
    return found
