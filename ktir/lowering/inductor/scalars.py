"""Scalar bodies: the records of a nest as `arith` and `math` ops on f16 and f32.

Types follow Inductor's default (`config.emulate_precision_casts` off): a chain is computed in f32 and rounded once, where it is stored;
a `to_dtype` to float16 inside a chain does not round. An f16 load is extended at its first use that needs it; selections (maximum,
neg, ...) are exact in either type and do not extend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ktir.diagnostics import Unsupported
from ktir.lowering.inductor.region import Record
from ktir.mlir import arith, ir, math

TYPES = {"float16": "f16", "float32": "f32"}


def element_type(dtype: str) -> ir.Type:
    """The MLIR type of `f16`, `f32` or their torch names."""
    return ir.F16Type.get() if TYPES.get(dtype, dtype) == "f16" else ir.F32Type.get()


@dataclass(eq=False)
class Scalar:
    """A value of a body: an SSA value, or a number that becomes a constant of whatever type its user has. Compared by identity."""

    type: str
    value: ir.Value | None = None
    number: float | None = None


Build = Callable[["Body", list[Scalar]], Scalar]


class Body:
    """Emits records at the insertion point. Equal subexpressions are emitted once."""

    def __init__(self, arguments: Mapping[str, ir.Value], refuse: Callable[[str], Unsupported]) -> None:
        """`arguments` are the block arguments of loads, by the names of the load records; several names may share one."""
        shared: dict[ir.Value, Scalar] = {}
        for value in arguments.values():
            shared.setdefault(value, Scalar(str(value.type), value))
        self.values = {name: shared[value] for name, value in arguments.items()}
        self._refuse = refuse
        self._known: dict[tuple[object, ...], Scalar] = {}

    def emit(self, record: Record) -> None:
        """Emit a record that is neither load, store nor reduction."""
        if record.op == "constant":
            self.values[record.out] = self._once(("constant", repr(record.value), record.dtype), lambda: self._number(record))
            return
        operands = [self.values[a] for a in record.args]
        if record.op == "to_dtype":
            if record.dtype not in TYPES:
                raise self._refuse(f"conversion to {record.dtype}")
            narrows = operands[0].type == "f32" and operands[0].number is None and TYPES[record.dtype] == "f16"
            self.values[record.out] = operands[0] if narrows else self.convert(operands[0], TYPES[record.dtype])
            return
        build = OPS.get(record.op)
        if build is None or not all(isinstance(o, Scalar) for o in operands):
            raise self._refuse(f"'{record.op}' op")
        self.values[record.out] = self._once((record.op, *operands), lambda: build(self, operands))

    def _number(self, record: Record) -> Scalar:
        if record.dtype not in TYPES:
            raise self._refuse(f"constant of dtype {record.dtype}")
        return Scalar(TYPES[record.dtype], number=record.value)

    def _once(self, key: tuple[object, ...], build: Callable[[], Scalar]) -> Scalar:
        if key not in self._known:
            self._known[key] = build()
        return self._known[key]

    def convert(self, scalar: Scalar, type_: str) -> Scalar:
        """The scalar in another type; extending is exact, truncating rounds to nearest even."""
        if scalar.number is not None:
            return self._once(("number", repr(scalar.number), type_), lambda: Scalar(type_, _constant(scalar.number, type_)))
        if scalar.type == type_:
            return scalar
        cast = arith.ExtFOp if type_ == "f32" else arith.TruncFOp
        return self._once((cast, scalar), lambda: Scalar(type_, cast(element_type(type_), scalar.value).result))

    def value(self, scalar: Scalar, type_: str) -> ir.Value:
        """The SSA value of a scalar in a given type."""
        found = self.convert(scalar, type_).value
        assert found is not None
        return found

    def apply(self, op: Callable[..., ir.OpView], *operands: Scalar, type_: str = "f32") -> Scalar:
        """An op computed in f32, or in the type given."""
        converted = [self.convert(o, type_) for o in operands]
        return self._once((op, *converted), lambda: Scalar(type_, op(*(c.value for c in converted)).result))

    def select(self, op: Callable[..., ir.OpView], *operands: Scalar) -> Scalar:
        """An op that is exact in f16: computed in the widest type among its operands."""
        return self.apply(op, *operands, type_="f32" if any(o.type == "f32" for o in operands) else "f16")


def _constant(number: float | None, type_: str) -> ir.Value:
    element = element_type(type_)
    return arith.ConstantOp(element, ir.FloatAttr.get(element, number)).result


def _of(op: Callable[..., ir.OpView]) -> Build:
    return lambda body, operands: body.apply(op, *operands)


def _exact(op: Callable[..., ir.OpView]) -> Build:
    return lambda body, operands: body.select(op, *operands)


_ONE = Scalar("f32", number=1.0)
_ZERO = Scalar("f16", number=0.0)


def _reciprocal(body: Body, operands: list[Scalar]) -> Scalar:
    return body.apply(arith.DivFOp, _ONE, operands[0])


def _sigmoid(body: Body, operands: list[Scalar]) -> Scalar:
    power = body.apply(math.ExpOp, body.select(arith.NegFOp, operands[0]))
    return body.apply(arith.DivFOp, _ONE, body.apply(arith.AddFOp, power, _ONE))


OPS: dict[str, Build] = {
    "add": _of(arith.AddFOp),
    "sub": _of(arith.SubFOp),
    "mul": _of(arith.MulFOp),
    "mul_rn": _of(arith.MulFOp),
    "dot": _of(arith.MulFOp),  # a matmul with K = 1 is pointwise
    "truediv": _of(arith.DivFOp),
    "div_rn": _of(arith.DivFOp),
    "exp": _of(math.ExpOp),
    "erf": _of(math.ErfOp),
    "tanh": _of(math.TanhOp),
    "sqrt": _of(math.SqrtOp),
    "rsqrt": _of(math.RsqrtOp),
    "reciprocal": _reciprocal,
    "sigmoid": _sigmoid,
    "square": lambda body, operands: body.apply(arith.MulFOp, operands[0], operands[0]),
    "neg": _exact(arith.NegFOp),
    "abs": _exact(math.AbsFOp),
    "maximum": _exact(arith.MaximumFOp),
    "minimum": _exact(arith.MinimumFOp),
    "relu": lambda body, operands: body.select(arith.MaximumFOp, operands[0], _ZERO),
    "identity": lambda body, operands: operands[0],
}
"""Loop ops of Inductor that have a scalar form here; the rest is refused by name."""
