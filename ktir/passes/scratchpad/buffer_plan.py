"""Which tensors of a kernel need a place in the scratchpad, for how long, and over how many slots they rotate."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from ktir.analysis.attributes.levels import tensor_bytes
from ktir.analysis.partial_sums import contribution
from ktir.cost.tiles import ROW_BUFFERS, ROW_STICKS, WEIGHT_BUFFERS, stream_buffers
from ktir.diagnostics import KtirError, location_text, refused
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, makes_block
from ktir.mlir import func, ir, is_a, linalg, scf, tensor
from ktir.passes.scratchpad.rotation import STILL, Rotation, rotation
from ktir.target import CORELETS, Target


@dataclass
class Buffer:
    """A place for one tensor: `start` and `end` are positions in program order; as many slots of `slot` bytes as it rotates over."""

    value: ir.Value
    start: int
    end: int
    slot: int
    rotation: Rotation = STILL
    loads: int = 1
    """How often it is loaded where it rotates."""
    moved: str = ""
    """Which unit moves it from or to memory, where such tensors have places of their own."""
    address: int = -1

    @property
    def bytes(self) -> int:
        return self.slot * self.rotation.slots

    @property
    def missed(self) -> tuple[float, int]:
        """How much it is missed where a stream loses half of its slots, for the room that it leaves: each load then has half of the time
        that memory has to answer."""
        return self.loads / self.rotation.slots, -self.bytes

    @property
    def kind(self) -> Hashable:
        """What buffers have in common of which units find the rows at the same places. A type has two sizes: each corelet has a block that
        becomes weights for itself."""
        return str(self.value.type), self.slot, self.rotation, self.moved


def trips_of(loop: ir.Operation) -> int:
    lower, upper, step = (ir.IntegerAttr(v.owner.attributes["value"]).value for v in list(loop.operands)[:3])
    return -(-(upper - lower) // step)


class BufferPlan:
    """Lifetimes of all tensors of a kernel, in program order over the nested loops."""

    def __init__(
        self,
        function: func.FuncOp,
        target: Target,
        elsewhere: Collection[ir.Value],
        at_most: Mapping[ir.Value, int] = MappingProxyType({}),
        *,
        ahead: bool = False,
        apart: bool = False,
    ) -> None:
        self.target = target
        self.elsewhere = elsewhere
        """Values that lie in residents."""
        self.ahead = ahead
        """Whether rows get as many buffers as hide the latency of memory, and not just two."""
        self.apart = apart
        """Whether what memory is moved to and from has places of its own, so that these units wait for those who compute no longer than
        they must."""
        self.at_most = at_most
        """Loads that get no more buffers than this."""
        self.buffers: dict[ir.Value, Buffer] = {}
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
            if is_a(op, scf.ForOp):
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
            if is_a(op, scf.ForOp):
                body = op.regions[0].blocks[0]
                self._carried(op, loops)
                self._block(body, [*loops, op])
            elif is_a(op, ktdp.LoadOp, linalg.GenericOp, ktdp.InterTileConsumeOp) or (is_a(op, linalg.FillOp) and is_stored_fill(op)):
                uses = list(op.results[0].uses)
                if is_a(op, linalg.GenericOp) and Generic(op).is_contraction:
                    continue  # PT holds its sums
                if len(uses) == 1 and is_a(uses[0].owner, tensor.InsertSliceOp) and uses[0].operand_number == 0:
                    whole = uses[0].owner.operands[1]
                    owner = self.root(whole).owner
                    if is_a(owner, linalg.FillOp) and self.span[owner.operation][0] > self.span[op.operation][0]:
                        raise refused(op, "is computed before the fill of the tensor that it becomes a part of, which would undo it")
                    self.alias[op.results[0]] = whole
                elif (running := self._running(op.results[0])) is not None:
                    self.alias[op.results[0]] = running
                else:
                    self._place(op.results[0], op, loops)
            elif is_a(op, tensor.EmptyOp) and is_filled(op):
                self._place(op.results[0], op, loops)
            elif is_a(op, tensor.ExtractSliceOp):
                self.alias[op.results[0]] = op.operands[0]
            elif is_a(op, tensor.InsertSliceOp):
                self.alias[op.results[0]] = op.operands[1]

    def _carried(self, loop: ir.Operation, loops: list[ir.Operation]) -> None:
        """What a loop carries stays in one place: a tensor that it, or a loop in it, fills slice by slice, or a running value that begins
        before the loop."""
        accumulates = is_accumulator(loop)
        arguments = list(loop.regions[0].blocks[0].arguments)[1:]
        for argument, start, result in list(zip(arguments, list(loop.operands)[3:], loop.results, strict=True))[accumulates:]:
            if accumulates:
                self.alias[argument] = self.alias[result] = start
            elif is_a(start.owner, tensor.EmptyOp):
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
        """The running value of which a value is the next one, or what a loop makes that from: it takes its place, so nothing may read the
        old one from then on."""
        for use in value.uses:
            user = use.owner.operation
            if is_a(user, scf.ForOp) and use.operand_number >= 3 and not is_accumulator(user):
                old = self._running(user.results[use.operand_number - 3])
                if old is None:
                    continue
            else:
                loop = user.parent.operation if is_a(user, scf.YieldOp) else None
                if not is_a(loop, scf.ForOp) or is_accumulator(loop):
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
        buffer = Buffer(value, start, end, tensor_bytes(value) * (CORELETS if makes_block(op) else 1))
        trips = [trips_of(loop) for loop in loops]
        if is_a(op, ktdp.LoadOp) and prod(trips) > 1 and self.at_most.get(value) != 1:
            summing = next((i for i, loop in enumerate(reversed(loops)) if not is_accumulator(loop)), len(loops))
            weights = summing > 0
            # the next block is loaded while this one is in use, so a stream owns its slots for the whole loop that it runs in
            owner = max(len(loops) - 1 - summing, 0)
            while not weights and trips[owner] == 1:
                owner -= 1
            buffer.start, buffer.end = self.span[loops[owner]]
            most = self._most_buffers(buffer, weights)
            buffer.rotation = rotation(trips, min(most, self.at_most.get(value, most)))
            buffer.loads = prod(trips)
        if is_a(op, ktdp.LoadOp) and self.apart:
            buffer.moved = "loaded"
        self.buffers[value] = buffer

    def _most_buffers(self, buffer: Buffer, weights: bool) -> int:
        """Blocks of a stream in flight. `weights`: a loop over K loads them."""
        if weights:
            first = all(is_a(u.owner, linalg.GenericOp) and u.operand_number == 0 for u in buffer.value.uses)
            return ROW_STICKS if first else WEIGHT_BUFFERS
        if not self.ahead:
            return ROW_BUFFERS
        indirect = is_a(buffer.value.owner.operands[0].owner, ktdp.ConstructIndirectAccessTileOp)
        return stream_buffers(buffer.slot, 1 + indirect, self.target)  # indices come first, and then what they name

    def _extend(self, block: ir.Block, loops: list[ir.Operation]) -> None:
        for view in block.operations:
            op = view.operation
            for operand in _read(op):
                root = self.root(operand)
                buffer = self.buffers.get(root)
                if buffer is None:
                    continue
                end = self.span[op][1]
                for loop in loops:
                    if not self.span[loop][0] <= buffer.start < self.span[loop][1]:
                        end = max(end, self.span[loop][1])
                buffer.end = max(buffer.end, end)
                if self.apart and is_a(op, ktdp.StoreOp):
                    buffer.moved = "stored"
            if is_a(op, scf.ForOp):
                self._extend(op.regions[0].blocks[0], [*loops, op])


def _read(op: ir.Operation) -> list[ir.Value]:
    """What an op reads; a contribution is sent where it is consumed, while others arrive."""
    return [contribution(op.operands[0].owner)] if is_a(op, ktdp.InterTileConsumeOp) else list(op.operands)


def is_filled(empty: ir.Operation) -> bool:
    """Whether a tensor is put together of slices, one after the other."""
    return any(is_a(u.owner, tensor.InsertSliceOp) and u.operand_number == 1 for u in empty.results[0].uses)


def is_accumulator(loop: ir.Operation) -> bool:
    """Whether a loop carries the f32 block of a contraction, before what else it carries."""
    block = loop.regions[0].blocks[0]
    carried = list(block.arguments)[1:]
    if not carried:
        return False
    value = list(block.operations)[-1].operands[0]
    while value != carried[0]:
        made = value.owner
        if is_a(made, scf.ForOp) and is_accumulator(made.operation):
            value = made.operands[3]
        elif is_a(made, linalg.GenericOp) and Generic(made.operation).is_contraction:
            value = Generic(made.operation).init
        else:
            return False
    return True


def is_stored_fill(fill: ir.Operation) -> bool:
    """Whether a constant tensor is needed in memory, and is more than what an op accumulates into."""
    return any(not _starts_sum(u) for u in fill.results[0].uses)


def _starts_sum(use: ir.OpOperand) -> bool:
    op = use.owner.operation
    return (is_a(op, scf.ForOp) and is_accumulator(op)) or (is_a(op, linalg.GenericOp) and use.operand_number == len(op.operands) - 1)
