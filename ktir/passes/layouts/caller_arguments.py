"""Device arguments of functions that call others, from what the functions that they call want.

A called function is laid out once. What it wants packed, each caller packs: the host view of a device argument is that of the caller's own
argument at the call's offset. What calls share is linear: one argument per buffer, whoever reads or writes it in whatever layout. Memory of
a function's own is shared by all of its calls.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from math import prod

from ktir.analysis.calls import (
    argument_attributes,
    callee,
    callees_first,
    calls_of,
    free_name,
    functions_of,
    host_number,
    set_arguments,
    text_attribute,
    with_text,
)
from ktir.analysis.shared_memory import Uses, base_of, refuse_overlap, uses_of
from ktir.diagnostics import Diagnostic, Unsupported, location_text
from ktir.dialects import ktir as kt
from ktir.layout import Layout
from ktir.mlir import func, ir
from ktir.passes.layouts.device_arguments import DeviceArgument, DeviceView, described
from ktir.passes.pinning.copied_inputs import Copied
from ktir.roles import Role


class Callers:
    """The functions of a logical module on their way to device arguments; those that are called go first."""

    def __init__(self, module: ir.Module, copied: Mapping[tuple[str, int], Copied]) -> None:
        functions = functions_of(module)
        self.copied = copied
        """(function, argument) of memory in the place of which the host packs an input."""
        self.functions = {name: functions[name] for name in callees_first(functions)}
        self.uses = uses_of(self.functions) if len(self.functions) > 1 else {}
        self.given: dict[str, list[DeviceArgument]] = {}
        """The device arguments of the functions that are laid out."""

    def rewritten(self, caller: func.FuncOp) -> list[DeviceArgument]:
        """Give a caller device arguments, and its calls those of what they call; returns the caller's."""
        built = _Caller(self, caller)
        for call in calls_of(caller):
            built.add(call)
        return built.finish()


@dataclass
class _Linear:
    """Linear memory of a caller: part of one of its arguments, from `first` element on."""

    argument: int
    first: int
    elements: int
    stored: int
    """Elements as the functions lay the memory out, which may end with whole sticks."""
    dtype: str
    call: ir.Operation
    """The first one that is given it."""
    filled: int = 0
    """Elements that this call fills without reading any."""

    @property
    def end(self) -> int:
        return self.first + self.elements


class _Caller:
    def __init__(self, callers: Callers, function: func.FuncOp) -> None:
        self.callers, self.function = callers, function
        self.attributes = argument_attributes(function)
        self.uses: Uses = callers.uses[function.name.value]
        self.places: dict[Hashable, DeviceArgument | _Linear] = {}
        """What an argument is for -> what is known of it, in order of first use."""
        self.wanted: list[tuple[ir.Operation, list[Hashable]]] = []

    def add(self, call: ir.Operation) -> None:
        """Note what a call needs."""
        name = callee(call)
        given = self.callers.given[name]
        extents: dict[int, int] = {}
        for argument in given:
            if argument.source is not None:
                reach = argument.first + argument.elements if argument.view is None else argument.view.reach
                extents[argument.source] = max(extents.get(argument.source, 0), reach)
        refuse_overlap(call, self.callers.uses[name], extents)
        keys: list[Hashable] = []
        for i, argument in enumerate(given):
            if argument.source is None:
                key: Hashable = (name, i)
                self.places.setdefault(key, argument)
            elif argument.view is None:
                key = self._linear(call, argument)
            else:
                key = self._packed(call, argument)
            keys.append(key)
        self.wanted.append((call, keys))

    def _packed(self, call: ir.Operation, argument: DeviceArgument) -> Hashable:
        assert argument.source is not None
        assert argument.view is not None
        base, offset = base_of(call.operands[argument.source])
        view = replace(argument.view, host=base, offset=argument.view.offset + offset)
        return self._packed_as(view, text_attribute(argument.attribute, "ktir.role"))

    def _packed_as(self, view: DeviceView, role: str) -> Hashable:
        """An argument that is a view of the caller's own, which the host packs."""
        host = kt.HostViewAttr.build(host_number(self.attributes, view.host), view.offset, list(view.size), list(view.strides))
        described_ = described(text_attribute(self.attributes[view.host], "ktir.name"), role, view.layout, host)
        self.places.setdefault(view, DeviceArgument(view.layout, described_, view.host, view))
        return view

    def _linear(self, call: ir.Operation, argument: DeviceArgument) -> Hashable:
        assert argument.source is not None
        base, offset = base_of(call.operands[argument.source])
        first = offset + argument.first
        stored, dtype = argument.layout.size[-1], argument.layout.dtype
        copied = self.callers.copied.get((self.function.name.value, base))
        if copied is not None:
            layout = Layout.linear(prod(copied.size), copied.dtype)
            return self._packed_as(DeviceView(copied.argument, copied.offset, copied.size, copied.strides, layout), Role.INPUT)
        key = (base, first)
        found = self.places.get(key)
        if found is None:
            is_read = argument.source in self.callers.uses[callee(call)].reads  # perhaps before it is filled
            filled = argument.elements if argument.filled and not is_read else 0
            self.places[key] = _Linear(base, first, argument.elements, stored, dtype, call, filled)
        else:
            assert isinstance(found, _Linear)
            if found.dtype != dtype:
                raise self._clash(found, call, f"as {found.dtype} and as {dtype}")
            found.elements, found.stored = max(found.elements, argument.elements), max(found.stored, stored)
        return key

    def finish(self) -> list[DeviceArgument]:
        """Rebuild the function; returns its arguments."""
        self._refuse_clashes()
        block = self.function.regions[0].blocks[0]
        attributes: list[ir.DictAttr] = []
        values: dict[Hashable, ir.Value] = {}
        made: list[DeviceArgument] = []
        for key, place in self.places.items():
            argument = self._of_linear(place) if isinstance(place, _Linear) else place
            if argument.source is None or argument.view is None:
                name = free_name(text_attribute(argument.attribute, "ktir.name"), attributes)
                argument = replace(argument, attribute=with_text(argument.attribute, "ktir.name", name))
            made.append(argument)
            attributes.append(argument.attribute)
            values[key] = block.add_argument(ir.IndexType.get(), self.function.location)
        for call, keys in self.wanted:
            with ir.InsertionPoint(call), call.location:
                func.CallOp([], callee(call), [values[key] for key in keys])
            call.erase()
        for op in reversed([o.operation for o in block.operations]):
            if op.name.startswith("arith."):
                op.erase()
        for _ in self.attributes:
            block.erase_argument(0)
        set_arguments(self.function, attributes)
        return made

    def _of_linear(self, memory: _Linear) -> DeviceArgument:
        own = self.attributes[memory.argument]
        name, role = text_attribute(own, "ktir.name"), text_attribute(own, "ktir.role")
        if role in ("pool", "iota", "shared"):
            layout, host = Layout.linear(memory.stored, memory.dtype), None
        else:
            layout = Layout.linear(memory.elements, memory.dtype)
            host = kt.HostViewAttr.build(host_number(self.attributes, memory.argument), memory.first, [memory.elements], [1])
            role = self._role(memory)
        filled = memory.filled == memory.elements
        return DeviceArgument(layout, described(name, role, layout, host), memory.argument, None, memory.first, memory.elements, filled)

    def _role(self, memory: _Linear) -> str:
        if memory.argument not in self.uses.writes:
            return "input"
        return "output" if memory.filled == memory.elements else "input_output"

    def _refuse_clashes(self) -> None:
        """Raise for memory that calls see from different places on, if it is written."""
        linear = [place for place in self.places.values() if isinstance(place, _Linear) and place.argument in self.uses.writes]
        for i, one in enumerate(linear):
            for other in linear[i + 1 :]:
                if one.argument == other.argument and one.first < other.end and other.first < one.end:
                    raise self._clash(one, other.call, f"from element {one.first} and from element {other.first} on")

    def _clash(self, first: _Linear, call: ir.Operation, how: str) -> Unsupported:
        name = text_attribute(self.attributes[first.argument], "ktir.name")
        note = Diagnostic("note", "the first one", location_text(first.call.location))
        text = f"'func.call' op sees '{name}' {how} in two calls, which is not supported"
        return Unsupported(text, location_text(call.location), (note,))
