"""Rules of the scratchpad at the allocated level: where buffers lie, and that nothing is overwritten while it is still read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ktir.analysis.attributes.broken import Broken
from ktir.analysis.attributes.levels import constant_of
from ktir.analysis.attributes.residents import resident_of, residents_of, room_of
from ktir.analysis.calls import callee, calls_of, is_kernel
from ktir.analysis.core_numbers import CoreNumbers, Numbers, Unknown
from ktir.diagnostics import Diagnostic, location_text
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.mlir import arith, func, ir, is_a, operations, scf
from ktir.target import STICK_BYTES, element_bytes

_ENTRY_BYTES = 2 * STICK_BYTES
"""Of f32."""


@dataclass(frozen=True)
class Place:
    """Bytes of the scratchpad: `count` slots of `size` bytes that begin at `start`, `stride` apart."""

    start: int
    size: int
    count: int = 1
    stride: int = 0

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.start + (self.count - 1) * self.stride + self.size

    def has(self, other: Place) -> bool:
        """Whether another place is this one, or a part of each of its slots."""
        same = (self.count, self.stride) == (other.count, other.stride)
        return same and self.start <= other.start and other.start + other.size <= self.start + self.size


def place_of(view: ir.Operation) -> Place:
    """Where a view of the scratchpad lies, or all of the resident that it shows.

    Raises Broken for an address that is neither constant nor a rotation of constants, with steps of loops.
    """
    resident = resident_of(view)
    if resident is not None:
        return Place(resident.address, resident.bytes)
    opview = view.opview
    width = element_bytes(opview.element_type)
    sizes, strides = list(opview.sizes), list(opview.strides)
    if any(not isinstance(n, int) for n in (*sizes, *strides)):
        raise Broken("expects a view of the scratchpad to have static sizes and strides")
    size = (sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) + 1) * width
    if "ktir.per_corelet" in view.attributes:
        size *= 2
    address = _address(view.operands[0])
    if "ktir.rotate" not in view.attributes:
        if address is None or address.slots:
            raise Broken("expects a constant address in the scratchpad, or steps of loops from one, or 'ktir.rotate'")
        return Place(address.base * width, size + address.reach * width)
    rotate = kt.RotateAttr(view.attributes["ktir.rotate"])
    if address is None or address.slots == 0:
        raise Broken("expects a rotating address, constant + (counters rem nbuf) * slot, and steps of inner loops")
    if (address.slots, address.distance * width) != (rotate.nbuf, rotate.stride):
        raise Broken(
            f"expects an address that rotates over {rotate.nbuf} slots of {rotate.stride} bytes, as 'ktir.rotate' says, but it rotates "
            f"over {address.slots} of {address.distance * width}"
        )
    size += address.reach * width
    if rotate.stride < size:
        raise Broken(f"expects slots of at least the view's {size} bytes, but 'ktir.rotate' says {rotate.stride}")
    return Place(address.base * width, size, rotate.nbuf, rotate.stride)


@dataclass(frozen=True)
class _Address:
    """In elements: `base`, the most that counters of loops add (`reach`), and `slots` slots that rotate (0 if none), `distance` apart."""

    base: int = 0
    reach: int = 0
    slots: int = 0
    distance: int = 0


def _address(value: ir.Value) -> _Address | None:
    """An address that is a sum of constants, counters of loops times constants, and one rotation; None for another."""
    number = constant_of(value)
    if number is not None:
        return _Address(number)
    if terms := _of(value, arith.AddIOp):
        a, b = (_address(term) for term in terms)
        if a is None or b is None or (a.slots and b.slots):
            return None
        return _Address(a.base + b.base, a.reach + b.reach, a.slots + b.slots, a.distance + b.distance)
    if factors := _of(value, arith.MulIOp):
        found, factor = _address(factors[0]), constant_of(factors[1])
        if found is None or factor is None or factor < 0:
            return None
        return _Address(found.base * factor, found.reach * factor, found.slots, found.distance * factor)
    if phase := _of(value, arith.RemUIOp):
        slots = constant_of(phase[1])
        return None if slots is None else _Address(slots=slots, distance=1)
    most = _most(value)
    return None if most is None else _Address(reach=max(most, 0))


def _most(counter: ir.Value) -> int | None:
    """The largest value of a loop's counter, or of the number of its trip; None for another value."""
    if isinstance(counter.owner, ir.Block):
        loop = counter.owner.owner
        if not is_a(loop, scf.ForOp):
            return None
        lower, upper, step = (constant_of(v) or 0 for v in list(loop.operands)[:3])
        return lower + (-(-(upper - lower) // max(step, 1)) - 1) * step
    for kind, apply in ((arith.SubIOp, int.__sub__), (arith.DivUIOp, int.__floordiv__)):
        if operands := _of(counter, kind):
            most, number = _most(operands[0]), constant_of(operands[1])
            return None if most is None or not number else apply(most, number)
    return None


def _begins(view: ir.Operation) -> Numbers | None:
    """Per core the address of a view where all counters of loops are 0; None for one that is not known."""
    try:
        found = CoreNumbers(_function_of(view))(view.operands[0])
    except Unknown:
        return None
    return found.numbers if found.argument is None else None


def _of(value: ir.Value, kind: type[ir.OpView]) -> tuple[ir.Value, ir.Value] | None:
    """Operands of the op of that kind that defines the value, the one that is no constant first where one is; for a sum, last."""
    if not is_a(value.owner, kind):
        return None
    a, b = value.owner.operands
    if kind is arith.AddIOp:
        return (b, a) if constant_of(a) is None else (a, b)
    return (b, a) if kind is arith.MulIOp and constant_of(b) is None else (a, b)


def _scratchpad_view(op: ir.Operation) -> bool:
    return is_a(op, ktdp.ConstructMemoryViewOp) and op.opview.memory_space == "ct_local"


class Scratchpad:
    """The views of the scratchpad in the kernels of a program, in the order in which its entry calls them."""

    def __init__(self, functions: Mapping[str, func.FuncOp], lx_bytes: int) -> None:
        self.lx_bytes = lx_bytes
        self.kernels = _in_order(functions)

    def check_size(self, f: ir.Operation) -> None:
        """A kernel says how much it uses, at most what there is."""
        if not is_kernel(f):
            return
        if "ktir.lx_bytes" not in f.attributes:
            raise Broken("expects a kernel with the attribute 'ktir.lx_bytes'")
        used = ir.IntegerAttr(f.attributes["ktir.lx_bytes"]).value
        if used > self.lx_bytes:
            raise Broken(f"uses {used} bytes of the scratchpad, but there are {self.lx_bytes}")
        if used > room_of(f, self.lx_bytes)[1]:
            raise Broken(f"uses {used} bytes of the scratchpad, but what stays in it begins at {room_of(f, self.lx_bytes)[1]}")

    def check_residents(self, f: ir.Operation) -> None:
        """What stays in the scratchpad lies inside of it, each at a place of its own, whole entries of f32."""
        residents = sorted(residents_of(f), key=lambda r: r.address)
        for r in residents:
            if r.address % _ENTRY_BYTES or r.bytes % _ENTRY_BYTES:
                raise Broken(f"expects '{r.name}' to take whole entries of {_ENTRY_BYTES} bytes, but got {r.bytes} at {r.address}")
            if r.address + r.bytes > self.lx_bytes:
                raise Broken(f"keeps '{r.name}' at bytes {r.address} to {r.address + r.bytes} of the scratchpad, which has {self.lx_bytes}")
        for low, high in pairwise(residents):
            if low.address + low.bytes > high.address:
                raise Broken(f"keeps '{low.name}' and '{high.name}' at the same bytes of the scratchpad, from {high.address} on")

    def check_resident_view(self, op: ir.Operation) -> None:
        """A view of what stays begins inside of it, in a kernel that says that it is there."""
        resident = resident_of(op) if is_a(op, ktdp.ConstructMemoryViewOp) else None
        if resident is None:
            return
        if op.opview.memory_space != "ct_local":
            raise Broken(f"expects '{resident.name}' in memory_space 'ct_local', but got '{op.opview.memory_space}'")
        if resident not in residents_of(_function_of(op)):
            raise Broken(f"shows '{resident.name}', which its kernel does not list in 'ktir.residents'")
        address = _begins(op)
        if address is None:
            raise Broken(f"expects an address in '{resident.name}' that the core's number and counters of loops decide")
        for start in address * element_bytes(op.opview.element_type):
            if not resident.address <= start < resident.address + resident.bytes:
                raise Broken(f"begins at byte {start} of the scratchpad, outside of '{resident.name}'")

    def check_address(self, op: ir.Operation) -> None:
        """A view begins at a stick and lies inside of what the kernel says that it uses."""
        if not _scratchpad_view(op):
            return
        if resident_of(op) is not None:
            return
        place = place_of(op)
        if place.start % STICK_BYTES or place.stride % STICK_BYTES:
            raise Broken(f"expects an address at a multiple of {STICK_BYTES} bytes, but got {place.start}")
        used = ir.IntegerAttr(_function_of(op).attributes["ktir.lx_bytes"]).value
        if place.start < 0 or place.end > used:
            raise Broken(f"lies at bytes {place.start} to {place.end} of the scratchpad, but the kernel uses {used}")

    def lifetimes(self) -> Lifetimes:
        """Which loads read what was overwritten."""
        found = Lifetimes({op: place_of(op) for f in self.kernels for op in operations(f) if _scratchpad_view(op)})
        for kernel in self.kernels:
            found.walk(kernel.regions[0].blocks[0])
        return found


def _in_order(functions: Mapping[str, func.FuncOp]) -> list[func.FuncOp]:
    """The kernels as a program runs them; of the calls of a function from one caller two, since later ones see what the second one does."""
    called = {callee(call) for f in functions.values() for call in calls_of(f)}
    found: list[func.FuncOp] = []

    def visit(function: func.FuncOp) -> None:
        seen: Counter[str] = Counter()
        for call in calls_of(function):
            name = callee(call)
            seen[name] += 1
            if name not in functions or seen[name] > 2:
                continue
            if is_kernel(functions[name]):
                found.append(functions[name])
            else:
                visit(functions[name])

    for name, function in functions.items():
        if name not in called and not is_kernel(function):
            visit(function)
    return found


def _overlapping(places: Mapping[ir.Operation, Place]) -> dict[ir.Operation, list[ir.Operation]]:
    """Of each view the others that share bytes with it."""
    views = list(places)
    starts, ends = (np.array([getattr(p, end) for p in places.values()], np.int64) for end in ("start", "end"))
    shared = ((starts < place.end) & (place.start < ends) for place in places.values())
    return {view: [views[i] for i in np.flatnonzero(others) if i != n] for n, (view, others) in enumerate(zip(views, shared, strict=True))}


def _function_of(op: ir.Operation) -> ir.Operation:
    while not is_a(op, func.FuncOp):
        op = op.parent.operation
    return op


class Lifetimes:
    """A walk through the program in order that notes what each store to the scratchpad overwrites.

    A buffer is what one view op names; views of the same bytes, or of a part of them, that nothing is stored through are another name
    of the one last stored to. A loop is walked twice, since its second trip sees what the first has left; further trips leave the same.
    """

    def __init__(self, places: Mapping[ir.Operation, Place]) -> None:
        self.places = places
        self.stored = {op for op in places if _is_stored(op)}
        self.rivals = _overlapping(places)
        self.resident = {op: str(r) if (r := resident_of(op)) is not None else None for op in places}
        self.state: dict[ir.Operation, ir.Operation | None] = {}
        """Buffer -> the store that has overwritten it, None while it is whole; a buffer that was never stored to is not in here."""
        self.faults: dict[ir.Operation, Broken] = {}

    def check(self, load: ir.Operation) -> None:
        """Raises what is wrong with a load."""
        if load in self.faults:
            raise self.faults[load]

    def walk(self, block: ir.Block) -> None:
        """Goes through the ops of a block."""
        for view in block.operations:
            op = view.operation
            if is_a(op, scf.ForOp):
                lower, upper, step = (constant_of(v) or 0 for v in list(op.operands)[:3])
                for _ in range(min(2, -(-(upper - lower) // max(step, 1)))):
                    self.walk(op.regions[0].blocks[0])
            elif is_a(op, scf.IfOp):
                for region in op.regions:
                    for inner in region.blocks:
                        self.walk(inner)
            elif is_a(op, ktdp.LoadOp, ktdp.StoreOp):
                buffer = op.operands[-1].owner.operands[0].owner
                if buffer in self.places:
                    self._load(op, buffer) if is_a(op, ktdp.LoadOp) else self._store(op, buffer)

    def _store(self, store: ir.Operation, buffer: ir.Operation) -> None:
        self.state[buffer] = None
        for other in self.rivals[buffer]:
            if self.resident[buffer] is not None and self.resident[other] == self.resident[buffer]:
                self.state[other] = None  # another view of the same tensor
            elif other not in self.stored and self.places[buffer].has(self.places[other]):
                self.state[other] = None
            elif other in self.state:
                self.state[other] = store
            elif other not in self.stored:
                self.state[other] = store

    def _load(self, load: ir.Operation, buffer: ir.Operation) -> None:
        if buffer not in self.state:
            self.faults.setdefault(load, Broken("reads a place of the scratchpad that nothing has been stored to"))
            return
        store = self.state[buffer]
        if store is not None:
            note = Diagnostic("note", "by this store", location_text(store.location))
            self.faults.setdefault(load, Broken("reads a place of the scratchpad that has been overwritten meanwhile", note))


def _is_stored(view: ir.Operation) -> bool:
    for use in view.results[0].uses:
        tile = use.owner.operation
        if is_a(tile, ktdp.ConstructAccessTileOp):
            if any(is_a(u.owner, ktdp.StoreOp) for u in tile.results[0].uses):
                return True
    return False
