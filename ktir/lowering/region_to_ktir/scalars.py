"""Scalar bodies: the pointwise records of a nest as `arith` and `math` ops, with the exact semantics of Inductor's ops.

A chain of half-precision ops is computed in f32. It is rounded where it is stored and by `round_to`, which stands wherever the user's
program has a value that must be one number (`rounding`); a `to_dtype` to a narrow float inside a chain does not round. A narrow load is
extended at its first use that needs it; selections (maximum, neg, ...) are exact in either type and do not extend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ktir.lowering.region_to_ktir.dtypes import ELEMENTS, computed, is_float, is_unsigned, width
from ktir.lowering.region_to_ktir.scalar_body import Body, NoScalarForm, Scalar, common

Build = Callable[[Body, list[Scalar], str], Scalar]


def record(body: Body, op: str, operands: Sequence[Scalar], dtype: str) -> Scalar:
    """A pointwise op of Inductor whose result has this dtype. Raises NoScalarForm."""
    build = OPS.get(op)
    if build is None:
        raise NoScalarForm(f"'{op}' op")
    if op in ("fmod", "remainder"):
        operands = list(map(body.in_own_type, operands))
    return body.once((op, dtype, *((o.name, repr(o.number), o.dtype) for o in operands)), lambda: build(body, list(operands), dtype))


def _arithmetic(on_floats: str, on_integers: str, on_unsigned: str = "", on_bools: str = "") -> Build:
    def build(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
        dtype = computed(dtype)
        if is_float(dtype):
            operation = on_floats
        elif dtype == "bool":
            operation = on_bools
        else:
            operation = on_unsigned if on_unsigned and is_unsigned(dtype) else on_integers
        if not operation:
            raise NoScalarForm(f"arithmetic on {dtype}")
        return body.plain(operation, dtype, *operands)

    return build


def _function(operation: str) -> Build:
    """A function of `math`, on floats only."""

    def build(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
        return body.plain(operation, computed(dtype) if is_float(dtype) else "float32", *operands)

    return build


def _chosen(on_floats: str, on_integers: str, on_unsigned: str, on_bools: str) -> Build:
    """An op that is exact in narrow floats: computed in the widest type among its operands."""
    arithmetic = _arithmetic(on_floats, on_integers, on_unsigned, on_bools)

    def build(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
        if is_float(dtype):
            return body.plain(on_floats, _exact(operands, dtype), *operands)
        return arithmetic(body, operands, dtype)

    return build


def _exact(operands: Sequence[Scalar], dtype: str) -> str:
    """The narrowest float dtype that holds all operands and can stand for `dtype`."""
    found = common(*operands)
    if is_float(found) and all(is_float(o.dtype) for o in operands):
        return dtype if width(found) > width(dtype) else found
    return computed(dtype)


def _bits(operation: str) -> Build:
    return lambda body, operands, dtype: body.plain(operation, dtype, *operands)


def _logic(operation: str) -> Build:
    return lambda body, operands, dtype: body.plain(operation, "bool", *operands)


def _relation(relation: str) -> Build:
    return lambda body, operands, dtype: body.compare(relation, *operands)


def _rounded(operation: str) -> Build:
    """Rounding to whole numbers: integers are whole."""

    def build(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
        (x,) = operands
        whole = body.plain(operation, computed(x.dtype), x) if is_float(x.dtype) else x
        return whole if is_float(dtype) else body.convert(whole, dtype)

    return build


def _neg(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    if is_float(dtype):
        return body.plain("arith.negf", _exact(operands, dtype), *operands)
    return body.plain("arith.subi", dtype, Scalar(dtype, number=0), *operands)


def _abs(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    if is_float(dtype):
        return body.plain("math.absf", _exact(operands, dtype), *operands)
    return operands[0] if is_unsigned(dtype) or dtype == "bool" else body.plain("math.absi", dtype, *operands)


def _where(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    condition, a, b = operands
    return body.select(condition, a, b, _exact([a, b], dtype) if is_float(dtype) else dtype)


def _number(dtype: str, number: float) -> Scalar:
    return Scalar(dtype, number=number)


def _reciprocal(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    dtype = computed(dtype)
    return body.plain("arith.divf", dtype, _number(dtype, 1.0), operands[0])


def _sigmoid(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    dtype, one = computed(dtype), _number(computed(dtype), 1.0)
    power = body.plain("math.exp", dtype, body.plain("arith.negf", _exact(operands, dtype), operands[0]))
    return body.plain("arith.divf", dtype, one, body.plain("arith.addf", dtype, power, one))


def _relu(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    """-0 stays, as in PyTorch's kernel."""
    x, zero = operands[0], _number(operands[0].dtype, 0)
    return _where(body, [body.compare("lt", x, zero), zero, x], dtype)


def _square(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    return OPS["mul"](body, [operands[0], operands[0]], dtype)


def _true_division(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    return body.plain("arith.divf", computed(dtype) if is_float(dtype) else "float32", *operands)


def _in_32_bits(build: Build) -> Build:
    """Division of narrow integers as C++ does it: in 32 bits, where -128 / -1 has a quotient."""

    def wide(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
        if dtype not in ("int8", "int16"):
            return build(body, operands, dtype)
        return body.convert(build(body, [body.convert(o, "int32") for o in operands], "int32"), dtype)

    return wide


def _quotient(build: Build) -> Build:
    """Integer division; in wide types -a / 1 stands for a / -1. Of a remainder by -1 there is nothing to say: it is 0 of all numbers."""

    def wide(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
        if is_float(dtype) or is_unsigned(dtype) or operands[1].number not in (None, -1):
            return build(body, operands, dtype)
        a, b = (body.convert(o, dtype) for o in operands)
        negative = body.compare("eq", b, _number(dtype, -1))
        a = body.select(negative, _neg(body, [a], dtype), a, dtype)
        return build(body, [a, body.select(negative, _number(dtype, 1), b, dtype)], dtype)

    return _in_32_bits(wide)


def _remainder(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    """With the sign of the divisor."""
    dtype = computed(dtype)
    a, b = (body.convert(o, dtype) for o in operands)
    rest = OPS["fmod"](body, [a, b], dtype)
    if is_unsigned(dtype):
        return rest
    zero = _number(dtype, 0)
    if is_float(dtype):
        differs = body.plain("arith.xori", "bool", body.compare("lt", rest, zero), body.compare("lt", b, zero))
        adjust = body.plain("arith.andi", "bool", body.compare("ne", rest, zero), differs)
        return body.select(adjust, OPS["add"](body, [rest, b], dtype), rest, dtype)
    differs = body.compare("lt", body.plain("arith.xori", dtype, rest, b), zero)
    adjust = body.convert(body.plain("arith.andi", "bool", body.compare("ne", rest, zero), differs), dtype)
    return OPS["add"](body, [rest, OPS["mul"](body, [b, adjust], dtype)], dtype)


def _not(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    ones = _number(dtype, True if dtype == "bool" else -1)
    return body.plain("arith.xori", dtype, operands[0], ones)


def _logical_not(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    return _not(body, [body.convert(operands[0], "bool")], "bool")


def _sign(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    """1, -1, or 0 for zeros and NaN."""
    x = operands[0]
    if dtype == "bool":
        return x
    dtype, zero = computed(dtype), _number(x.dtype, 0)
    negative = body.select(body.compare("lt", x, zero), _number(dtype, -1), _number(dtype, 0), dtype)
    return body.select(body.compare("gt", x, zero), _number(dtype, 1), negative, dtype)


def _sign_bit(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    x = operands[0]
    if is_float(x.dtype):
        integer = f"int{width(x.dtype)}"
        x = body.bitcast(x, x.dtype, integer)
    return body.compare("lt", x, _number(x.dtype, 0))


def _is(what: str) -> Build:
    def build(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
        x = operands[0]
        if not is_float(x.dtype):
            return body.constant(False, "bool")
        x = body.convert(x, x.dtype)
        if what == "nan":
            return body.op(f"arith.cmpf uno, {{}}, {{}} : {ELEMENTS[x.dtype]}", "bool", x, x)
        return body.compare("eq", body.plain("math.absf", x.dtype, x), _number(x.dtype, float("inf")))

    return build


def _power(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    if not is_float(dtype):
        raise NoScalarForm(f"power of {dtype}")
    return body.plain("math.powf", computed(dtype), *operands)


def _hypotenuse(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    """Scaled by the larger side, so that squares stay in range."""
    dtype = computed(dtype)
    a, b = (body.plain("math.absf", dtype, o) for o in operands)
    larger, smaller = body.plain("arith.maximumf", dtype, a, b), body.plain("arith.minimumf", dtype, a, b)
    infinite, zero = _number(dtype, float("inf")), _number(dtype, 0)
    safe = body.select(body.compare("eq", larger, zero), _number(dtype, 1), larger, dtype)
    ratio = body.plain("arith.divf", dtype, smaller, safe)
    root = body.plain("math.sqrt", dtype, body.plain("arith.addf", dtype, body.plain("arith.mulf", dtype, ratio, ratio), _number(dtype, 1)))
    result = body.plain("arith.mulf", dtype, larger, root)
    unbounded = body.plain("arith.ori", "bool", body.compare("eq", a, infinite), body.compare("eq", b, infinite))
    return body.select(unbounded, infinite, result, dtype)


def _cast(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    """`to_dtype`: narrowing inside a chain of floats does not round."""
    x = operands[0]
    if is_float(dtype) and is_float(x.dtype) and x.number is None and width(x.dtype) == 32 and width(dtype) == 16:
        return x
    if x.number is not None and is_float(dtype) and is_float(x.dtype):
        return Scalar(dtype, number=x.number)
    return body.convert(body.convert(x, x.dtype), dtype)


def _round_to(body: Body, operands: list[Scalar], dtype: str) -> Scalar:
    x = operands[0]
    return x if x.dtype == dtype and x.number is None else body.convert(body.convert(x, "float32"), dtype)


OPS: dict[str, Build] = {
    "add": _arithmetic("arith.addf", "arith.addi", on_bools="arith.ori"),
    "sub": _arithmetic("arith.subf", "arith.subi", on_bools="arith.xori"),
    "mul": _arithmetic("arith.mulf", "arith.muli", on_bools="arith.andi"),
    "mul_rn": _arithmetic("arith.mulf", "arith.muli", on_bools="arith.andi"),
    "dot": _arithmetic("arith.mulf", "arith.muli", on_bools="arith.andi"),
    "truediv": _true_division,
    "div_rn": _true_division,
    "int_truediv": _true_division,
    "floordiv": _quotient(_arithmetic("", "arith.floordivsi", "arith.divui")),
    "truncdiv": _quotient(_arithmetic("", "arith.divsi", "arith.divui")),
    **dict.fromkeys(("mod", "fmod"), _in_32_bits(_arithmetic("arith.remf", "arith.remsi", "arith.remui"))),
    "remainder": _in_32_bits(_remainder),
    "pow": _power,
    "fma": _function("math.fma"),
    "neg": _neg,
    "abs": _abs,
    "square": _square,
    "reciprocal": _reciprocal,
    "sigmoid": _sigmoid,
    "relu": _relu,
    "sign": _sign,
    "signbit": _sign_bit,
    "hypot": _hypotenuse,
    "maximum": _chosen("arith.maximumf", "arith.maxsi", "arith.maxui", "arith.ori"),
    "minimum": _chosen("arith.minimumf", "arith.minsi", "arith.minui", "arith.andi"),
    "where": _where,
    "identity": lambda body, operands, dtype: operands[0],
    "to_dtype": _cast,
    "round_to": _round_to,
    "floor": _rounded("math.floor"),
    "ceil": _rounded("math.ceil"),
    "trunc": _rounded("math.trunc"),
    "round": _rounded("math.roundeven"),
    "floor_to_int": _rounded("math.floor"),
    "ceil_to_int": _rounded("math.ceil"),
    "trunc_to_int": _rounded("math.trunc"),
    "round_to_int": _rounded("math.roundeven"),
    "isnan": _is("nan"),
    "isinf": _is("inf"),
    **{r: _relation(r) for r in ("eq", "ne", "lt", "le", "gt", "ge")},
    "logical_and": _logic("arith.andi"),
    "logical_or": _logic("arith.ori"),
    "logical_xor": _logic("arith.xori"),
    "logical_not": _logical_not,
    "bitwise_not": _not,
    **dict.fromkeys(("and_", "bitwise_and"), _bits("arith.andi")),
    **dict.fromkeys(("or_", "bitwise_or"), _bits("arith.ori")),
    **dict.fromkeys(("xor", "bitwise_xor"), _bits("arith.xori")),
    **dict.fromkeys(("lshift", "bitwise_left_shift"), _bits("arith.shli")),
    **dict.fromkeys(("rshift", "bitwise_right_shift"), _arithmetic("", "arith.shrsi", "arith.shrui")),
    **{
        f: _function(f"math.{f}")
        for f in "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh".split()
        + "asinh acosh atanh atan2 erf erfc copysign".split()
    },
}
"""Loop ops of Inductor that have a scalar form here; the rest is refused by name."""
