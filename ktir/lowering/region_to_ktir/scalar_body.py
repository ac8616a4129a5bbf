"""Scalar bodies under construction: values of torch dtypes as `arith` ops, each equal expression once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ktir.lowering.region_to_ktir.dtypes import ELEMENTS, computed, is_float, is_unsigned, literal, promoted, width
from ktir.lowering.region_to_ktir.indices import Call, FloorDiv, Index, Mod
from ktir.lowering.region_to_ktir.text import Writer


class NoScalarForm(Exception):
    """The record has no form in arith and math; the text says what it is."""


@dataclass(eq=False)
class Scalar:
    """A value of a body, of torch dtype `dtype`: an SSA name, or a number that becomes a constant of whatever type its user has."""

    dtype: str
    name: str = ""
    number: float | None = None


class Body:
    """Writes scalar ops. Equal subexpressions are written once; `loops` are the trips of the surrounding generic by variable."""

    def __init__(self, writer: Writer, positions: dict[str, int]) -> None:
        """`positions`: the loop of the generic that each variable is."""
        self._writer = writer
        self._positions = positions
        self._known: dict[tuple[object, ...], Scalar] = {}

    def once(self, key: tuple[object, ...], build: Callable[[], Scalar]) -> Scalar:
        """What `build` made for this key before, or makes now."""
        if key not in self._known:
            self._known[key] = build()
        return self._known[key]

    def op(self, text: str, dtype: str, *operands: Scalar) -> Scalar:
        """Write an op; `{}` in its text are the operands."""

        def build() -> Scalar:
            name = self._writer.fresh()
            self._writer.line(f"{name} = {text.format(*(o.name for o in operands))}")
            return Scalar(dtype, name)

        found = self.once((text, *(o.name for o in operands)), build)
        return found if found.dtype == dtype else Scalar(dtype, found.name)  # one text, two readings: int8 and uint8 are both i8

    def constant(self, number: float, dtype: str) -> Scalar:
        """An SSA constant."""
        element = ELEMENTS[dtype]
        return self.op(f"arith.constant {literal(number, dtype)}{'' if element == 'i1' else f' : {element}'}", dtype)

    def plain(self, operation: str, dtype: str, *operands: Scalar) -> Scalar:
        """An op `operation a, b : type` on operands that are converted to `dtype`."""
        converted = [self.convert(o, dtype) for o in operands]
        return self.op(f"{operation} {', '.join('{}' for _ in converted)} : {ELEMENTS[dtype]}", dtype, *converted)

    def name(self, scalar: Scalar, dtype: str) -> str:
        """The SSA name of a scalar in a given dtype."""
        return self.convert(scalar, dtype).name

    # Conversions

    def convert(self, scalar: Scalar, dtype: str) -> Scalar:
        """The scalar in another dtype, as torch converts."""
        if scalar.number is not None:
            return self.constant(scalar.number, dtype)
        if scalar.dtype == dtype:
            return scalar
        source, old, new = scalar.dtype, ELEMENTS[scalar.dtype], ELEMENTS[dtype]
        if dtype == "bool":
            return self._not_zero(scalar)
        if is_float(dtype):
            if is_float(source):
                return self._other_float(scalar, dtype)
            if width(dtype) == 16:  # as C++ does it, which knows no other float
                return self._other_float(self.convert(scalar, "float32"), dtype)
            kind = "uitofp" if source == "bool" or is_unsigned(source) else "sitofp"
            return self.op(f"arith.{kind} {{}} : {old} to {new}", dtype, scalar)
        if is_float(source):
            return self._whole(scalar, dtype)
        if width(source) == width(dtype):
            return Scalar(dtype, scalar.name)
        if width(source) > width(dtype):
            return self.op(f"arith.trunci {{}} : {old} to {new}", dtype, scalar)
        kind = "extui" if source == "bool" or is_unsigned(source) else "extsi"
        return self.op(f"arith.{kind} {{}} : {old} to {new}", dtype, scalar)

    def _whole(self, scalar: Scalar, dtype: str) -> Scalar:
        """A float as an integer, as C++ does it on x86: through 32 bits, of which the least number stands for all that they do not hold, or
        through 64.
        """
        if width(dtype) == 64 or (is_unsigned(dtype) and not (width(dtype) == 8 and width(scalar.dtype) <= 32)):
            return self.convert(self.op(f"arith.fptosi {{}} : {ELEMENTS[scalar.dtype]} to i64", "int64", scalar), dtype)
        x = self.convert(scalar, computed(scalar.dtype))
        held = self.compare("lt", self.plain("math.absf", x.dtype, x), Scalar(x.dtype, number=2.0**31))
        number = self.op(f"arith.fptosi {{}} : {ELEMENTS[x.dtype]} to i32", "int32", x)
        return self.convert(self.select(held, number, Scalar("int32", number=-(2**31)), "int32"), dtype)

    def _other_float(self, scalar: Scalar, dtype: str) -> Scalar:
        old, new = width(scalar.dtype), width(dtype)
        if old == new:  # float16 and bfloat16
            return self._other_float(self._other_float(scalar, "float32"), dtype)
        return self.op(f"arith.{'extf' if old < new else 'truncf'} {{}} : {ELEMENTS[scalar.dtype]} to {ELEMENTS[dtype]}", dtype, scalar)

    def _not_zero(self, scalar: Scalar) -> Scalar:
        zero, element = self.constant(0, scalar.dtype), ELEMENTS[scalar.dtype]
        return self.op(f"arith.{'cmpf une' if is_float(scalar.dtype) else 'cmpi ne'}, {{}}, {{}} : {element}", "bool", scalar, zero)

    def bitcast(self, scalar: Scalar, source: str, dtype: str) -> Scalar:
        """The bits of the scalar, as a `source`, read as another dtype of the same width."""
        value = self.convert(scalar, source or scalar.dtype)
        old, new = ELEMENTS[value.dtype], ELEMENTS[dtype]
        if old == new:
            return Scalar(dtype, value.name)
        if width(value.dtype) != width(dtype):
            raise NoScalarForm(f"reinterpretation of {value.dtype} as {dtype}")
        return self.op(f"arith.bitcast {{}} : {old} to {new}", dtype, value)

    # Index expressions

    def index(self, index: Index, dtype: str) -> Scalar:
        """The value of an index expression at the current point."""
        value = self.op(f"arith.index_cast {{}} : index to {'i64' if is_float(dtype) else ELEMENTS[dtype]}", "int64", self._sum(index))
        return self.convert(value, dtype) if is_float(dtype) else Scalar(dtype, value.name)

    def _sum(self, index: Index) -> Scalar:
        total: Scalar | None = None
        for coefficient, atom in index.terms:
            value = self._atom(atom)
            if coefficient != 1:
                value = self._indices("arith.muli", value, self._number(coefficient))
            total = value if total is None else self._indices("arith.addi", total, value)
        if total is None:
            return self._number(index.constant)
        return self._indices("arith.addi", total, self._number(index.constant)) if index.constant else total

    def _number(self, number: int) -> Scalar:
        return self.op(f"arith.constant {number} : index", "index")

    def _indices(self, operation: str, *operands: Scalar) -> Scalar:
        return self.op(f"{operation} {', '.join('{}' for _ in operands)} : index", "index", *operands)

    def _atom(self, atom: str | FloorDiv | Mod | Call) -> Scalar:
        match atom:
            case FloorDiv(operand, divisor):
                return self._indices("arith.floordivsi", self._sum(operand), self._number(divisor))
            case Mod(operand, modulus):
                number = self._number(modulus)
                quotient = self._indices("arith.floordivsi", self._sum(operand), number)
                return self._indices("arith.subi", self._sum(operand), self._indices("arith.muli", quotient, number))
            case Call("abs", (operand,)):
                value = self._sum(operand)
                return self._indices("arith.maxsi", value, self._indices("arith.subi", self._number(0), value))
            case Call(function, (first, *others)):
                operation = {"max": "arith.maxsi", "min": "arith.minsi", "mul": "arith.muli"}[function]
                total = self._sum(first)
                for other in others:
                    total = self._indices(operation, total, self._sum(other))
                return total
            case name:
                if name not in self._positions:
                    raise NoScalarForm(f"value of the symbol {name}")
                return self.op(f"linalg.index {self._positions[str(name)]} : index", "index")

    # Building blocks of the table

    def select(self, condition: Scalar, a: Scalar, b: Scalar, dtype: str) -> Scalar:
        """`condition ? a : b`."""
        mask = self.convert(condition, "bool")
        x, y = self.convert(a, dtype), self.convert(b, dtype)
        return self.op(f"arith.select {{}}, {{}}, {{}} : {ELEMENTS[dtype]}", dtype, mask, x, y)

    def compare(self, relation: str, a: Scalar, b: Scalar) -> Scalar:
        """Comparison in the operands' common dtype; with a NaN only `ne` holds."""
        dtype = common(a, b)
        x, y = (self.convert(self.in_own_type(o), dtype) for o in (a, b))
        if is_float(dtype):
            predicate = "une" if relation == "ne" else "o" + relation
            return self.op(f"arith.cmpf {predicate}, {{}}, {{}} : {ELEMENTS[dtype]}", "bool", x, y)
        sign = "" if relation in ("eq", "ne") else "u" if is_unsigned(dtype) or dtype == "bool" else "s"
        return self.op(f"arith.cmpi {sign}{relation}, {{}}, {{}} : {ELEMENTS[dtype]}", "bool", x, y)

    def in_own_type(self, scalar: Scalar) -> Scalar:
        """A number as a value of its type, which is what PyTorch compares with: 0.1 is what a float16 holds of it."""
        return (
            self.constant(scalar.number, scalar.dtype) if scalar.number is not None and computed(scalar.dtype) != scalar.dtype else scalar
        )


def common(*operands: Scalar) -> str:
    """The dtype that operands meet in. A number takes part only with its kind: it adapts to the others."""
    values = [o.dtype for o in operands if o.number is None]
    numbers = [o.dtype for o in operands if o.number is not None]
    if not values:
        return promoted(*numbers)
    dtype = promoted(*values)
    for other in numbers:
        if is_float(other) and not is_float(dtype):
            dtype = other
        elif dtype == "bool" and other != "bool":
            dtype = other
    return dtype
