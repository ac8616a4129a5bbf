"""Tiled -> allocated KTIR: every tensor of a kernel gets an address in the scratchpad.

First fit over lifetimes; where everything fits at once nothing is reused, so that no unit waits for another one's buffer. What a loop of
several trips loads is a stream, which rotates over slots: block t, counted over all loops, lies at base + (t mod slots)*slot, so that
consecutive blocks take turns. There are enough of them to hide the latency of memory; rows have two where there is no room for more.
Where the scratchpad is too small even for that, the largest streams get one buffer and are not loaded ahead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from ktir.cost.tiles import ROW_BUFFERS, ROW_STICKS, WEIGHT_BUFFERS, stream_buffers
from ktir.diagnostics import KtirError, Unsupported, location_text
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import Generic, affine_map, clone_ops, generic, rebuild
from ktir.mlir import arith, func, ir, scf, tensor
from ktir.passes._levels import require_level, set_level, tensor_bytes
from ktir.passes._partial_sums import contribution, produced_again
from ktir.passes._resident_values import ResidentValues
from ktir.passes._residents import RESIDENTS, resident_behind, room_of
from ktir.passes._rotation import STILL, Rotation, rotation
from ktir.pipeline import Pass
from ktir.target import DATASHEET


@dataclass(frozen=True)
class AllocateScratchpadPass(Pass):
    """Place each kernel's tensors in LX.

    Expects: the tiled level. Guarantees: the allocated level: global loads are stored to LX, compute ops read and write LX views at
    constant addresses (plus rotation), no loop carries a tensor but a declared PT accumulator.
    """

    name: ClassVar[str] = "ktir-allocate-scratchpad"
    description: ClassVar[str] = "tiled -> allocated: first-fit LX addresses, buffers of streams that hide the latency of memory"
    lx_bytes: int = DATASHEET.lx_planned_bytes
    reuse: bool = False  # reuse addresses even where all tensors fit at once

    def run(self, module: ir.Module) -> None:
        """Rewrite each kernel of the module."""
        require_level(module, self.name, "tiled")
        for op in list(module.body.operations):
            if isinstance(op, func.FuncOp) and "ktir.work" in op.attributes:
                _Allocator(op, self).allocate()
        set_level(module, "allocated")


@dataclass
class _Buffer:
    """A place for one tensor: `start` and `end` are positions in program order; as many slots of `slot` bytes as it rotates over."""

    value: ir.Value
    start: int
    end: int
    slot: int
    rotation: Rotation = STILL
    address: int = -1

    @property
    def bytes(self) -> int:
        return self.slot * self.rotation.slots


def _trips(loop: ir.Operation) -> int:
    lower, upper, step = (ir.IntegerAttr(v.owner.attributes["value"]).value for v in list(loop.operands)[:3])
    return -(-(upper - lower) // step)


class _Plan:
    """Lifetimes of all tensors of a kernel, in program order over the nested loops."""

    def __init__(
        self, function: func.FuncOp, elsewhere: Collection[ir.Value], single: Collection[ir.Value] = (), *, ahead: bool = False
    ) -> None:
        self.elsewhere = elsewhere
        """Values that lie in residents."""
        self.ahead = ahead
        """Whether rows get as many buffers as hide the latency of memory, and not just two."""
        self.single = single
        """Loads that get one buffer although they are streams."""
        self.buffers: dict[ir.Value, _Buffer] = {}
        self.alias: dict[ir.Value, ir.Value] = {}
        """Value -> the value whose buffer it lives in (loop results, carried tensors, slices)."""
        self.running: set[ir.Value] = set()
        """Values whose buffers loops update trip by trip."""
        self.copied: dict[ir.Operation, list[tuple[ir.Value, ir.Value]]] = {}
        """Loop -> what it carries on from a resident, which other readers need as it was, and the result that has a buffer of its own."""
        self.span: dict[ir.Operation, tuple[int, int]] = {}
        self._number(function.regions[0].blocks[0], 0)
        self._block(function.regions[0].blocks[0], [])
        self._extend(function.regions[0].blocks[0], [])

    def _number(self, block: ir.Block, position: int) -> int:
        for op in block.operations:
            start = position
            position += 1
            if op.operation.name == "scf.for":
                position = self._number(op.operation.regions[0].blocks[0], position)
            self.span[op.operation] = (start, position)
        return position

    def root(self, value: ir.Value) -> ir.Value:
        while value in self.alias:
            value = self.alias[value]
        return value

    def _block(self, block: ir.Block, loops: list[ir.Operation]) -> None:
        for view in block.operations:
            op = view.operation
            if op.name == "scf.for":
                body = op.regions[0].blocks[0]
                self._carried(op, loops)
                self._block(body, [*loops, op])
            elif op.name in ("ktdp.load", "linalg.generic", "ktdp.inter_tile_consume") or (op.name == "linalg.fill" and is_stored_fill(op)):
                uses = list(op.results[0].uses)
                if len(uses) == 1 and uses[0].owner.name == "tensor.insert_slice" and uses[0].operand_number == 0:
                    self.alias[op.results[0]] = uses[0].owner.operands[1]
                elif (running := self._running(op.results[0])) is not None:
                    self.alias[op.results[0]] = running
                elif not (uses and uses[0].owner.name == "scf.yield"):
                    self._place(op.results[0], op, loops)
            elif op.name in ("tensor.extract_slice",):
                self.alias[op.results[0]] = op.operands[0]
            elif op.name == "tensor.insert_slice":
                self.alias[op.results[0]] = op.operands[1]

    def _carried(self, loop: ir.Operation, loops: list[ir.Operation]) -> None:
        """What a loop carries stays in one place: a tensor that it, or a loop in it, fills slice by slice, or a running value that begins
        before the loop."""
        accumulates = is_accumulator(loop)
        arguments = list(loop.regions[0].blocks[0].arguments)[1:]
        for argument, start, result in list(zip(arguments, list(loop.operands)[3:], loop.results, strict=True))[accumulates:]:
            if accumulates:
                self.alias[argument] = self.alias[result] = start
            elif not isinstance(start.owner, ir.Block) and start.owner.name == "tensor.empty":
                self._place(result, loop, loops)
                self.alias[argument] = result
            elif self.root(start) in self.elsewhere:
                self._place(result, loop, loops)
                self.alias[argument] = result
                self.running.add(result)
                self.copied.setdefault(loop, []).append((start, result))
            else:
                self.alias[argument] = self.alias[result] = start
                self.running.add(self.root(start))

    def _running(self, value: ir.Value) -> ir.Value | None:
        """The running value of which a value is the next one: it takes its place, so nothing may read the old one from then on."""
        for use in value.uses:
            loop = use.owner.operation.parent.operation if use.owner.operation.name == "scf.yield" else None
            if loop is None or loop.name != "scf.for" or is_accumulator(loop):
                continue
            old = loop.regions[0].blocks[0].arguments[1 + use.operand_number]
            end = self.span[value.owner.operation][0]
            if any(self.span[u.owner.operation][0] > end for u in old.uses):
                raise KtirError(
                    f"'{value.owner.name}' op expects to be the last one that reads the value which it replaces",
                    location_text(value.owner.location),
                )
            return old
        return None

    def _place(self, value: ir.Value, op: ir.Operation, loops: list[ir.Operation]) -> None:
        if value in self.elsewhere:
            return
        start, end = self.span[op]
        buffer = _Buffer(value, start, end, tensor_bytes(value))
        trips = [_trips(loop) for loop in loops]
        if op.name == "ktdp.load" and prod(trips) > 1 and value not in self.single:
            weights = is_accumulator(loops[-1])
            # the next block is loaded while this one is in use, so a stream owns its slots for the whole loop that it runs in
            owner = len(loops) - (2 if weights else 1)
            while not weights and trips[owner] == 1:
                owner -= 1
            buffer.start, buffer.end = self.span[loops[owner]]
            buffer.rotation = rotation(trips, self._most_buffers(buffer, weights))
        self.buffers[value] = buffer

    def _most_buffers(self, buffer: _Buffer, weights: bool) -> int:
        """Blocks of a stream in flight. `weights`: a loop over K loads them."""
        if weights:
            first = all(u.owner.name == "linalg.generic" and u.operand_number == 0 for u in buffer.value.uses)
            return ROW_STICKS if first else WEIGHT_BUFFERS
        if not self.ahead:
            return ROW_BUFFERS
        indirect = buffer.value.owner.operands[0].owner.name == "ktdp.construct_indirect_access_tile"
        return stream_buffers(buffer.slot, 1 + indirect, DATASHEET)  # indices come first, and then what they name

    def _extend(self, block: ir.Block, loops: list[ir.Operation]) -> None:
        for view in block.operations:
            op = view.operation
            for operand in (contribution(op),) if op.name == "ktdp.inter_tile_produce" else op.operands:
                root = self.root(operand)
                buffer = self.buffers.get(root)
                if buffer is None:
                    continue
                end = self.span[op][1]
                for loop in loops:
                    if not self.span[loop][0] <= buffer.start < self.span[loop][1]:
                        end = max(end, self.span[loop][1])
                buffer.end = max(buffer.end, end)
            if op.name == "scf.for":
                self._extend(op.regions[0].blocks[0], [*loops, op])


def is_accumulator(loop: ir.Operation) -> bool:
    """Whether a loop carries the f32 block of a contraction, before what else it carries."""
    carried = list(loop.regions[0].blocks[0].arguments)[1:]
    return bool(carried) and any(
        o.operation.name == "linalg.generic" and Generic(o.operation).is_contraction for o in loop.regions[0].blocks[0].operations
    )


def is_stored_fill(fill: ir.Operation) -> bool:
    """Whether a constant tensor is needed in memory, and is more than what an op accumulates into."""
    return any(not _starts_sum(u) for u in fill.results[0].uses)


def _starts_sum(use: ir.OpOperand) -> bool:
    op = use.owner.operation
    return (op.name == "scf.for" and is_accumulator(op)) or (op.name == "linalg.generic" and use.operand_number == len(op.operands) - 1)


_ORDERS: tuple[Callable[[_Buffer], tuple[int, ...]], ...] = (
    lambda b: (b.start, b.end),
    lambda b: (-b.bytes, b.start, b.end),
    lambda b: (b.start - b.end, -b.bytes, b.start),
)
"""Orders in which buffers are placed: as they are defined, the largest first, the longest-lived first."""
_MOST_ORDERS, _MOST_PLACES = 500, 200_000
"""Further orders that are tried, at most, and places of one buffer that are compared with another one's for them."""


def first_fit(buffers: list[_Buffer], budget: int, reuse: bool) -> int:
    """Give every buffer the lowest free address, in the order that needs the least; returns the bytes used, -1 if beyond the budget.

    Without `reuse` lifetimes are ignored; with it other orders are tried, always the same ones, until one needs no more than what lives at
    once. Buffers are whole sticks, so addresses are aligned.
    """
    best: tuple[int, list[int]] | None = None
    bound = live_at_once(buffers)
    for order in _orders(buffers) if reuse else [sorted(buffers, key=_ORDERS[0])]:
        top = _placed(order, reuse)
        if best is None or top < best[0]:
            best = top, [b.address for b in buffers]
        if best[0] == bound:
            break
    if best is None:
        return 0
    for buffer, address in zip(buffers, best[1], strict=True):
        buffer.address = address
    return best[0] if best[0] <= budget else -1


def _orders(buffers: list[_Buffer]) -> Iterator[list[_Buffer]]:
    """Orders to try: those of `_ORDERS`, then ones in which buffers of the last of them have moved."""
    order: list[_Buffer] = []
    for key in _ORDERS:
        order = sorted(buffers, key=key)
        yield order
    draw = random.Random(1)
    for _ in range(min(_MOST_ORDERS, _MOST_PLACES // max(len(buffers), 1) ** 2)):
        order = list(order)
        order.insert(draw.randrange(len(order)), order.pop(draw.randrange(len(order))))
        yield order


def live_at_once(buffers: list[_Buffer]) -> int:
    """Bytes that no placement can do without."""
    return max((sum(b.bytes for b in buffers if b.start <= at.start < b.end) for at in buffers), default=0)


def _placed(buffers: list[_Buffer], reuse: bool) -> int:
    """Place buffers one after the other; the bytes used."""
    top = 0
    placed: list[_Buffer] = []
    for buffer in buffers:
        alive = [p for p in placed if not reuse or (p.start < buffer.end and buffer.start < p.end)]
        address = 0
        for other in sorted(alive, key=lambda b: b.address):
            if address + buffer.bytes <= other.address:
                break
            address = max(address, other.address + other.bytes)
        buffer.address = address
        placed.append(buffer)
        top = max(top, address + buffer.bytes)
    return top


class _Allocator:
    def __init__(self, source: func.FuncOp, options: AllocateScratchpadPass) -> None:
        self.source = source
        self.residents = ResidentValues(source.operation)
        self.plan = _Plan(source, self.residents.tiles)
        self.lx_used = self._addresses(room_of(source.operation, options.lx_bytes), options.reuse)
        bound = live_at_once(list(self.plan.buffers.values()))
        text = f"kernel '{source.name.value}' uses {self.lx_used} bytes of the scratchpad; {bound} of them live at once"
        options.remark("analysis", text, source.location)
        self.mapping: dict[ir.Value, ir.Value] = {}
        self.views: dict[ir.Value, ir.Value] = {}
        self.slices: dict[ir.Value, tuple[ir.Value, list[int | ir.Value]]] = {}
        """Slice of a buffer -> the tensor, and its first coordinate per dimension."""
        self.counters: list[tuple[ir.Value, int]] = []
        """Per open loop: its counter (0, 1, ...) and trips."""

    def _addresses(self, lx_bytes: int, reuse: bool) -> int:
        """Place all buffers; where they do not fit, the largest streams lose their other slots, one after the other."""
        for ahead in () if reuse else (True, False):
            self.plan = _Plan(self.source, self.residents.tiles, ahead=ahead)
            used = first_fit(list(self.plan.buffers.values()), lx_bytes, reuse=False)
            if used >= 0:
                return used
        single: list[ir.Value] = []
        used = -1
        while used < 0:
            buffers = list(self.plan.buffers.values())
            used = first_fit(buffers, lx_bytes, reuse=True)
            streams = [b for b in buffers if b.rotation.slots > 1]
            if used < 0 and not streams:
                raise Unsupported(
                    f"kernel '{self.source.name.value}' needs more than the {lx_bytes} bytes of scratchpad; "
                    "the nearest supported form has narrower rows",
                    location_text(self.source.location),
                )
            if used < 0:
                single.append(max(streams, key=lambda b: b.bytes).value)
                self.plan = _Plan(self.source, self.residents.tiles, single)
        return used

    def allocate(self) -> None:
        source = self.source
        old = source.regions[0].blocks[0]
        name = source.name.value
        with ir.InsertionPoint(source), source.location:
            function = func.FuncOp(name + "_allocated", ([a.type for a in old.arguments], []))
        block = function.add_entry_block([source.location] * len(old.arguments))
        for attribute in ("grid", "ktir.work", "ktir.rows", "ktir.sums", RESIDENTS):
            if attribute in source.attributes:
                function.attributes[attribute] = source.attributes[attribute]
        i64 = ir.IntegerType.get_signless(64)
        function.attributes["ktir.lx_bytes"] = ir.IntegerAttr.get(i64, self.lx_used)
        self.mapping.update(zip(old.arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block), source.location:
            for value, buffer in self.plan.buffers.items():
                if buffer.rotation.slots == 1:
                    with value.owner.location if not isinstance(value.owner, ir.Block) else source.location:
                        running = {"ktir.acc": kt.AccAttr.build("SFP")} if value in self.plan.running else None
                        self.views[value] = self._view(value, self._index(self._elements(buffer.address, value)), running)
            self._block(old)
        source.operation.erase()
        function.attributes["sym_name"] = ir.StringAttr.get(name)

    @staticmethod
    def _index(value: int) -> ir.Value:
        return arith.ConstantOp(ir.IndexType.get(), value).result

    @staticmethod
    def _elements(address: int, value: ir.Value) -> int:
        return address // (2 if isinstance(ir.RankedTensorType(value.type).element_type, ir.F16Type) else 4)

    def _view(self, value: ir.Value, address: ir.Value, attributes: dict[str, ir.Attribute] | None = None) -> ir.Value:
        type_ = ir.RankedTensorType(value.type)
        sizes = list(type_.shape)
        strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
        return ktdp.construct_memory_view(address, sizes, strides, type_.element_type, "ct_local", attributes=attributes)

    def _rotating_view(self, value: ir.Value, buffer: _Buffer) -> ir.Value:
        """The view of the slot that the current trip uses."""
        turns, loops, group, inside = buffer.rotation
        total = None
        for number in loops:
            counter = self.counters[number][0]
            total = counter if total is None else arith.AddIOp(total, counter).result
        assert total is not None
        slot = self._elements(buffer.slot, value)
        phase = arith.RemUIOp(total, self._index(turns)).result
        address = arith.AddIOp(
            self._index(self._elements(buffer.address, value)), arith.MulIOp(phase, self._index(group * slot)).result
        ).result
        for number, slots in inside:
            address = arith.AddIOp(address, arith.MulIOp(self.counters[number][0], self._index(slots * slot)).result).result
        return self._view(value, address, {"ktir.rotate": kt.RotateAttr.build(turns, group * buffer.slot)})

    # Ops

    def _block(self, block: ir.Block) -> None:
        for op in block.operations:
            with op.location:
                self._op(op.operation)

    def _op(self, op: ir.Operation) -> None:
        name = op.name
        if name == "scf.for":
            self._loop(op)
        elif name == "ktdp.load":
            self._load(op)
        elif name == "ktdp.store":
            self._store(op)
        elif name == "linalg.generic":
            self._generic(op)
        elif name == "ktdp.inter_tile_produce":
            self.mapping[op.results[0]] = produced_again(op, self._read(contribution(op)))
        elif name == "ktdp.inter_tile_consume":
            clone_ops([op], self.mapping)
            ktdp.store(self.mapping[op.results[0]], self._target(op.results[0]))
        elif name == "tensor.extract_slice":
            self.slices[op.results[0]] = (op.operands[0], self._offsets(op, 1))
        elif name == "tensor.insert_slice":
            if self.plan.root(op.operands[0]) != self.plan.root(op.operands[1]):
                raise Unsupported("'tensor.insert_slice' op expects to be the only use of what it inserts", location_text(op.location))
        elif name == "scf.yield":
            pass
        elif name == "func.return":
            func.ReturnOp([])
        elif name == "linalg.fill" and is_stored_fill(op):
            clone_ops([op], self.mapping)
            ktdp.store(self.mapping[op.results[0]], self._target(op.results[0]))
        elif name == "tensor.empty" and all(u.owner.name == "scf.for" for u in op.results[0].uses):
            pass  # a tensor that a loop fills: it has become an LX buffer
        else:
            clone_ops([op], self.mapping)

    def _loop(self, op: ir.Operation) -> None:
        bounds = [self.mapping[v] for v in list(op.operands)[:3]]
        old = op.regions[0].blocks[0]
        for start, result in self.plan.copied.get(op, []):
            ktdp.store(self._copy(self._read(start), op.location), self._whole(result))
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
            self.counters.append((counter, _trips(op)))
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
            value = self._copy(value, op.location)
        ktdp.store(value, self.mapping[op.operands[1]])

    @staticmethod
    def _copy(value: ir.Value, location: ir.Location) -> ir.Value:
        """The same value from the vector unit: the scratchpad has no other copies."""
        identity = affine_map(3, [0, 1, 2])
        empty = tensor.EmptyOp(list(value.type.shape), value.type.element_type).result
        return generic([value], empty, [identity] * 2, ["parallel"] * 3, lambda a: a[0], loc=location)

    def _tile(self, value: ir.Value, first: list[int | ir.Value], shape: list[int]) -> ir.Value:
        """A part of the memory that a value lies in."""
        root = self.plan.root(value)
        if root in self.residents.tiles:
            return self.residents.tile(root, first, shape, self.mapping)
        return ktdp.construct_access_tile(self.views[root], first, shape)

    def _whole(self, value: ir.Value) -> ir.Value:
        return self._tile(value, [0, 0, 0], list(ir.RankedTensorType(self.plan.root(value).type).shape))

    def _read(self, value: ir.Value) -> ir.Value:
        """The value as a compute op reads it: from LX, or straight from the PT accumulator."""
        if value in self.mapping and value not in self.plan.buffers:
            return self.mapping[value]
        element = ir.RankedTensorType(value.type).element_type
        if value in self.slices:
            whole, first = self.slices[value]
            return ktdp.load(self._tile(whole, first, list(ir.RankedTensorType(value.type).shape)), element)
        return ktdp.load(self._whole(value), element)

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
        insert = next((u.owner.operation for u in value.uses if u.owner.operation.name == "tensor.insert_slice"), None)
        if insert is None:
            return self._whole(value)
        return self._tile(insert.operands[1], self._offsets(insert, 2), list(ir.RankedTensorType(value.type).shape))
