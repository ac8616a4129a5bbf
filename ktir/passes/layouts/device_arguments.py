"""Arguments of a laid-out function: what the host packs into sticks, and linear memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ktir.analysis.calls import host_number
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects._foundation import affine
from ktir.dialects.structured import moved_by
from ktir.layout import Layout
from ktir.mlir import ir
from ktir.passes.layouts.buffers import Buffers
from ktir.target import LANES


def element_type(dtype: str) -> ir.Type:
    """The MLIR type of a layout's `dtype`."""
    return ir.Type.parse(dtype)


def encoding(layout: Layout, pad: str = "uninit") -> ir.Attribute:
    """The attribute `#ktir.layout` of a layout."""
    element = element_type(layout.dtype)
    return kt.LayoutAttr.build(list(layout.size), list(layout.device_size), list(layout.stride_map), element, pad=pad)


def described(name: str, role: str, layout: Layout, host: ir.Attribute | None) -> ir.DictAttr:
    """The attributes of a device argument."""
    attributes: dict[str, ir.Attribute] = {"ktir.name": ir.StringAttr.get(name), "ktir.role": ir.StringAttr.get(role)}
    if host is not None:
        attributes["ktir.host"] = host
    return ir.DictAttr.get({**attributes, "ktir.layout": encoding(layout, "zero")})


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
        attributes |= {"masked": ir.UnitAttr.get(), "coordinate_set": affine.clipped(sizes, 0, columns - 1)}
    return ktdp.construct_memory_view(
        moved_by(base, offset), sizes, [LANES * lane, *rows, lane], element_type(layout.dtype), attributes=attributes
    )


@dataclass(frozen=True)
class DeviceView:
    """What makes one packed argument: a view of a host buffer with rows first and the stick dimension last."""

    host: int
    offset: int
    size: tuple[int, ...]
    strides: tuple[int, ...]
    layout: Layout

    @property
    def reach(self) -> int:
        """End of the elements that it shows."""
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(self.size, self.strides, strict=True))


@dataclass(frozen=True)
class DeviceArgument:
    """An argument of a laid-out function: what of which argument of the logical function it is. `source`: None for memory of its own."""

    layout: Layout
    attribute: ir.DictAttr
    source: int | None = None
    view: DeviceView | None = None
    """What the host packs; None for linear memory."""
    first: int = 0
    """Of linear memory: the element of the logical argument that it begins with."""
    elements: int = 0
    """Of linear memory, as far as the function touches it."""
    filled: bool = False
    """Whether the function stores to every element of linear memory, whatever was there before."""


class DeviceArguments:
    """The arguments of a function that is being built, in the order of their first use."""

    def __init__(self, buffers: Buffers, block: ir.Block) -> None:
        self.buffers = buffers
        self.block = block
        self.given: list[DeviceArgument] = []
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
            host = kt.HostViewAttr.build(self._number(view.host), view.offset, list(view.size), list(view.strides))
            name, role = self.buffers.name(view.host), self.buffers.role(view.host)
            self.bases[view] = self._add(name, view.layout, location, role=role, host=host, source=view.host, view=view)
        return self.bases[view]

    def _number(self, argument: int) -> int:
        return host_number(self.buffers.attributes, argument)

    def linear(self, argument: int, dtype: str, location: ir.Location) -> ir.Value:
        """The base address of all of a buffer."""
        if argument not in self.bases:
            role, elements = self.buffers.role(argument), self.buffers.elements(argument)
            uses = self.buffers.uses[argument]
            partly = role == "output" and not self.buffers.is_filled(argument, elements)
            if partly or (role == "input" and (uses.stores or uses.scattered)):
                role = "input_output"
            host = None if role in ("pool", "iota", "shared") else kt.HostViewAttr.build(self._number(argument), 0, [elements], [1])
            layout, name = Layout.linear(elements, dtype), self.buffers.name(argument)
            reach = self.buffers.reach(argument)
            filled = self.buffers.is_filled(argument, reach)
            self.bases[argument] = self._add(name, layout, location, role=role, host=host, source=argument, elements=reach, filled=filled)
        return self.bases[argument]

    def pool(self, elements: int, dtype: str, location: ir.Location) -> ir.Value:
        """The base address of new linear memory."""
        self.pools += 1
        return self._add(f"pool{self.pools - 1}", Layout.linear(elements, dtype), location, role="pool", host=None)

    def _add(self, name: str, layout: Layout, location: ir.Location, *, role: str, host: ir.Attribute | None, **where: Any) -> ir.Value:
        self.given.append(DeviceArgument(layout, described(name, role, layout, host), **where))
        return self.block.add_argument(ir.IndexType.get(), location)
