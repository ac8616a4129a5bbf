"""What calls of functions do to the memory of an entry: which buffers are seen by one call alone, and which are shared between calls.

The layouts of a function are planned once, whoever calls it. What only one run of a function touches, and what the program never writes,
the host may pack as that function wants it. All else is shared memory, linear: each function has its own views of it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ktir.analysis.attributes.kernel import is_authors
from ktir.analysis.attributes.levels import constant_of
from ktir.analysis.calls import Functions, argument_attributes, callee, callees_first, calls_of, root_of, text_attribute
from ktir.analysis.interface.parameters import parameters
from ktir.diagnostics import Diagnostic, Unsupported, location_text
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.mlir import arith, func, ir, is_a


@dataclass
class Uses:
    """Arguments of a function that it, or what it calls, reads and writes."""

    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)

    @property
    def touched(self) -> set[int]:
        """Both."""
        return self.reads | self.writes

    def role(self, argument: int) -> str:
        """What a function does with an argument, as a role."""
        if argument not in self.writes:
            return "input"
        return "input_output" if argument in self.reads else "output"


def uses_of(functions: Functions) -> dict[str, Uses]:
    """Per function of the logical level what it does to its arguments."""
    found: dict[str, Uses] = {}
    for name in callees_first(functions):
        uses = found[name] = own_uses(functions[name])
        for call in calls_of(functions[name]):
            inner = found[callee(call)]
            for i, operand in enumerate(call.operands):
                argument, _ = base_of(operand)
                if i in inner.reads:
                    uses.reads.add(argument)
                if i in inner.writes:
                    uses.writes.add(argument)
    return found


def base_of(value: ir.Value) -> tuple[int, int]:
    """The argument that an address begins at, and the elements between. Raises Unsupported for any other address."""
    offset = 0
    while not isinstance(value.owner, ir.Block):
        add = value.owner
        constants = [constant_of(v) for v in add.operands] if is_a(add, arith.AddIOp) else []
        known = next((i for i, c in enumerate(constants) if c is not None), None)
        if known is None:
            text = "expects addresses that are arguments, or constants added to them, for a function that is called"
            raise Unsupported(f"'{add.name}' op {text}", location_text(add.location))
        offset += constants[known] or 0
        value = add.operands[1 - known]
    return ir.BlockArgument(value).arg_number, offset


def own_uses(function: func.FuncOp) -> Uses:
    """What a function does to its arguments, calls aside. Raises Unsupported for addresses of another form."""
    if is_authors(function):
        found, _ = parameters(function.operation.parent, function.name.value)
        return Uses({p.position for p in found if "in" in p.role}, {p.position for p in found if "output" in p.role})
    uses = Uses()
    for view in (o.operation for o in function.regions[0].blocks[0].operations):
        if not is_a(view, ktdp.ConstructMemoryViewOp):
            continue
        argument, _ = base_of(view.operands[0])
        for use in view.results[0].uses:
            if not use.owner.operation.results:
                continue
            if use.operand_number:  # a table of an indirect tile
                uses.reads.add(argument)
            for user in use.owner.operation.results[0].uses if use.operand_number == 0 else ():
                if is_a(user.owner, ktdp.StoreOp, kt.ScatterAddOp):
                    uses.writes.add(argument)
                if not is_a(user.owner, ktdp.StoreOp):
                    uses.reads.add(argument)
    return uses


def shared_arguments(functions: Functions, where: ir.Location) -> set[tuple[str, int]]:
    """(function, argument) of all that is shared memory in some call."""
    uses = uses_of(functions)
    runs: Counter[int] = Counter()
    places: dict[tuple[str, int], set[int]] = {}
    root = root_of(functions, where)

    def visit(function: func.FuncOp, given: list[int]) -> None:
        name = function.name.value
        for argument, buffer in enumerate(given):
            places.setdefault((name, argument), set()).add(buffer)
        calls = calls_of(function)
        if not calls:
            runs.update({given[argument] for argument in uses[name].touched})
        for call in calls:
            visit(functions[callee(call)], [given[base_of(operand)[0]] for operand in call.operands])

    own = list(range(len(root.regions[0].blocks[0].arguments)))
    visit(root, own)
    written = uses[root.name.value].writes
    pools = {i for i, given in enumerate(argument_attributes(root)) if text_attribute(given, "ktir.role") == "pool"}
    shared = {i for i in own if i in pools or (i in written and runs[i] > 1)}
    return {place for place, buffers in places.items() if buffers & shared}


def refuse_overlap(call: ir.Operation, uses: Uses, extents: dict[int, int]) -> None:
    """Raise Unsupported where a function is given the same memory twice and writes to it; `extents`: elements that it touches."""
    given = [(i, *base_of(operand)) for i, operand in enumerate(call.operands)]
    for i, base, first in given:
        for j, other, second in given[i + 1 :]:
            apart = first + extents.get(i, 0) <= second or second + extents.get(j, 0) <= first
            if base == other and not apart and uses.writes & {i, j}:
                text = f"gives '@{callee(call)}' the same memory as arguments #{i} and #{j}, one of which it writes, which is not supported"
                note = Diagnostic("note", "the nearest supported form stores to memory of its own", location_text(call.location))
                raise Unsupported(f"'func.call' op {text}", location_text(call.location), (note,))
