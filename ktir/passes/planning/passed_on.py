"""What one kernel writes to memory of the program's own and another one reads through a view of other places: as a padded image and its
windows.

Where both deal out the axes along which it lies alike, cores need little of what other cores wrote, and that may go over the ring.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ktir.analysis.items import Op, Store, Tensor
from ktir.passes.division.kernel_facts import KernelFacts
from ktir.target import LANES

Axes = tuple[int | None, ...]
"""Per dim the axis of a kernel that it runs along; None where a core has all of it."""

_MOST_BESIDE = 1 / 8
"""Part of what is read that other kernels may have written, such as the margin of an image."""


@dataclass(frozen=True)
class PassedOn:
    """What kernel `maker` stores and kernel `reader` loads, by number. `axes`: pairs of an axis of each along which both walk memory in the
    same steps."""

    maker: int
    reader: int
    stored: Tensor
    loaded: Tensor
    axes: tuple[tuple[int, int], ...]
    along: Axes
    """The axis of the reader along each row dim of what it loads."""


class _End(NamedTuple):
    """An access of a kernel, by number: per row dim the elements from one position to the next, and the axis along it."""

    kernel: int
    tensor: Tensor
    steps: tuple[int, ...]
    along: Axes

    @property
    def axis_of(self) -> dict[int, int]:
        """Step -> axis."""
        return {step: axis for step, axis in zip(self.steps, self.along, strict=True) if axis is not None}


def passed_on(kernels: Sequence[KernelFacts]) -> list[PassedOn]:
    """Of all memory that one kernel reads, if another one has written nearly all of that."""
    written: dict[Hashable, list[_End]] = defaultdict(list)
    read: dict[Hashable, list[_End]] = defaultdict(list)
    for number, facts in enumerate(kernels):
        for store in facts.stores:
            if _is_in_whole_sticks(store):
                written[store.writes[0].argument].append(_written(number, facts, store))
        for item in facts.ops:
            for operand, tensor in enumerate(item.sources):
                if _is_seen_in_whole_sticks(tensor):
                    read[tensor.regions[0].argument].append(_read(number, facts, item, operand))
    found = []
    for argument in written.keys() & read.keys():
        maker, *others = sorted(written[argument], key=lambda end: -end.tensor.bytes)
        reader, *more = read[argument]
        beside = sum(end.tensor.bytes for end in others)
        if more or reader.kernel <= maker.kernel or beside > _MOST_BESIDE * maker.tensor.bytes:
            continue
        theirs = reader.axis_of
        axes = tuple((axis, theirs[step]) for step, axis in maker.axis_of.items() if step in theirs)
        if axes:
            found.append(PassedOn(maker.kernel, reader.kernel, maker.tensor, reader.tensor, axes, reader.along))
    return sorted(found, key=lambda p: (p.maker, p.reader))


def _is_in_whole_sticks(store: Store) -> bool:
    if store.indirect or len(store.writes) != 1:
        return False
    steps = [step for step, _ in store.writes[0].dims]
    return len(steps) + 1 == len(store.value.shape) and steps[-1] == 1 and not any(step % LANES for step in steps[:-1])


def _is_seen_in_whole_sticks(tensor: Tensor) -> bool:
    direct = tensor.loaded and not tensor.indirect and len(tensor.regions) == 1 and bool(tensor.strides)
    return direct and tensor.strides[-1] == 1 and not any(step % LANES for step in tensor.strides[:-1])


def _written(number: int, facts: KernelFacts, store: Store) -> _End:
    steps = tuple(step for step, _ in store.writes[0].dims[:-1])
    return _End(number, store.value, steps, facts.stored_axes[store.number][1:-1])


def _read(number: int, facts: KernelFacts, item: Op, operand: int) -> _End:
    tensor, loops = item.sources[operand], facts.axes[item.number]
    return _End(number, tensor, tensor.strides[1:-1], tuple(loops.get(loop) for loop in item.walks[operand][1:-1]))
