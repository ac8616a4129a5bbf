"""Where in the scratchpad a kernel's buffers begin: beside those of the kernels that run right before and after it, where there is room.

A kernel's first loads may then come while the kernel before still computes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from ktir.analysis.attributes.residents import residents_of, room_of
from ktir.analysis.calls import callee, calls_of, functions_of, is_kernel, launches
from ktir.mlir import func, ir

Span = tuple[int, int]
"""Bytes from one to another."""


class Neighbours:
    """Of the kernels of a program, which run right before and after each other, and what bytes each has been given so far."""

    def __init__(self, module: ir.Module, lx_bytes: int) -> None:
        self.lx_bytes = lx_bytes
        self._beside: dict[str, set[str]] = defaultdict(set)
        self._kept: dict[str, list[Span]] = defaultdict(list)
        """What stays in the scratchpad while the kernel before runs."""
        self._given: dict[str, Span] = {}
        kernels = [launch.kernel for launch in launches(module)] if _has_entry(module) else []
        for before, after in dict.fromkeys(pairwise(kernels)):
            one, other = before.name.value, after.name.value
            self._beside[one].add(other)
            self._beside[other].add(one)
            self._kept[other] += [(r.address, r.address + r.bytes) for r in residents_of(before.operation)]

    def place(self, kernel: func.FuncOp, used: int) -> int:
        """Where the `used` bytes of a kernel's buffers begin: the lowest place in its room that no neighbour uses, if there is one."""
        name = kernel.name.value
        begin, end = room_of(kernel.operation, self.lx_bytes)
        taken = [self._given[n] for n in self._beside[name] if n in self._given and n != name] + self._kept[name]
        at = next((low for low, high in _gaps(taken, begin, end) if high - low >= used), begin)
        self._given[name] = at, at + used
        return at


def _has_entry(module: ir.Module) -> bool:
    """Whether functions of a module call each other, so that their order is known."""
    functions = functions_of(module)
    called = {callee(call) for f in functions.values() for call in calls_of(f)}
    return sum(name not in called and not is_kernel(f) for name, f in functions.items()) == 1


def _gaps(taken: Iterable[Span], begin: int, end: int) -> list[Span]:
    """What is left of the bytes from `begin` to `end`."""
    gaps: list[Span] = []
    for low, high in sorted(taken):
        if low > begin:
            gaps.append((begin, min(low, end)))
        begin = max(begin, high)
    return [*gaps, (begin, end)] if begin < end else gaps
