"""Kernels -> divided KTIR: the rows of a kernel are dealt to the cores, the last core may get fewer.

Core t owns rows [t*share, t*share + share). Its views of row tensors start at its first row and are masked by the rows that it really has,
so every core runs the same text on static tiles.

A kernel with `ktir.columns` (`ktir_form_kernels`) is divided over rows and sticks of columns, as the cost model finds best: core t owns row
part t / c and column part t mod c of c column parts. It reads a matmul's first operand in its rows, all else in its rows and columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from ktir.cost.division import Plan
from ktir.diagnostics import Unsupported, location_text
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import Generic, rebuild
from ktir.hints import Hint
from ktir.mlir import arith, func, ir, linalg, tensor
from ktir.passes._axes import second_operand_source
from ktir.passes._columns import column_division, extents, hinted, row_parts, wishes
from ktir.passes._levels import kernel_rows, require_level, set_level
from ktir.pipeline import Pass
from ktir.target import DATASHEET, LANES


@dataclass(frozen=True)
class DivideWorkPass(Pass):
    """Divide each kernel's rows, and columns where it may, over at most `cores` cores.

    `work_div` fixes the parts of rows and columns, as in `m=4,n=8`; without it a `ktir.hint` in force does. What cannot be honoured is an
    error.

    Expects: kernels with `ktir.rows`. Guarantees: the divided level, a grid and `ktir.work` on each kernel; encodings are dropped.
    """

    name: ClassVar[str] = "ktir-divide-work"
    description: ClassVar[str] = "kernels -> divided: rows and columns over cores, uneven last core"
    cores: int = DATASHEET.cores
    work_div: str = ""

    def run(self, module: ir.Module) -> None:
        """Rewrite each kernel of the module."""
        require_level(module, self.name, "laid-out", kernels=True)
        hint = wishes(self.work_div)
        for op in list(module.body.operations):
            if isinstance(op, func.FuncOp) and "ktir.columns" in op.attributes:
                plan = hinted(lambda h, op=op: plan_columns(op, self.cores, h), hint, op.location)
                self.remark("passed", f"kernel '{op.name.value}': {plan.explain()}", op.location)
                _ColumnDivider(op, plan).divide()
            elif isinstance(op, func.FuncOp) and "ktir.rows" in op.attributes:
                rows = prod(kernel_rows(op.operation))
                wished = hinted(lambda h, n=rows: row_parts(n, self.cores, h), hint, op.location)
                _Divider(op, wished).divide()
        set_level(module, "divided")


def is_shared(load: ir.Operation) -> bool:
    """Whether every core reads this load as a whole: row vectors, scalars and the second operand of a contraction."""
    for use in load.results[0].uses:
        user = use.owner
        if user.name in ("tensor.pad", "tensor.expand_shape"):
            return True
        if user.name == "linalg.generic":
            g = Generic(user.operation)
            if g.is_contraction:
                return use.operand_number == 1
            return g.loop_of(use.operand_number, 1) is None
    return False


_REBUILT = ("arith.constant", "ktdp.construct_memory_view", "ktdp.construct_access_tile", "tensor.empty", "linalg.fill")
"""Ops that are rebuilt where their result is used."""


def index_constant(value: int) -> ir.Value:
    """An index constant at the insertion point."""
    return arith.ConstantOp(ir.IndexType.get(), value).result


def _part(part: ir.Value, extent: int, share: int) -> tuple[ir.Value, ir.Value]:
    """First position and number of positions of part number `part` of `extent` positions in shares of `share`."""
    size = index_constant(share)
    first = arith.MulIOp(part, size).result
    left = arith.SubIOp(index_constant(extent), first).result
    return first, arith.MinSIOp(left, size).result


class _Divider:
    def __init__(self, source: func.FuncOp, cores: int) -> None:
        self.source = source
        self.rows = prod(kernel_rows(source.operation))
        self.share = -(-self.rows // cores)
        self.cores = -(-self.rows // self.share)
        self.mapping: dict[ir.Value, ir.Value] = {}

    def divide(self) -> None:
        source = self.source
        old = source.regions[0].blocks[0]
        name = source.name.value
        with ir.InsertionPoint(source), source.location:
            function = func.FuncOp(name + "_divided", ([a.type for a in old.arguments], []))
        block = function.add_entry_block([source.location] * len(old.arguments))
        self.mapping.update(zip(old.arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block), source.location:
            self._first_row()
            for op in old.operations:
                with op.location:
                    self._op(op.operation)
        i64 = ir.IntegerType.get_signless(64)
        function.attributes["grid"] = ir.ArrayAttr.get([ir.IntegerAttr.get(i64, self.cores)])
        function.attributes["ktir.rows"] = source.attributes["ktir.rows"]
        function.attributes["ktir.work"] = self._work()
        source.operation.erase()
        function.attributes["sym_name"] = ir.StringAttr.get(name)

    def _work(self) -> ir.Attribute:
        return kt.WorkAttr.build([1, self.cores, 1], [1, self.share, LANES])

    def _first_row(self) -> None:
        (tile,) = ktdp.get_compute_tile_id()
        self._rows_of(tile)

    def _rows_of(self, part: ir.Value) -> None:
        """Which rows belong to part number `part`."""
        row0, self.own_rows = _part(part, self.rows, self.share)
        self.element0 = arith.MulIOp(row0, index_constant(LANES)).result

    def _op(self, op: ir.Operation) -> None:
        if op.name == "ktdp.load":
            shared = is_shared(op)
            element = ir.RankedTensorType(op.results[0].type).element_type
            self.mapping[op.results[0]] = ktdp.load(self._tile(op.operands[0], shared), element)
        elif op.name == "ktdp.store":
            ktdp.store(self.mapping[op.operands[0]], self._tile(op.operands[1], False))
        elif op.name == "linalg.generic":
            g = Generic(op)
            inputs = [self.mapping[v] for v in g.inputs]
            self.mapping[op.results[0]] = rebuild(g, inputs, self._init(g.init))
        elif op.name in ("tensor.pad", "tensor.expand_shape"):
            self._reshape(op)
        elif op.name == "func.return":
            func.ReturnOp([])
        elif op.name not in _REBUILT:
            raise Unsupported(f"'{op.name}' op is not supported in a kernel on the laid-out level", location_text(op.location))

    def _init(self, init: ir.Value) -> ir.Value:
        """The accumulator or destination of a generic, with the core's rows."""
        return self._filled(init, ir.RankedTensorType(init.type).shape[0])

    def _filled(self, init: ir.Value, sticks: int) -> ir.Value:
        op = init.owner
        type_ = ir.RankedTensorType(init.type)
        lanes = type_.shape[2]
        empty = tensor.EmptyOp([sticks, self.share, lanes], type_.element_type).result
        if op.name == "tensor.empty":
            return empty
        value = op.operands[0].owner.clone().results[0]
        return linalg.fill(value, outs=[empty])

    def _tile(self, tile: ir.Value, shared: bool) -> ir.Value:
        view = tile.owner.opview.base.owner.opview
        base = self.mapping[view.offset]
        sizes = list(view.sizes)
        if shared:
            whole = ktdp.construct_memory_view(base, sizes, list(view.strides), view.element_type)
            return ktdp.construct_access_tile(whole, [0, 0, 0], sizes)
        offset = arith.AddIOp(base, self.element0).result
        own = ktdp.construct_memory_view(offset, [sizes[0], self.own_rows, sizes[2]], list(view.strides), view.element_type)
        return ktdp.construct_access_tile(own, [0, 0, 0], [sizes[0], self.share, sizes[2]])

    def _reshape(self, op: ir.Operation) -> None:
        """Padding and splitting of a second operand: the same op without encoding."""
        clone = op.clone()
        clone.operands[0] = self.mapping[op.operands[0]]
        type_ = ir.RankedTensorType(op.results[0].type)
        clone.results[0].set_type(ir.RankedTensorType.get(type_.shape, type_.element_type))
        self.mapping[op.results[0]] = clone.results[0]


def plan_columns(kernel: func.FuncOp, cores: int, hint: Hint) -> Plan:
    """The division of a kernel with `ktir.columns`: that of its longest matmul. Raises Infeasible for a hint that cannot be honoured."""
    ops = (o.operation for o in kernel.regions[0].blocks[0].operations)
    contractions = [g for o in ops if o.name == "linalg.generic" and (g := Generic(o)).is_contraction]
    rows, sticks, depth = max(extents(g) for g in contractions)
    return column_division(rows, sticks, depth, cores, hint)


class _ColumnDivider(_Divider):
    """Divides rows and sticks of columns; loads are made for each way in which an op reads its operand."""

    def __init__(self, source: func.FuncOp, plan: Plan) -> None:
        super().__init__(source, 1)
        self.sticks = ir.IntegerAttr(source.attributes["ktir.columns"]).value
        self.row_parts, self.column_parts, _ = plan.division.splits
        self.share, self.stick_share, _ = plan.division.shares
        self.cores = plan.division.cores
        self.loads: dict[tuple[ir.Value, str], ir.Value] = {}

    def _work(self) -> ir.Attribute:
        return kt.WorkAttr.build([self.column_parts, self.row_parts, 1], [self.stick_share, self.share, LANES])

    def _first_row(self) -> None:
        (tile,) = ktdp.get_compute_tile_id()
        parts = index_constant(self.column_parts)
        self._rows_of(arith.DivUIOp(tile, parts).result)
        self.stick0, left = _part(arith.RemUIOp(tile, parts).result, self.sticks, self.stick_share)
        self.own_sticks = self.stick_share if self.sticks % self.stick_share == 0 else left

    def _op(self, op: ir.Operation) -> None:
        if op.name == "linalg.generic":
            g = Generic(op)
            if g.is_contraction:
                inputs = [self._load(g.inputs[0], "rows"), self._weights(g)]
            else:
                inputs = [self._input(g, i) for i in range(len(g.inputs))]
            self.mapping[op.results[0]] = rebuild(g, inputs, self._init(g.init))
        elif op.name == "ktdp.store":
            ktdp.store(self.mapping[op.operands[0]], self._access(op.operands[1], "both"))
        elif op.name not in ("ktdp.load", "tensor.pad", "tensor.expand_shape"):
            super()._op(op)

    def _input(self, g: Generic, number: int) -> ir.Value:
        value = g.inputs[number]
        if value in self.mapping:
            return self.mapping[value]
        by_stick, by_row = (g.loop_of(number, d) is not None for d in (0, 1))
        return self._load(value, "both" if by_stick and by_row else "rows" if by_row else "columns" if by_stick else "whole")

    def _load(self, value: ir.Value, what: str) -> ir.Value:
        """The part of a loaded tensor that a core reads: `rows`, `columns` (sticks), `both` or the `whole`."""
        if (value, what) not in self.loads:
            load = value.owner.operation
            element = ir.RankedTensorType(value.type).element_type
            with load.location:
                self.loads[value, what] = ktdp.load(self._access(load.operands[0], what), element)
        return self.loads[value, what]

    def _access(self, tile: ir.Value, what: str) -> ir.Value:
        view = tile.owner.opview.base.owner.opview
        base = self.mapping[view.offset]
        sizes, strides = list(view.sizes), list(view.strides)
        shape = list(sizes)
        if what in ("rows", "both"):
            base = arith.AddIOp(base, self.element0).result
            sizes[1], shape[1] = self.own_rows, self.share
        if what in ("columns", "both"):
            base = arith.AddIOp(base, self._times(self.stick0, strides[0])).result
            sizes[0], shape[0] = self.own_sticks, self.stick_share
        return ktdp.construct_access_tile(ktdp.construct_memory_view(base, sizes, strides, view.element_type), [0, 0, 0], shape)

    @staticmethod
    def _times(value: ir.Value, factor: int) -> ir.Value:
        return arith.MulIOp(value, index_constant(factor)).result

    def _init(self, init: ir.Value) -> ir.Value:
        return self._filled(init, self.stick_share)

    def _weights(self, g: Generic) -> ir.Value:
        """A core's columns of the second operand in blocks of 64 rows: its sticks, or its rows where K lies in the stick."""
        source = second_operand_source(g)
        load = source.owner.operation
        element = ir.RankedTensorType(source.type).element_type
        transposed = g.loop_of(1, 0) == g.iterators.index("reduction")
        blocks = list(ir.RankedTensorType(g.inputs[1].type).shape)
        with load.location:
            value = ktdp.load(self._weight_rows(load.operands[0]) if transposed else self._access(load.operands[0], "columns"), element)
            blocks[1 if transposed else 0] = self.stick_share
            rows = ir.RankedTensorType(value.type).shape[1]
            if rows != blocks[1] * LANES:
                value = _padded(value, blocks[1] * LANES)
            return tensor.ExpandShapeOp(ir.RankedTensorType.get(blocks, element), value, [[0], [1, 2], [3]], [], blocks).result

    def _weight_rows(self, tile: ir.Value) -> ir.Value:
        view = tile.owner.opview.base.owner.opview
        sizes, strides = list(view.sizes), list(view.strides)
        rows = self.stick_share * LANES
        first = self._times(self.stick0, LANES)
        own: int | ir.Value = rows
        if sizes[1] % rows:
            own = arith.MinSIOp(arith.SubIOp(index_constant(sizes[1]), first).result, index_constant(rows)).result
        base = arith.AddIOp(self.mapping[view.offset], self._times(first, strides[1])).result
        part = ktdp.construct_memory_view(base, [sizes[0], own, sizes[2]], strides, view.element_type)
        return ktdp.construct_access_tile(part, [0, 0, 0], [sizes[0], rows, sizes[2]])


def _padded(value: ir.Value, rows: int) -> ir.Value:
    """A second operand with zeros as rows beyond its own."""
    type_ = ir.RankedTensorType(value.type)
    sticks, own, lanes = type_.shape
    pad = tensor.PadOp(ir.RankedTensorType.get([sticks, rows, lanes], type_.element_type), value, [], [], [0, 0, 0], [0, rows - own, 0])
    block = ir.Block.create_at_start(pad.operation.regions[0], [ir.IndexType.get()] * 3, [ir.Location.current] * 3)
    with ir.InsertionPoint(block):
        tensor.YieldOp(arith.ConstantOp(type_.element_type, ir.FloatAttr.get(type_.element_type, 0.0)).result)
    return pad.result
