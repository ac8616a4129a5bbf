"""Memory into which a function with calls only puts elements of an input, in another order, for those that it calls.

The host arranges inputs anyway. So what such memory is for sees an argument that the host packs in that order, one element after the other,
and nothing is copied on the device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from ktir.analysis.attributes.kernel import is_authors
from ktir.analysis.calls import Functions, argument_attributes, callee, calls_of, text_attribute
from ktir.analysis.flat import Memory, Node, read
from ktir.analysis.shared_memory import Uses, base_of, own_uses, uses_of
from ktir.mlir import func, ir
from ktir.roles import Role


@dataclass(frozen=True)
class Copied:
    """Elements of an argument, in their order in such memory."""

    argument: int
    offset: int
    size: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


def copied_inputs(functions: Functions) -> dict[tuple[str, int], Copied]:
    """(function, argument) of such memory -> what the host packs in its place. The copies are taken out of the functions that make them."""
    found: dict[tuple[str, int], Copied] = {}
    runs = Counter(callee(call) for f in functions.values() for call in calls_of(f))
    uses = uses_of(functions)
    for name, caller in functions.items():
        if is_authors(caller):
            continue
        for call in calls_of(caller):
            copier = functions[callee(call)]
            if runs[callee(call)] != 1 or is_authors(copier) or calls_of(copier):
                continue
            for copy in _copies(read(copier)):
                view = _Place(caller, call, uses).of(copy)
                if view is not None:
                    found[name, base_of(call.operands[copy.target.argument])[0]] = view
                    _erase(copy.store)
            if not own_uses(copier).touched:
                call.erase()
                copier.operation.erase()
    return found


@dataclass(frozen=True)
class _Copy:
    """What a function loads from one argument and stores, as it is, over all of another one."""

    source: Memory
    target: Memory
    store: ir.Operation


def _copies(nodes: list[Node]) -> list[_Copy]:
    made = {node.result: node for node in nodes if node.kind == "load"}
    touched = Counter(node.memory.argument for node in nodes if node.memory is not None)
    found = []
    for node in nodes:
        load = made.get(node.tensors[0]) if node.kind == "store" else None
        source, target = (None, None) if load is None else (load.memory, node.memory)
        if source is None or target is None or touched[target.argument] != 1 or target.offset or min(source.strides, default=0) < 0:
            continue
        dense = all(n == 1 or s == prod(target.sizes[d + 1 :]) for d, (n, s) in enumerate(zip(target.sizes, target.strides, strict=True)))
        if dense and source.element == target.element:
            found.append(_Copy(source, target, node.op))
    return found


@dataclass(frozen=True)
class _Place:
    """A call of a function that copies, in the function that calls it."""

    caller: func.FuncOp
    call: ir.Operation
    uses: Mapping[str, Uses]

    def of(self, copy: _Copy) -> Copied | None:
        """What of the caller's input the copy is; None where memory is not of that kind."""
        target, first = base_of(self.call.operands[copy.target.argument])
        source, offset = base_of(self.call.operands[copy.source.argument])
        attributes = argument_attributes(self.caller)
        own = text_attribute(attributes[target], "ktir.role") == Role.POOL
        given = text_attribute(attributes[source], "ktir.role") == Role.INPUT
        elements = prod(copy.target.sizes)
        if not own or not given or first or source in self.uses[self.caller.name.value].writes or not self._is_read_only(target):
            return None
        whole, element = _held(attributes[target])
        if whole != elements or element != copy.source.element or _held(attributes[source])[1] != element:
            return None
        return Copied(source, offset + copy.source.offset, copy.source.sizes, copy.source.strides, element)

    def _is_read_only(self, argument: int) -> bool:
        """Whether this call alone writes memory, and all others see it from its beginning on, behind this call."""
        behind = False
        for call in calls_of(self.caller):
            for position, operand in enumerate(call.operands):
                base, offset = base_of(operand)
                if base == argument and call != self.call:
                    if offset or not behind or position in self.uses[callee(call)].writes:
                        return False
            behind |= call == self.call
        return True


def _held(attributes: ir.DictAttr) -> tuple[int, str]:
    """How many elements an argument has, and of which type."""
    type_ = ir.RankedTensorType(ir.TypeAttr(attributes["ktir.type"]).value)
    return prod(type_.shape), str(type_.element_type)


def _erase(op: ir.Operation) -> None:
    """Take an op out, and what made its operands where nothing else uses them."""
    operands = list(op.operands)
    op.erase()
    for value in operands:
        if not isinstance(value.owner, ir.Block) and not list(value.uses):
            _erase(value.owner.operation)
