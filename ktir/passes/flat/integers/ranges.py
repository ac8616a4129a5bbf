"""Whether the 32 bits of the device hold the integers of a logical program: a walk over its ops on intervals.

A number of 64 bits is held by its low 32. That is what additions, products and bits need; all else (comparisons, divisions, right shifts,
indices, what the host gets) needs the number itself, so its interval must lie within 32 bits. Narrower integers wrap around as they do in
their own width, wherever they are held. A comparison with what no such number reaches needs none: its result is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

from ktir.analysis.attributes.kernel import is_authors
from ktir.analysis.calls import Functions, callee
from ktir.analysis.interface.parameters import parameters
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.op_facts import PLACES, SIGNED_CASTS, UNSIGNED_CASTS
from ktir.mlir import arith, func, ir, is_a, linalg, math, named, names, tensor
from ktir.passes.flat.integers import intervals
from ktir.passes.flat.integers.intervals import FLAG, I32, Interval, Values, all_of, bounded, join, width_of
from ktir.passes.flat.integers.walked import Outcome, Walked, WalkedGeneric

Memory = tuple[str, int]
"""A buffer: of the entry's arguments by number, or what an op or a callee has for itself."""

_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


_FLOAT_PREDICATES = ("", "eq", "gt", "ge", "lt", "le", "ne", "") * 2
"""Relations of `arith.cmpf`, ordered and then unordered: without NaN they are the same."""
_SELF_COMPARED = {1: 0, 7: 0, 13: 1, 14: 1}
"""Predicates of `arith.cmpf` that tell NaN (oeq, ord, une, uno): the choice of a selection that they keep for numbers."""


class Unproved(Exception):
    """An op needs a number that 32 bits may not hold."""

    def __init__(self, op: ir.Operation) -> None:
        super().__init__(op.name)
        self.op = op


class Walk:
    """One walk over a program: the intervals of its values and of what its memory holds. Raises Unproved at the first op that needs a
    number which may lie beyond 32 bits.
    """

    def __init__(self, functions: Functions, memory: Mapping[Memory, Values], host: Sequence[Memory], walked: Walked) -> None:
        self.functions, self.walked = functions, walked
        self.memory: dict[Memory, Values] = dict(memory)
        self.stored: dict[Memory, Values] = {}
        """What stores write, by buffer."""
        self.read: set[Memory] = set()
        """Buffers whose content some op reads."""
        self.host = set(host)
        """Buffers whose content the host sees."""
        self.values: dict[ir.Value, Values] = {}
        self.places: dict[ir.Value, Memory] = {}
        """The buffer that an address, a view or a tile is of."""
        self.decided: dict[ir.Operation, int | None] = {}
        """Of each comparison and extreme of wide integers its result, or which operand it is, where the intervals of operands that 32 bits
        may not hold say it. None: they need not, or do not."""

    def run(self, function: func.FuncOp, arguments: Sequence[Memory]) -> None:
        """Walk over a function that is given these buffers."""
        if is_authors(function):
            _kernel(self, function, arguments)
            return
        self.places.update(zip(function.regions[0].blocks[0].arguments, arguments, strict=True))
        for name, op in self.walked.ops(function):
            if is_a(op, func.CallOp):
                self.run(self.functions[callee(op)], [self.places[v] for v in op.operands])
            else:
                _ACTIONS.get(name, Walk._any)(self, op)

    def known(self, op: ir.Operation, value: ir.Value) -> Values:
        """The interval of an operand, of a tensor that of all elements. Raises Unproved where 32 bits may not hold it."""
        found = self.values.get(value)
        width = width_of(_scalar(value.type))
        if found is not None and width is not None and width > 32 and not found.within(I32):
            raise Unproved(op)
        return found

    # Memory

    def _view(self, op: ir.Operation) -> None:
        self.places[op.results[0]] = self.places[op.operands[0]]
        for table in list(op.operands)[1:]:
            content = self.memory.get(self.places[table]) if table in self.places else self.values.get(table)
            self.read.update([self.places[table]] if table in self.places else [])
            if content is not None and not content.within(I32):
                raise Unproved(op)

    def _load(self, op: ir.Operation) -> None:
        self.read.add(self.places[op.operands[0]])
        self.values[op.results[0]] = self.memory.get(self.places[op.operands[0]])

    def _store(self, op: ir.Operation) -> None:
        value, place = op.operands[0], self.places[op.operands[1]]
        found = self.known(op, value) if place in self.host else self.values.get(value)
        self.stored[place] = join([self.stored.get(place), found])
        self.memory[place] = join([self.memory.get(place), found])

    def _scatter_add(self, op: ir.Operation) -> None:
        value, place = op.operands[0], self.places[op.operands[1]]
        self.read.add(place)
        kind = (arith.AddFOp if width_of(_scalar(value.type)) is None else arith.AddIOp).OPERATION_NAME
        added = intervals.repeated(kind, None, self.values.get(value), prod(ir.RankedTensorType(value.type).shape))
        before = self.memory.get(place)
        total = join([before, intervals.repeated(kind, before, added, 1)])
        if place in self.host and total is not None and not bounded(total, _scalar(value.type)).within(I32):
            raise Unproved(op)
        self.memory[place] = self.stored[place] = None if total is None else bounded(total, _scalar(value.type))

    def _materialize(self, op: ir.Operation) -> None:
        place = self.places[op.results[0]] = (f"{op.name} {len(self.places)}", 0)
        self.memory[place] = self.values.get(op.operands[0])

    def _constant(self, op: ir.Operation) -> None:
        value = op.attributes["value"]
        if isinstance(value, ir.DenseElementsAttr):
            self._top(op)
        else:
            self.values[op.results[0]] = _number(value)

    def _address(self, op: ir.Operation) -> None:
        """An addition: of numbers, or of a number to a buffer's address."""
        found = next((self.places[v] for v in op.operands if v in self.places), None)
        if found is not None:
            self.places[op.results[0]] = found
        else:
            self._scalar_op(op)

    # Tensors

    def _moved(self, op: ir.Operation) -> None:
        """Elements of the operands, no others."""
        found = join(self.values.get(v) for v in op.operands if not isinstance(v.type, ir.IndexType))
        for result in op.results:
            self.values[result] = found

    def _sorted(self, op: ir.Operation) -> None:
        for result, value in zip(op.results, op.operands, strict=True):
            self.values[result] = self.known(op, value)

    def _padded(self, op: ir.Operation) -> None:
        last = list(op.regions[0].blocks[0].operations)
        for inner in last[:-1]:
            _ACTIONS.get(inner.operation.name, Walk._any)(self, inner.operation)
        self.values[op.results[0]] = join([self.values.get(op.operands[0]), self.values.get(last[-1].operands[0])])

    def _any(self, op: ir.Operation) -> None:
        """An op that is not known: it may need all of its operands, and give anything."""
        for operand in op.operands:
            if operand in self.values:
                self.known(op, operand)
        self._top(op)

    def _top(self, op: ir.Operation) -> None:
        for result in op.results:
            scalar = _scalar(result.type)
            self.values[result] = all_of(scalar) if scalar is not None else None

    def _generic(self, op: ir.Operation) -> None:
        g = self.walked.generic(op)
        read = tuple(self.values.get(v) for v in g.read)
        found = g.outcomes.get(read)
        if found is None:
            self._body(g, read[: len(g.operands)])
            results = tuple(self.values.get(r) for r in g.results)
            found = g.outcomes[read] = Outcome(results, {o: self.decided[o] for o in g.body if o in self.decided})
        for inner, outcome in found.decided.items():
            if self.decided.setdefault(inner, outcome) != outcome:
                raise Unproved(inner)
        self.values.update(zip(g.results, found.results, strict=True))

    def _scan(self, op: ir.Operation) -> None:
        block = op.regions[0].blocks[0]
        *body, end = [o.operation for o in block.operations]
        given = [self.values.get(v) for v in op.operands]
        count = len(given)
        trips = ir.RankedTensorType(op.operands[0].type).shape[kt.dimension_of(op)]
        for k, value in enumerate(end.operands):
            last = value.owner
            simple = count == 1 and len(body) == 1 and not isinstance(last, ir.Block) and last.operation == body[0]
            found = self._reduced(body[0], given[k], given[k], trips - 1) if simple else all_of(_scalar(op.results[k].type))
            self.values[op.results[k]] = join([given[k], found])

    def _body(self, g: WalkedGeneric, given: Sequence[Values]) -> None:
        """The results of a generic."""
        self.values.update(zip(g.block.arguments, given, strict=True))
        ends = list(g.end.operands)
        accumulators = list(g.block.arguments)[len(given) - len(g.results) :]
        last = {a: e.owner.operation for a, e in zip(accumulators, ends, strict=True) if not isinstance(e.owner, ir.Block)}
        folds = g.trips and all(a in last and _folds(last[a], a) for a in accumulators)
        if g.trips and not folds:  # whatever an accumulator may hold
            self.values.update({a: all_of(a.type) for a in accumulators})
        for inner in g.body:
            if folds and inner in last.values():
                continue
            if is_a(inner, linalg.IndexOp):
                self.values[inner.results[0]] = Interval(0, g.extents[ir.IntegerAttr(inner.attributes["dim"]).value] - 1)
            else:
                _ACTIONS.get(inner.name, Walk._any)(self, inner)
        for result, a, end in zip(g.results, accumulators, ends, strict=True):
            if folds:
                (mapped,) = [v for v in last[a].operands if v != a]
                self.values[result] = self._reduced(last[a], self.values.get(a), self.values.get(mapped), g.trips)
            else:
                self.values[result] = self.values.get(end)

    def _reduced(self, combiner: ir.Operation, start: Values, each: Values, trips: int) -> Values:
        type_ = combiner.results[0].type
        if start is not None and start.low == start.high == _NEUTRAL.get(combiner.name, lambda _: None)(all_of(type_)):
            start = None
        if combiner.name not in intervals.RING and (width_of(type_) or 0) > 32 and any(x and not x.within(I32) for x in (start, each)):
            raise Unproved(combiner)
        try:
            found = intervals.repeated(combiner.name, start, each, trips)
        except KeyError:
            return all_of(type_)
        return None if found is None else bounded(found, type_)

    # Scalars

    def _scalar_op(self, op: ir.Operation) -> None:
        name, result = op.name, op.results[0]
        if op.name in _DECIDABLE and self._is_decided(op):
            return
        if name in intervals.RING:
            operands = [self.values.get(v) for v in op.operands]
            if is_a(op, arith.ShLIOp):
                operands[1] = self.known(op, op.operands[1])
            function: Callable[..., Interval] = intervals.RING[name]
        else:
            operands = [self.known(op, v) for v in op.operands]
            function = _FUNCTIONS[name](op)
        if any(o is None for o in operands):
            self.values[result] = None
            return
        found = function(*operands)
        if name not in intervals.EXACT:
            found = bounded(found, result.type)
        if name in _MUST_FIT and (width_of(result.type) or 0) > 32 and not found.within(I32):
            raise Unproved(op)
        self.values[result] = found

    def _is_decided(self, op: ir.Operation) -> bool:
        """Whether the result is known although its operands may not fit; then it becomes one. Raises Unproved if a call before differed."""
        if (width_of(op.operands[0].type) or 0) <= 32:
            return False
        a, b = given = [self.values.get(v) for v in op.operands]
        outcome = None
        if a is not None and b is not None and not (a.within(I32) and b.within(I32)):
            outcome = _DECIDABLE[op.name](op, a, b)
        if self.decided.setdefault(op, outcome) != outcome:
            raise Unproved(op)
        if outcome is None:
            return False
        self.values[op.results[0]] = Interval(outcome, outcome) if is_a(op, arith.CmpIOp) else given[outcome]
        return True

    def _cast(self, op: ir.Operation) -> None:
        """The number as another integer; of one with more bits the low bits."""
        value, type_ = op.operands[0], op.results[0].type
        found = self.values.get(value)
        if found is not None and is_a(op, arith.ExtSIOp) and width_of(value.type) == 1:
            found = _negated_flag(found)
        if found is not None and width_of(type_) == 1:
            found = found if found.within(FLAG) else FLAG
        self.values[op.results[0]] = None if found is None else bounded(found, type_)

    def _unsigned_cast(self, op: ir.Operation) -> None:
        value, type_ = op.operands[0], op.results[0].type
        found = self.values.get(value)
        before = width_of(value.type) or 64
        if found is not None and before >= 32 and found.low < 0 and (width_of(type_) or 64) > before:
            raise Unproved(op)
        self.values[op.results[0]] = None if found is None else bounded(intervals.unsigned(found, before), type_)

    def _select(self, op: ir.Operation) -> None:
        condition, *choices = (self.values.get(v) for v in op.operands)
        known = _numbers_only(op)
        choices = [replace(c, nan=False) if c is not None and k == known else c for k, c in enumerate(choices)]
        if condition is not None and condition.low == condition.high:
            self.values[op.results[0]] = choices[0 if condition.low else 1]
        else:
            self.values[op.results[0]] = join(choices)


def _kernel(walk: Walk, kernel: func.FuncOp, arguments: Sequence[Memory]) -> None:
    """A kernel of an author's reads places as they are, and may write anything."""
    found, _ = parameters(kernel.operation.parent, kernel.name.value)
    for p in found:
        place, element = arguments[p.position], ir.Type.parse(p.element)
        content = walk.memory.get(place)
        if "in" in p.role:
            walk.read.add(place)
            if content is not None and (width_of(element) or 0) > 32 and not content.within(I32):
                raise Unproved(kernel.operation)
        if "output" in p.role:
            walk.memory[place] = walk.stored[place] = all_of(element)


def _numbers_only(select: ir.Operation) -> int | None:
    """Which choice of a selection is taken only where it is no NaN, since the condition compares it with itself."""
    condition, *choices = select.operands
    if not is_a(condition.owner, arith.CmpFOp):
        return None
    test = condition.owner.operation
    number = _SELF_COMPARED.get(ir.IntegerAttr(test.attributes["predicate"]).value)
    return number if number is not None and test.operands[0] == test.operands[1] == choices[number] else None


def _negated_flag(found: Interval) -> Interval:
    return Interval(-found.high, -found.low)


def _scalar(type_: ir.Type) -> ir.Type:
    """The type of the elements; of a scalar its own."""
    return type_.element_type if isinstance(type_, ir.RankedTensorType | ir.MemRefType) else type_


def _number(attribute: ir.Attribute) -> Interval:
    if isinstance(attribute, ir.FloatAttr):
        value = float(attribute.value)
        return Interval(0.0, 0.0, True) if value != value else Interval(value, value)
    number = ir.IntegerAttr(attribute)
    value = number.value & 1 if width_of(number.type) == 1 else number.value
    return Interval(value, value)


def _folds(op: ir.Operation, accumulator: ir.Value) -> bool:
    """Whether an op combines the accumulator with something else, and nothing else reads it."""
    return len(op.operands) == 2 and len(list(accumulator.uses)) == 1 and sum(v == accumulator for v in op.operands) == 1


def _as_unsigned(op: ir.Operation) -> Callable[..., Interval]:
    widths = [width_of(v.type) or 64 for v in op.operands]

    def apply(*operands: Interval) -> Interval:
        if any(w >= 32 and o.low < 0 for w, o in zip(widths, operands, strict=True)) and widths[0] > 32:
            raise Unproved(op)
        bare = [intervals.unsigned(o, w) for o, w in zip(operands, widths, strict=True)]
        if is_a(op, arith.UIToFPOp):
            return Interval(float(bare[0].low), float(bare[0].high))
        return intervals.UNSIGNED[op.name](*bare)

    return apply


def _comparison(op: ir.Operation) -> Callable[..., Interval]:
    predicate = _PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
    width = width_of(op.operands[0].type) or 64

    def apply(a: Interval, b: Interval) -> Interval:
        if predicate[0] == "u":
            if width > 32 and min(a.low, b.low) < 0:
                raise Unproved(op)
            a, b = intervals.unsigned(a, width), intervals.unsigned(b, width)
        return intervals.compared(predicate[-2:], a, b)

    return apply


def _float_comparison(op: ir.Operation) -> Callable[..., Interval]:
    relation = _FLOAT_PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
    return lambda a, b: intervals.compared(relation, a, b) if relation and not (a.nan or b.nan) else FLAG


def _compared(op: ir.Operation, a: Interval, b: Interval) -> int | None:
    found = _comparison(op)(a, b)
    return int(found.low) if found.low == found.high else None


def _lower(_: ir.Operation, a: Interval, b: Interval) -> int | None:
    return 0 if a.high <= b.low else 1 if b.high <= a.low else None


def _higher(op: ir.Operation, a: Interval, b: Interval) -> int | None:
    return _lower(op, Interval(-a.high, -a.low), Interval(-b.high, -b.low))


_DECIDABLE: dict[str, Callable[[ir.Operation, Interval, Interval], int | None]] = named(
    {arith.CmpIOp: _compared, arith.MinSIOp: _lower, arith.MaxSIOp: _higher}
)
"""What the intervals of the operands say of an op: as in `Walk.decided`."""


def _rounded_to_integer(op: ir.Operation) -> Callable[..., Interval]:
    def apply(a: Interval) -> Interval:
        return intervals.whole_numbers(a)

    return apply


_FUNCTIONS: dict[str, Callable[[ir.Operation], Callable[..., Interval]]] = named(
    {
        **{n: lambda op: intervals.SIGNED[op.name] for n in intervals.SIGNED},
        **{n: lambda op: intervals.FLOATS[op.name] for n in intervals.FLOATS},
        **{n: lambda op: intervals.EXACT[op.name] for n in intervals.EXACT},
        **dict.fromkeys((*intervals.UNSIGNED, arith.UIToFPOp), _as_unsigned),
        arith.CmpIOp: _comparison,
        arith.CmpFOp: _float_comparison,
        arith.SIToFPOp: lambda op: lambda a: _signed_number(a, op),
        arith.FPToSIOp: _rounded_to_integer,
        arith.FPToUIOp: _rounded_to_integer,
        math.AbsIOp: lambda _: (
            lambda a: Interval(0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high)), max(abs(a.low), abs(a.high)))
        ),
    }
)
_NEUTRAL: dict[str, Callable[[Interval], float]] = named({arith.MaxSIOp: lambda whole: whole.low, arith.MinSIOp: lambda whole: whole.high})
"""What an extreme starts from, given all that the type holds."""
_MUST_FIT = names(arith.DivSIOp, arith.FloorDivSIOp, arith.CeilDivSIOp, arith.FPToSIOp, arith.FPToUIOp)
"""Ops that compute something else in 32 bits where the result has more."""


def _signed_number(a: Interval, op: ir.Operation) -> Interval:
    a = _negated_flag(a) if width_of(op.operands[0].type) == 1 else a
    return Interval(float(a.low), float(a.high))


_ACTIONS: dict[str, Callable[[Walk, ir.Operation], None]] = named({
    **dict.fromkeys((*intervals.RING, *_FUNCTIONS), Walk._scalar_op),
    **dict.fromkeys(SIGNED_CASTS, Walk._cast),
    **dict.fromkeys(UNSIGNED_CASTS, Walk._unsigned_cast),
    **dict.fromkeys(PLACES, Walk._view),
    **dict.fromkeys(
        (tensor.EmptyOp, tensor.CollapseShapeOp, tensor.ExpandShapeOp, tensor.ExtractSliceOp, tensor.InsertSliceOp, tensor.ConcatOp,
         linalg.TransposeOp, linalg.BroadcastOp, linalg.FillOp), Walk._moved,
    ),
    arith.AddIOp: Walk._address,
    arith.ConstantOp: Walk._constant,
    arith.SelectOp: Walk._select,
    ktdp.LoadOp: Walk._load,
    ktdp.StoreOp: Walk._store,
    kt.ScatterAddOp: Walk._scatter_add,
    kt.MaterializeOp: Walk._materialize,
    kt.ScanOp: Walk._scan,
    kt.SortOp: Walk._sorted,
    linalg.GenericOp: Walk._generic,
    tensor.PadOp: Walk._padded,
})  # fmt: skip
