"""Kernels -> divided KTIR: the rows of a kernel are dealt to the cores, the last core may get fewer.

Core t owns rows [t*share, t*share + share). Its views of row tensors start at its first row and are masked by the rows that it really has,
so every core runs the same text on static tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ktir.diagnostics import Unsupported, location_text
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import Generic, rebuild
from ktir.mlir import arith, func, ir, linalg, tensor
from ktir.passes._levels import require_level, set_level
from ktir.pipeline import Pass
from ktir.target import LANES


@dataclass(frozen=True)
class DivideWorkPass(Pass):
    """Divide each kernel's rows over at most `cores` cores.

    Expects: kernels with `ktir.rows`. Guarantees: the divided level, a grid and `ktir.work` on each kernel; encodings are dropped.
    """

    name: ClassVar[str] = "ktir-divide-work"
    description: ClassVar[str] = "kernels -> divided: rows over cores, uneven last core"
    cores: int = 32

    def run(self, module: ir.Module) -> None:
        """Rewrite each kernel of the module."""
        require_level(module, self.name, "laid-out", kernels=True)
        for op in list(module.body.operations):
            if isinstance(op, func.FuncOp) and "ktir.rows" in op.attributes:
                _Divider(op, self.cores).divide()
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


class _Divider:
    def __init__(self, source: func.FuncOp, cores: int) -> None:
        self.source = source
        self.rows = ir.IntegerAttr(source.attributes["ktir.rows"]).value
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
        function.attributes["ktir.work"] = kt.WorkAttr.build([1, self.cores, 1], [1, self.share, LANES])
        source.operation.erase()
        function.attributes["sym_name"] = ir.StringAttr.get(name)

    def _first_row(self) -> None:
        (tile,) = ktdp.get_compute_tile_id()
        index = ir.IndexType.get()
        share = arith.ConstantOp(index, self.share).result
        self.row0 = arith.MulIOp(tile, share).result
        left = arith.SubIOp(arith.ConstantOp(index, self.rows).result, self.row0).result
        self.own_rows = arith.MinSIOp(left, share).result
        self.element0 = arith.MulIOp(self.row0, arith.ConstantOp(index, LANES).result).result

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
        op = init.owner
        type_ = ir.RankedTensorType(init.type)
        sticks, _, lanes = type_.shape
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
