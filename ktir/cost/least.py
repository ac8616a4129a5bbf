"""What no plan undercuts: the cycles that a program's bytes take, moved once, and its multiplications, at the rates of the target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ktir.cost.program import KernelWork
from ktir.isa.program import Program
from ktir.target import LANES, STICK_BYTES, Target

_INSIDE = ("pool", "iota")
"""Roles of arguments that the host neither gives nor takes."""


class Least(NamedTuple):
    """Of a kernel, or of a program. `bytes`: each that is touched once; `multiplications` as executed, those on padding too."""

    bytes: int
    multiplications: int
    cycles: float

    def share(self, cycles: float) -> float:
        """Of the cycles that it takes."""
        return self.cycles / cycles if cycles else 0.0


class HostView(Protocol):
    """Elements of the host's array number `arg`, as `ktir.package` has them; offset, sizes and strides in elements."""

    @property
    def arg(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def size(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...


Views = Sequence[HostView | None]
"""By argument of the program, what of the host's arrays it holds; none of what the host does not give. Empty where that is not known."""


def least_of_kernel(program: Program, work: KernelWork, target: Target, views: Views = ()) -> Least:
    """Of a kernel, whatever is between kernels included."""
    return _least(program, [work], target, views, inside=True)


def least_of_program(program: Program, works: Sequence[KernelWork], target: Target, views: Views = ()) -> Least:
    """Of all kernels: what they hand on to each other need not be moved."""
    return _least(program, works, target, views, inside=False)


def _least(program: Program, works: Sequence[KernelWork], target: Target, views: Views, *, inside: bool) -> Least:
    read, written = Counter[int](), Counter[int]()
    for work in works:
        for transfer in work.transfers:
            (read if transfer.reads else written)[transfer.argument] += transfer.moved
    total = 0
    for moved in (read, written):
        given: dict[int, list[tuple[int, int, HostView]]] = {}
        for number, nbytes in moved.items():
            argument = program.arguments[number]
            if not inside and argument.role in _INSIDE:
                continue
            view = views[number] if number < len(views) else None
            if view is None:
                total += min(nbytes, argument.sticks * STICK_BYTES)
            else:
                given.setdefault(view.arg, []).append((nbytes, number, view))
        for held in given.values():
            total += _of_one_array(program, held)
    products = sum(work.multiplications for work in works)
    lanes = sum(work.lane_products for work in works)
    rate = target.cores * target.corelets * LANES * LANES / target.pt_row_cycles * target.pt_efficiency
    return Least(total, products, max(total / target.dram_bytes_per_cycle, lanes / rate))


def _of_one_array(program: Program, held: Sequence[tuple[int, int, HostView]]) -> int:
    """Bytes of an array of the host of which arguments hold views: what several of them hold need be moved once."""
    each, whole, most = 0, list[HostView](), 0
    for moved, number, view in held:
        argument = program.arguments[number]
        nbytes, distinct = min(moved, argument.sticks * STICK_BYTES), distinct_elements([view])
        if distinct < prod(view.size):  # it repeats elements
            nbytes = min(nbytes, distinct * argument.element_bytes)
        if moved >= distinct * argument.element_bytes:
            whole.append(view)
        each, most = each + nbytes, max(most, nbytes)
    size = min(program.arguments[number].element_bytes for _, number, _ in held)
    return min(each, max(most, distinct_elements(whole) * size))


_COUNTED = 1 << 22
"""Elements that are counted one by one."""


def distinct_elements(views: Sequence[HostView]) -> int:
    """How many elements of an array some views of it hold together; of large ones at least so many."""
    if sum(prod(v.size) for v in views) <= _COUNTED:
        found = [_places(v) for v in views if prod(v.size)]
        return len(np.unique(np.concatenate(found))) if found else 0
    spans = sorted((*_span(v), _apart(v)) for v in views if prod(v.size))
    total, most, end = 0, 0, -1
    for low, high, count in spans:  # those that reach over each other count as one of them
        if low > end:
            total, most = total + most, 0
        most, end = max(most, count), max(end, high)
    return total + most


def _places(view: HostView) -> NDArray[np.int64]:
    found = np.array([view.offset], np.int64)
    for n, stride in zip(view.size, view.strides, strict=True):
        found = np.unique((found[:, None] + np.arange(n, dtype=np.int64) * stride).reshape(-1)) if n != 1 else found
    return found


def _span(view: HostView) -> tuple[int, int]:
    """The first and the last place."""
    ways = [(n - 1) * stride for n, stride in zip(view.size, view.strides, strict=True)]
    return view.offset + sum(w for w in ways if w < 0), view.offset + sum(w for w in ways if w > 0)


def _apart(view: HostView) -> int:
    """How many elements the dims have that step over all that finer ones reach."""
    count, reach = 1, 0
    for stride, n in sorted((abs(s), n) for n, s in zip(view.size, view.strides, strict=True)):
        if stride > reach:
            count, reach = count * n, reach + stride * (n - 1)
    return count
