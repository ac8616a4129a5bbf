"""linalg, op by op: pointwise ops, reductions and products in machine order, rearrangements, and maps of every kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import sweep
import test_sweep_arith as arith
import test_sweep_math as math_
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_texts import generic, tensor
from sweep import FLOATS, INTEGERS, Case, Program

Array = np.ndarray
CASES: list[Case] = []

# Pointwise: what the ops of arith and math do

SIGNED = {"add": "addi", "sub": "subi", "mul": "muli", "div": "divsi", "div_unsigned": "divui", "max": "maxsi", "min": "minsi"}
TWO = {"add": "addf", "sub": "subf", "mul": "mulf", "div": "divf", "max": "maximumf", "min": "minimumf", "powf": "powf"}
ONE = {n: n for n in ("exp", "log", "sqrt", "rsqrt", "tanh", "erf", "floor", "ceil", "round")} | {"abs": "absf", "negf": "negf"}
MEANINGS = {str(case): case for case in (*arith.CASES, *math_.CASES)}


def named(name: str, like: str) -> Case:
    """The linalg op `name` that does what case `like` does, on tensors; its outs is not read."""
    case = MEANINGS[like]
    values = ", ".join(f"{{x[{i}]}}" for i in range(len(case.takes)))
    types = ", ".join(f"{{t[{i}]}}" for i in range(len(case.takes)))
    text = f"linalg.{name} ins({values} : {types}) outs({{x[0]}} : {{t[0]}}) -> {{to[0]}}"
    return Case(f"linalg.{name}", text, case.takes, case.gives, case.oracle, case.ulps, case.inside, case.instead, ("tensors",))


for element in FLOATS:
    for name, op in TWO.items():
        dialect = "math" if op == "powf" else "arith"
        CASES.append(named(name, f"{dialect}.{op}-{element}-{element}-{element}"))
    for name, op in ONE.items():
        dialect = "arith" if op == "negf" else "math"
        CASES.append(named(name, f"{dialect}.{op}-{element}-{element}"))
    for name, oracle in {"reciprocal": lambda x: 1 / x, "square": lambda x: x * x, "copy": lambda x: x}.items():
        text = f"linalg.{name} ins({{x[0]}} : {{t[0]}}) outs({{x[0]}} : {{t[0]}}) -> {{t[0]}}"
        CASES.append(Case(f"linalg.{name}", text, (element,), (element,), oracle, forms=("tensors",)))
for element in INTEGERS[1:-1]:
    CASES.extend(named(name, f"arith.{op}-{element}-{element}-{element}") for name, op in SIGNED.items())
for element in ("f16", "f64", "i8", "i64"):
    text = "linalg.select ins({x[0]}, {x[1]}, {x[2]} : {t[0]}, {t[1]}, {t[2]}) outs({x[1]} : {t[1]}) -> {t[1]}"
    CASES.append(
        Case("linalg.select", text, ("i1", element, element), (element,), lambda c, a, b: np.where(c != 0, a, b), forms=("tensors",))
    )
    kind = "addf" if element in FLOATS else "addi"
    text = f"linalg.map {{{{ arith.{kind} }}}} ins({{x[0]}}, {{x[1]}} : {{t[0]}}, {{t[1]}}) outs({{x[0]}} : {{t[0]}})"
    CASES.append(Case("linalg.map", text, (element,) * 2, (element,), np.add, forms=("tensors",)))


@pytest.mark.parametrize("cases", sweep.grouped(CASES))
def test_edges(cases):
    sweep.verify_edges(cases)


@sweep.FEW
@given(st.data())
def test_random(data):
    sweep.verify_random(CASES, data)


# Reductions

STEPS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": arith.MAXIMUM,
    "min": arith.MINIMUM,
    "fmax": arith.number(arith.MAXIMUM),
    "fmin": arith.number(arith.MINIMUM),
}
START = {"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf, "fmax": -np.inf, "fmin": np.inf}


def machine(kind: str, element: str, x: Array, extents: Sequence[int]) -> Array:
    """The last len(extents) axes reduced in machine order, each step rounded to `element`.

    One axis is cut in sticks of 64, the last one filled; sticks in sequence, then a halving tree. So are two of which the second has
    64 elements. Any others are one sequence.
    """

    def step(a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return sweep.finished(element, STEPS[kind](a, b))

    lead = x.shape[: x.ndim - len(extents)]
    if len(extents) == 2 and extents[1] == 64:
        sticks = x
    elif len(extents) == 1:
        n = extents[0]
        sticks = np.full((*lead, -(-n // 64) * 64), START[kind])
        sticks[..., :n] = x
        sticks = sticks.reshape(*lead, -1, 64)
    else:
        sticks = x.reshape(*lead, -1, 1)
    lanes = sticks[..., 0, :]
    for i in range(1, sticks.shape[-2]):
        lanes = step(lanes, sticks[..., i, :])
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = step(lanes[..., :half], lanes[..., half:])
    return lanes[..., 0]


FLOAT_OPS = {"add": "addf", "mul": "mulf", "max": "maximumf", "min": "minimumf", "fmax": "maxnumf", "fmin": "minnumf"}
INTEGER_OPS: dict[str, tuple[str, Callable[..., Any]]] = {
    "addi": ("s", np.add),
    "muli": ("s", np.multiply),
    "maxsi": ("s", np.maximum),
    "minsi": ("s", np.minimum),
    "maxui": ("u", np.maximum),
    "minui": ("u", np.minimum),
    "andi": ("s", np.bitwise_and),
    "ori": ("s", np.bitwise_or),
    "xori": ("s", np.bitwise_xor),
}
EXTENTS = st.sampled_from([1, 2, 3, 5, 63, 64, 65, 130])


def check_reduction(data: Any) -> None:
    """`linalg.reduce`, or a generic whose operand is permuted, over some dims of a tensor, into a given accumulator."""
    draw = data.draw
    rank = draw(st.integers(1, 4))
    small = st.sampled_from([1, 2, 3])
    shape = tuple(draw(EXTENTS if i >= rank - 2 and rank < 4 else small) for i in range(rank))
    dims = sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1, max_size=rank)))
    kept = [d for d in range(rank) if d not in dims]
    tiles, random = draw(sweep.tile_counts), np.random.default_rng(draw(sweep.seeds))
    element = draw(st.sampled_from([*FLOATS, *INTEGERS]))
    source = element
    if element in FLOATS:
        kind = draw(st.sampled_from(list(FLOAT_OPS)))
        op = FLOAT_OPS[kind]
        if element == "f32":
            source = draw(st.sampled_from(["f32", "f16", "bf16", "f8E5M2"]))
        x = sweep.rounded(source, random.standard_normal((tiles, *shape)) * 4)
        if draw(st.booleans()):
            x = sweep.random_values(source, (tiles, *shape), random)
    else:
        kind = draw(st.sampled_from(list(INTEGER_OPS)))
        op = kind
        x = sweep.random_values(element, (tiles, *shape), random)
    out = tuple(shape[d] for d in kept)
    start = sweep.random_values(element, (tiles, *out), random)
    moved = np.moveaxis(x, [1 + d for d in dims], list(range(-len(dims), 0)))
    extents = [shape[d] for d in dims]
    with np.errstate(all="ignore"):
        if element in FLOATS:
            want = sweep.finished(element, STEPS[kind](start, machine(kind, element, moved, extents)))
        else:
            sign, function = INTEGER_OPS[kind]
            flat, first = moved.reshape(tiles, *out, -1), start
            if sign == "u":
                flat, first = sweep.bare(element, flat), sweep.bare(element, first)
            total = first
            for i in range(flat.shape[-1]):
                total = function(total, flat[..., i])
            want = sweep.finished(element, total)
    program = Program(tiles)
    text = f"arith.{op}"
    order = list(range(rank))
    if element == "index" or (source == element and draw(st.booleans())):
        a, o = program.load(x, element), program.load(start, element)
        program.body += (
            f"%y = linalg.reduce ins({a} : {tensor(shape, element)}) outs({o} : {tensor(out, element)}) dimensions = {dims} "
            f"(%in: {element}, %acc: {element}) {{\n%r = {text} %in, %acc : {element}\nlinalg.yield %r : {element}\n}}\n"
        )
    else:
        order = list(draw(st.permutations(order)))  # of the operand in memory; the loops stay
        a, o = program.load(x.transpose(0, *(1 + d for d in order)), source), program.load(start, element)
        widened = f"%w = arith.extf %a : {source} to {element}\n" if source != element else ""
        pair = draw(st.sampled_from(["%o, %w", "%w, %o"])).replace("%w", "%w" if widened else "%a")
        body = f"{widened}%r = {text} {pair} : {element}\nlinalg.yield %r : {element}"
        given = (a, tensor([shape[d] for d in order], source), ", ".join(f"d{d}" for d in order))
        iterators = "".join("r" if d in dims else "p" for d in range(rank))
        program.body += generic("%y", [given], (o, tensor(out, element), ", ".join(f"d{d}" for d in kept)), iterators, body)
    program.store("%y", out, element)
    (got,) = program.run()
    sweep.check_same(element, got, want, 0, [start], f"{op} of {source}{shape} in memory order {order} over {dims} into {element}")


@settings(sweep.FEW, max_examples=examples(60))
@given(st.data())
def test_reductions(data):
    check_reduction(data)


@pytest.mark.long
@settings(sweep.MANY, max_examples=800)
@given(st.data())
def test_reductions_many(data):
    check_reduction(data)


# Products

PRODUCTS = {
    # loops of the operands and of the result
    "matmul": ("mk", "kn", "mn"),
    "batch_matmul": ("bmk", "bkn", "bmn"),
    "dot": ("k", "k", ""),
    "matvec": ("mk", "k", "m"),
    "vecmat": ("k", "kn", "n"),
    "batch_matvec": ("bmk", "bk", "bm"),
    "batch_vecmat": ("bk", "bkn", "bn"),
    "batch_reduce_matmul": ("bmk", "bkn", "mn"),
    "mmt4d": ("mkij", "nkpj", "mnip"),
}
TYPES = [("f16", "f32"), ("bf16", "f32"), ("f8E4M3FN", "f32"), ("f8E5M2", "f32"), ("f32", "f32"), ("f16", "f16"), ("bf16", "bf16")]
TYPES += [("f64", "f64"), ("i8", "i32"), ("i8", "i8"), ("i16", "i16"), ("i32", "i32"), ("i64", "i64")]


def product(element: str, a: Array, b: Array, acc: Array) -> Array:
    """acc + a x b for [.., M, K] and [.., K, N]: blocks of 64 along K, exact within a block, one f32 rounding for each and for each sum."""
    with np.errstate(all="ignore"):
        if element not in FLOATS or element == "f64":
            return sweep.finished(element, acc + np.matmul(a, b))
        total = acc
        for k in range(0, a.shape[-1], 64):
            block = sweep.rounded("f32", np.matmul(a[..., k : k + 64], b[..., k : k + 64, :]))
            total = sweep.rounded("f32", total + block)
        return sweep.rounded(element, total)


def factors(element: str, shape: tuple[int, ...], random: np.random.Generator, special: bool) -> Array:
    """Values whose products and sums f64 holds exactly; `special`: a few infinities and NaNs."""
    if element not in FLOATS:
        return sweep.random_values(element, shape, random)
    x = random.integers(-7, 8, shape) * np.exp2(random.integers(-3, 4, shape))
    if element == "f32":
        x = x + random.integers(-7, 8, shape) * 2.0**-9
    if element == "f64":
        x = random.integers(-1000, 1000, shape) / 64.0
    if special and element != "f8E4M3FN":
        x = np.where(random.random(shape) < 0.02, random.choice([np.inf, -np.inf, np.nan], shape), x)
    return sweep.rounded(element, x.astype(np.float64))


def check_product(name: str, data: Any) -> None:
    draw = data.draw
    source, element = draw(st.sampled_from(TYPES))
    left, right, out = PRODUCTS[name]
    loops = sorted({*left, *right})
    inner = [c for c in loops if c not in out]
    small = st.sampled_from([1, 2, 3, 5])
    extents = {c: draw(st.sampled_from([1, 2, 63, 64, 65, 130]) if c == "k" and inner == ["k"] else small) for c in loops}
    tiles, random, special = draw(sweep.tile_counts), np.random.default_rng(draw(sweep.seeds)), draw(st.booleans())
    a, b = (factors(source, (tiles, *(extents[c] for c in dims)), random, special) for dims in (left, right))
    shape = tuple(extents[c] for c in out)
    acc = (
        sweep.random_values(element, (tiles, *shape), random)
        if element not in FLOATS
        else factors(element, (tiles, *shape), random, special)
    )

    def brought(x: Array, dims: str, wanted: Sequence[str]) -> Array:
        """Axes in the order `wanted`; those that the operand lacks have one element."""
        x = x.transpose(0, *(1 + dims.index(c) for c in wanted if c in dims))
        return x.reshape(tiles, *(extents[c] if c in dims else 1 for c in wanted))

    batch = [c for c in out if c in left and c in right]
    rows, columns = [c for c in out if c not in right], [c for c in out if c not in left]
    sizes = {tuple(g): int(np.prod([extents[c] for c in g])) for g in (rows, columns, inner)}
    lead = (tiles, *(extents[c] for c in batch))
    x = brought(a, left, [*batch, *rows, *inner]).reshape(*lead, sizes[tuple(rows)], sizes[tuple(inner)])
    y = brought(b, right, [*batch, *inner, *columns]).reshape(*lead, sizes[tuple(inner)], sizes[tuple(columns)])
    z = brought(acc, out, [*batch, *rows, *columns]).reshape(*lead, sizes[tuple(rows)], sizes[tuple(columns)])
    found = product(element, x, y, z).reshape(tiles, *(extents[c] for c in (*batch, *rows, *columns)))
    order = [*batch, *rows, *columns]
    want = found.transpose(0, *(1 + order.index(c) for c in out))
    program = Program(tiles)
    names = program.load(a, source), program.load(b, source), program.load(acc, element)
    o = tensor(shape, element)
    types = ", ".join(tensor(v.shape[1:], source) for v in (a, b))
    program.body += f"%y = linalg.{name} ins({names[0]}, {names[1]} : {types}) outs({names[2]} : {o}) -> {o}\n"
    program.store("%y", shape, element)
    (got,) = program.run()
    sweep.check_same(element, got, want, 0, [acc], f"{name} {extents} {source} {element}")


@pytest.mark.parametrize("name", list(PRODUCTS))
def test_products(name):
    @sweep.covers(f"linalg.{name}")
    @settings(sweep.FEW, max_examples=20)
    @given(st.data())
    def check(data):
        check_product(name, data)

    check()


@pytest.mark.long
@pytest.mark.parametrize("name", list(PRODUCTS))
@sweep.MANY
@given(st.data())
def test_products_many(name, data):
    check_product(name, data)


# Rearrangements


@sweep.covers("linalg.transpose", "linalg.broadcast", "linalg.fill")
@settings(sweep.FEW, max_examples=20)
@given(st.data())
def test_rearrangements(data):
    """A broadcast along new dims, a transpose of it, and a fill from a scalar of the data."""
    draw = data.draw
    element = draw(st.sampled_from([*FLOATS, *INTEGERS]))
    shape = draw(sweep.shapes)
    tiles, random = draw(sweep.tile_counts), np.random.default_rng(draw(sweep.seeds))
    x = sweep.random_values(element, (tiles, *shape), random)
    new = draw(st.lists(st.sampled_from([1, 2, 3]), min_size=0 if shape else 1, max_size=2))  # MLIR crashes on a transpose of rank 0
    rank = len(shape) + len(new)
    places = sorted(draw(st.permutations(range(rank)))[: len(new)])
    rest = iter(shape)
    extra = iter(new)
    wide = tuple(next(extra) if d in places else next(rest) for d in range(rank))
    permutation = list(draw(st.permutations(range(rank))))
    turned = tuple(wide[d] for d in permutation)
    want = np.broadcast_to(np.expand_dims(x, tuple(1 + d for d in places)), (tiles, *wide)).transpose(0, *(1 + d for d in permutation))
    program = Program(tiles)
    a = program.load(x, element)
    t, w, u = tensor(shape, element), tensor(wide, element), tensor(turned, element)
    program.body += f"%e = tensor.empty() : {w}\n%b = linalg.broadcast ins({a} : {t}) outs(%e : {w}) dimensions = {places}\n"
    program.body += f"%f = tensor.empty() : {u}\n%y = linalg.transpose ins(%b : {w}) outs(%f : {u}) permutation = {permutation}\n"
    program.store("%y", turned, element)
    zeros = [program.index(0) for _ in shape]
    program.body += f"%s = tensor.extract {a}[{', '.join(zeros)}] : {t}\n"
    program.body += f"%z = linalg.fill ins(%s : {element}) outs(%e : {w}) -> {w}\n"
    program.store("%z", wide, element)
    got, filled = program.run()
    sweep.check_same(element, got, want, 0, [want], f"{shape} broadcast to {wide} at {places}, then {permutation}")
    first = x[(slice(None), *(0 for _ in shape))].reshape(tiles, *(1 for _ in wide))
    sweep.check_same(element, filled, np.broadcast_to(first, (tiles, *wide)), 0, [want], "linalg.fill")


# Maps


def expression(draw: Any, extents: Sequence[int]) -> tuple[str, Callable[..., Array], int]:
    """A map result: its text, what it computes, and the extent that it needs."""
    loops = range(len(extents))
    d = draw(st.sampled_from(list(loops)))
    e = draw(st.sampled_from(list(loops)))
    c, k = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    forms: list[tuple[str, Callable[..., Any]]] = [
        (f"d{d}", lambda *i: i[d]),
        (f"{k}", lambda *i: np.full_like(i[0], k)),
        (f"d{d} + d{e} * {c}", lambda *i: i[d] + i[e] * c),
        (f"d{d} * {c} + {k}", lambda *i: i[d] * c + k),
        (f"d{d} floordiv {c + 1}", lambda *i: i[d] // (c + 1)),
        (f"d{d} mod {c + 1}", lambda *i: i[d] % (c + 1)),
        (f"(d{d} + {k}) ceildiv {c}", lambda *i: -(-(i[d] + k) // c)),
        (f"{extents[d] - 1} - d{d}", lambda *i: extents[d] - 1 - i[d]),
        (f"(d{d} * {c} + d{e}) floordiv {c + 1}", lambda *i: (i[d] * c + i[e]) // (c + 1)),
    ]
    text, compute = draw(st.sampled_from(forms))
    points = np.indices(tuple(extents)).reshape(len(extents), -1)
    most = int(np.max(compute(*points))) + 1
    # Where MLIR makes a plain loop of it, the extent is that of the dim.
    plain = any(np.array_equal(compute(*points), p) for p in points)
    return text, compute, most if plain else most + draw(st.sampled_from([0, 0, 1, 2]))


def check_maps(data: Any) -> None:
    """A generic that reads operands through any affine maps and writes a permutation, whole or a part of its outs."""
    draw = data.draw
    rank = draw(st.integers(1, 3))
    extents = tuple(draw(st.sampled_from([1, 2, 3, 5, 6])) for _ in range(rank))
    tiles, random = draw(sweep.tile_counts), np.random.default_rng(draw(sweep.seeds))
    element = draw(st.sampled_from(["f16", "f32", "i32", "f8E5M2", "i1"]))
    points = np.indices(extents)
    program = Program(tiles)
    inputs, seen = [], []
    for _ in range(draw(st.integers(1, 2))):
        results = [expression(draw, extents) for _ in range(draw(st.integers(0, 3)))]
        x = sweep.random_values(element, (tiles, *(n for _, _, n in results)), random)
        inputs.append((program.load(x, element), tensor(x.shape[1:], element), ", ".join(t for t, _, _ in results)))
        index = tuple(np.asarray(f(*points)) for _, f, _ in results)
        seen.append(np.broadcast_to(x[(slice(None), *index)].reshape(tiles, *(extents if results else (1,) * rank)), (tiles, *extents)))
    order = list(draw(st.permutations(range(rank))))
    fixed = draw(st.sampled_from([None, None, 0, 1]))  # a constant result of the output map: the rest of outs stays
    out_shape, out_map = [extents[d] for d in order], [f"d{d}" for d in order]
    where: list[Any] = [points[d] for d in order]
    if fixed is not None:
        at = draw(st.integers(0, rank))
        out_shape.insert(at, 2 + fixed)
        out_map.insert(at, str(fixed))
        where.insert(at, np.full(extents, fixed))
    start = sweep.random_values(element, (tiles, *out_shape), random)
    names = "ab"[: len(inputs)]
    op = "arith.subf" if element in FLOATS else "arith.subi"
    uses = draw(st.booleans())
    terms = [f"%{n}" for n in names] + (["%o"] if uses else [])
    values = [*seen, *([start[(slice(None), *where)]] if uses else [])]
    body, last, total = "", terms[0], values[0]
    with np.errstate(all="ignore"):
        for i, (term, value) in enumerate(zip(terms[1:], values[1:], strict=True)):
            body += f"%r{i} = {op} {last}, {term} : {element}\n"
            last, total = f"%r{i}", sweep.finished(element, total - value)
    if draw(st.booleans()):  # a choice by the place
        loop = draw(st.integers(0, rank - 1))
        body += f"%i = linalg.index {loop} : index\n%n = arith.constant 2 : index\n%c = arith.cmpi ult, %i, %n : index\n"
        body += f"%s = arith.select %c, {last}, %a : {element}\n"
        last, total = "%s", np.where(points[loop] < 2, total, seen[0])
    want = start.copy()
    want[(slice(None), *where)] = total
    body += f"linalg.yield {last} : {element}"
    outs = program.load(start, element), tensor(out_shape, element), ", ".join(out_map)
    program.body += generic("%y", inputs, outs, "p" * rank, body)
    program.store("%y", out_shape, element)
    (got,) = program.run()
    sweep.check_same(element, got, want, 0, [want], f"{element} {extents}: {[m for _, _, m in inputs]} -> {out_map}")


@sweep.covers("linalg.generic")
@settings(sweep.FEW, max_examples=examples(80))
@given(st.data())
def test_maps(data):
    check_maps(data)


@pytest.mark.long
@settings(sweep.MANY, max_examples=800)
@given(st.data())
def test_maps_many(data):
    check_maps(data)


@sweep.covers("linalg.reduce")
def test_reduce_of_two_tensors():
    """Two results with a body each; the sums of one do not touch the extremes of the other."""
    random = np.random.default_rng(3)
    x, y = (sweep.random_values("i16", (2, 3, 70), random) for _ in range(2))
    start = np.zeros((2, 3), object)
    program = Program(2)
    a, b, o = program.load(x, "i16"), program.load(y, "i16"), program.load(start, "i16")
    t, u = tensor((3, 70), "i16"), tensor((3,), "i16")
    program.body += (
        f"%r:2 = linalg.reduce ins({a}, {b} : {t}, {t}) outs({o}, {o} : {u}, {u}) dimensions = [1] "
        "(%p: i16, %q: i16, %s: i16, %m: i16) {\n%u = arith.addi %p, %s : i16\n%v = arith.maxsi %q, %m : i16\n"
        "linalg.yield %u, %v : i16, i16\n}\n"
    )
    program.store("%r#0", (3,), "i16")
    program.store("%r#1", (3,), "i16")
    total, most = program.run()
    sweep.check_same("i16", total, sweep.wrapped("i16", x.sum(-1)), 0, [start], "sum")
    sweep.check_same("i16", most, np.maximum(y.max(-1), 0), 0, [start], "maximum")


COVERED = {f"linalg.{name}" for name in PRODUCTS}
