"""The operators of generated functions that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from campaign.function_call import Call, Number, Own, Rule
from campaign.function_draws import Draw, NoFit
from campaign.function_model import (
    FLOOR,
    UNIT,
    Apply,
    Bounded,
    added,
    compared,
    divided,
    largest,
    lipschitz,
    monotone,
    moved,
    multiplied,
    remaining,
    size_of,
    stepwise,
    times,
    unless,
)
from torch import Tensor

Sampler = Callable[[Draw], Call]
ACCURACY = 8
"""Roundings of the computing type that an elementary function may be wrong by."""


def ulps(count: float) -> Own:
    """So many roundings of the result."""
    return lambda apply, *xs: count * size_of(apply(*(x.value for x in xs)))


def beside(count: float) -> Own:
    """So many roundings of the result and of the operand, where digits of the operand cancel."""
    return lambda apply, x: count * (size_of(apply(x.value)) + size_of(x.value))


def unary(text: str, rule: Rule, own: Own | None = None, steps: Own | None = None) -> Sampler:
    return lambda d: Call(text, (d.floats(),), rule, own, steps)


def _trigonometric(text: str) -> Sampler:
    """Slope 1; of large arguments PyTorch's own digits run out."""
    return unary(
        text, lambda apply, x: torch.where(torch.isinf(x.error), x.error, x.error.clamp(max=2)), lambda apply, x: ACCURACY + 0 * x.value
    )


def _sigmoid(d: Draw) -> Call:
    """The reciprocal of 1 + exp(-x), which is 0 where that is no number of the type in which it is computed."""
    a = d.floats()
    kind = torch.float64 if d.nodes[a].dtype == torch.float64 else torch.float32
    least = 1 / torch.finfo(kind).max

    def own(apply: Apply, x: Bounded) -> Tensor:
        value = apply(x.value)
        return ACCURACY * size_of(value) + torch.where(value <= least * (1 + 1e-6), value / UNIT[kind], 0.0)

    return Call("torch.sigmoid({0})", (a,), monotone, own)


def _reciprocal(apply: Apply, x: Bounded) -> Tensor:
    return divided(apply, Bounded(torch.ones_like(x.value), torch.zeros_like(x.error)), x)


def _local(samplers: dict[str, Sampler]) -> dict[str, Sampler]:
    """The samplers of calls that work element by element."""
    return {name: lambda d, sampler=sampler: replace(sampler(d), local=True) for name, sampler in samplers.items()}


UNARY = _local(
    {
        **{
            name: unary(f"torch.{name}({{0}})", monotone, ulps(ACCURACY))
            for name in ("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "tanh", "atan", "asinh", "sinh")
        },
        "sigmoid": _sigmoid,
        "erf": unary("torch.erf({0})", monotone, lambda apply, x: ACCURACY * size_of(apply(x.value)) + 2),
        **{name: unary(f"F.{name}({{0}})", monotone, ulps(ACCURACY)) for name in ("elu", "softplus", "logsigmoid", "selu")},
        **{name: unary(f"F.{name}({{0}})", lipschitz(1.2), beside(ACCURACY)) for name in ("silu", "mish")},
        # eager PyTorch has inf or NaN of inf, by the number of elements
        "gelu": unary(
            "F.gelu({0})", lipschitz(1.2), lambda apply, x: beside(ACCURACY)(apply, x) + torch.where(torch.isinf(x.value), torch.inf, 0)
        ),
        "softsign": unary("F.softsign({0})", lipschitz(1), ulps(2), ulps(1)),
        "tanhshrink": unary("F.tanhshrink({0})", lipschitz(1), beside(ACCURACY), lambda apply, x: torch.tanh(x.value).abs()),
        "gelu of tanh": unary("F.gelu({0}, approximate='tanh')", lipschitz(1.2), beside(ACCURACY)),
        "hardswish": unary("F.hardswish({0})", lipschitz(1.5), beside(4)),
        "hardsigmoid": unary("F.hardsigmoid({0})", monotone, beside(4)),
        "sin": _trigonometric("torch.sin({0})"),
        "cos": _trigonometric("torch.cos({0})"),
        "sqrt": unary("torch.sqrt({0})", monotone, ulps(1)),
        "rsqrt": unary("torch.rsqrt({0})", monotone, ulps(4), ulps(1)),
        "reciprocal": unary("torch.reciprocal({0})", _reciprocal),
        "square": unary("torch.square({0})", lambda apply, x: 2 * times(x.value.abs(), x.error) + times(x.error, x.error)),
        "cube": unary("{0} ** 3", lambda apply, x: x.magnitude**3 - x.value.abs() ** 3, ulps(4), ulps(1)),
        **{name: unary(f"torch.{name}({{0}})", lipschitz(1)) for name in ("abs", "neg", "relu")},
        "leaky relu": unary("F.leaky_relu({0}, 0.2)", lipschitz(1), ulps(2)),
        "hardtanh": unary("F.hardtanh({0})", lipschitz(1)),
        "relu6": unary("F.relu6({0})", lipschitz(1)),
        **{name: unary(f"torch.{name}({{0}})", stepwise) for name in ("floor", "ceil", "round", "trunc", "sign")},
        "frac": unary("torch.frac({0})", lambda apply, x: torch.where(torch.trunc(x.low) == torch.trunc(x.high), x.error, torch.inf)),
        "nan to num": unary("torch.nan_to_num({0}, nan=1.5, posinf=3.0, neginf=-2.0)", lipschitz(1)),
    }
)


def of_numpy(name: str) -> str:
    """Remainders, of which eager's vectors make NaN where the quotient overflows; its numbers one by one, and C, have a result."""
    return f"torch.as_tensor(np.{name}({{0}}.numpy(), {{1}}.numpy()))"


def _binary(text: str, rule: Rule, own: Own | None = None, *, oracle: str = "") -> Sampler:
    """Of floats with floats, now and then with an integer."""

    def draw(d: Draw) -> Call:
        a = d.floats()
        b = d.other(a, lambda n: n.is_float or d.r.random() < 0.1)
        pair = (a, b) if d.r.random() < 0.5 else (b, a)
        return Call(text, pair, rule, own, oracle=oracle)

    return draw


def _with_number(text: str, rule: Rule, own: Own | None = None, steps: Own | None = None) -> Sampler:
    def draw(d: Draw) -> Call:
        value = d.r.choice((2, 3, -1, 0.5, 0.1, -1.75, 1e-3, 100.0))
        if d.style == "exact":
            value = d.r.choice((1, 2, -1, 3, 0.5))
        return Call(text, (d.floats(), Number(value)), rule, own, steps)

    return draw


def _number_by(d: Draw) -> Call:
    """Eager PyTorch multiplies with the reciprocal, which is a number of the type: it may have lost digits, or be infinite."""
    call = _with_number("{1} / {0}", lambda apply, x, y: divided(apply, y, x))(d)
    kind = d.nodes[call.operands[0]].dtype
    most, least = torch.finfo(kind).max * (1 + UNIT[kind]), FLOOR[kind] / UNIT[kind]

    def steps(apply: Apply, x: Bounded, y: Bounded) -> Tensor:
        inverse = 1 / (x.value.abs() - x.error).clamp(min=0)
        relative = torch.where(inverse < most, inverse.clamp(min=least), torch.inf)
        return torch.where(x.magnitude == 0, 0.0, y.value.abs() * relative)

    return replace(call, steps=steps)


def unless_infinite(magnitudes: Tensor, kind: torch.dtype) -> Tensor:
    """Magnitudes of a step of the computation, infinite where the type that computes results of `kind` does not hold it."""
    most = torch.finfo(torch.float64 if kind == torch.float64 else torch.float32).max
    return torch.where(magnitudes > most * (1 - 2.0**-20), torch.inf, magnitudes)


def _lerp(d: Draw) -> Call:
    a = d.floats()
    b = d.operand(d.nodes[a].shape, d.nodes[a].dtype)

    def rule(apply: Apply, x: Bounded, y: Bounded) -> Tensor:
        return x.error + y.error

    def own(apply: Apply, x: Bounded, y: Bounded) -> Tensor:
        return 2 * unless_infinite(size_of(x.value) + size_of(y.value), d.nodes[a].dtype)

    return Call("torch.lerp({0}, {1}, 0.25)", (a, b), rule, own)


def _addcmul(d: Draw) -> Call:
    a = d.floats()
    b, c = d.other(a, lambda n: n.is_float), d.other(a, lambda n: n.is_float)

    def rule(apply: Apply, x: Bounded, y: Bounded, z: Bounded) -> Tensor:
        return x.error + 2 * multiplied(apply, y, z)

    def own(apply: Apply, x: Bounded, y: Bounded, z: Bounded) -> Tensor:
        first = unless_infinite(2 * size_of(y.value), kind)
        step = torch.where(torch.isinf(first), first, unless_infinite(2 * size_of(y.value * z.value), kind))
        return 4 * (size_of(x.value) + step)

    kind = torch.promote_types(d.nodes[a].dtype, torch.promote_types(d.nodes[b].dtype, d.nodes[c].dtype))
    return Call("torch.addcmul({0}, {1}, {2}, value=2)", (a, b, c), rule, own)


def turned(apply: Apply, y: Bounded, x: Bounded) -> Tensor:
    """Of a point's angle: that in which a circle around it is seen. Anything where the circle holds 0 or may cross the cut at the left."""
    off, away = torch.hypot(x.error, y.error), torch.hypot(x.value, y.value)
    cut = (x.low <= 0) & (y.value.abs() <= y.error)
    return torch.where(off == 0, 0.0, torch.where((off >= away) | cut, torch.inf, torch.asin((off / away).clamp(max=1))))


def _atan2(d: Draw) -> Call:
    a = d.floats()
    return Call("torch.atan2({0}, {1})", (a, d.other(a, lambda n: n.is_float)), turned, ulps(ACCURACY))


def _clamp(d: Draw) -> Call:
    return Call(f"torch.clamp({{0}}, {d.r.choice(('-1', '0', '-0.5'))}, {d.r.choice(('1', '0.75', '6'))})", (d.floats(),), lipschitz(1))


def _where(d: Draw) -> Call:
    a = d.pick(lambda n: n.dtype != torch.bool)
    kind = d.nodes[a].dtype
    condition = d.condition(a)
    b = d.other(a, lambda n: n.dtype == kind)
    return Call("torch.where({0}, {1}, {2})", (condition, a, b), moved, kept=(0,), unrounded=True)


def _masked_fill(d: Draw) -> Call:
    a = d.pick(lambda n: n.dtype != torch.bool)
    mask = d.condition(a)
    fill = d.r.choice(("0", "1", "-3", "7")) if not d.nodes[a].is_float else d.r.choice(("0.0", "-2.5", "float('-inf')", "65504.0"))
    errors = "torch.masked_fill({0}, {1}, 0.0)"
    return Call(f"torch.masked_fill({{0}}, {{1}}, {fill})", (a, mask), moved, kept=(1,), errors=errors)


BINARY = _local(
    {
        "add": _binary("{0} + {1}", added),
        "sub": _binary("{0} - {1}", added),
        "mul": _binary("{0} * {1}", multiplied),
        "div": _binary("{0} / {1}", divided),
        "minimum": _binary("torch.minimum({0}, {1})", largest),
        "maximum": _binary("torch.maximum({0}, {1})", largest),
        "add of a number": _with_number("{0} + {1}", added),
        "number minus": _with_number("{1} - {0}", added),
        "mul with a number": _with_number("{0} * {1}", multiplied),
        "div by a number": _with_number("{0} / {1}", divided, ulps(2)),
        "number by": _number_by,
        "fmod": _binary("torch.fmod({0}, {1})", remaining(torch.trunc), oracle=of_numpy("fmod")),
        "remainder": _binary(
            "torch.remainder({0}, {1})",
            remaining(torch.floor),
            lambda apply, x, y: 2 * size_of(y.value).expand(apply(x.value, y.value).shape),
            oracle=of_numpy("remainder"),
        ),
        "hypot": _binary("torch.hypot({0}, {1})", added, ulps(4)),
        "atan2": _atan2,
        "lerp": _lerp,
        "addcmul": _addcmul,
        "clamp": _clamp,
        "where": _where,
        "masked fill": _masked_fill,
    }
)

_SIGNS = ("<", "<=", ">", ">=", "==", "!=")


def _compare(d: Draw) -> Call:
    a = d.pick(lambda n: n.dtype != torch.bool)
    here = d.nodes[a]
    sign = d.r.choice(_SIGNS)
    if d.r.random() < 0.4:
        value: float | int = d.r.choice((0, 1, -0.5, 3)) if here.is_float else d.r.choice((0, 5, 100, 127, 200))
        return Call(f"{{0}} {sign} {{1}}", (a, Number(value)), compared)
    b = d.other(a, lambda n: n.is_float == here.is_float and n.dtype != torch.bool)
    return Call(f"{{0}} {sign} {{1}}", (a, b), compared)


def _test(d: Draw) -> Call:
    def rule(apply: Apply, x: Bounded) -> Tensor:
        return torch.where(torch.isinf(x.error), torch.inf, 0.0)

    return Call(f"torch.{d.r.choice(('isnan', 'isinf', 'isfinite'))}({{0}})", (d.floats(),), rule)


def _logical(d: Draw) -> Call:
    a = d.pick(lambda n: n.dtype == torch.bool)
    text = d.r.choice(("{0} & {1}", "{0} | {1}", "{0} ^ {1}", "torch.logical_and({0}, {1})", "~{0}"))
    if "{1}" not in text:
        return Call(text, (a,), lambda apply, x: x.error)
    return Call(text, (a, d.other(a, lambda n: n.dtype == torch.bool)), added)


def _unsure(apply: Apply, *xs: Bounded) -> Tensor:
    return largest(apply, *xs)


def _integers(d: Draw) -> Call:
    a = d.integers()
    text = d.r.choice(INTEGER_BINARY)
    kind = d.nodes[a].dtype
    if d.r.random() < 0.35:
        number = d.r.choice((1, 2, 3, 7, 10, 64, 100, 127)) if kind == torch.uint8 else d.r.choice((1, 2, -3, 7, 10, -64, 100, 127))
        return Call(text, (a, Number(number)) if "maximum" not in text and "minimum" not in text else (a, a), _unsure)
    return Call(text, (a, d.other(a, lambda n: not n.is_float and n.dtype != torch.bool)), _unsure)


def _shift(d: Draw) -> Call:
    a = d.integers()
    bits = torch.iinfo(d.nodes[a].dtype).bits
    return Call(f"{{0}} {d.r.choice(('<<', '>>'))} {{1}}", (a, Number(d.r.randrange(bits))), _unsure)


def _quotient(d: Draw) -> Call:
    """Division of integers by tensors without zeros, of any sign, or by numbers."""
    a = d.integers()
    kind = d.nodes[a].dtype
    text = d.r.choice(
        ("{0} // {1}", "{0} % {1}", "torch.fmod({0}, {1})", "torch.div({0}, {1}, rounding_mode='trunc')", "torch.remainder({0}, {1})")
    )
    if d.r.random() < 0.4:
        return Call(text, (a, Number(d.r.choice((1, 2, 3, 7, 10, 64, 100)))), _unsure)
    shape = d.r.choice([d.nodes[a].shape, d.nodes[a].shape[-1:], ()])
    divisor = d.values(shape, kind)
    low = torch.iinfo(kind).min  # its quotient by -1 is undefined in C++
    divisor = torch.where((divisor == 0) | ((divisor == -1) if low else (divisor == 0)), torch.full_like(divisor, 3), divisor)
    return Call(text, (a, d.new(divisor)), _unsure)


def _integer_unary(d: Draw) -> Call:
    return Call(
        d.r.choice(("-{0}", "torch.abs({0})", "~{0}", "torch.sign({0})", "{0} * {0}", "torch.clamp({0}, 0, 100)")), (d.integers(),), moved
    )


def _cast(d: Draw) -> Call:
    """To another type; floats to integers where the value is in range."""
    a = d.pick()
    here = d.nodes[a]
    kinds = [torch.float16, torch.float32, torch.int64, torch.int32, torch.bool, torch.bfloat16, torch.float64, torch.uint8, torch.int8]
    to = d.r.choice([k for k in (d.main, *kinds) if k != here.dtype])
    text = f"{{0}}.to({to})"
    if to.is_floating_point:
        return Call(text, (a,), moved, oracle="{0}.double()", errors="{0}")
    if here.is_float:
        if to != torch.bool:
            info = torch.iinfo(to)
            if not bool((torch.isfinite(here.eager) & (here.eager.double() > info.min) & (here.eager.double() < info.max)).all()):
                raise NoFit
        return Call(text, (a,), stepwise if to != torch.bool else lambda apply, x: unless((x.error > 0) & (x.value.abs() <= x.error)))
    return Call(text, (a,), lambda apply, x: x.error)


INTEGER_BINARY = (
    "{0} + {1}",
    "{0} - {1}",
    "{0} * {1}",
    "{0} & {1}",
    "{0} | {1}",
    "{0} ^ {1}",
    "torch.minimum({0}, {1})",
    "torch.maximum({0}, {1})",
)
OTHER = _local(
    {
        "compare": _compare,
        "test of floats": _test,
        "logical": _logical,
        "integers": _integers,
        "shift": _shift,
        "quotient": _quotient,
        "unary of integers": _integer_unary,
        "cast": _cast,
    }
)
