"""The arguments for which a program is proved on the device, whose integers have 32 bits: bounds that are as wide as the proof allows.

What a type holds is tried first. Where that is too much (a sum of int32 is an int64), all integers get one bound, the largest power of two
that is proved, then each argument as much as it can have by itself; floats, which conversions make integers of, likewise. The attribute
`ktir.ranges` of the module has them, and the launch checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import prod

from ktir.analysis.calls import argument_attributes, callee, calls_of, functions_of, host_number, is_kernel, text_attribute
from ktir.analysis.flat import refuse
from ktir.diagnostics import remark
from ktir.dialects.structured import constant
from ktir.mlir import arith, func, integer_attribute, ir, is_a, linalg, operations
from ktir.passes.flat.integers.intervals import I32, Interval, Values, all_of, width_of
from ktir.passes.flat.integers.ranges import Memory, Unproved, Walk
from ktir.passes.flat.integers.walked import Walked
from ktir.roles import OWN_ROLES

RANGES = "ktir.ranges"
_LEAST_INTEGER, _LEAST_FLOAT = 4, 3
"""Bits below which a bound is not worth a program."""
_TOO_WIDE = "gives or takes integers that are not known to fit into 32 bits, the integers of the device, whatever the arguments"


@dataclass(frozen=True)
class Buffer:
    """An argument of an entry. `bits` of an integer, None for floats."""

    number: int
    role: str
    element: ir.Type
    elements: int

    @property
    def bits(self) -> int | None:
        """Bits of an integer; None for a float."""
        return width_of(self.element)

    @property
    def is_given(self) -> bool:
        """Whether a launch brings its content."""
        return self.role in ("input", "input_output")

    @property
    def is_of_host(self) -> bool:
        """Whether the host has it."""
        return self.role not in OWN_ROLES

    def natural(self) -> Interval:
        """All that its type holds."""
        return all_of(self.element)


@dataclass
class _Bounds:
    """A try: log2 of the bound of each given argument, None for all that the type holds, and which integers are not negative."""

    exponents: dict[int, int | None] = field(default_factory=dict)
    positive: bool = False

    def of(self, buffer: Buffer) -> Interval:
        exponent, natural = self.exponents.get(buffer.number), buffer.natural()
        if exponent is None:
            return natural
        most = 1 << exponent
        if buffer.bits is None:
            return Interval(-float(most), float(most))
        found = Interval(0 if self.positive else -most, most - 1)
        return Interval(max(found.low, natural.low), min(found.high, natural.high))


def prove_integers(module: ir.Module) -> None:
    """Write the bounds of each program of a logical module; refuse one that has none. What they decide is put in its place."""
    functions = functions_of(module)
    called = {callee(call) for f in functions.values() for call in calls_of(f)}
    found: dict[str, ir.Attribute] = {}
    decided: dict[ir.Operation, int | None] = {}
    for name, function in functions.items():
        if name not in called and function.regions[0].blocks and not is_kernel(function):
            proof = _Proof(functions, function)
            ranges = proof.ranges()
            for op, outcome in proof.walk.decided.items() if proof.walk else ():
                if decided.setdefault(op, outcome) != outcome:
                    raise refuse(op, _TOO_WIDE)
            if any(len(ir.DictAttr(r)) for r in ranges):
                found[name] = ir.ArrayAttr.get(ranges)
    if found:
        module.operation.attributes[RANGES] = ir.DictAttr.get(found)
    for op, outcome in decided.items():
        if outcome is not None:
            _decide(op, outcome)


def _decide(op: ir.Operation, outcome: int) -> None:
    """Put its result in place of a comparison or an extreme; see `Walk.decided`. What was decided about goes on being read, for a launch
    checks what its program reads: it is compared with the least integer of the device, which says the same of each.
    """
    with ir.InsertionPoint(op), op.location:
        if is_a(op, arith.CmpIOp):
            found = _joined([_compared(v, holds=bool(outcome)) for v in op.operands if not _is_constant(v)], holds=bool(outcome))
            found = constant(op.results[0].type, outcome) if found is None else found
        else:
            found, other = op.operands[outcome], op.operands[1 - outcome]
            if not _is_constant(other):
                found = arith.SelectOp(_compared(other, holds=True), found, other).result
        op.results[0].replace_all_uses_with(found)
    op.erase()


def _is_constant(value: ir.Value) -> bool:
    """Whether a scalar is the same number whatever a launch is given: a constant, or an element of what is filled with one."""
    if not isinstance(value.owner, ir.Block):
        return is_a(value.owner, arith.ConstantOp)
    op, number = value.owner.owner, ir.BlockArgument(value).arg_number
    is_input = is_a(op, linalg.GenericOp) and number < len(op.operands) - len(op.results)
    source = op.operands[number].owner if is_input else None
    return source is not None and not isinstance(source, ir.Block) and is_a(source, linalg.FillOp) and _is_constant(source.operands[0])


def _compared(value: ir.Value, *, holds: bool) -> ir.Value:
    """A comparison that always holds of 32 bits, or never."""
    predicate = arith.CmpIPredicate.sge if holds else arith.CmpIPredicate.slt
    return arith.CmpIOp(predicate, value, constant(value.type, int(I32.low))).result


def _joined(values: Sequence[ir.Value], *, holds: bool) -> ir.Value | None:
    """All of the comparisons that always hold, or one of those that never do."""
    join = arith.AndIOp if holds else arith.OrIOp
    return reduce(lambda a, b: join(a, b).result, values) if values else None


class _Proof:
    """The search for one entry."""

    def __init__(self, functions: Mapping[str, func.FuncOp], entry: func.FuncOp) -> None:
        self.functions, self.entry = functions, entry
        self.attributes = argument_attributes(entry)
        self.buffers = [b for i, d in enumerate(self.attributes) if (b := _buffer(i, d)) is not None]
        self._walked = Walked()
        self.walk: Walk | None = None
        """The last one that came to the end."""

    def ranges(self) -> list[ir.Attribute]:
        """Per argument that the host gives: bits, bounds, and a number that stands for what a launch does not read."""
        wide = any(_has_wide_integers(f) for f in self.functions.values())
        bounds = self._found() if wide or self._has_wide_buffers() else _Bounds()
        by_number = {b.number: b for b in self.buffers}
        given = [i for i, d in enumerate(self.attributes) if text_attribute(d, "ktir.role") not in OWN_ROLES]
        assert given == sorted(given, key=lambda i: host_number(self.attributes, i))
        return [self._range(by_number.get(i), bounds) for i in given]

    def _range(self, buffer: Buffer | None, bounds: _Bounds) -> ir.Attribute:
        if buffer is None or buffer.bits == 1:
            return _numbers({})
        bits, found = buffer.bits, bounds.of(buffer)
        if bits is None:
            return _numbers({} if found == buffer.natural() else {"low": int(found.low), "high": int(found.high)})
        numbers = {"bits": bits, "low": int(found.low), "high": int(found.high)}
        place = ("", buffer.number)
        stored = self.walk.stored if self.walk else {}
        if bits > 32 and place in stored:  # it comes back, all of it
            spare = _outside(stored[place]) if self.walk and place not in self.walk.read else None
            if spare is None and buffer.is_given:
                return _numbers({"bits": bits, "low": max(numbers["low"], int(I32.low)), "high": min(numbers["high"], int(I32.high))})
            whole = all_of(buffer.element)  # what an output holds before is nobody's
            return _numbers({"bits": bits, "low": int(whole.low), "high": int(whole.high)} | ({} if spare is None else {"spare": spare}))
        return _numbers(numbers)

    def _has_wide_buffers(self) -> bool:
        return any((b.bits or 0) > 32 for b in self.buffers)

    # The search

    def _holds(self, bounds: _Bounds) -> bool:
        return self._fault(bounds) is None

    def _fault(self, bounds: _Bounds) -> ir.Operation | None:
        """The first op that is not proved; None where all are."""
        count = len(self.attributes)
        memory: dict[Memory, Values] = {("", b.number): _content(b, bounds) for b in self.buffers}
        walk = Walk(self.functions, memory, [("", b.number) for b in self.buffers if b.is_of_host], self._walked)
        try:
            walk.run(self.entry, [("", i) for i in range(count)])
        except Unproved as error:
            return error.op
        self.walk = walk
        return None

    def _found(self) -> _Bounds:
        natural = _Bounds()
        if self._holds(natural):
            return natural
        given = [b for b in self.buffers if b.is_given and b.bits != 1]
        integers, floats = ([b.number for b in given if (b.bits is None) == is_float] for is_float in (False, True))
        for floats_bound in (False, True):
            for positive in (False, True):
                least = _Bounds(dict.fromkeys(integers, _LEAST_INTEGER), positive)
                if floats_bound:
                    least.exponents |= dict.fromkeys(floats, _LEAST_FLOAT)
                if self._holds(least):
                    return self._widened(least, [n for n in (integers, floats) if set(n) <= least.exponents.keys()])
        op = self._fault(least)
        assert op is not None
        raise refuse(op, _TOO_WIDE)

    def _widened(self, bounds: _Bounds, groups: Sequence[Sequence[int]]) -> _Bounds:
        """Bounds that hold, with larger ones: first for a group of arguments together, then for each by itself."""
        for group in groups:
            _grow(bounds, group, self._holds)
        for group in groups:
            for part in _halves(group):
                if all(bounds.exponents[n] is not None for n in part):
                    _grow(bounds, part, self._holds)
        remark(
            "analysis",
            "ktir-break-views",
            f"integers are proved for arguments below powers of two: {bounds.exponents}",
            self.entry.location,
        )
        return bounds


def _halves(group: Sequence[int]) -> Iterator[Sequence[int]]:
    """Parts of a group, larger ones first; all of it was tried."""
    if len(group) > 1:
        middle = len(group) // 2
        for part in (group[:middle], group[middle:]):
            yield part
            yield from _halves(part)


def _grow(bounds: _Bounds, group: Sequence[int], holds: Callable[[_Bounds], bool]) -> None:
    """The largest exponent that holds for a group, or None, all that a type holds; in place."""

    def tried(exponent: int | None) -> bool:
        found = replace(bounds, exponents=bounds.exponents | dict.fromkeys(group, exponent))
        if holds(found):
            bounds.exponents = found.exponents
            return True
        return False

    low = max((bounds.exponents[n] or 0 for n in group), default=0)
    if not group or tried(None):
        return
    high = 32
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tried(middle) else (low, middle)


def _content(buffer: Buffer, bounds: _Bounds) -> Values:
    """What a buffer holds before the program runs."""
    if buffer.role == "iota":
        return Interval(0, buffer.elements - 1)
    return bounds.of(buffer) if buffer.is_given else None


def _outside(stored: Values) -> int | None:
    """A number of 32 bits that a program never stores."""
    if stored is None or stored.high < I32.high:
        return int(I32.high)
    return int(I32.low) if stored.low > I32.low else None


def _buffer(number: int, attributes: ir.DictAttr) -> Buffer | None:
    if "ktir.type" not in attributes:
        return None
    type_ = ir.RankedTensorType(ir.TypeAttr(attributes["ktir.type"]).value)
    return Buffer(number, text_attribute(attributes, "ktir.role"), type_.element_type, prod(type_.shape))


def _has_wide_integers(function: func.FuncOp) -> bool:
    """Whether tensors or bodies have integers of more than 32 bits."""
    for op in operations(function):
        for result in op.results:
            type_ = result.type
            scalar = type_.element_type if isinstance(type_, ir.RankedTensorType | ir.MemRefType) else type_
            if isinstance(scalar, ir.IntegerType) and scalar.width > 32:
                return True
    return False


def _numbers(numbers: Mapping[str, int]) -> ir.DictAttr:
    return ir.DictAttr.get({name: integer_attribute(value) for name, value in numbers.items()})
