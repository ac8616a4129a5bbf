"""Tiled -> allocated KTIR: every tensor of a kernel gets an address in the scratchpad.

First fit over lifetimes; where everything fits at once nothing is reused, so that no unit waits for another one's buffer. What a loop of
several trips loads is a stream, which rotates over slots: block t, counted over all loops, lies at base + (t mod slots)*slot, so that
consecutive blocks take turns. There are enough of them to hide the latency of memory; rows have two where there is no room for more.
Where the scratchpad is too small even for that, the streams that are loaded least often get one buffer, not loaded ahead.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from ktir.analysis.attributes.levels import require_level, set_level
from ktir.analysis.attributes.residents import EXCHANGE, resident_behind, room_of
from ktir.analysis.partial_sums import contribution, produced_again
from ktir.diagnostics import Unsupported, location_text, refused
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.module_level import Level
from ktir.dialects.module_target import machine
from ktir.dialects.structured import Generic, clone_ops, elementwise, index_constant, index_sum, makes_block, rebuild
from ktir.mlir import arith, func, integer_attribute, ir, is_a, linalg, scf, tensor
from ktir.passes.general.replaced import replaced
from ktir.passes.scratchpad.buffer_plan import Buffer, BufferPlan, is_accumulator, is_filled, is_stored_fill, trips_of
from ktir.passes.scratchpad.first_fit import first_fit, fit_twins, live_at_once
from ktir.passes.scratchpad.neighbours import Neighbours
from ktir.passes.scratchpad.resident_values import ResidentValues
from ktir.passes.scratchpad.spans import split_transfers
from ktir.pipeline import Pass
from ktir.target import Target, element_bytes


@dataclass(frozen=True)
class AllocateScratchpadPass(Pass):
    """Place each kernel's tensors in LX.

    Expects: the tiled level. Guarantees: the allocated level: global loads are stored to LX, compute ops read and write LX views at
    constant addresses (plus rotation), no loop carries a tensor but a declared PT accumulator.
    """

    name: ClassVar[str] = "ktir-allocate-scratchpad"
    description: ClassVar[str] = "tiled -> allocated: first-fit LX addresses, buffers of streams that hide the latency of memory"
    target: str = ""
    lx_bytes: int | None = None
    reuse: bool = False  # reuse addresses even where all tensors fit at once

    def run(self, module: ir.Module) -> None:
        """Rewrite each kernel of the module."""
        require_level(module, self.name, Level.TILED)
        target = machine(module, self.target, lx_bytes=self.lx_bytes)
        neighbours = Neighbours(module, target.lx_planned_bytes)
        for op in list(module.body.operations):
            if isinstance(op, func.FuncOp) and "grid" in op.attributes and EXCHANGE not in op.attributes:
                self.allocate(op, target, neighbours)
        split_transfers(module, target)
        set_level(module, Level.ALLOCATED)

    def allocate(self, kernel: func.FuncOp, target: Target, neighbours: Neighbours) -> None:
        """Rewrite one kernel."""
        residents = ResidentValues(kernel.operation)
        plan, used = _placed(kernel, target, residents.tiles, self.reuse)
        begin = neighbours.place(kernel, used)
        for buffer in plan.buffers.values():
            buffer.address += begin
        bound = live_at_once(list(plan.buffers.values()))
        text = f"kernel '{kernel.name.value}' uses {used} bytes of the scratchpad; {bound} of them live at once"
        self.remark("analysis", text, kernel.location)
        _Allocator(kernel, residents, plan, begin + used).allocate()


def _placed(source: func.FuncOp, target: Target, elsewhere: Collection[ir.Value], reuse: bool) -> tuple[BufferPlan, int]:
    """All buffers at addresses from 0 on, and the bytes that they take. Where they do not fit, streams lose half of their slots, one after
    the other, those first that miss them least."""
    begin, end = room_of(source.operation, target.lx_planned_bytes)
    at_most: dict[ir.Value, int] = {}
    # whether rows hide the latency of memory, with addresses that nothing else has, or nothing of another kind; and then whether what is
    # moved from and to memory has places of its own
    tries = iter(
        [] if reuse else [(True, False, False), (False, False, False), (True, True, True), (False, True, True), (False, True, False)]
    )
    while True:
        ahead, twins, apart = next(tries, (None, False, False))
        plan = BufferPlan(source, target, elsewhere, at_most, ahead=bool(ahead), apart=apart)
        buffers = list(plan.buffers.values())
        used = fit_twins(buffers, end - begin) if twins else first_fit(buffers, end - begin, reuse=ahead is None)
        if used >= 0:
            return plan, used
        if ahead is not None:
            continue
        streams = [b for b in buffers if b.rotation.slots > 1]
        if not streams:
            raise Unsupported(
                f"kernel '{source.name.value}' needs more than the {end - begin} bytes of scratchpad; "
                "the nearest supported form has narrower rows",
                location_text(source.location),
            )
        least = min(streams, key=lambda b: b.missed)
        at_most[least.value] = least.rotation.slots // 2


class _Allocator:
    def __init__(self, source: func.FuncOp, residents: ResidentValues, plan: BufferPlan, lx_used: int) -> None:
        self.source, self.residents, self.plan, self.lx_used = source, residents, plan, lx_used
        self.mapping: dict[ir.Value, ir.Value] = {}
        self.views: dict[ir.Value, ir.Value] = {}
        self.slices: dict[ir.Value, tuple[ir.Value, list[int | ir.Value], int]] = {}
        """Slice of a buffer -> the tensor, its first coordinate per dimension, and rows from one of its rows to the next."""
        self.counters: list[tuple[ir.Value, int]] = []
        """Per open loop: its counter (0, 1, ...) and trips."""

    def allocate(self) -> None:
        source = self.source
        with replaced(source) as (function, arguments):
            function.attributes["ktir.lx_bytes"] = integer_attribute(self.lx_used)
            self.mapping.update(arguments)
            for value, buffer in self.plan.buffers.items():
                if buffer.rotation.slots == 1:
                    with value.owner.location if not isinstance(value.owner, ir.Block) else source.location:
                        own = {"ktir.acc": kt.AccAttr.build("SFP")} if value in self.plan.running else {}
                        if not isinstance(value.owner, ir.Block) and makes_block(value.owner.operation):
                            own["ktir.per_corelet"] = ir.UnitAttr.get()
                        self.views[value] = self._view(value, index_constant(self._elements(buffer.address, value)), own)
            self._block(source.regions[0].blocks[0])

    @staticmethod
    def _elements(address: int, value: ir.Value) -> int:
        return address // element_bytes(ir.RankedTensorType(value.type).element_type)

    def _view(self, value: ir.Value, address: ir.Value, attributes: dict[str, ir.Attribute] | None = None) -> ir.Value:
        type_ = ir.RankedTensorType(value.type)
        sizes = list(type_.shape)
        strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
        return ktdp.construct_memory_view(address, sizes, strides, type_.element_type, "ct_local", attributes=attributes)

    def _rotating_view(self, value: ir.Value, buffer: Buffer) -> ir.Value:
        """The view of the slot that the current trip uses."""
        turns, loops, group, inside = buffer.rotation
        total = None
        for number in loops:
            counter = self.counters[number][0]
            total = counter if total is None else arith.AddIOp(total, counter).result
        assert total is not None
        slot = self._elements(buffer.slot, value)
        phase = arith.RemUIOp(total, index_constant(turns)).result
        address = arith.AddIOp(
            index_constant(self._elements(buffer.address, value)), arith.MulIOp(phase, index_constant(group * slot)).result
        ).result
        for number, slots in inside:
            address = arith.AddIOp(address, arith.MulIOp(self.counters[number][0], index_constant(slots * slot)).result).result
        return self._view(value, address, {"ktir.rotate": kt.RotateAttr.build(turns, group * buffer.slot)})

    # Ops

    def _block(self, block: ir.Block) -> None:
        for op in block.operations:
            with op.location:
                self._op(op.operation)

    def _op(self, op: ir.Operation) -> None:
        if is_a(op, scf.ForOp):
            self._loop(op)
        elif is_a(op, ktdp.LoadOp):
            self._load(op)
        elif is_a(op, ktdp.StoreOp):
            self._store(op)
        elif is_a(op, linalg.GenericOp):
            self._generic(op)
        elif is_a(op, ktdp.InterTileProduceOp):
            self.mapping[op.results[0]] = produced_again(op, self._read(contribution(op)))
        elif is_a(op, ktdp.InterTileConsumeOp):
            clone_ops([op], self.mapping)
            ktdp.store(self.mapping[op.results[0]], self._target(op.results[0]))
        elif is_a(op, tensor.ExtractSliceOp):
            whole, first, step = self.slices.get(op.operands[0], (op.operands[0], [0, 0, 0], 1))
            step *= ir.DenseI64ArrayAttr(op.attributes["static_strides"])[1]
            self.slices[op.results[0]] = (whole, [index_sum(a, b) for a, b in zip(first, self._offsets(op, 1), strict=True)], step)
        elif is_a(op, tensor.InsertSliceOp):
            if self.plan.root(op.operands[0]) != self.plan.root(op.operands[1]):
                raise refused(op, "expects to be the only use of what it inserts")
        elif is_a(op, scf.YieldOp):
            pass
        elif is_a(op, func.ReturnOp):
            func.ReturnOp([])
        elif is_a(op, linalg.FillOp) and is_stored_fill(op):
            clone_ops([op], self.mapping)
            ktdp.store(self.mapping[op.results[0]], self._target(op.results[0]))
        elif is_a(op, tensor.EmptyOp) and (is_filled(op) or all(is_a(u.owner, scf.ForOp) for u in op.results[0].uses)):
            pass  # a tensor that a loop, or one slice after the other, fills: it has become an LX buffer
        else:
            clone_ops([op], self.mapping)

    def _loop(self, op: ir.Operation) -> None:
        bounds = [self.mapping[v] for v in list(op.operands)[:3]]
        old = op.regions[0].blocks[0]
        for start, result in self.plan.copied.get(op, []):
            ktdp.store(self._copy(self._read(start)), self._whole(result))
        accumulates = is_accumulator(op)
        carried = [self.mapping[op.operands[3]]] if accumulates else []
        loop = scf.ForOp(*bounds, carried)
        self.mapping[old.arguments[0]] = loop.induction_variable
        with ir.InsertionPoint(loop.body):
            start, step = (ir.IntegerAttr(op.operands[i].owner.attributes["value"]).value for i in (0, 2))
            counter = loop.induction_variable
            if start:
                counter = arith.SubIOp(counter, bounds[0]).result
            if step != 1:
                counter = arith.DivUIOp(counter, bounds[2]).result
            self.counters.append((counter, trips_of(op)))
            if accumulates:
                self.mapping[old.arguments[1]] = loop.inner_iter_args[0]
            self._block(old)
            self.counters.pop()
            result = list(old.operations)[-1].operands
            scf.YieldOp([self.mapping[result[0]]] if accumulates else [])
        if accumulates:
            loop.operation.attributes["ktir.acc"] = kt.AccAttr.build("PT")
            self.mapping[op.results[0]] = loop.results[0]

    def _load(self, op: ir.Operation) -> None:
        value = op.results[0]
        element = ir.RankedTensorType(value.type).element_type
        loaded = ktdp.load(self.mapping[op.operands[0]], element)
        if value in self.residents.tiles:
            self.mapping[value] = loaded
            return
        buffer = self.plan.buffers.get(value)
        if buffer is not None and buffer.rotation.slots > 1:
            self.views[value] = self._rotating_view(value, buffer)
        ktdp.store(loaded, self._target(value))

    def _store(self, op: ir.Operation) -> None:
        if op in self.residents.homes:
            return  # it was computed there
        value = self._read(op.operands[0])
        if resident_behind(op) is not None:
            value = self._copy(value)
        ktdp.store(value, self.mapping[op.operands[1]])

    @staticmethod
    def _copy(value: ir.Value) -> ir.Value:
        """The same value from the vector unit: the scratchpad has no other copies."""
        return elementwise([value], tensor.EmptyOp(list(value.type.shape), value.type.element_type).result)

    def _tile(self, value: ir.Value, first: list[int | ir.Value], shape: list[int], step: int = 1) -> ir.Value:
        """A part of the memory that a value lies in, of every `step`-th row."""
        root = self.plan.root(value)
        if root in self.residents.tiles:
            return self.residents.tile(root, first, shape, self.mapping)
        if step == 1:
            return ktdp.construct_access_tile(self.views[root], first, shape)
        view = self.views[root].owner.opview
        strides = [s for s in view.strides if isinstance(s, int)]
        offset = view.offset
        for place, stride in zip(first, strides, strict=True):
            distance = place * stride if isinstance(place, int) else arith.MulIOp(place, index_constant(stride)).result
            offset = index_sum(offset, distance)
        attributes = {n: view.operation.attributes[n] for n in ("ktir.rotate",) if n in view.operation.attributes}
        steps = [strides[0], strides[1] * step, strides[2]]
        every = ktdp.construct_memory_view(offset, shape, steps, view.element_type, "ct_local", attributes=attributes)
        return ktdp.construct_access_tile(every, [0, 0, 0], shape)

    def _whole(self, value: ir.Value) -> ir.Value:
        return self._tile(value, [0, 0, 0], list(ir.RankedTensorType(self.plan.root(value).type).shape))

    def _read(self, value: ir.Value) -> ir.Value:
        """The value as a compute op reads it: from LX, or straight from the PT accumulator."""
        if value in self.mapping and value not in self.plan.buffers and not self._is_in_place(value):
            return self.mapping[value]
        element = ir.RankedTensorType(value.type).element_type
        if value in self.slices:
            whole, first, step = self.slices[value]
            return ktdp.load(self._tile(whole, first, list(ir.RankedTensorType(value.type).shape), step), element)
        return ktdp.load(self._whole(value), element)

    def _is_in_place(self, value: ir.Value) -> bool:
        """Whether a constant tensor has taken the place of a running value."""
        return is_a(value.owner, linalg.FillOp) and self.plan.root(value) in self.plan.buffers

    def _offsets(self, op: ir.Operation, fixed: int) -> list[int | ir.Value]:
        """First coordinates of a slice op that has `fixed` operands before its dynamic offsets."""
        dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
        operands = iter(list(op.operands)[fixed:])
        return [self.mapping[next(operands)] if n == dynamic else n for n in ir.DenseI64ArrayAttr(op.attributes["static_offsets"])]

    def _generic(self, op: ir.Operation) -> None:
        g = Generic(op)
        inputs = [self._read(v) for v in g.inputs]
        result = op.results[0]
        value = rebuild(g, inputs, self.mapping[g.init])
        if g.is_contraction:
            self.mapping[result] = value
            return
        ktdp.store(value, self._target(result))

    def _target(self, value: ir.Value) -> ir.Value:
        """Where a new value goes: into a buffer of its own, or into the slice of the tensor that it is inserted in."""
        insert = next((u.owner.operation for u in value.uses if is_a(u.owner, tensor.InsertSliceOp) and u.operand_number == 0), None)
        if insert is None:
            return self._whole(value)
        return self._tile(insert.operands[1], self._offsets(insert, 2), list(ir.RankedTensorType(value.type).shape))
