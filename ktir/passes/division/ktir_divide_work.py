"""Kernels -> divided KTIR: the axes of a kernel are dealt to the cores; of the row axis the last part may be smaller.

A core's views of a tensor start at its first position along each axis and are masked by the rows that it really has, so every core runs
the same text on static tiles.

A kernel with `ktir.columns` (`ktir_form_kernels`) is divided over sticks of columns as well, as the cost model finds best. A core reads a
matmul's first operand in its rows, the second one in its columns, all else in its rows and columns. Core t owns column part t mod c of c
parts; t / c counts the parts of the axes, the last axis fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ktir.analysis.attributes.levels import require_level, set_level
from ktir.analysis.attributes.plan_attributes import PLAN, PlannedKernel
from ktir.analysis.axes import SECOND_OPERAND, row_dim, second_operand_source
from ktir.analysis.partial_sums import reduced
from ktir.diagnostics import Unsupported, location_text, refused
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects._foundation import affine
from ktir.dialects._ktdp.builders import Subscript
from ktir.dialects.module_level import Level
from ktir.dialects.module_target import machine
from ktir.dialects.op_facts import ADDRESSES, PLACES
from ktir.dialects.structured import Generic, element_of, fill, index_constant, padded, rebuild
from ktir.mlir import arith, func, integer_attribute, ir, is_a, linalg, names, tensor
from ktir.passes.division.kernel_facts import KernelFacts
from ktir.passes.division.parts import Along, Dealt, Parts, Walk
from ktir.passes.division.work import Work, divide, work_of
from ktir.passes.general.replaced import replaced
from ktir.passes.kernels.columns import hinted, wishes
from ktir.pipeline import Pass
from ktir.target import LANES


@dataclass(frozen=True)
class DivideWorkPass(Pass):
    """Divide each kernel's axes, and columns where it may, over at most `cores` cores of `target`, with `lx_bytes`
    of scratchpad each.

    `work_div` fixes the parts of rows and columns, as in `m=4,n=8` (`b0`, `b1`.. are the batch axes); without it a `ktir.hint` in force
    does. What cannot be honoured is an error.

    Expects: kernels with `ktir.rows`. Guarantees: the divided level, a grid and `ktir.work` on each kernel; a load for each way in which a
    tensor is read; encodings are dropped.
    """

    name: ClassVar[str] = "ktir-divide-work"
    description: ClassVar[str] = "kernels -> divided: axes, columns and reduced loops over cores, uneven last core"
    tolerance: ClassVar[float] = 2.0**-10  # partial sums of a reduced loop that is dealt out are added up, and rounded to f16
    target: str = ""
    cores: int | None = None
    lx_bytes: int | None = None
    work_div: str = ""

    def allowed(self, module: ir.Module) -> float:
        """The tolerance where a reduced loop has been dealt out; else nothing."""
        return self.tolerance if any("ktir.sums" in op.operation.attributes for op in module.body.operations) else 0.0

    def run(self, module: ir.Module) -> None:
        """Rewrite each kernel of the module."""
        require_level(module, self.name, Level.LAID_OUT, kernels=True)
        target = machine(module, self.target, self.cores, self.lx_bytes)
        for op in list(module.body.operations):
            if isinstance(op, func.FuncOp) and "ktir.rows" in op.attributes:
                work = self.division(op, KernelFacts.of_kernel(op, target))
                if work.plan is not None:
                    self.remark("passed", f"kernel '{op.name.value}': {work.plan.explain()}", op.location)
                _Divider(op, work).divide()
        set_level(module, Level.DIVIDED)

    def division(self, kernel: func.FuncOp, facts: KernelFacts) -> Work:
        """How a kernel is divided: as planned, if its plan fits it, or as the model finds best."""
        planned = self._planned(kernel, facts) if PLAN in kernel.attributes and not self.work_div else None
        return planned or hinted(lambda hint: divide(facts, hint), wishes(self.work_div), kernel.location)

    def _planned(self, kernel: func.FuncOp, facts: KernelFacts) -> Work | None:
        """What the plan says, if it fits what the kernel has become."""
        planned = PlannedKernel.of(kernel.attributes[PLAN])
        work = work_of(planned)
        if work is not None and work.divides(facts) and work.cores <= facts.target.cores:
            return work
        if planned.splits:
            self.remark("missed", f"kernel '{facts.name}' is not divided as planned: it has become another one", kernel.location)
        return None


_REBUILT = names(*ADDRESSES, *PLACES, ktdp.LoadOp, tensor.EmptyOp, linalg.FillOp, *SECOND_OPERAND)
"""Ops that are rebuilt where their result is used."""


class _Divider:
    def __init__(self, source: func.FuncOp, work: Work) -> None:
        self.source, self.work = source, work
        self.parts = Parts(source, work)
        self.mapping: dict[ir.Value, ir.Value] = {}
        self.loads: dict[tuple[ir.Value, tuple[Along, ...]], ir.Value] = {}

    def divide(self) -> None:
        work = self.work
        with replaced(self.source) as (function, arguments):
            function.attributes["grid"] = ir.ArrayAttr.get([integer_attribute(work.cores)])
            tile = [work.stick_share, *work.shares, LANES]
            function.attributes["ktir.work"] = kt.WorkAttr.build([work.column_parts, *work.parts, 1], tile)
            if work.sums > 1:
                function.attributes["ktir.sums"] = integer_attribute(work.sums)
            self.mapping.update(arguments)
            self.parts.find()
            for op in self.source.regions[0].blocks[0].operations:
                with op.location:
                    self._op(op.operation)

    # Ops

    def _op(self, op: ir.Operation) -> None:
        if is_a(op, linalg.GenericOp):
            g = Generic(op)
            inputs = [self._blocks(g) if g.is_contraction and i == 1 else self._input(g, i) for i in range(len(g.inputs))]
            result = rebuild(g, inputs, self._filled(g.init, self.parts.walk(g, len(g.inputs))))
            if g.is_contraction and self.work.sums > 1:
                result = reduced(result, self.work.cores, self.work.sums)
            self.mapping[op.results[0]] = result
        elif is_a(op, ktdp.StoreOp):
            self._store(op)
        elif is_a(op, func.ReturnOp):
            func.ReturnOp([])
        elif op.name not in _REBUILT:
            raise refused(op, "is not supported in a kernel on the laid-out level")

    def _input(self, g: Generic, number: int) -> ir.Value:
        value = g.inputs[number]
        if value not in self.mapping and is_a(value.owner, linalg.FillOp):
            return self._filled(value, self.parts.walk(g, number))
        return self.mapping[value] if value in self.mapping else self._load(value, self.parts.walk(g, number))

    def _load(self, value: ir.Value, walk: Walk) -> ir.Value:
        """The part of a loaded tensor that a core reads in one way."""
        key = (value, tuple(walk))
        if key not in self.loads:
            load = value.owner.operation
            with load.location:
                self.loads[key] = ktdp.load(self._tile(load.operands[0], walk), ir.RankedTensorType(value.type).element_type)
        return self.loads[key]

    def _store(self, op: ir.Operation) -> None:
        value = op.operands[0]
        if value in self.mapping:
            walk: list[Along] = [*self.parts.axes.of_value(value)]
            part = self.mapping[value]
            if self.parts.columns:
                walk[0] = Dealt.COLUMNS
        else:
            walk = [*self.parts.axes.of_copied(value)]
            part = self._filled(value, walk) if is_a(value.owner, linalg.FillOp) else self._load(value, walk)
        ktdp.store(part, self._tile(op.operands[1], walk, by_leader=True), ordered="ktir.ordered" in op.attributes)

    def _filled(self, init: ir.Value, walk: Walk) -> ir.Value:
        """A core's part of a tensor of one value, or of an empty one."""
        op = init.owner
        type_ = ir.RankedTensorType(init.type)
        shape = [self.parts.share(what, extent) for what, extent in zip(walk, type_.shape, strict=True)]
        empty = tensor.EmptyOp(shape, type_.element_type).result
        if is_a(op, tensor.EmptyOp):
            return empty
        value = op.operands[0].owner.clone().results[0]
        return fill(value, empty)

    def _blocks(self, g: Generic) -> ir.Value:
        """A core's part of a second operand in blocks of 64 rows, with zeros as rows beyond its own."""
        source = second_operand_source(g)
        walk = self.parts.walk(g, 1)
        value = self._load(source, walk)
        split = list(ir.RankedTensorType(g.inputs[1].type).shape)
        shape = list(ir.RankedTensorType(value.type).shape)
        split[: len(shape) - 2] = shape[:-2]
        rows = walk[-2]
        if row_dim(g.inputs[1].owner.operation) != len(walk) - 2:
            raise refused(g.op, "expects the rows of its second operand before the lanes")
        if isinstance(rows, Dealt):
            split[-3] = self.parts.share(rows.sticks, 0)
        with source.owner.location:
            if shape[-2] != (rows_ := split[-3] * LANES):
                value = padded(value, ir.RankedTensorType.get([*shape[:-2], rows_, shape[-1]], element_of(value)))
            last = len(shape) - 2
            groups = [*([d] for d in range(last)), [last, last + 1], [last + 2]]
            type_ = ir.RankedTensorType.get(split, element_of(value))
            return tensor.ExpandShapeOp(type_, value, groups, [], split).result

    # Memory

    def _tile(self, tile: ir.Value, walk: Walk, *, by_leader: bool = False) -> ir.Value:
        """A core's part of a tile of a whole view. `by_leader`: of cores with partial sums only the first one has a part."""
        if is_a(tile.owner, ktdp.ConstructIndirectAccessTileOp):
            return self._indirect_tile(tile.owner.opview, walk, by_leader=by_leader)
        view, first, shape = self._view(tile.owner.opview.base.owner.opview, walk, by_leader=by_leader)
        return ktdp.construct_access_tile(view, first, shape)

    def _view(
        self, view: ktdp.ConstructMemoryViewOp, walk: Walk, more: Sequence[int | ir.Value] = (), *, by_leader: bool = False
    ) -> tuple[ir.Value, list[int | ir.Value], list[int]]:
        """A core's part of a view; where its tile begins in it, and the tile's shape. `more`: sizes of dims of stride 0 put before the
        lanes.
        """
        base = self._base(view.offset)
        sizes, strides = list(view.sizes), list(view.strides)
        shape = [self.parts.share(what, extent) for what, extent in zip(walk, view.sizes, strict=True)]
        at: list[int | ir.Value] = [0] * len(shape)
        cut = affine.lane_bounds(view.attributes["coordinate_set"])[0] if view.masked else ()
        for d, what in sorted(enumerate(walk), key=lambda w: isinstance(w[1], Dealt)):
            if what is None:
                continue
            if isinstance(what, Dealt) and what.in_rows:
                first = arith.MulIOp(self.parts.first[what.sticks], index_constant(LANES)).result
                if sizes[d] % shape[d]:
                    own = arith.MinSIOp(arith.SubIOp(index_constant(sizes[d]), first).result, index_constant(shape[d])).result
                else:
                    own = shape[d]
                base = arith.AddIOp(base, arith.MulIOp(first, index_constant(strides[d])).result).result
                sizes[d] = own
            elif isinstance(what, Dealt) and cut:  # the cut says where the last stick ends, not the same place in each core's part
                at[d] = self.parts.first[what]
                sizes[d] = (self.work.column_parts if what is Dealt.COLUMNS else self.work.sums) * shape[d]
            else:
                if what in self.parts.first:
                    base = arith.AddIOp(base, self.parts.distance(what, strides[d])).result
                sizes[d] = self.parts.own[what]
        for size in more:
            sizes.insert(-1, size)
            strides.insert(-1, 0)
        if by_leader and self.parts.leader is not None:
            dealt = [d for d, what in enumerate(walk) if what is not None]
            d = next((d for d in dealt if not isinstance(walk[d], Dealt)), dealt[0])
            size = sizes[d]
            sizes[d] = arith.MulIOp(index_constant(size) if isinstance(size, int) else size, self.parts.leader).result
        attributes: dict[str, ir.Attribute] = {}
        for stick, last in cut:
            extents = [n if isinstance(n, int) else None for n in sizes]
            attributes = {"coordinate_set": affine.clipped(extents, stick, last), "masked": ir.UnitAttr.get()}
        return ktdp.construct_memory_view(base, sizes, strides, view.element_type, attributes=attributes), at, shape

    def _base(self, offset: ir.Value) -> ir.Value:
        """Where a view begins: an argument, or a constant distance from one."""
        if isinstance(offset.owner, ir.Block):
            return self.mapping[offset]
        base, distance = offset.owner.operands
        return arith.AddIOp(self.mapping[base], distance.owner.clone().results[0]).result

    def _indirect_tile(self, tile: ktdp.ConstructIndirectAccessTileOp, walk: Walk, *, by_leader: bool) -> ir.Value:
        """A core's part of a gather or scatter. Along an uneven axis without a dim of its own in the view, one of stride 0 says which
        positions are there."""
        view = tile.base.owner.opview
        if list(affine.permutation_of(tile.attributes["variables_space_order"]) or ()) != list(range(len(walk))) or tile.captured:
            raise Unsupported(
                "'ktdp.construct_indirect_access_tile' op expects its variables in order and no captured values",
                location_text(tile.location),
            )
        base_walk: list[Along] = []
        subscripts: list[Subscript] = []
        for map_, index_view in tile.subscripts:
            if index_view is None:
                base_walk.append(_walk_of(map_.results[0], walk, tile))
                subscripts.append(map_.results[0])
            else:
                base_walk.append(None)
                part, _, _ = self._view(index_view.owner.opview, [_walk_of(e, walk, tile) for e in map_.results])
                subscripts.append((part, list(map_.results)))
        uneven = {d: what for d, what in enumerate(walk) if what is not None and what not in base_walk and self.parts.is_uneven(what)}
        part, at, _ = self._view(view, base_walk, [self.parts.own[what] for what in uneven.values()], by_leader=by_leader)
        for d in uneven:
            subscripts.insert(-1, ir.AffineExpr.get_dim(d))
        captured = [value for value in at if isinstance(value, ir.Value)]
        if captured:
            subscripts = _shifted(subscripts, [d for d, value in enumerate(at) if isinstance(value, ir.Value)])
        extents = [self.parts.share(what, extent) for what, extent in zip(walk, tile.shape, strict=True)]
        return ktdp.construct_indirect_access_tile(part, subscripts, extents, captured=captured)


def _walk_of(expression: ir.AffineExpr, walk: Walk, tile: ktdp.ConstructIndirectAccessTileOp) -> Along:
    """How the variable that a subscript is walks; None for a constant."""
    if isinstance(expression, ir.AffineDimExpr):
        return walk[ir.AffineDimExpr(expression).position]
    if isinstance(expression, ir.AffineConstantExpr):
        return None
    raise Unsupported(
        f"'ktdp.construct_indirect_access_tile' op expects subscripts that are variables or constants, but got '{expression}'",
        location_text(tile.location),
    )


def _shifted(subscripts: Sequence[Subscript], dims: Sequence[int]) -> list[Subscript]:
    """Subscripts over as many captured values before the variables as there are `dims`, to which those are added."""
    count = len(dims)

    def moved(e: ir.AffineExpr) -> ir.AffineExpr:
        return ir.AffineExpr.get_dim(ir.AffineDimExpr(e).position + count) if isinstance(e, ir.AffineDimExpr) else e

    result: list[Subscript] = []
    for d, subscript in enumerate(subscripts):
        if isinstance(subscript, tuple):
            result.append((subscript[0], [moved(e) for e in subscript[1]]))
        elif d in dims:
            result.append(ir.AffineExpr.get_add(moved(subscript), ir.AffineExpr.get_dim(dims.index(d))))
        else:
            result.append(moved(subscript))
    return result
