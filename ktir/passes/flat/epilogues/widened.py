"""What is widened last is widened by those who read it.

A tensor that a program rounds to 16 bits and goes on with in f32, as activations in front of a norm or a quantisation, would lie in the
scratchpad, and cross kernels, in twice the bytes. Widening is exact, so each reader does it in its own body.
"""

from __future__ import annotations

from ktir.dialects.structured import SUM_OF_PRODUCTS, Generic, clone_ops, generic
from ktir.mlir import arith, func, ir, is_a, linalg, tensor
from ktir.passes.flat.epilogues.views import Reading, by_op, erase_views, readings, seen
from ktir.passes.flat.memory.windows import shape
from ktir.target import is_half


def widen_where_read(function: func.FuncOp) -> None:
    """Let the element-wise ops of `function` that widen what they give leave it narrow, where all that reads it can widen it."""
    for op in reversed([o.operation for o in function.regions[0].blocks[0].operations]):  # readers, which come later, become other ops
        narrow = _narrow(Generic(op)) if is_a(op, linalg.GenericOp) and len(op.results) == 1 else None
        found = list(readings(op.results[0])) if narrow is not None else []
        if narrow is not None and found and all(map(_can_widen, found)):
            _leave(Generic(op), narrow, found)


def _narrow(g: Generic) -> ir.Value | None:
    """The float of 16 bits that an element-wise op widens last; None where it does not."""
    if not g.is_pointwise or isinstance(g.yielded.owner, ir.Block) or not is_a(g.yielded.owner, arith.ExtFOp):
        return None
    narrow = g.yielded.owner.operands[0]
    return narrow if is_half(narrow.type) else None


def _can_widen(reading: Reading) -> bool:
    """Whether an op computes with what it reads: one that only moves it would widen what it has moved. A sum of products might become a
    matmul, which adds otherwise."""
    if not is_a(reading.op, linalg.GenericOp) or len(reading.op.results) != 1:
        return False
    g = Generic(reading.op)
    names = [o.name for o in g.body_ops]
    sums_products = len(g.inputs) > 1 and not g.is_pointwise and names[-2:] == SUM_OF_PRODUCTS[-2:]
    return reading.operand < len(g.inputs) and bool(names) and not sums_products


def _leave(g: Generic, narrow: ir.Value, found: list[Reading]) -> None:
    """Let an op give the scalar `narrow`, and those that read it widen that."""
    whole, made = _whole(g, narrow), dict[ir.Operation, ir.Value]()
    for op, some in by_op(found).items():
        _read(Generic(op), {reading.operand: seen(whole, reading.views, made) for reading in some})
    erase_views(g.op.results[0])
    g.op.erase()


def _whole(g: Generic, narrow: ir.Value) -> ir.Value:
    """The tensor of the scalar: an operand that is only widened, element for element, or what is computed."""
    number = ir.BlockArgument(narrow).arg_number if isinstance(narrow.owner, ir.Block) else None
    if number is not None and g.maps[number] == g.maps[-1]:
        return g.inputs[number]

    def body(arguments: list[ir.Value]) -> ir.Value:
        mapping = dict(zip(g.body.arguments, arguments, strict=True))
        clone_ops([inner for inner in g.body_ops if inner != g.yielded.owner.operation], mapping)
        return mapping[narrow]

    with ir.InsertionPoint(g.op), g.op.location:
        init = tensor.EmptyOp(list(shape(g.op.results[0])), narrow.type).result
        return generic(g.inputs, init, g.maps, g.iterators, body, loc=g.op.location)


def _read(g: Generic, narrow: dict[int, ir.Value]) -> None:
    """Let an op read narrow operands."""

    def body(arguments: list[ir.Value]) -> ir.Value:
        wide = [arith.ExtFOp(g.body.arguments[i].type, a).result if i in narrow else a for i, a in enumerate(arguments)]
        return g.copy_body(wide)

    with ir.InsertionPoint(g.op), g.op.location:
        inputs = [narrow.get(i, value) for i, value in enumerate(g.inputs)]
        result = generic(inputs, g.init, g.maps, g.iterators, body, loc=g.op.location)
    g.op.results[0].replace_all_uses_with(result)
    g.op.erase()
