"""Loads that must not touch what a mask excludes: of a box of the loops, of a window of dims, or through indices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from ktir.lowering.region_to_ktir import masks
from ktir.lowering.region_to_ktir.accesses import Accesses, Storage, Table, span, stride_order
from ktir.lowering.region_to_ktir.dtypes import ELEMENTS, literal
from ktir.lowering.region_to_ktir.indices import Index, variable
from ktir.lowering.region_to_ktir.nodes import Node, Operand, constant_node, index_node
from ktir.lowering.region_to_ktir.radix import Loops
from ktir.lowering.region_to_ktir.region import Buffer
from ktir.lowering.region_to_ktir.text import Writer


class MaskedLoads:
    """The masked loads of one nest over `loops`; `note` is told which form a load takes, and why."""

    def __init__(
        self, loops: Loops, tables: dict[str, Table], accesses: Accesses, writer: Writer, storage: Storage, note: Callable[..., None]
    ) -> None:
        self._loops, self._tables, self._accesses = loops, tables, accesses
        self._writer, self._storage, self._note = writer, storage, note
        self.wanted: float = 0
        """What a load had best yield where its mask does not hold."""
        self.elsewhere: dict[str, str] = {}
        """Tensors -> the number, as text, that they hold wherever the mask of their load does not hold."""

    def load(self, buffer: Buffer, index: Index, mask: Node) -> Operand:
        """A load that must not touch what the mask excludes; what it yields there does not matter."""
        loops = [loop for loop in self._loops if loop[0] in index.variables]
        if index.variables & self._tables.keys():
            return self._clamped(buffer, index, mask)
        if not self._storage.is_whole(buffer) and (operand := self._windowed(buffer, index, mask, loops)) is not None:
            return operand  # the other forms may reach what nobody has written
        if self._is_inside(buffer, index, {v: (0, n) for v, n in loops}):
            return self._accesses.load(buffer, index)
        ranges = masks.box(mask, self._loops)
        if any(high <= low for low, high in ranges.values()):
            return self._zeros(buffer, loops)
        if self._is_inside(buffer, index, {v: ranges[v] for v, _ in loops}):
            number = literal(self.wanted, buffer.dtype)
            operand = self._padded(self._accesses, buffer, index, loops, ranges, number)
            if masks.is_box(mask, loops):
                self.elsewhere[operand.tensor.name] = number
            return operand
        found = masks.merged(mask, index, self._loops)
        if found is not None:
            operand = self._merged_load(buffer, mask, loops, *found)
            if operand is not None:
                return operand
        return self._windowed(buffer, index, mask, loops) or self._clamped(buffer, index, mask)

    def _zeros(self, buffer: Buffer, loops: Loops) -> Operand:
        """What a load yields whose mask never holds."""
        zeros = self._writer.filled([n for _, n in loops], ELEMENTS[buffer.dtype], literal(0, buffer.dtype))
        return Operand(zeros, tuple(v for v, _ in loops))

    def _is_inside(self, buffer: Buffer, index: Index, ranges: dict[str, tuple[int, int]]) -> bool:
        found = masks.extremes(index, ranges)
        return found is not None and found[0] >= 0 and found[1] < span(buffer)

    def _padded(
        self, accesses: Accesses, buffer: Buffer, index: Index, loops: Loops, ranges: Mapping[str, tuple[int, int]], number: str = ""
    ) -> Operand:
        """The load on a box of the loops, padded to all of them with a number, zero by default."""
        self._note(buffer.name, "pad")
        trips = dict(loops)
        box = [(v, ranges[v][1] - ranges[v][0]) for v, _ in loops]
        shifted = index.substituted({v: variable(v) + Index(ranges[v][0]) if n > 1 else Index(ranges[v][0]) for v, n in box})
        operand = accesses.within([(v, n) for v, n in box if n > 1]).load(buffer, shifted)
        single = tuple(v for v, n in box if n == 1)
        labels = (*single, *operand.labels)
        number = number or literal(0, buffer.dtype)
        if not single:
            low = [ranges[v][0] for v in labels]
            high = [trips[v] - ranges[v][1] for v in labels]
            return Operand(self._writer.pad(operand.tensor, low, high, number), labels)
        whole = self._writer.filled([trips[v] for v in labels], ELEMENTS[buffer.dtype], number)
        sizes = [ranges[v][1] - ranges[v][0] for v in labels]
        tensor = self._writer.insert(operand.tensor, whole, [ranges[v][0] for v in labels], sizes, [1] * len(labels))
        return Operand(tensor, labels)

    def _merged_load(
        self, buffer: Buffer, mask: Node, loops: Loops, name: str, parts: Sequence[str], count: int, index: Index
    ) -> Operand | None:
        """The load with several variables as one, if that makes the mask a box."""
        low, high = 0, count
        weights = {v: 1 for v in parts}
        trips = dict(loops)
        for k in range(len(parts) - 2, -1, -1):
            weights[parts[k]] = weights[parts[k + 1]] * trips[parts[k + 1]]
        for comparison in masks.comparisons(mask):
            if not comparison.is_affine or comparison.variables != set(parts):
                continue
            scale = comparison.coefficient(parts[-1])
            if any(comparison.coefficient(v) != scale * weights[v] for v in parts):
                continue
            if scale > 0:
                low = max(low, -(comparison.constant // scale))
            else:
                high = min(high, comparison.constant // -scale + 1)
        ranges = masks.box(mask, self._loops)
        merged = [(v, n) for v, n in loops if v not in parts]
        at = min(k for k, (v, _) in enumerate(loops) if v in parts)
        merged.insert(at, (name, count))
        ranges[name] = (low, high)
        if low >= high:
            return self._zeros(buffer, loops)
        if not self._is_inside(buffer, index, {v: ranges[v] for v, _ in merged}):
            return None
        operand = self._padded(self._accesses, buffer, index, merged, ranges)
        labels = tuple(p for v in operand.labels for p in (parts if v == name else (v,)))
        return Operand(self._writer.reshape(operand.tensor, [trips[v] for v in labels]), labels)

    def _windowed(self, buffer: Buffer, index: Index, mask: Node, loops: Loops) -> Operand | None:
        """The load of what is reached of each dim, padded to what is asked for; None if no window of dims is asked for, or one that is
        much more than the points.
        """
        dims = [buffer.dims[k] for k in stride_order(buffer)]
        reached = masks.windows(mask, index, dims, loops) or []
        wholes = [w.greatest - w.least + 1 for w in reached]
        if len(reached) != len(dims) or prod(wholes) > 2 * max(prod(n for _, n in loops), span(buffer)):
            return None
        names = [f"dim {k}" for k in range(len(dims))]
        boxes = [(max(w.least, 0), min(w.greatest + 1, n)) for w, (n, _) in zip(reached, dims, strict=True)]
        walked = {v: high - low for v, (low, high) in zip(names, boxes, strict=True) if high - low > 1}
        index = Index()
        for v, (_, stride), (low, _) in zip(names, dims, boxes, strict=True):
            index += ((variable(v) if v in walked else Index()) + Index(low)).scaled(stride)
        part = self._accesses.within(list(walked.items())).load(buffer, index)
        order = [names.index(v) for v in (*part.labels, *(v for v in names if v not in walked))]
        order = [k for k in order if wholes[k] > 1]
        tensor = self._writer.reshape(part.tensor, [walked.get(names[k], 1) for k in order])
        low = [boxes[k][0] - reached[k].least for k in order]
        high = [reached[k].greatest + 1 - boxes[k][1] for k in order]
        self._note(buffer.name, "pad")
        padded = self._writer.pad(tensor, low, high, literal(0, buffer.dtype))
        strides = [prod(padded.shape[k + 1 :]) for k in range(len(order))]
        position = Index()
        for k, stride in zip(order, strides, strict=True):
            position += (reached[k].position + Index(-reached[k].least)).scaled(stride)
        whole = Buffer(buffer.name, buffer.dtype, padded.shape, tuple(strides), 0, "temp")
        return self._accesses.of({buffer.name: padded}).load(whole, position)

    def _clamped(self, buffer: Buffer, index: Index, mask: Node) -> Operand:
        """A gather whose index is 0 wherever the mask is false."""
        node = index_node(index, {name: t.node for name, t in self._tables.items() if name in index.variables})
        name = f"index {len(self._tables)}"
        self._tables[name] = Table(Node("where", "int64", (mask, node, constant_node(0, "int64"))), span(buffer))
        self._note(buffer.name, "index table", "mask")
        return self._accesses.load(buffer, variable(name))
