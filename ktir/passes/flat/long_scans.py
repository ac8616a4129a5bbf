"""Long scans in blocks: each block is scanned by itself, and then every block takes what all before it come to.

A scan is a comparison of all pairs of places, so that blocks of b of n elements take b / n of the work.
"""

from __future__ import annotations

from ktir.dialects import ktir as kt
from ktir.dialects.structured import affine_map, constant, element_of, elementwise, fill, generic, identity, padded
from ktir.mlir import arith, func, integer_attribute, ir, is_a, linalg, named, tensor
from ktir.passes.flat.memory.reshapes import collapsed, part_of, split
from ktir.passes.flat.memory.windows import shape

_SHORT = 128
"""Elements that are scanned at once."""
_BLOCK = 64
_KINDS = named({arith.AddFOp: "add", arith.MaximumFOp: "max", arith.MinimumFOp: "min", arith.AddIOp: "addi"})


def long_scans_in_blocks(function: func.FuncOp) -> None:
    """Cut the scans of `function` that are long, in place."""
    for op in [o.operation for o in function.regions[0].blocks[0].operations]:
        if is_a(op, kt.ScanOp) and len(op.operands) == 1:
            dim = kt.dimension_of(op)
            combiner, *rest = (o.operation.name for o in op.regions[0].blocks[0].operations)
            if shape(op.operands[0])[dim] > _SHORT and combiner in _KINDS and len(rest) == 1:
                with ir.InsertionPoint(op), op.location:
                    op.results[0].replace_all_uses_with(_in_blocks(op.operands[0], dim, combiner))
                op.erase()


def _in_blocks(value: ir.Value, dim: int, combiner: str) -> ir.Value:
    sizes, element = list(shape(value)), element_of(value)
    wide = element if isinstance(element, ir.IntegerType) or str(element) == "f64" else ir.F32Type.get()
    size = sizes[dim]
    block = _block(size)
    count = -(-size // block)
    value = _widened(value, wide)
    if count * block > size:
        value = _padded(value, dim, count * block, combiner)
    scanned = _scan(split(value, dim, [count, block]), dim + 1, combiner)
    rank = len(sizes)
    before = _before(part_of(scanned, dim + 1, block - 1), dim, combiner)
    whole = _joined(scanned, before, dim, combiner, element)
    whole = collapsed(whole, [*([d] for d in range(dim)), [dim, dim + 1], *([d + 1] for d in range(dim + 1, rank))])
    return part_of(whole, dim, 0, size) if count * block > size else whole


def _block(size: int) -> int:
    """The divisor with the least work per row, or a common length where none is near that."""

    def work(b: int) -> int:
        return size * b + (size // b) ** 2

    best = min((b for b in range(2, size) if size % b == 0), key=work, default=size)
    return best if work(best) <= 2 * work(_BLOCK) else _BLOCK


def _widened(value: ir.Value, wide: ir.Type) -> ir.Value:
    if element_of(value) == wide:
        return value
    return elementwise([value], tensor.empty(list(shape(value)), wide), lambda a: arith.ExtFOp(wide, a[0]).result)


def _padded(value: ir.Value, dim: int, size: int, combiner: str) -> ir.Value:
    sizes = [size if d == dim else n for d, n in enumerate(shape(value))]
    return padded(value, ir.RankedTensorType.get(sizes, element_of(value)), identity(_KINDS[combiner], element_of(value)))


def _identity(element: ir.Type, combiner: str) -> ir.Value:
    return constant(element, identity(_KINDS[combiner], element))


def _scan(value: ir.Value, dim: int, combiner: str) -> ir.Value:
    element, location = element_of(value), ir.Location.current
    attributes = {"dimension": integer_attribute(dim)}
    op = ir.Operation.create(kt.ScanOp.OPERATION_NAME, [value.type], [value], attributes, regions=1)
    block = ir.Block.create_at_start(op.regions[0], [element] * 2, [location] * 2)
    with ir.InsertionPoint(block):
        result = ir.Operation.create(combiner, [element], list(block.arguments)).results[0]
        ir.Operation.create(kt.YieldOp.OPERATION_NAME, [], [result])
    return op.results[0]


def _before(totals: ir.Value, dim: int, combiner: str) -> ir.Value:
    """Per block what all blocks before it come to."""
    sizes, element = list(shape(totals)), element_of(totals)
    rank = len(sizes)

    def body(scalars: list[ir.Value]) -> ir.Value:
        earlier = arith.CmpIOp(arith.CmpIPredicate.slt, linalg.IndexOp(rank).result, linalg.IndexOp(dim).result).result
        mapped = arith.SelectOp(earlier, scalars[0], _identity(element, combiner)).result
        return ir.Operation.create(combiner, [element], [scalars[1], mapped]).results[0]

    init = fill(_identity(element, combiner), tensor.empty(sizes, element))
    maps = [affine_map(rank + 1, [rank if d == dim else d for d in range(rank)]), affine_map(rank + 1, range(rank))]
    return generic([totals], init, maps, ["parallel"] * rank + ["reduction"], body, loc=ir.Location.current)


def _joined(scanned: ir.Value, before: ir.Value, dim: int, combiner: str, element: ir.Type) -> ir.Value:
    rank, wide = len(shape(scanned)), element_of(scanned)

    def body(scalars: list[ir.Value]) -> ir.Value:
        total = ir.Operation.create(combiner, [wide], scalars[:2]).results[0]
        return total if wide == element else arith.TruncFOp(element, total).result

    walks = [range(rank), [d for d in range(rank) if d != dim + 1]]
    return elementwise([scanned, before], tensor.empty(list(shape(scanned)), element), body, walks)
