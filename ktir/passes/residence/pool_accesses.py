"""What the kernels of a divided program do to the memory of one argument: which entries each core touches.

An *entry* is 64 lanes in a row. What starts or steps inside of one, or is found by index, is not described, but named as a reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ktir.analysis.attributes.kernel import is_authors
from ktir.analysis.calls import callee, calls_of, functions_of, is_kernel
from ktir.analysis.core_numbers import CoreNumbers, Numbers, Unknown
from ktir.dialects import ktdp
from ktir.dialects._foundation import affine
from ktir.mlir import arith, func, ir, is_a
from ktir.target import LANES, element_bytes

_SPREAD = 8
"""Places per entry up to which entries are marked, instead of sorted."""

MOST_ENTRIES = 1 << 22
"""Entries that one access may touch on all cores together; more are not looked at."""


class Footprint(NamedTuple):
    """The entries of an access: core c touches start[c] + sum of i[d]*strides[d] for 0 <= i[d] < live[c][d]."""

    start: Numbers
    strides: tuple[int, ...]
    live: Numbers

    def entries(self, core: int) -> Numbers:
        """Of one core, with an axis per dim."""
        found = np.full((1,) * len(self.strides), self.start[core], np.int64)
        for d, stride in enumerate(self.strides):
            steps = np.arange(self.live[core, d]) * stride
            found = found + steps.reshape([-1 if i == d else 1 for i in range(len(self.strides))])
        return found

    def touched(self) -> Numbers:
        """Of all cores together, each once, in order."""
        once = self._once()
        found = np.concatenate([np.empty(0, np.int64), *(once.entries(part).reshape(-1) for part in range(len(once.start)))])
        first, last = int(found.min(initial=0)), int(found.max(initial=-1))
        if last - first > _SPREAD * found.size:
            return np.unique(found)
        seen = np.zeros(last + 1 - first, bool)
        seen[found - first] = True
        return np.flatnonzero(seen) + first

    def entry_count(self) -> int:
        """How many entries all cores together touch. They need not be listed where each core walks a range of its own and meets none
        twice, which is usual."""
        once = self._once()
        most = once.live.max(0, initial=0)
        inner = 0
        for stride, extent in sorted(zip(self.strides, most.tolist(), strict=True)):
            if extent > 1:
                if stride <= inner:
                    return len(self.touched())
                inner += (extent - 1) * stride
        ends = once.start + ((once.live - 1) * self.strides).sum(1)
        order = np.argsort(once.start)
        if (once.start[order][1:] <= ends[order][:-1]).any():
            return len(self.touched())
        return int(once.live.prod(1).sum())

    def _once(self) -> Footprint:
        """Cores without entries left out, a part that several cores have once, and one position of dims without a stride."""
        live = np.where(np.asarray(self.strides) == 0, np.minimum(self.live, 1), self.live)
        parts = np.unique(np.column_stack([self.start, live])[live.all(1)], axis=0)
        return Footprint(parts[:, 0], self.strides, parts[:, 1:])


@dataclass(frozen=True)
class PoolAccess:
    """A load or store of an argument in the kernel that is called as number `kernel`."""

    kernel: int
    op: ir.Operation
    view: ir.Operation
    writes: bool
    footprint: Footprint | None
    cores: int
    """Of the kernel."""
    reason: str = ""
    """Why there is no footprint."""

    @property
    def element(self) -> ir.Type:
        """The type of the elements."""
        return self.view.opview.element_type

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return element_bytes(self.element)


def entries_of(module: ir.Module) -> list[func.FuncOp]:
    """The functions that call kernels; several where functions nest. What calls kernels by hand is not among them."""
    functions = functions_of(module)
    called = {name: [functions[callee(call)] for call in calls_of(f)] for name, f in functions.items()}
    return [f for name, f in functions.items() if any(is_kernel(k) and not is_authors(k) for k in called[name])]


def called_kernels(module: ir.Module, entry: func.FuncOp) -> list[tuple[ir.Operation, func.FuncOp]]:
    """The calls of a function in order, each with its kernel."""
    functions = functions_of(module)
    return [(call, functions[callee(call)]) for call in calls_of(entry)]


def accesses_by_argument(module: ir.Module, entry: func.FuncOp) -> dict[int, list[PoolAccess]]:
    """Argument of a function that calls kernels -> what they do to it, in program order."""
    parameters = {v: i for i, v in enumerate(entry.regions[0].blocks[0].arguments)}
    found: dict[int, list[PoolAccess]] = {}
    for number, (call, kernel) in enumerate(called_kernels(module, entry)):
        given = [parameters[v] for v in call.operands]
        evaluate = CoreNumbers(kernel)
        for op in kernel.regions[0].blocks[0].operations:
            if is_a(op, ktdp.LoadOp, ktdp.StoreOp):
                for argument, access in _accesses(op.operation, number, evaluate):
                    found.setdefault(given[argument], []).append(access)
    return found


def _accesses(op: ir.Operation, kernel: int, evaluate: CoreNumbers) -> list[tuple[int, PoolAccess]]:
    """What a load or store accesses: the memory of its tile, and index views."""
    writes = is_a(op, ktdp.StoreOp)
    tile = op.operands[1 if writes else 0].owner.operation
    views = [v.owner.operation for v in tile.operands if is_a(v.owner, ktdp.ConstructMemoryViewOp)]
    arguments = [(view, _argument_of(view)) for view in views]
    if is_a(tile, ktdp.ConstructAccessTileOp):
        try:
            described = _footprint(tile.opview, evaluate)
        except Unknown as unknown:
            described = str(unknown)
        footprint, reason = (None, described) if isinstance(described, str) else (described, "")
        return [(a, PoolAccess(kernel, op, v, writes, footprint, evaluate.cores, reason)) for v, a in arguments if a is not None]
    reason = "it is found by index, or holds indices"
    return [
        (a, PoolAccess(kernel, op, v, writes and i == 0, None, evaluate.cores, reason))
        for i, (v, a) in enumerate(arguments)
        if a is not None
    ]


def _argument_of(view: ir.Operation) -> int | None:
    """The argument that a view's address begins at."""
    address = view.operands[0]
    while not isinstance(address.owner, ir.Block):
        sums = [v for v in address.owner.operands if isinstance(v.owner, ir.Block) or is_a(v.owner, arith.AddIOp)]
        if not is_a(address.owner, arith.AddIOp) or not sums:
            return None
        address = sums[0]
    return ir.BlockArgument(address).arg_number


def _footprint(tile: ktdp.ConstructAccessTileOp, evaluate: CoreNumbers) -> Footprint | str:
    """The entries of a direct tile, or why it has none."""
    view = tile.base.owner.opview
    strides = list(view.strides)
    static = [s for s in strides if isinstance(s, int)]
    start = evaluate(view.offset).numbers
    if any(isinstance(i, tuple) or i != 0 for i in tile.indices):
        return "its columns are cut at a lane"
    if list(tile.order) != list(range(len(tile.shape))):
        return "its dims are read in another order"
    if len(static) != len(strides) or static[-1] != 1 or min(static) < 0 or (start % LANES).any() or any(s % LANES for s in static[:-1]):
        return "it is read or written by parts of sticks"
    shape = list(tile.shape)[:-1]
    live = np.stack([np.minimum(evaluate(size).numbers, extent) for size, extent in zip(view.sizes, shape, strict=False)], 1)
    if int(np.prod(live, 1).sum()) > MOST_ENTRIES:
        return f"it has more than {MOST_ENTRIES} entries"
    return Footprint(start // LANES, tuple(s // LANES for s in static[:-1]), live)


def lane_cut(view: ktdp.ConstructMemoryViewOp) -> bool:
    """Whether a view ends inside of a stick."""
    return view.masked and bool(affine.lane_bounds(view.attributes["coordinate_set"])[0])
