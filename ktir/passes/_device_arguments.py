"""Arguments of a laid-out function: what the host packs into sticks, and linear memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ktir.dialects import _affine, ktdp
from ktir.dialects import ktir as kt
from ktir.layout import Layout
from ktir.mlir import arith, ir
from ktir.passes._buffers import Buffers
from ktir.target import LANES


def element_type(dtype: str) -> ir.Type:
    """The MLIR type of a layout's `dtype`."""
    return {"f16": ir.F16Type.get, "f32": ir.F32Type.get, "i32": lambda: ir.IntegerType.get_signless(32)}[dtype]()


def encoding(layout: Layout, pad: str = "uninit") -> ir.Attribute:
    """The attribute `#ktir.layout` of a layout."""
    element = element_type(layout.dtype)
    return kt.LayoutAttr.build(list(layout.size), list(layout.device_size), list(layout.stride_map), element, pad=pad)


def memory_view(base: ir.Value, layout: Layout) -> ir.Value:
    """The view of a whole device tensor in global memory."""
    sizes = list(layout.device_size)
    strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
    attributes = {"ktir.layout": encoding(layout, "zero")}
    return ktdp.construct_memory_view(base, sizes, strides, element_type(layout.dtype), attributes=attributes)


def strided_view(base: ir.Value, offset: int, layout: Layout, rows: Sequence[int], lane: int) -> ir.Value:
    """Linear memory seen in sticks: `rows` are the strides of the layout's row dims, `lane` that of its columns, after which it clips."""
    sizes, columns = list(layout.device_size), layout.size[-1]
    attributes: dict[str, ir.Attribute] = {"ktir.layout": encoding(layout, "zero")}
    if columns % LANES:
        attributes |= {"masked": ir.UnitAttr.get(), "coordinate_set": _affine.clipped(sizes, 0, columns - 1)}
    if offset:
        base = arith.AddIOp(base, arith.ConstantOp(ir.IndexType.get(), offset).result).result
    return ktdp.construct_memory_view(base, sizes, [LANES * lane, *rows, lane], element_type(layout.dtype), attributes=attributes)


@dataclass(frozen=True)
class DeviceView:
    """What makes one packed argument: a view of a host buffer with rows first and the stick dimension last."""

    host: int
    offset: int
    size: tuple[int, ...]
    strides: tuple[int, ...]
    layout: Layout


class DeviceArguments:
    """The arguments of a function that is being built, in the order of their first use."""

    def __init__(self, buffers: Buffers, block: ir.Block) -> None:
        self.buffers = buffers
        self.block = block
        self.attributes: list[ir.Attribute] = []
        self.views: dict[DeviceView, ir.Value] = {}
        self.bases: dict[int | DeviceView, ir.Value] = {}
        self.pools = sum(buffers.role(i) == "pool" for i in range(len(buffers.attributes)))

    def packed(self, view: DeviceView, location: ir.Location) -> ir.Value:
        """The view op of a packed argument, which stands at the start of the function."""
        if view not in self.views:
            base = self._base(view, location)
            with ir.InsertionPoint.at_block_begin(self.block), location:
                self.views[view] = memory_view(base, view.layout)
        return self.views[view]

    def indices(self, view: DeviceView, location: ir.Location) -> ir.Value:
        """The base address of indices that the host packs one after the other."""
        return self._base(view, location)

    def _base(self, view: DeviceView, location: ir.Location) -> ir.Value:
        if view not in self.bases:
            host = kt.HostViewAttr.build(view.host, view.offset, list(view.size), list(view.strides))
            self.bases[view] = self._add(self.buffers.name(view.host), view.layout, location, role=self.buffers.role(view.host), host=host)
        return self.bases[view]

    def linear(self, argument: int, dtype: str, location: ir.Location) -> ir.Value:
        """The base address of all of a buffer."""
        if argument not in self.bases:
            role, elements = self.buffers.role(argument), self.buffers.elements(argument)
            uses = self.buffers.uses[argument]
            if (role == "output" and not self.buffers.is_filled(argument)) or (role == "input" and (uses.stores or uses.scattered)):
                role = "input_output"
            host = None if role in ("pool", "iota") else kt.HostViewAttr.build(argument, 0, [elements], [1])
            self.bases[argument] = self._add(self.buffers.name(argument), Layout.linear(elements, dtype), location, role=role, host=host)
        return self.bases[argument]

    def pool(self, elements: int, dtype: str, location: ir.Location) -> ir.Value:
        """The base address of new linear memory."""
        self.pools += 1
        return self._add(f"pool{self.pools - 1}", Layout.linear(elements, dtype), location, role="pool", host=None)

    def _add(self, name: str, layout: Layout, location: ir.Location, *, role: str, host: ir.Attribute | None) -> ir.Value:
        attributes: dict[str, ir.Attribute] = {"ktir.name": ir.StringAttr.get(name), "ktir.role": ir.StringAttr.get(role)}
        if host is not None:
            attributes["ktir.host"] = host
        attributes["ktir.layout"] = encoding(layout, "zero")
        self.attributes.append(ir.DictAttr.get(attributes))
        return self.block.add_argument(ir.IndexType.get(), location)
