"""Which views of a flat function's arguments the host packs into sticks, and which lie in linear memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np

from ktir.analysis.flat import IndexedBy, Memory, Node, refuse
from ktir.mlir import func, ir
from ktir.target import LANES

_MOST_ELEMENTS = 1 << 24
"""Buffers with more elements than this are not looked at element by element."""


@dataclass
class _Uses:
    """What a function does to one buffer."""

    loads: list[Memory] = field(default_factory=list)
    stores: list[Memory] = field(default_factory=list)
    """Direct ones."""
    scattered: list[Memory] = field(default_factory=list)
    """Views that are written through indices."""
    indices: list[Memory] = field(default_factory=list)
    """Views that are read as indices."""

    @property
    def all(self) -> list[Memory]:
        return [*self.loads, *self.stores, *self.scattered, *self.indices]


class Buffers:
    """The arguments of a flat function by what happens to them.

    The host packs what the program only reads, and outputs that it only writes, at places that are known and do not overlap; also a buffer
    that is read and written as one and the same view. Everything else is one linear argument.
    """

    def __init__(self, function: func.FuncOp, nodes: list[Node]) -> None:
        self.function = function
        count = len(function.regions[0].blocks[0].arguments)
        attributes = function.attributes
        given = ir.ArrayAttr(attributes["arg_attrs"]) if "arg_attrs" in attributes else [{}] * count
        self.attributes: list[ir.DictAttr] = [ir.DictAttr(a) for a in given]
        self.uses = [_Uses() for _ in range(count)]
        self._apart: dict[int, bool] = {}
        for node in nodes:
            for memory in indices_of(node):
                self.uses[memory.argument].indices.append(memory)
            if node.memory is not None:
                uses = self.uses[node.memory.argument]
                {"store": uses.stores, "scatter": uses.scattered}.get(node.kind, uses.loads).append(node.memory)

    def role(self, argument: int) -> str:
        """`input`, `output`, `input_output`, `pool`, `iota`, or `shared`: memory of the caller that other calls see too."""
        return self._text(argument, "ktir.role")

    def is_of_host(self, argument: int) -> bool:
        """Whether the host may arrange a buffer for this function."""
        return self.role(argument) not in ("pool", "iota", "shared")

    def lies(self, argument: int) -> int | None:
        """How a buffer lies on the card, where somebody has chosen that: elements from one to the next in a stick."""
        given = self.attributes[argument]
        return ir.IntegerAttr(given["ktir.lies"]).value if "ktir.lies" in given else None

    def name(self, argument: int) -> str:
        """Name of the host buffer."""
        return self._text(argument, "ktir.name")

    def _text(self, argument: int, name: str) -> str:
        if name not in self.attributes[argument]:
            raise refuse(self.function.operation, f"expects an attribute '{name}' on argument {argument}")
        return ir.StringAttr(self.attributes[argument][name]).value

    def is_packed(self, memory: Memory) -> bool:
        """Whether the host packs this view; otherwise it is part of the buffer's linear argument."""
        uses = self.uses[memory.argument]
        if memory.widens or not self.is_of_host(memory.argument) or min(memory.strides, default=0) < 0:
            return False
        if not uses.stores and not uses.scattered:
            return True
        if uses.scattered or uses.indices or any(min(m.strides, default=0) < 0 for m in uses.stores):
            return False
        return self.is_in_place(memory.argument) if uses.loads else self._are_apart(memory.argument)

    def _are_apart(self, argument: int) -> bool:
        """Whether no element of a buffer is stored twice."""
        if argument not in self._apart:
            self._apart[argument] = _apart(self.uses[argument].stores)
        return self._apart[argument]

    def is_in_place(self, argument: int) -> bool:
        """Whether a buffer of the host is read and written, always as the same view of all its elements in order."""
        uses = self.uses[argument]
        views = {(m.offset, m.sizes, m.strides) for m in (*uses.loads, *uses.stores)}
        if uses.scattered or uses.indices or not uses.loads or not uses.stores or len(views) != 1 or not self.is_of_host(argument):
            return False
        if any(m.widens for m in uses.stores):
            return False
        ((_, sizes, strides),) = views
        return all(n == 1 or s == prod(sizes[d + 1 :]) for d, (n, s) in enumerate(zip(sizes, strides, strict=True)))

    def elements(self, argument: int) -> int:
        """Elements of the linear argument: up to the last one that the program names. A pool has rows of whole sticks."""
        if self.role(argument) == "pool":
            shape = list(ir.RankedTensorType(ir.TypeAttr(self.attributes[argument]["ktir.type"]).value).shape) or [1]
            return max(prod(shape[:-1]) * (-(-shape[-1] // LANES) * LANES), self.reach(argument))
        return self.reach(argument)

    def reach(self, argument: int) -> int:
        """End of the elements that the program names."""
        return max((m.reach for m in self.uses[argument].all), default=0)

    def is_filled(self, argument: int, total: int) -> bool:
        """Whether direct stores write all of `total` elements of linear memory, so that nothing of the host's needs to be there before."""
        if total > _MOST_ELEMENTS or not self.uses[argument].stores:
            return False
        written = np.zeros(total, bool)
        for memory in self.uses[argument].stores:
            written[_places(memory)] = True
        return bool(written.all())


def indices_of(node: Node) -> list[Memory]:
    """What an indirect load or store reads as indices."""
    return [s.memory for s in node.subscripts if isinstance(s, IndexedBy)]


def _places(memory: Memory) -> np.ndarray:
    places = np.full((1,) * len(memory.sizes), memory.offset, np.int64)
    for d, (n, s) in enumerate(zip(memory.sizes, memory.strides, strict=True)):
        places = places + (np.arange(n) * s).reshape([n if i == d else 1 for i in range(len(memory.sizes))])
    return places.reshape(-1)


def _apart(stores: list[Memory]) -> bool:
    """Whether no element is stored twice."""
    if len(stores) == 1:
        return True
    if sum(prod(m.sizes) for m in stores) > _MOST_ELEMENTS:
        return False
    seen = np.zeros(max(m.reach for m in stores), np.bool_)
    for memory in stores:
        seen[_places(memory)] = True
    return int(seen.sum()) == sum(prod(m.sizes) for m in stores)
