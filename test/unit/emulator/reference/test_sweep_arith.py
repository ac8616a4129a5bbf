"""arith, op by op: every type, edge values against each other, tensors, bodies and scalars."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sweep
from hypothesis import given
from hypothesis import strategies as st
from kernel_texts import kernel, load, store
from sweep import FLOATS, INTEGERS, WIDTHS, Case

Array = np.ndarray
CASES: list[Case] = []


def whole(function: Callable[..., Any]) -> Callable[..., Array]:
    """A function of Python ints, element by element."""
    return lambda *operands: np.frompyfunc(function, len(operands), 1)(*operands)


# Floats


def ordered(function: Callable[..., Any], zero: Callable[..., Any]) -> Callable[..., Array]:
    """maximum or minimum with -0 < +0: where both are zero the sign is `zero` of the signs."""

    def compute(a: Array, b: Array) -> Array:
        sign = np.where(zero(np.signbit(a), np.signbit(b)), -0.0, 0.0)
        return np.where((a == 0) & (b == 0), sign, function(a, b))

    return compute


def number(function: Callable[..., Array]) -> Callable[..., Array]:
    """As `function`, but a NaN loses against a number."""
    return lambda a, b: np.where(np.isnan(a), b, np.where(np.isnan(b), a, function(a, b)))


MAXIMUM, MINIMUM = ordered(np.maximum, np.logical_and), ordered(np.minimum, np.logical_or)

for element in FLOATS:
    for name, oracle in {
        "addf": np.add,
        "subf": np.subtract,
        "mulf": np.multiply,
        "divf": np.divide,
        "remf": np.fmod,
        "maximumf": MAXIMUM,
        "minimumf": MINIMUM,
        "maxnumf": number(MAXIMUM),
        "minnumf": number(MINIMUM),
    }.items():
        CASES.append(Case(f"arith.{name}", f"arith.{name} {{x[0]}}, {{x[1]}} : {{t[0]}}", (element,) * 2, (element,), oracle))
    CASES.append(Case("arith.negf", "arith.negf {x[0]} : {t[0]}", (element,), (element,), np.negative))

_ORDERED: dict[str, Callable[..., Array]] = {
    "oeq": np.equal,
    "ogt": np.greater,
    "oge": np.greater_equal,
    "olt": np.less,
    "ole": np.less_equal,
    "one": lambda a, b: (a < b) | (a > b),
    "ord": lambda a, b: ~np.isnan(a) & ~np.isnan(b),
    "false": lambda a, b: np.zeros(a.shape, np.bool_),
}
_NOT = {"oeq": "une", "ogt": "ule", "oge": "ult", "olt": "uge", "ole": "ugt", "one": "ueq", "ord": "uno", "false": "true"}
PREDICATES = {k: f for k, f in _ORDERED.items()} | {_NOT[k]: lambda a, b, f=f: ~f(a, b) for k, f in _ORDERED.items()}
"""Ordered predicates fail with a NaN; each unordered one is the opposite of an ordered one."""


def flag(holds: Any) -> Array:
    """Booleans as values of i1."""
    return -np.asarray(holds, np.bool_).astype(np.int64).astype(object)


for element in FLOATS:
    for predicate, holds in PREDICATES.items():
        text = f"arith.cmpf {predicate}, {{x[0]}}, {{x[1]}} : {{t[0]}}"
        CASES.append(Case("arith.cmpf", text, (element,) * 2, ("i1",), lambda a, b, f=holds: flag(f(a, b))))

# Integers


def toward_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_SIGNED: dict[str, Callable[[int, int], int]] = {
    "addi": operator.add,
    "subi": operator.sub,
    "muli": operator.mul,
    "divsi": toward_zero,
    "remsi": lambda a, b: a - b * toward_zero(a, b),
    "floordivsi": operator.floordiv,
    "ceildivsi": lambda a, b: -((-a) // b),
    "minsi": min,
    "maxsi": max,
    "andi": operator.and_,
    "ori": operator.or_,
    "xori": operator.xor,
    "shli": operator.lshift,
    "shrsi": operator.rshift,
}
_UNSIGNED: dict[str, Callable[[int, int], int]] = {
    "divui": operator.floordiv,
    "remui": operator.mod,
    "ceildivui": lambda a, b: -((-a) // b),
    "minui": min,
    "maxui": max,
    "shrui": operator.rshift,
}


def without_sign(function: Callable[..., Any], element: str, *, amount: bool = False) -> Callable[..., Array]:
    """`function` on operands read without sign; the second one of a shift is a small number either way."""
    return lambda a, b: whole(function)(sweep.bare(element, a), b if amount else sweep.bare(element, b))


def domain(name: str, element: str) -> tuple[Callable[..., Any] | None, tuple[Any, ...]]:
    """Operands that have a defined result, and what stands for others: no division by zero or overflow of one, no shift too far."""
    low = -(1 << (WIDTHS[element] - 1))
    if name.startswith("sh"):
        return lambda a, b: (b >= 0) & (b < WIDTHS[element]), (0, 0)
    if name in ("divsi", "floordivsi", "ceildivsi", "remsi"):
        return lambda a, b: (b != 0) & ~((a == low) & (b == -1)), (1 if WIDTHS[element] > 1 else 0, 1 if WIDTHS[element] > 1 else -1)
    if name in ("divui", "remui", "ceildivui"):
        return lambda a, b: b != 0, (0, -1)
    return None, ()


for element in INTEGERS:
    for name, function in (_SIGNED | _UNSIGNED).items():
        inside, instead = domain(name, element)
        if name == "shrui":
            compute = without_sign(function, element, amount=True)
        else:
            compute = without_sign(function, element) if name in _UNSIGNED else whole(function)
        text = f"arith.{name} {{x[0]}}, {{x[1]}} : {{t[0]}}"
        CASES.append(Case(f"arith.{name}", text, (element,) * 2, (element,), compute, inside=inside, instead=instead))

_COMPARE = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
for element in INTEGERS:
    for predicate, function in _COMPARE.items():
        for sign in ("",) if predicate in ("eq", "ne") else ("s", "u"):
            compare = without_sign(function, element) if sign == "u" else whole(function)
            text = f"arith.cmpi {sign}{predicate}, {{x[0]}}, {{x[1]}} : {{t[0]}}"
            CASES.append(Case("arith.cmpi", text, (element,) * 2, ("i1",), lambda a, b, f=compare: flag(f(a, b))))


def carried(element: str) -> Callable[..., tuple[Array, Array]]:
    def compute(a: Array, b: Array) -> tuple[Array, Array]:
        total = sweep.bare(element, a) + sweep.bare(element, b)
        return total, flag(total >= 1 << WIDTHS[element])

    return compute


def borrowed(element: str) -> Callable[..., tuple[Array, Array]]:
    return lambda a, b: (a - b, flag(sweep.bare(element, a) < sweep.bare(element, b)))


def halves(element: str, signed: bool) -> Callable[..., tuple[Array, Array]]:
    def compute(a: Array, b: Array) -> tuple[Array, Array]:
        product = a * b if signed else sweep.bare(element, a) * sweep.bare(element, b)
        return product, product >> WIDTHS[element]

    return compute


for element in INTEGERS:
    for name, oracle in {"addui_extended": carried, "subui_extended": borrowed}.items():
        text = f"arith.{name} {{x[0]}}, {{x[1]}} : {{t[0]}}, {{to[1]}}"
        CASES.append(Case(f"arith.{name}", text, (element,) * 2, (element, "i1"), oracle(element)))
    for name, signed in {"mulsi_extended": True, "mului_extended": False}.items():
        text = f"arith.{name} {{x[0]}}, {{x[1]}} : {{t[0]}}"
        CASES.append(Case(f"arith.{name}", text, (element,) * 2, (element,) * 2, halves(element, signed)))

for element in (*FLOATS, *INTEGERS):
    CASES.append(
        Case(
            "arith.select",
            "arith.select {x[0]}, {x[1]}, {x[2]} : {t[0]}, {t[1]}",
            ("i1", element, element),
            (element,),
            lambda c, a, b: np.where(c != 0, a, b),
        )
    )

# Conversions

for source in FLOATS:
    for target in FLOATS:
        wider = sweep.HOST[target]().itemsize - sweep.HOST[source]().itemsize
        if wider:
            name = "extf" if wider > 0 else "truncf"
            CASES.append(Case(f"arith.{name}", f"arith.{name} {{x[0]}} : {{t[0]}} to {{to[0]}}", (source,), (target,), lambda x: x))


def fits(element: str, signed: bool) -> Callable[[Array], Any]:
    """Whether a float, cut to a whole number, is one of the integer type."""
    low, high = (-(1 << (WIDTHS[element] - 1)), 1 << (WIDTHS[element] - 1)) if signed else (0, 1 << WIDTHS[element])
    return lambda x: (np.trunc(x) >= low) & (np.trunc(x) < high)


def exact(element: str, signed: bool) -> Callable[[Array], Array]:
    def compute(x: Array) -> Array:
        return whole(Fraction)(x if signed else sweep.bare(element, x))

    return compute


for source, target in (("f16", "bf16"), ("bf16", "f16")):
    CASES.append(Case("arith.convertf", "arith.convertf {x[0]} : {t[0]} to {to[0]}", (source,), (target,), lambda x: x))
for element in FLOATS:
    least = 2.0 ** sweep.least_exponent(element)
    text = "arith.flush_denormals {x[0]} : {t[0]}"
    CASES.append(
        Case("arith.flush_denormals", text, (element,), (element,), lambda x, n=least: np.where(np.abs(x) < n, np.copysign(0, x), x))
    )

for integer in INTEGERS[:-1]:
    for element in FLOATS:
        for sign, signed in (("si", True), ("ui", False)):
            to, of = (f"arith.{name} {{x[0]}} : {{t[0]}} to {{to[0]}}" for name in (f"{sign}tofp", f"fpto{sign}"))
            CASES.append(Case(f"arith.{sign}tofp", to, (integer,), (element,), exact(integer, signed)))
            inside = fits(integer, signed)
            CASES.append(Case(f"arith.fpto{sign}", of, (element,), (integer,), whole(int), inside=inside, instead=(0.0,)))

for source in INTEGERS[:-1]:
    for target in INTEGERS[:-1]:
        text = "{x[0]} : {t[0]} to {to[0]}"
        if WIDTHS[source] > WIDTHS[target]:
            CASES.append(Case("arith.trunci", f"arith.trunci {text}", (source,), (target,), lambda x: x))
        if WIDTHS[source] < WIDTHS[target]:
            CASES.append(Case("arith.extsi", f"arith.extsi {text}", (source,), (target,), lambda x: x))
            CASES.append(Case("arith.extui", f"arith.extui {text}", (source,), (target,), lambda x, e=source: sweep.bare(e, x)))
    for pair in ((source, "index"), ("index", source)):
        text = "{x[0]} : {t[0]} to {to[0]}"
        CASES.append(Case("arith.index_cast", f"arith.index_cast {text}", pair[:1], pair[1:], lambda x: x))
        CASES.append(Case("arith.index_castui", f"arith.index_castui {text}", pair[:1], pair[1:], lambda x, e=pair[0]: sweep.bare(e, x)))


def reinterpreted(source: str, target: str) -> Callable[[Array], Array]:
    def compute(x: Array) -> Array:
        host = sweep.to_host(source, x)
        return sweep.from_host(target, host.view(sweep.HOST[target]))

    return compute


_SAME_WIDTH = [("f16", "bf16", "i16"), ("f32", "i32"), ("f64", "i64"), ("f8E4M3FN", "f8E5M2", "i8")]
for family in _SAME_WIDTH:
    for source in family:
        for target in family:
            if source != target:
                text = "arith.bitcast {x[0]} : {t[0]} to {to[0]}"
                # A NaN has many patterns, and only one is a value here.
                inside = (lambda x: ~np.isnan(x)) if source in FLOATS else None
                compute = reinterpreted(source, target)
                CASES.append(Case("arith.bitcast", text, (source,), (target,), compute, inside=inside, instead=(0.0,)))
                if (source in FLOATS) != (target in FLOATS):
                    text = text.replace("arith", "tensor")
                    CASES.append(Case("tensor.bitcast", text, (source,), (target,), compute, 0, inside, (0.0,), ("tensors",)))


@pytest.mark.parametrize("cases", sweep.grouped(CASES))
def test_edges(cases):
    sweep.verify_edges(cases)


@sweep.FEW
@given(st.data())
def test_random(data):
    sweep.verify_random(CASES, data)


@pytest.mark.long
@sweep.MANY
@given(st.data())
def test_random_many(data):
    sweep.verify_random(CASES, data)


@pytest.mark.parametrize("element", [*FLOATS, *INTEGERS])
@sweep.covers("arith.constant")
def test_constants(element):
    """A scalar, a splat, and a tensor with an element each."""
    values = sweep.edges(element)
    n = values.size
    words = [sweep.literal(element, v).split(" ")[0] for v in values]
    type_ = f"tensor<{n}x{element}>"
    scalars = "".join(f"%s{i} = arith.constant {sweep.literal(element, v)}\n" for i, v in enumerate(values))
    body = scalars + f"%a = tensor.from_elements {', '.join(f'%s{i}' for i in range(n))} : {type_}\n"
    body += f"%b = arith.constant dense<[{', '.join(words)}]> : {type_}\n%c = arith.constant dense<{words[-1]}> : {type_}\n"
    outs = [np.zeros(n, sweep.HOST[element]) for _ in range(3)]
    for name, argument in zip("abc", ("%arg0", "%arg1", "%arg2"), strict=True):
        body += store(f"%{name}", argument, (n,), element=element)
    sweep.run(kernel(["%arg0", "%arg1", "%arg2"], body), outs)
    for what, out, want in zip(("scalars", "dense", "splat"), outs, (values, values, np.full(n, values[-1])), strict=True):
        sweep.check_same(element, sweep.from_host(element, out), want, 0, [values], what)


@pytest.mark.parametrize("element", FLOATS)
def test_every_nan_is_one(element):
    """Patterns of NaN that arithmetic does not make, signalling ones too, against each other and against numbers."""
    host = np.dtype(sweep.HOST[element])
    bits = np.dtype(f"u{host.itemsize}")
    full = sweep.to_host(element, np.array([np.nan])).view(bits)[0] if element == "f8E4M3FN" else None
    top = 8 * host.itemsize - 1
    exponent = int(sweep.to_host(element, np.array([1.0 if full is not None else np.inf])).view(bits)[0])
    patterns = [int(full)] if full is not None else [exponent + 1, exponent + 2, (1 << top) - 1]
    patterns = [*patterns, *(p | 1 << top for p in patterns)]
    values = np.concatenate([np.array(patterns, bits).view(host), sweep.to_host(element, np.array([2.0, -1.0, sweep.most(element)]))])
    a, b = (np.ascontiguousarray(g.reshape(-1)) for g in np.meshgrid(values, values))
    nan = np.isin(np.arange(values.size), np.arange(len(patterns)))
    ops = ["addf", "subf", "mulf", "divf", "maximumf", "minimumf", "maxnumf", "minnumf"]
    type_ = f"tensor<{a.size}x{element}>"
    body = load("%a", "%arg0", a.shape, element=element) + load("%b", "%arg1", a.shape, element=element)
    outs = [np.zeros(a.shape, host) for _ in ops]
    for i, op in enumerate(ops):
        body += f"%y{i} = arith.{op} %a, %b : {type_}\n" + store(f"%y{i}", f"%arg{2 + i}", a.shape, element=element)
    sweep.run(kernel([f"%arg{i}" for i in range(2 + len(ops))], body), [a, b, *outs])
    left, right = (g.reshape(-1) for g in np.meshgrid(nan, nan))
    for op, out in zip(ops, outs, strict=True):
        want = left & right if op in ("maxnumf", "minnumf") else left | right
        np.testing.assert_array_equal(np.isnan(sweep.from_host(element, out)), want, err_msg=op)
