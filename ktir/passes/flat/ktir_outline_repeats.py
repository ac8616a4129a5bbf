"""Layers that nobody has called layers: parts of a function that come again and again become one function that is called."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ktir.analysis.attributes.levels import require_level
from ktir.analysis.calls import calls_of, planned, set_arguments
from ktir.analysis.shared_memory import base_of, own_uses
from ktir.diagnostics import Unsupported
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.module_level import Level
from ktir.dialects.op_facts import ADDRESSES, PLACES
from ktir.dialects.structured import moved_by
from ktir.mlir import func, ir, is_a, linalg, names, operations, passmanager, tensor
from ktir.passes.flat.memory.new_arguments import NewArguments, pool_tile
from ktir.passes.flat.outlining.hoist import hoist
from ktir.passes.flat.outlining.repeats import Round, is_of_the_block, outer, readers, repeats_in, token
from ktir.passes.flat.unused_inputs import drop_unused_inputs
from ktir.pipeline import AtLeast, Pass

SAVED = 500
"""Ops of the logical level in eight layers of GPT-2, or six of Llama. The passes behind take some 50 ms for each of them, and what goes
from layer to layer goes through memory: to save less is not worth it."""
_FREE = names(*ADDRESSES, *PLACES, ktdp.LoadOp, tensor.EmptyOp, linalg.FillOp)
"""What may stand in a function as well as before its calls."""
_STORES = names(ktdp.StoreOp, kt.ScatterAddOp)
_FLOATS = (ir.F16Type, ir.BF16Type, ir.F32Type)
Values = tuple[ir.Value, ...]
"""What stands at one place of all rounds."""
Ops = tuple[ir.Operation, ...]


@dataclass(frozen=True)
class OutlineRepeatsPass(Pass):
    """Make what comes again and again in a function, op by op, a function that is called.

    Expects: the logical level. Guarantees: the logical level; values do not change. `saved` ops, or more, are gone, or nothing is
    changed; 0 means never. What one round reads of another goes through pools.
    """

    name: ClassVar[str] = "ktir-outline-repeats"
    description: ClassVar[str] = "logical: equal layers are calls of one function"
    saved: Annotated[int, AtLeast(0)] = SAVED

    def run(self, module: ir.Module) -> None:
        """Rewrite the functions that call no others."""
        require_level(module, self.name, Level.LOGICAL)
        for function in planned(module):
            if 0 < self.saved < len(function.regions[0].blocks[0].operations) and not calls_of(function):
                self._outline(function)

    def _outline(self, function: func.FuncOp) -> None:
        number = 0
        while rounds := self._rounds(function):
            where, what = rounds[0][0].location, f"{len(rounds)} equal parts of {len(rounds[0])} ops are"
            name = f"{function.name.value}_repeat{number}"
            try:
                interface = _Interface(function, rounds)
            except Unsupported as refusal:
                self.remark("missed", f"{what} no calls of a function: {refusal.message}", where)
                return
            _call_rounds(interface, name)
            self.remark("passed", f"{what} calls of '@{name}'", where)
            number += 1

    def _rounds(self, function: func.FuncOp) -> Sequence[Round]:
        """The rounds of a function, once what all of them compute alike is of none."""
        block: ir.Block = function.regions[0].blocks[0]
        _merge_equal(function)
        rounds = repeats_in([o.operation for o in block.operations][:-1], self.saved)
        if not rounds:
            return ()
        own, first = {op for ops in rounds for op in ops}, rounds[0][0]
        for same in zip(*rounds, strict=True):
            if is_a(same[0], linalg.GenericOp) and len(same[0].results) == 1:
                operands = zip(*(op.operands for op in same), strict=True)
                shared = [i for i, values in enumerate(operands) if len(set(values)) == 1 and values[0].owner not in own]
                for op in same:
                    hoist(op, shared, first)
        drop_unused_inputs(function)
        _merge_equal(function)
        return repeats_in([o.operation for o in block.operations][:-1], self.saved)


def _merge_equal(function: func.FuncOp) -> None:
    """Equal ops are one, and equal loads of what nobody writes, which `cse` leaves alone where something is stored between them."""
    written, known = own_uses(function).writes, dict[Hashable, ir.Value]()
    for op in (o.operation for o in function.regions[0].blocks[0].operations):
        places = [op, op.operands[0].owner] if is_a(op, ktdp.LoadOp) else []
        if places and is_a(places[1], ktdp.ConstructAccessTileOp) and len(places[1].operands) == 1:
            view = places[1].operands[0].owner
            argument, distance = base_of(view.operands[0])
            if argument not in written and len(view.operands) == 1:
                key = (argument, distance, *map(token, (*places, view)))
                if (first := known.setdefault(key, op.results[0])) != op.results[0]:
                    op.results[0].replace_all_uses_with(first)
    passmanager.PassManager.parse("func.func(cse)", context=function.context).run(function.operation)


class _Interface:
    """What a function has to get that is made of the rounds of another one. Raises Unsupported where none can be made."""

    def __init__(self, caller: func.FuncOp, rounds: Sequence[Round]) -> None:
        self.caller, self.rounds = caller, rounds
        self.round_of = {op: number for number, ops in enumerate(rounds) for op in ops}
        ops = [o.operation for o in caller.regions[0].blocks[0].operations]
        self.place = {op: i for i, op in enumerate(ops)}
        self.stores = [(i, base_of(view.operands[0])[0]) for i, op in enumerate(ops) if op.name in _STORES for view in _views(op)]
        self.bases: list[list[tuple[int, int]]] = []
        """Per address: in each round the caller's argument, and the elements between."""
        self.tensors: list[Values] = []
        """What comes through memory."""
        self.made: dict[Ops, None] = {}
        """What the function makes itself of addresses and tensors, before all else."""
        for same in zip(*rounds, strict=True):
            self._look_at(same)
        self._refuse_aliases()
        self.staying: set[ir.Operation] = set()
        """Ops of rounds that stay where they are, too, since others read what memory cannot hold, or what costs nothing."""
        self.taken = self._taken()
        """What others read of a round through memory: the numbers of op and result."""

    def base(self, values: Values) -> tuple[int, int]:
        """The number of the address with which the function computes these, and how many elements they are behind it."""
        places = [base_of(value) for value in values]
        for number, known in enumerate(self.bases):
            apart = {(a == b, first - second) for (a, first), (b, second) in zip(places, known, strict=True)}
            if len(apart) == 1 and (found := apart.pop())[0]:
                if found[1] < 0:  # no view begins before its memory
                    self.bases[number] = places
                return number, max(found[1], 0)
        self.bases.append(places)
        return len(self.bases) - 1, 0

    def _look_at(self, same: Ops) -> None:
        """Find out where the function has the operands from of an op that is one of `same` in each round."""
        for values in operands_of(same):
            ops = tuple(value.owner for value in values)
            if isinstance(values[0].type, ir.IndexType):
                self.base(values)
            elif all(self.round_of.get(op) == number for number, op in enumerate(ops)) or ops in self.made or values in self.tensors:
                continue
            elif self._can_be_made(values, ops, same):
                self._look_at(ops)
                self.made[ops] = None
            else:
                for value in values:
                    _refuse_unless_memory(value)
                self.tensors.append(values)

    def _can_be_made(self, values: Values, ops: Ops, reading: Ops) -> bool:
        """Whether the function makes an operand: it costs nothing, is nothing that memory can hold, or each round has one of its own."""
        if len({token(op) for op in set(ops)}) > 1 or len({ir.OpResult(value).result_number for value in values}) > 1:
            return False
        if any(op in self.round_of for op in ops) and ops[0].name not in _FREE:
            return False
        if any(self._is_written_before(op, number) for number, op in enumerate(ops)):
            return False
        own = len(set(values)) == len(values) and all(set(readers(v)) == {r} for v, r in zip(values, reading, strict=True))
        return own or ops[0].name in _FREE or not _can_be_in_memory(values[0].type)

    def _is_written_before(self, op: ir.Operation, number: int) -> bool:
        """Whether what an op loads is something else where that round begins."""
        if not is_a(op, ktdp.LoadOp):
            return False
        read = {base_of(view.operands[0])[0] for view in _views(op)}
        return any(argument in read for place, argument in self.stores if self.place[op] < place < self.place[self.rounds[number][0]])

    def _taken(self) -> list[tuple[int, int]]:
        through = {value for values in self.tensors for value in values}
        taken: set[tuple[int, int]] = set()
        for ops in self.rounds:
            for k, op in enumerate(ops):
                for j, value in enumerate(op.results):
                    stays = op.name in _FREE or not _can_be_in_memory(value.type)
                    read = any(reader not in self.round_of for reader in readers(value))
                    if value in through or (read and not stays):
                        taken.add((k, j))
                    elif read:
                        self._stay(op)
        return sorted(taken)

    def _stay(self, op: ir.Operation) -> None:
        """Let an op of a round stay, with all that it reads of the round."""
        self.staying.add(op)
        for (value,) in operands_of((op,)):
            if not isinstance(value.owner, ir.Block) and value.owner in self.round_of:
                if value.owner.name not in _FREE:
                    _refuse_if_memory(value)
                self._stay(value.owner)

    def _refuse_aliases(self) -> None:
        written = own_uses(self.caller).writes
        for number in range(len(self.rounds)):
            arguments = [places[number][0] for places in self.bases]
            if any(arguments.count(argument) > 1 for argument in written):
                raise Unsupported("memory that they write would be two of its arguments")


def operands_of(same: Ops) -> list[Values]:
    """The operands of an op in all rounds, those of its body included, that are made outside of it."""
    found = (values for ops in zip(*map(operations, same), strict=True) for values in zip(*(op.operands for op in ops), strict=True))
    return [values for values in found if is_of_the_block(values[0])]


def _views(op: ir.Operation) -> list[ir.Operation]:
    """The views of memory that a load or a store reaches, those of its indices included."""
    tile = next(v for v in op.operands if not isinstance(v.type, ir.RankedTensorType))
    return [v.owner for v in tile.owner.operands if is_a(v.owner, ktdp.ConstructMemoryViewOp)]


def _can_be_in_memory(type_: ir.Type) -> bool:
    """Integers are as wide as their bounds are, which are not known of memory."""
    return isinstance(type_, ir.RankedTensorType) and isinstance(type_.element_type, _FLOATS)


def _refuse_unless_memory(value: ir.Value) -> None:
    if not _can_be_in_memory(value.type):
        raise Unsupported(f"a '{value.type}' would go through memory")


def _refuse_if_memory(value: ir.Value) -> None:
    if _can_be_in_memory(value.type):
        raise Unsupported(f"integers are computed of a '{value.type}' that would be computed twice")


def _call_rounds(interface: _Interface, name: str) -> None:
    """Make the function `name` of the rounds, and calls of it in their place."""
    rounds, arguments = interface.rounds, NewArguments(interface.caller)
    pools = _Pools(interface, arguments)
    given = [[pools.of(values[number]) for values in interface.tensors] for number in range(len(rounds))]
    attributes = [arguments.attributes[places[0][0]] for places in interface.bases]
    attributes += [arguments.attributes[ir.BlockArgument(v).arg_number] for v in (*given[0], *pools.of_rounds[0])]
    _Function(interface, name, attributes).write()
    for number, ops in enumerate(rounds):
        with ir.InsertionPoint.after(ops[-1]), ops[0].location:
            bases = [moved_by(arguments.block.arguments[places[number][0]], places[number][1]) for places in interface.bases]
            call = func.CallOp([], name, [*bases, *given[number], *pools.of_rounds[number]])
        pools.hand_out(number, call.operation)
    for op in reversed([op for ops in rounds for op in ops if op not in interface.staying]):
        op.erase()
    arguments.finish()


class _Pools:
    """The memory of what rounds make that others read, and of what they read that no round has made."""

    def __init__(self, interface: _Interface, arguments: NewArguments) -> None:
        self.interface, self.arguments = interface, arguments
        self.of_value: dict[ir.Value, ir.Value] = {}
        self.of_rounds: list[list[ir.Value]] = []
        free: list[tuple[int, ir.Type, ir.Value]] = []
        """Memory that is read in that round for the last time."""
        for number, ops in enumerate(interface.rounds):
            self.of_rounds.append([])
            for k, j in interface.taken:
                value = ops[k].results[j]
                known = next((f for f in free if f[0] < number and f[1] == value.type), None)
                if known is not None:
                    free.remove(known)
                base = self._new(value) if known is None else known[2]
                self.of_value[value] = base
                self.of_rounds[-1].append(base)
                rounds = [interface.round_of.get(reader) for reader in readers(value)]
                if None not in rounds:
                    free.append((max((r for r in rounds if r is not None), default=number), value.type, base))

    def of(self, value: ir.Value) -> ir.Value:
        """The base address of the memory of a tensor that a round reads."""
        if value not in self.of_value:
            with ir.InsertionPoint.after(value.owner), value.owner.location:
                self.of_value[value] = self._new(value)
                ktdp.store(value, pool_tile(self.of_value[value], value.type))
        return self.of_value[value]

    def hand_out(self, number: int, call: ir.Operation) -> None:
        """Let readers that are in no round load what `call`, of that round, has stored."""
        for (k, j), base in zip(self.interface.taken, self.of_rounds[number], strict=True):
            value = self.interface.rounds[number][k].results[j]
            uses = [use for use in value.uses if outer(use.owner.operation) not in self.interface.round_of]
            if uses:
                with ir.InsertionPoint.after(call), call.location:
                    loaded = ktdp.load(pool_tile(base, value.type), value.type.element_type)
                for use in uses:
                    use.owner.operation.operands[use.operand_number] = loaded

    def _new(self, value: ir.Value) -> ir.Value:
        return self.arguments.add("pool", value.type.shape, value.type.element_type, value.owner.location)


class _Function:
    """The function that is made of the rounds: a copy of the first one, placed where all of them are."""

    def __init__(self, interface: _Interface, name: str, attributes: Sequence[ir.DictAttr]) -> None:
        self.interface, self.where = interface, interface.rounds[0][0].location
        with ir.InsertionPoint(interface.caller), self.where:
            self.made = func.FuncOp(name, ([], []))
        block = self.made.add_entry_block()
        memory = [block.add_argument(ir.IndexType.get(), self.where) for _ in attributes]
        bases, tensors = len(interface.bases), len(interface.tensors)
        self.bases, self.tensors, self.results = memory[:bases], memory[bases : bases + tensors], memory[bases + tensors :]
        self.copies: dict[Values, ir.Value] = {}
        set_arguments(self.made, list(attributes))

    def write(self) -> None:
        """Write its body."""
        rounds = self.interface.rounds
        with ir.InsertionPoint(self.made.regions[0].blocks[0]), self.where:
            for values, base in zip(self.interface.tensors, self.tensors, strict=True):
                self.copies[values] = ktdp.load(pool_tile(base, values[0].type), values[0].type.element_type)
            for same in (*self.interface.made, *zip(*rounds, strict=True)):
                self._copy(same)
            for (k, j), base in zip(self.interface.taken, self.results, strict=True):
                with rounds[0][k].location:
                    value = self.copies[tuple(ops[k].results[j] for ops in rounds)]
                    ktdp.store(value, pool_tile(base, value.type))
            func.ReturnOp([])

    def _copy(self, same: Ops) -> None:
        copy = same[0].clone()
        for new, *old in zip(operations(copy), *map(operations, same), strict=True):
            for i, values in enumerate(zip(*(op.operands for op in old), strict=True)):
                if is_of_the_block(values[0]):
                    with ir.InsertionPoint(copy), old[0].location:
                        new.operands[i] = self._operand(values)
            new.location = ir.Location.fused([op.location for op in old])
        self.copies.update(zip(zip(*(op.results for op in same), strict=True), copy.results, strict=True))

    def _operand(self, values: Values) -> ir.Value:
        if isinstance(values[0].type, ir.IndexType):
            number, distance = self.interface.base(values)
            return moved_by(self.bases[number], distance)
        return self.copies[values]
