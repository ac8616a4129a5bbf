"""Reductions by multiplication, which the vector unit has not: halves are multiplied element by element until one element is left."""

from __future__ import annotations

from collections.abc import Sequence

from ktir.dialects.structured import Generic, affine_map, element_of, elementwise, generic, loop_extents
from ktir.mlir import arith, func, ir, is_a, linalg, tensor
from ktir.passes.flat.memory.reshapes import collapsed, part_of
from ktir.passes.flat.memory.windows import shape


def products_by_halves(function: func.FuncOp) -> None:
    """Rewrite the reductions of `function` that multiply, in place."""
    for op in [o.operation for o in function.regions[0].blocks[0].operations]:
        if is_a(op, linalg.GenericOp) and len(op.results) == 1 and _multiplies(g := Generic(op)):
            with ir.InsertionPoint(op), op.location:
                op.results[0].replace_all_uses_with(_product(g))
            op.erase()


def _multiplies(g: Generic) -> bool:
    accumulator = g.body.arguments[len(g.inputs)]
    last = g.yielded.owner
    if g.is_pointwise or not is_a(last, arith.MulFOp, arith.MulIOp):
        return False
    return list(last.operands).count(accumulator) == 1 and len(list(accumulator.uses)) == 1


def _product(g: Generic) -> ir.Value:
    kept = [loop for loop in g.walk(len(g.inputs)) if loop is not None]
    reduced = [i for i, kind in enumerate(g.iterators) if kind == "reduction"]
    value = _factors(g, [*kept, *reduced])
    if len(reduced) > 1:
        value = collapsed(value, [*([d] for d in range(len(kept))), list(range(len(kept), len(g.iterators)))])
    dim, rest = len(kept), [g.init]
    while (size := shape(value)[dim]) > 3:
        half = size // 2
        if size % 2:
            rest.append(part_of(value, dim, size - 1))
        value = _times(part_of(value, dim, 0, half), part_of(value, dim, half, half))
    rest += [part_of(value, dim, i) for i in range(1, size)]
    value = part_of(value, dim, 0)
    for other in reversed(rest):
        value = _times(value, other)
    return value


def _factors(g: Generic, loops: Sequence[int]) -> ir.Value:
    """What is multiplied, as a tensor over all loops in this order."""
    extents = loop_extents(g.op)
    init = tensor.empty([extents[loop] for loop in loops], g.mapped.type)
    maps = [*g.maps[:-1], affine_map(len(loops), loops)]
    return generic(g.inputs, init, maps, ["parallel"] * len(loops), g.copy_mapped, loc=ir.Location.current)


def _times(a: ir.Value, b: ir.Value) -> ir.Value:
    multiply = arith.MulIOp if isinstance(element_of(a), ir.IntegerType) else arith.MulFOp
    return elementwise([a, b], tensor.empty(list(shape(a)), element_of(a)), lambda s: multiply(s[0], s[1]).result)
