"""Flat logical KTIR knows one integer type outside of scalar bodies, i32, and inside of them i1 besides.

Of i64 the low 32 bits are held, the number itself where `integer_proof` has found that something needs it. Narrower integers are held
sign-extended and wrap around as they do in their own width; i1 in memory is 0 or 1.
"""

from __future__ import annotations

from ktir.analysis.flat import refuse
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.op_facts import INDEX_CASTS, SIGNED_CASTS, UNSIGNED_CASTS
from ktir.dialects.structured import Generic, constant, element_of
from ktir.mlir import arith, func, i32_type, ir, is_a, linalg, math, names, operations, tensor
from ktir.target import is_byte

WRAPS = names(arith.AddIOp, arith.SubIOp, arith.MulIOp, arith.ShLIOp, arith.DivSIOp, arith.FloorDivSIOp, arith.CeilDivSIOp,
               math.AbsIOp, arith.FPToSIOp, arith.ShRUIOp, arith.DivUIOp, arith.RemUIOp, arith.CeilDivUIOp)  # fmt: skip
"""Ops whose results in 32 bits may be beyond a narrower type."""
BARE = names(arith.ShRUIOp, arith.DivUIOp, arith.RemUIOp, arith.CeilDivUIOp, arith.UIToFPOp)
"""Ops that take the bits of their operands as numbers without sign; comparisons and extremes order sign-extended numbers the same way."""
OF_WIDTH = names(arith.BitcastOp, arith.FPToUIOp, math.CountLeadingZerosOp, math.CtPopOp, math.CountTrailingZerosOp,
                   arith.MulUIExtendedOp, arith.MulSIExtendedOp, arith.AddUIExtendedOp)  # fmt: skip
"""Ops whose results in 32 bits are not those in another width."""
_INDEX = 64


def integers_as_i32(function: func.FuncOp) -> None:
    """Make i32 of every integer type in tensors and views, and in bodies of all but i1. In place."""
    everything = [op for op in operations(function) if not is_of_bytes(op)]
    for op in [op for op in operations(function) if is_a(op, linalg.GenericOp) and is_of_bytes(op)]:
        if Generic(op).made_factor is not None:
            _Body(op).narrow()
    if not any(op.name in INDEX_CASTS or _is_foreign(v.type) for op in everything for v in op.results):
        return
    for op in [op for op in everything if is_a(op, linalg.GenericOp, kt.ScanOp, linalg.FillOp, tensor.PadOp)]:  # others may go
        if is_a(op, linalg.FillOp, tensor.PadOp):
            _narrow_given(op)
        else:
            _Body(op).narrow()
    for op in operations(function):
        if not is_of_bytes(op):
            for result in op.results:
                result.set_type(_narrow(result.type))


def is_of_bytes(op: ir.Operation) -> bool:
    """Whether it is a matmul that reads bytes, or brings them to one (`byte_weights`)."""
    if is_a(op, linalg.GenericOp):
        return len(op.operands) > 2 and is_byte(element_of(op.operands[1])) and Generic(op).is_contraction
    if is_a(op, ktdp.ConstructMemoryViewOp, ktdp.ConstructAccessTileOp, ktdp.LoadOp):
        readers = [(u.owner.operation, u.operand_number) for u in op.results[0].uses]
        return bool(readers) and all(is_of_bytes(reader) and (number == 1) == is_a(op, ktdp.LoadOp) for reader, number in readers)
    return is_a(op.parent, linalg.GenericOp) and is_of_bytes(op.parent.operation)


def _width(type_: ir.Type) -> int | None:
    """Bits of an integer or index; None for other types."""
    return _INDEX if isinstance(type_, ir.IndexType) else type_.width if isinstance(type_, ir.IntegerType) else None


def _element_width(type_: ir.Type) -> int | None:
    return _width(type_.element_type) if isinstance(type_, ir.RankedTensorType | ir.MemRefType) else None


def _is_foreign(type_: ir.Type) -> bool:
    """Whether it is of a form that flat logical KTIR has not: memory of other integers than i32, other scalars than i32, i1, index."""
    return _element_width(type_) not in (None, 32) or (isinstance(type_, ir.IntegerType) and type_.width not in (1, 32))


def _narrow(type_: ir.Type) -> ir.Type:
    if _element_width(type_) in (None, 32):
        return type_
    if isinstance(type_, ir.RankedTensorType):
        return ir.RankedTensorType.get(type_.shape, i32_type(), type_.encoding)
    return ir.MemRefType.get(type_.shape, i32_type())


def _number(value: int) -> ir.Value:
    return constant(i32_type(), value)


def _low_bits(op: ir.Operation) -> int:
    """The low 32 bits of a constant, as a signed number."""
    return (ir.IntegerAttr(op.attributes["value"]).value + 2**31) % 2**32 - 2**31


def _narrow_constant(op: ir.Operation) -> None:
    op.attributes["value"] = ir.IntegerAttr.get(i32_type(), _low_bits(op))
    op.results[0].set_type(i32_type())


def _narrow_given(op: ir.Operation) -> None:
    """The scalar that a fill or a pad puts everywhere."""
    block = op.regions[0].blocks[0]
    last = list(block.operations)[-1].operation
    where = op if is_a(op, linalg.FillOp) else last
    value = where.operands[0]
    if _width(value.type) in (None, 32):
        return
    constant = value.owner.operation
    number = _low_bits(constant)
    with ir.InsertionPoint(where), op.location:
        where.operands[0] = _number(number & 1 if _width(value.type) == 1 else number)
    if not list(constant.results[0].uses):
        constant.erase()
    if is_a(op, linalg.FillOp):
        for argument in block.arguments:
            argument.set_type(i32_type())


class _Body:
    """The scalar body of an op. `widths` are those that its integers had."""

    def __init__(self, op: ir.Operation) -> None:
        self.op = op
        self.block: ir.Block = op.regions[0].blocks[0]
        *body, end = [o.operation for o in self.block.operations]
        self.ops: list[ir.Operation] = body
        self.end: ir.Operation = end
        values = [*self.block.arguments, *(r for o in body for r in o.results), *(v for o in (*body, end) for v in o.operands)]
        self.widths = {v: w for v in values if (w := _width(v.type)) is not None}

    def narrow(self) -> None:
        """Make i32 of all integers but i1; block arguments and what is yielded of i1 are i32 too, since they are in memory."""
        if all(w in (1, 32) for w in self.widths.values()) and not any(v.type.width == 1 for v in self._in_memory()):
            return
        for value in [v for v in self.widths if not isinstance(v.owner, ir.Block) and v.owner.operation.block != self.block]:
            self._own(value)
        for op in self.ops:
            widths = [w for v in (*op.operands, *op.results) if (w := self.widths.get(v)) not in (None, 1, 32)]
            if widths and op.name in OF_WIDTH:
                raise refuse(op, f"computes on i{widths[0]}, which the device holds in 32 bits; the nearest supported form is on i32")
        for value in [v for v in self.widths if isinstance(v.owner, ir.Block)]:
            if self.widths[value] == 1:
                self._flag(value)
            elif is_of_bytes(self.op):
                self._byte(value) if ir.BlockArgument(value).arg_number == 1 else value.set_type(i32_type())
            else:
                value.set_type(i32_type())
        for op in self.ops:
            self._scalar(op)
        for i, value in enumerate(self.end.operands):
            if _width(value.type) == 1:
                with ir.InsertionPoint(self.end), self.end.location:
                    self.end.operands[i] = arith.ExtUIOp(i32_type(), value).result

    def _in_memory(self) -> list[ir.Value]:
        return [v for v in (*self.block.arguments, *self.end.operands) if isinstance(v.type, ir.IntegerType)]

    def _own(self, value: ir.Value) -> None:
        """A constant of the function as one of the body."""
        with ir.InsertionPoint.at_block_begin(self.block):
            copy = value.owner.clone().operation
        for op in (*self.ops, self.end):
            op.replace_uses_of_with(value, copy.results[0])
        self.widths[copy.results[0]] = self.widths.pop(value)
        self.ops.insert(0, copy)

    def _flag(self, argument: ir.Value) -> None:
        argument.set_type(i32_type())
        if list(argument.uses):
            with ir.InsertionPoint.at_block_begin(self.block), self.op.location:
                flag = arith.CmpIOp(arith.CmpIPredicate.ne, argument, _number(0))
            argument.replace_all_uses_except(flag.result, flag.operation)
            self.widths[flag.result] = 1

    def _byte(self, argument: ir.Value) -> None:
        """Let a body compute with a byte that stays one in memory as with other integers."""
        with ir.InsertionPoint.at_block_begin(self.block), self.op.location:
            wide = arith.ExtSIOp(i32_type(), argument)
        argument.replace_all_uses_except(wide.result, wide.operation)
        self.widths[wide.result] = self.widths[argument]

    def _scalar(self, op: ir.Operation) -> None:
        width = self.widths.get(op.results[0]) if op.results else None
        if op.name in (*SIGNED_CASTS, *UNSIGNED_CASTS):
            self._cast(op, width or 0)
            return
        if op.name in BARE:
            self._bare(op)
        if width in (None, 1):
            return
        if is_a(op, arith.ConstantOp):
            _narrow_constant(op)
        else:
            op.results[0].set_type(i32_type())
            if width < 32 and op.name in WRAPS:
                with ir.InsertionPoint.after(op), op.location:
                    new, reader = self._signed(op.results[0], width)
                op.results[0].replace_all_uses_except(new, reader)
                self.widths[new] = width

    def _bare(self, op: ir.Operation) -> None:
        """Make narrow operands numbers without sign."""
        for i, value in enumerate(op.operands):
            width = self.widths.get(value, 32)
            if 1 < width < 32:
                with ir.InsertionPoint(op), op.location:
                    op.operands[i] = arith.AndIOp(value, _number((1 << width) - 1)).result

    def _signed(self, value: ir.Value, width: int) -> tuple[ir.Value, ir.Operation]:
        """The low `width` bits as a signed number; and the op that reads `value`."""
        count = _number(32 - width)
        up = arith.ShLIOp(value, count)
        return arith.ShRSIOp(up.result, count).result, up.operation

    def _cast(self, op: ir.Operation, width: int) -> None:
        value, result = op.operands[0], op.results[0]
        before = self.widths[value]
        unsigned = op.name in UNSIGNED_CASTS
        with ir.InsertionPoint(op), op.location:
            if before == 1:
                new = (arith.ExtUIOp if unsigned else arith.ExtSIOp)(i32_type(), value).result
            elif width == 1:
                new = arith.CmpIOp(arith.CmpIPredicate.ne, arith.AndIOp(value, _number(1)).result, _number(0)).result
            elif unsigned and before < 32:
                new = arith.AndIOp(value, _number((1 << before) - 1)).result
            elif width < 32 and before > width:
                new, _ = self._signed(value, width)
            else:
                new = value
        result.replace_all_uses_with(new)
        self.widths.setdefault(new, width)
        op.erase()
