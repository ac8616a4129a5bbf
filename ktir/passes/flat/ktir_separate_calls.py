"""Logical KTIR whose functions nest: each function has ops or calls, never both, and says what its arguments are, whoever calls it.

So every later pass works on functions without calls as if each were a program, once, however often it is called.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ktir.analysis.attributes.kernel import is_authors
from ktir.analysis.attributes.levels import require_level
from ktir.analysis.calls import (
    argument_attributes,
    callee,
    callees_first,
    calls_of,
    functions_of,
    is_kernel,
    root_of,
    runs_of,
    set_arguments,
    text_attribute,
    with_text,
)
from ktir.analysis.shared_memory import base_of, shared_arguments, uses_of
from ktir.diagnostics import Unsupported, location_text, refused
from ktir.dialects import ktdp
from ktir.dialects.module_level import Level
from ktir.dialects.op_facts import ADDRESSES, PLACES
from ktir.mlir import func, ir, is_a, linalg, names, operations, tensor
from ktir.passes.flat.memory.new_arguments import NewArguments, pool_tile
from ktir.pipeline import Pass


@dataclass(frozen=True)
class SeparateCallsPass(Pass):
    """Put the ops of a function that calls others into functions of their own, and mark memory that calls share.

    Expects: the logical level. Guarantees: the logical level; a function with calls has nothing else; tensors that live across a call are
    in pools; `ktir.role` of a called function's argument is `shared` where other calls see the memory too, else what the function does with
    it. A module of one function stays as it is. Values do not change.
    """

    name: ClassVar[str] = "ktir-separate-calls"
    description: ClassVar[str] = "logical: a function has ops or calls, called functions know what memory is shared"

    def run(self, module: ir.Module) -> None:
        """Rewrite the functions of the module."""
        require_level(module, self.name, Level.LOGICAL)
        functions = functions_of(module)
        if not any(calls_of(f) for f in functions.values()):
            return
        root = root_of(functions, module.operation.location)
        for name in callees_first(functions):
            if is_authors(functions[name]):
                continue
            _refuse(functions[name], functions)
            if calls_of(functions[name]):
                _Parts(functions[name], uses_of(functions)[name].writes).separate()
        functions = functions_of(module)
        runs = runs_of(functions)
        uses, shared = uses_of(functions), shared_arguments(functions, module.operation.location)
        for name, function in functions.items():
            if name != root.name.value:
                function.attributes["sym_visibility"] = ir.StringAttr.get("private")
            if name != root.name.value and not is_authors(function):
                _set_roles(function, ["shared" if (name, i) in shared else uses[name].role(i) for i in range(len(function.arguments))])
                count = runs[name]
                self.remark("analysis", f"'@{name}' is planned once for {count} run{'s' * (count != 1)}", function.location)


def _refuse(function: func.FuncOp, functions: dict[str, func.FuncOp]) -> None:
    if is_kernel(function):
        raise Unsupported(f"'func.func' op '@{function.name.value}' is a kernel on the logical level", location_text(function.location))
    for call in calls_of(function):
        if callee(call) not in functions or not functions[callee(call)].regions[0].blocks:
            raise Unsupported(f"'func.call' op calls '@{callee(call)}', which has no body", location_text(call.location))
        if len(call.results) or call.parent.operation != function.operation:
            raise Unsupported(
                f"'func.call' op of '@{callee(call)}' stands in a loop or has results, which is not supported; the nearest supported form "
                "stores results to memory that it is given",
                location_text(call.location),
            )


def _set_roles(function: func.FuncOp, roles: Sequence[str]) -> None:
    attributes = zip(argument_attributes(function), roles, strict=True)
    set_arguments(function, [a if text_attribute(a, "ktir.role") == "iota" else with_text(a, "ktir.role", role) for a, role in attributes])


_REPEATED = names(*ADDRESSES, *PLACES, ktdp.ConstructDistributedMemoryViewOp, tensor.EmptyOp, linalg.FillOp)


class _Parts:
    """Moves what stands between the calls of one function into functions."""

    def __init__(self, function: func.FuncOp, written: Collection[int]) -> None:
        self.function, self.written = function, written
        self.arguments = NewArguments(function)
        self.block: ir.Block = function.regions[0].blocks[0]
        self.part_of: dict[ir.Operation, int] = {}
        self.spilled: dict[ir.Value, ir.Value] = {}
        """Tensor -> base address of the pool that holds it."""

    def separate(self) -> None:
        """Rewrite the function."""
        ops = [o.operation for o in self.block.operations]
        calls = [op for op in ops if is_a(op, func.CallOp)]
        part = 0
        for op in ops[:-1]:
            part += is_a(op, func.CallOp)
            if not is_a(op, func.CallOp):
                self.part_of[op] = part
        for op in reversed(ops):  # what is put together is so where the last part of it is: before, it is no tensor yet
            users = [use.owner.operation for result in op.results for use in result.uses]
            if op in self.part_of and len(users) == 1 and all(is_a(o, tensor.InsertSliceOp) for o in (op, *users)):
                self.part_of[op] = self.part_of.get(users[0], self.part_of[op])
        self.free = {op for op in self.part_of if self._can_be_repeated(op)}
        for op in ops[:-1]:
            self._spill(op)
        ends = [*calls, ops[-1]]
        for number, end in enumerate(ends):
            own = [op for op in ops if self.part_of.get(op) == number and op not in self.free]
            if any(is_a(op, ktdp.StoreOp) or any(r in self.spilled for r in op.results) for op in own):
                self._outline(number, own, end)
        for op in reversed(ops[:-1]):
            if not is_a(op, func.CallOp) and not any(list(r.uses) for r in op.results):
                op.erase()
        self.arguments.finish()

    def _can_be_repeated(self, op: ir.Operation) -> bool:
        """Whether an op gives the same in whatever part it stands, and costs nothing there: an address, a constant, a read of an input."""
        if is_a(op, ktdp.LoadOp):
            views = [v.owner for v in op.operands[0].owner.operands if isinstance(v.type, ir.MemRefType)]
            return not any(base_of(view.operands[0])[0] in self.written for view in views)
        return op.name in _REPEATED

    def _spill(self, op: ir.Operation) -> None:
        """Find memory for what later parts read of an op."""
        if op not in self.part_of or op in self.free:
            return
        for result in op.results:
            if any(part != self.part_of[op] for part in self._readers(result)):
                if not isinstance(result.type, ir.RankedTensorType):
                    raise refused(op, f"makes a '{result.type}' that is used behind a call")
                type_ = ir.RankedTensorType(result.type)
                self.spilled[result] = self.arguments.add("pool", type_.shape, type_.element_type, op.location)

    def _readers(self, value: ir.Value) -> set[int]:
        """Parts that read a value, also through ops that are repeated."""
        found: set[int] = set()
        for use in value.uses:
            user = use.owner.operation
            while user.parent.operation != self.function.operation:  # in the body of an op
                user = user.parent.operation
            if user not in self.part_of:
                continue
            found |= set().union(*(self._readers(r) for r in user.results)) if user in self.free else {self.part_of[user]}
        return found

    def _outline(self, number: int, own: Sequence[ir.Operation], end: ir.Operation) -> None:
        """Make the function of part `number` and call it before `end`."""
        part = _Part(self, number)
        name = f"{self.function.name.value}_part{number}"
        with ir.InsertionPoint(self.function), own[0].location:
            made = func.FuncOp(name, ([], []))
        part.block = made.add_entry_block()
        with ir.InsertionPoint(part.block):
            for op in own:
                part.clone(op)
                for result in op.results:
                    if result in self.spilled:
                        with op.location:
                            ktdp.store(part.values[result], part.pool_tile(result))
            with own[0].location:
                func.ReturnOp([])
        set_arguments(made, [self.arguments.attributes[ir.BlockArgument(v).arg_number] for v in part.given])
        with ir.InsertionPoint(end), own[0].location:
            func.CallOp([], name, part.given)


class _Part:
    """A function that is made from ops of another one."""

    block: ir.Block

    def __init__(self, parts: _Parts, number: int) -> None:
        self.parts, self.number = parts, number
        self.values: dict[ir.Value, ir.Value] = {}
        self.given: list[ir.Value] = []

    def clone(self, op: ir.Operation) -> None:
        """A copy of an op, after copies of what it reads."""
        inside = [v for o in operations(op) for v in o.operands]
        for operand in inside:
            self._value(operand, op)
        copy = op.clone()
        for o in operations(copy):
            for i, operand in enumerate(o.operands):
                if operand in self.values:
                    o.operands[i] = self.values[operand]
        self.values.update(zip(op.results, copy.results, strict=True))

    def _value(self, value: ir.Value, user: ir.Operation) -> None:
        if value in self.values:
            return
        owner = value.owner
        if isinstance(owner, ir.Block):
            if owner == self.parts.block:
                self.given.append(value)
                self.values[value] = self.block.add_argument(ir.IndexType.get(), user.location)
            return
        op = owner.operation
        if op not in self.parts.part_of:
            return  # of the body of an op
        if op in self.parts.free or self.parts.part_of[op] == self.number:
            self.clone(op)
        else:
            type_ = ir.RankedTensorType(value.type)
            with op.location:
                self.values[value] = ktdp.load(self.pool_tile(value), type_.element_type)

    def pool_tile(self, value: ir.Value) -> ir.Value:
        """The memory of a tensor that lives across a call: row-major, rows of whole sticks."""
        base = self.parts.spilled[value]
        self._value(base, value.owner.operation)
        return pool_tile(self.values[base], ir.RankedTensorType(value.type))
