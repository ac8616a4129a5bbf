"""spyreop, op by op: scalar functions in bodies and on scalars, statistics of rows, slices of a stick."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import sweep
from hypothesis import given
from hypothesis import strategies as st
from kernel_texts import kernel, load, store, tensor
from sweep import Case

Array = np.ndarray
CASES: list[Case] = []
TYPES = ("f16", "f32")
"""df16 has no memory views and no conversions: no program can bring values of it in or out."""


def f32(x: Array) -> Array:
    """Rounded to f32: functions of several steps are defined by their steps in f32."""
    return sweep.rounded("f32", x)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.asarray(x, np.longdouble)))).astype(np.float64)


def gelu(x: Array) -> Array:
    """x * Phi(x); the complementary error function keeps the tail exact."""
    tail = np.array([math.erfc(-float(v) * math.sqrt(0.5)) for v in x.reshape(-1)]).reshape(x.shape)
    return x * 0.5 * tail


def scale(mean: Array, squares: Array) -> Array:
    return f32(1 / f32(np.sqrt(f32(squares - f32(mean * mean)))))


def norm(x: Array, mean: Array, scale: Array, weight: Array, bias: Array) -> Array:
    return f32(f32(f32(f32(x - mean) * scale) * weight) + bias)


UNARY: dict[str, tuple[Callable[[Array], Array], int, int]] = {
    "exp": (np.exp, 1, 3),
    "reciprocal": (lambda x: 1 / x, 0, 0),
    "sqrt": (np.sqrt, 0, 0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1, 2),
    "sigmoid": (sigmoid, 1, 4),
    "silu": (lambda x: x * sigmoid(x), 1, 5),
}
"""Function, and places that it may be off in f16 and in f32."""

for element in TYPES:
    one = (element,)
    for name, (oracle, half, single) in UNARY.items():
        # 1 + exp(-x) is beyond f32 for smaller x: the quotient is 0, not subnormal.
        inside = (lambda x: ~(x < -88) | np.isinf(x)) if name in ("sigmoid", "silu") and element == "f32" else None
        ulps = half if element == "f16" else single
        CASES.append(
            Case(f"spyreop.{name}", f"spyreop.{name} {{x[0]}} : {{t[0]}}", one, one, oracle, ulps, inside, (0.0,), forms=sweep.IN_BODIES)
        )
    pair, triple = (element,) * 2, (element,) * 3
    CASES.append(Case("spyreop.realdiv", "spyreop.realdiv {x[0]}, {x[1]} : {t[0]}", pair, one, np.divide, forms=sweep.IN_BODIES))
    for predicate, holds in {
        "equal": np.equal,
        "notequal": lambda a, b: (a < b) | (a > b),
        "greaterthan": np.greater,
        "greaterequal": np.greater_equal,
        "lesserthan": np.less,
        "lesserequal": np.less_equal,
    }.items():
        text = f"spyreop.compare <{predicate}> {{x[0]}}, {{x[1]}} : {{t[0]}}"
        CASES.append(Case("spyreop.compare", text, pair, one, lambda a, b, f=holds: f(a, b).astype(np.float64), forms=sweep.IN_BODIES))
    text = "spyreop.select {x[0]}, {x[1]}, {x[2]} : {t[0]}"
    CASES.append(Case("spyreop.select", text, triple, one, lambda c, a, b: np.where(c != 0, a, b), forms=sweep.IN_BODIES))

    text = "spyreop.layernormscale {x[0]} squares {x[1]} : {t[0]}"
    CASES.append(Case("spyreop.layernormscale", text, pair, one, scale, forms=sweep.IN_BODIES))
    text = "spyreop.layernormscale {x[0]} : {t[0]}"
    CASES.append(Case("spyreop.layernormscale", text, one, one, lambda x: f32(1 / f32(np.sqrt(x))), forms=sweep.IN_BODIES))
    text = "spyreop.layernormnorm {x[0]} squares {x[1]} scale {x[2]} weight {x[3]} bias {x[4]} : {t[0]}"
    CASES.append(Case("spyreop.layernormnorm", text, (element,) * 5, one, norm, forms=sweep.IN_BODIES))

CASES.append(Case("spyreop.gelu", "spyreop.gelu {x[0]} : {t[0]}", ("f16",), ("f16",), gelu, 1, forms=sweep.IN_BODIES))
for beta, threshold in ((1.0, 20.0), (0.5, 3.0), (-2.0, 20.0)):

    def softplus(x: Array, beta: float = beta, threshold: float = threshold) -> Array:
        return np.where(x * beta > threshold, x, np.log1p(np.exp(np.minimum(x * beta, threshold))) / beta)

    text = f"spyreop.softplus {{x[0]}} beta {beta} threshold {threshold} : {{t[0]}}"
    CASES.append(Case("spyreop.softplus", text, ("f16",), ("f16",), softplus, 1, forms=sweep.IN_BODIES))

for name, element in {"addi32toi32": "i32", "addi64toi64": "i64", "muli32toi32": "i32"}.items():
    function = np.add if name.startswith("add") else np.multiply
    CASES.append(Case(f"spyreop.{name}", f"spyreop.{name} {{x[0]}}, {{x[1]}}", (element,) * 2, (element,), function, forms=sweep.IN_BODIES))
text = "spyreop.idx32toaddr {x[0]} base {x[1]} stride {x[2]}"
CASES.append(Case("spyreop.idx32toaddr", text, ("i32",) * 3, ("i32",), lambda i, base, stride: base + stride * i, forms=sweep.IN_BODIES))
text = "spyreop.idx32toaddr {x[0]} base 0xDEADBEEF stride 4"
CASES.append(Case("spyreop.idx32toaddr", text, ("i32",), ("i32",), lambda i: 0xDEADBEEF + 4 * i, forms=sweep.IN_BODIES))


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


def test_every_f16():
    """The functions of one operand on all values."""
    values = sweep.from_host("f16", np.arange(1 << 16).astype(np.uint16).view(np.float16))
    values = values[~np.isnan(values)][None]
    cases = [c for c in CASES if c.takes == ("f16",)]
    sweep.verify(cases, [[values]] * len(cases), "body")


@pytest.mark.parametrize("element", TYPES)
@sweep.covers("spyreop.constant")
def test_constants(element):
    values = sweep.edges(element)
    body = "".join(f"%s{i} = spyreop.constant {sweep.literal(element, v)}\n" for i, v in enumerate(values))
    body += f"%y = tensor.from_elements {', '.join(f'%s{i}' for i in range(values.size))} : {tensor(values.shape, element)}\n"
    out = np.zeros(values.shape, sweep.HOST[element])
    sweep.run(kernel(["%arg0"], body + store("%y", "%arg0", values.shape, element=element)), [out])
    sweep.check_same(element, sweep.from_host(element, out), values, 0, [values], "spyreop.constant")


# Statistics of rows

ROW_BODIES = {
    "spyreop.exx2": "%m, %q = spyreop.exx2 %a : {e}\nlinalg.yield %m, %q : {e}, {e}\n",
    "spyreop.exx2_fused": (
        "%p = spyreop.exx2_fused %a : {e} -> {pair}\n%s = spyreop.layernormscale_fused %p : {pair} -> {e}\nlinalg.yield %s, %s : {e}, {e}\n"
    ),
    "spyreop.exx2_zeromean_fused": (
        "%p = spyreop.exx2_zeromean_fused %a : {e} -> {pair}\n%s = spyreop.layernormscale_fused %p : {pair} -> {e}\n"
        "linalg.yield %s, %s : {e}, {e}\n"
    ),
}


def check_rows(op: str, element: str, shape: tuple[int, ...], reduced: int, tiles: int, seed: int) -> None:
    """The last `reduced` loops are reduced; with 0 the last loop is a row and its statistic stands at each of its elements. Means are held
    against float64, what is computed of them against float64 of these means."""
    random = np.random.default_rng(seed)
    x = sweep.rounded(element, random.standard_normal((tiles, *shape)) * 3 + 1)
    rank = len(shape)
    kept = shape[: rank - reduced]
    dims = ", ".join(f"d{i}" for i in range(rank))
    out_dims = ", ".join(f"d{i}" for i in range(rank - reduced))
    kinds = ", ".join(['"parallel"'] * (rank - reduced) + ['"reduction"'] * reduced)
    pair = {"f16": "!spyreop.fp16_fused", "f32": "!spyreop.fp32_fused"}[element]
    t, u = tensor(shape, element), tensor(kept, element)
    elements, outputs = math.prod(shape), math.prod(kept)
    body = f"%t = ktdp.get_compute_tile_id : index\n%n = arith.constant {elements} : index\n%k = arith.constant {outputs} : index\n"
    body += "%i = arith.muli %t, %n : index\n%j = arith.muli %t, %k : index\n%x0 = arith.addi %arg0, %i : index\n"
    body += "%y0 = arith.addi %arg1, %j : index\n%y1 = arith.addi %arg2, %j : index\n"
    body += load("%x", "%x0", shape, element=element) + f"%e = tensor.empty() : {u}\n"
    body += (
        f"%r:2 = linalg.generic {{indexing_maps = [affine_map<({dims}) -> ({dims})>, affine_map<({dims}) -> ({out_dims})>, "
        f"affine_map<({dims}) -> ({out_dims})>], iterator_types = [{kinds}]}} ins(%x : {t}) outs(%e, %e : {u}, {u}) {{\n"
        f"^bb0(%a: {element}, %b: {element}, %c: {element}):\n{ROW_BODIES[op].format(e=element, pair=pair)}}} -> ({u}, {u})\n"
    )
    body += store("%r#0", "%y0", kept, element=element) + store("%r#1", "%y1", kept, element=element)

    def run(text: str) -> list[Array]:
        found = [np.zeros((tiles, *kept), sweep.HOST[element]) for _ in range(2)]
        sweep.run(kernel(["%arg0", "%arg1", "%arg2"], text, str(tiles)), [sweep.to_host(element, x), *found])
        return [sweep.from_host(element, out) for out in found]

    axes = tuple(range(1 + rank - reduced, 1 + rank)) if reduced else (rank,)
    means = run(body.replace(ROW_BODIES[op].format(e=element, pair=pair), ROW_BODIES["spyreop.exx2"].format(e=element)))
    depth = math.prod(x.shape[axis] for axis in axes) / 64 + 9  # sticks in sequence, a tree of 6, the square, the quotient
    for mean, terms in zip(means, (x, x * x), strict=True):
        want = np.broadcast_to(terms.mean(axes, keepdims=not reduced), mean.shape)
        added = depth * 2.0**-24 * np.abs(terms).mean(axes, keepdims=not reduced)
        assert (np.abs(mean - want) <= added + {"f16": 2.0**-11, "f32": 0.0}[element] * np.abs(want) + 2.0**-25).all(), op
    if op != "spyreop.exx2":
        centre = means[0] if op == "spyreop.exx2_fused" else np.zeros_like(means[0])
        with np.errstate(all="ignore"):
            want = sweep.rounded(element, scale(centre, means[1]))
        for found in run(body):
            sweep.check_same(element, found, want, 0, [want], op)


@pytest.mark.parametrize("op", list(ROW_BODIES))
def test_rows(op):
    @sweep.covers(op, *(["spyreop.layernormscale_fused"] if "fused" in op else []))
    @sweep.FEW
    @given(st.sampled_from(TYPES), st.lists(st.sampled_from([1, 2, 3, 5, 64, 65]), min_size=1, max_size=3), st.data())
    def check(element, shape, data):
        reduced = data.draw(st.integers(0, len(shape)))
        check_rows(op, element, tuple(shape), reduced, data.draw(sweep.tile_counts), data.draw(sweep.seeds))

    check()


COVERED = {*ROW_BODIES, "spyreop.layernormscale_fused"}

# Slices

STEPS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "abs_max": np.maximum,
}


def stepped(kind: str, total: Array, part: Array) -> Array:
    """One step of a reduction; of two zeros max takes +0 and min -0."""
    result = STEPS[kind](total, part)
    if kind in ("max", "min") and result.dtype == np.float64:
        negative = np.logical_and if kind == "max" else np.logical_or
        sign = np.where(negative(np.signbit(total), np.signbit(part)), -0.0, 0.0)
        result = np.where((total == 0) & (part == 0), sign, result)
    return result


@pytest.mark.parametrize("element", ["f16", "f32", "bf16", "i32", "i8"])
@pytest.mark.parametrize("scope", ["in_slice", "across_slice"])
@sweep.covers("spyreop.slice_reduction")
def test_slices(scope, element):
    """Slices of 8 elements, one after the other with a rounding each; what is no result stays."""
    random = np.random.default_rng(5)
    for kind in STEPS:
        for shape in ((64,), (3, 64), (2, 1, 16), (8,)):
            x = sweep.random_values(element, shape, random)
            out = np.zeros(shape, sweep.HOST[element])
            t = tensor(shape, element)
            kind_text, scope_text = f"#spyreop.reduction_kind<{kind}>", f"#spyreop.reduction_scope<{scope}>"
            body = load("%x", "%arg0", shape, element=element)
            body += f"%y = spyreop.slice_reduction %x {{reduction_kind = {kind_text}, reduction_scope = {scope_text}}} : {t} -> {t}\n"
            sweep.run(kernel(["%arg0", "%arg1"], body + store("%y", "%arg1", shape, element=element)), [sweep.to_host(element, x), out])
            slices = x.reshape(*shape[:-1], -1, 8)
            axis = -1 if scope == "in_slice" else -2
            parts = [p.squeeze(axis) for p in np.split(slices, slices.shape[axis], axis)]
            with np.errstate(all="ignore"):
                if kind == "abs_max":
                    parts = [sweep.finished(element, abs(p)) for p in parts]
                total = parts[0]
                for part in parts[1:]:
                    total = sweep.finished(element, stepped(kind, total, part))
            want = slices.copy()
            if scope == "in_slice":
                want[..., 0] = total
            else:
                want[..., 0, :] = total
            sweep.check_same(element, sweep.from_host(element, out), want.reshape(shape), 0, [x], f"{kind} {scope} {element} {shape}")
