"""Blocks of models as they are captured: matmuls with what is before and after them, softmax, norms, attention, gates, rotations."""

from __future__ import annotations

from math import prod

from campaign.graph_draws import FLOATS, Draws, narrowed, wide
from campaign.graph_text import Value

_LOWEST = "0xFF800000"
PRODUCT = [
    "%a = arith.extf %i0 : f16 to f32",
    "%b = arith.extf %i1 : f16 to f32",
    "%m = arith.mulf %a, %b : f32",
    "%r = arith.addf %o, %m : f32",
]
_SIGMOID = [
    "%one = arith.constant 1.0 : f32",
    "%g0 = arith.negf {0} : f32",
    "%g1 = math.exp %g0 : f32",
    "%g2 = arith.addf %g1, %one : f32",
    "%g3 = arith.divf {0}, %g2 : f32",
]
"""Lines of x * sigmoid(x), as %g3."""
_GELU = [
    "%half = arith.constant 0.5 : f32",
    "%root = arith.constant 0.70710678 : f32",
    "%one = arith.constant 1.0 : f32",
    "%g0 = arith.mulf {0}, %root : f32",
    "%g1 = math.erf %g0 : f32",
    "%g2 = arith.addf %g1, %one : f32",
    "%g4 = arith.mulf {0}, %half : f32",
    "%g3 = arith.mulf %g4, %g2 : f32",
]
_RELU = ["%zero = arith.constant 0.0 : f32", "%g3 = arith.maximumf {0}, %zero : f32"]


def _own(value: Value) -> tuple[int, ...]:
    return tuple(range(len(value.shape)))


def activated(g: Draws, name: str) -> list[str]:
    """Lines of an activation of a scalar, as %g3."""
    return [line.format(name) for line in g.random.choice((_SIGMOID, _GELU, _RELU))]


def _matrix(g: Draws) -> Value:
    """An f16 matrix, most often computed by the program."""
    value = g.pick(range(1, 5), ("f16",))
    if len(value.shape) == 2:
        return value
    if len(value.shape) == 1:
        return g.load((g.random.choice(g.sizes), value.shape[0]))
    rows = prod(value.shape[:-1])
    groups = [list(range(len(value.shape) - 1)), [len(value.shape) - 1]]
    return g.moved(f"tensor.collapse_shape {value.name} {groups}", (rows, value.shape[-1]), value)


def _times(g: Draws, a: Value, b: Value) -> Value:
    """The product of two matrices, or of two stacks of them, as a named op with f32 results."""
    shape = (*a.shape[:-1], b.shape[-1])
    out = g.filled(shape, "f32", "0.0")
    name = "batch_matmul" if len(shape) == 3 else "matmul"
    result = Value("", shape, "f32").type
    text = f"linalg.{name} ins({a.name}, {b.name} : {a.type}, {b.type}) outs({out} : {result}) -> {result}"
    return g.define(text, shape, "f32", a, b)


def linear(g: Draws) -> None:
    """A matmul, then a bias, an activation, a residual or a gate on its accumulator."""
    x = _matrix(g)
    width = g.random.choice(g.sizes)
    if x.shape[0] * width > g.largest or prod(x.shape) * width > 40 * g.largest:
        return
    weight = g.load((x.shape[1], width))
    if g.random.random() < 0.1:  # on the vector unit
        x, weight = (g.pointwise(v, "f32", ["%r = arith.extf %i0 : f16 to f32"]) for v in (x, weight))
    product = _times(g, x, weight)
    inputs: list[tuple[Value, tuple[int | None, ...]]] = [(product, (0, 1))]
    body, name = [], "%i0"
    if g.random.random() < 0.5:
        inputs.append((g.load((width,)), (1,)))
        body += [f"%bias = arith.extf %i{len(inputs) - 1} : f16 to f32", f"%biased = arith.addf {name}, %bias : f32"]
        name = "%biased"
    if g.random.random() < 0.5:
        body += activated(g, name)
        name = "%g3"
    if g.random.random() < 0.5:
        same = x.shape[1] == width and x.element == "f16" and g.random.random() < 0.7
        residual, loops = (x, (0, 1)) if same else g.operand(product.shape, ("f16",))
        inputs.append((residual, loops))
        op = g.random.choice(("addf", "mulf"))
        body += [f"%rest = arith.extf %i{len(inputs) - 1} : f16 to f32", f"%sum = arith.{op} {name}, %rest : f32"]
        name = "%sum"
    element = g.random.choice(("f16", "f16", "f32"))
    g.generic(inputs, (product.shape, element), "pp", [*body, *narrowed(name, element, "%r")])


def stacked(g: Draws) -> None:
    """A matmul per position of a leading dim, where one of the two may be the same for all."""
    batch, rows, depth, width = (g.random.choice(g.sizes[:12]) for _ in range(4))
    if batch * rows * width * depth > 20 * g.largest or batch * max(rows * depth, depth * width, rows * width) > g.largest:
        return
    kept = [v for v in g.values if len(v.shape) == 3 and v.element == "f16"]
    a = g.random.choice(kept) if kept and g.random.random() < 0.5 else g.load((batch, rows, depth))
    batch, rows, depth = a.shape
    if batch * rows * width * depth > 20 * g.largest or batch * width * max(depth, rows) > g.largest:
        return
    way = g.random.choice(("named", "named", "left", "right"))
    if way == "named":
        product = _times(g, a, g.load((batch, depth, width)))
    elif way == "left":
        product = g.generic([(a, (0, 1, 3)), (g.load((depth, width)), (3, 2))], ((batch, rows, width), "f32"), "pppr", PRODUCT, "0.0")
    else:
        left = g.load((width, depth))
        product = g.generic([(left, (1, 3)), (a, (0, 2, 3))], ((batch, width, rows), "f32"), "pppr", PRODUCT, "0.0")
    g.pointwise(product, "f16", ["%r = arith.truncf %i0 : f32 to f16"])


def gated(g: Draws) -> None:
    """Two matmuls of one matrix, one of them activated, their product through a third."""
    x = _matrix(g)
    width = g.random.choice(g.sizes)
    if max(prod(x.shape), x.shape[0]) * width > 20 * g.largest or x.shape[0] * width > g.largest:
        return
    left, right = (_times(g, x, g.load((x.shape[1], width))) for _ in range(2))
    body = [*activated(g, "%i0"), "%p = arith.mulf %g3, %i1 : f32", "%r = arith.truncf %p : f32 to f16"]
    hidden = g.generic([(left, (0, 1)), (right, (0, 1))], ((x.shape[0], width), "f16"), "pp", body)
    product = _times(g, hidden, g.load((width, x.shape[1])))
    residual = ["%x = arith.extf %i1 : f16 to f32", "%s = arith.addf %i0, %x : f32", "%r = arith.truncf %s : f32 to f16"]
    g.generic([(product, (0, 1)), (x, (0, 1))], (x.shape, "f16"), "pp", residual)


def _over(value: Value, d: int) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Kinds of the loops that reduce dim d, what is left of the shape, and the loops of that."""
    kinds = "".join("r" if i == d else "p" for i in range(len(value.shape)))
    return kinds, tuple(n for i, n in enumerate(value.shape) if i != d), tuple(i for i in range(len(value.shape)) if i != d)


def softmax(g: Draws) -> None:
    """Along any dim; the powers are kept or computed twice."""
    value = g.pick(range(1, 5))
    softmax_of(g, value, g.random.randrange(len(value.shape)), g.random.choice(FLOATS))


def softmax_of(g: Draws, value: Value, d: int, element: str) -> Value:
    """The softmax along dim d."""
    kinds, shape, rest = _over(value, d)
    own, parallel = _own(value), "p" * len(value.shape)
    widened = wide("%i0", value.element, "%w")
    most = g.generic([(value, own)], (shape, "f32"), kinds, [*widened, "%r = arith.maximumf %o, %w : f32"], _LOWEST)
    power = [*widened, "%d = arith.subf %w, %i1 : f32", "%e = math.exp %d : f32"]
    if g.random.random() < 0.5:
        total = g.generic([(value, own), (most, rest)], (shape, "f32"), kinds, [*power, "%r = arith.addf %o, %e : f32"], "0.0")
        quotient = [*power, "%q = arith.divf %e, %i2 : f32", *narrowed("%q", element, "%r")]
        return g.generic([(value, own), (most, rest), (total, rest)], (value.shape, element), parallel, quotient)
    powers = g.generic([(value, own), (most, rest)], (value.shape, "f32"), parallel, [*power[:-1], "%r = math.exp %d : f32"])
    total = g.generic([(powers, own)], (shape, "f32"), kinds, ["%r = arith.addf %o, %i0 : f32"], "0.0")
    quotient = ["%q = arith.divf %i0, %i1 : f32", *narrowed("%q", element, "%r")]
    return g.generic([(powers, own), (total, rest)], (value.shape, element), parallel, quotient)


def norm(g: Draws) -> None:
    """An RMS norm, or a layer norm in two steps, along any dim, with a weight and perhaps a bias."""
    value = g.pick(range(1, 5))
    d = g.random.randrange(len(value.shape)) if g.random.random() < 0.3 else len(value.shape) - 1
    norm_of(g, value, d)


def norm_of(g: Draws, value: Value, d: int, element: str = "") -> Value:
    """Such a norm along dim d, of any float type where none is given."""
    kinds, shape, rest = _over(value, d)
    own, count = _own(value), f"%n = arith.constant {float(value.shape[d])} : f32"
    widened = wide("%i0", value.element, "%w")
    inputs: list[tuple[Value, tuple[int | None, ...]]] = [(value, own)]
    centred = [*widened]
    name = "%w"
    if g.random.random() < 0.5:
        mean = g.generic([(value, own)], (shape, "f32"), kinds, [*widened, "%r = arith.addf %o, %w : f32"], "0.0")
        inputs.append((mean, rest))
        centred += [count, "%mean = arith.divf %i1, %n : f32", "%c = arith.subf %w, %mean : f32"]
        name = "%c"
    squares = g.generic(
        inputs, (shape, "f32"), kinds, [*centred, f"%s = arith.mulf {name}, {name} : f32", "%r = arith.addf %o, %s : f32"], "0.0"
    )
    body = [*centred] if name == "%c" else [*centred, count]
    k = len(inputs)
    inputs += [(squares, rest), (g.load((value.shape[d],)), (d,))]
    body += [
        f"%v = arith.divf %i{k}, %n : f32",
        "%eps = arith.constant 1.0e-5 : f32",
        "%ve = arith.addf %v, %eps : f32",
        "%rs = math.rsqrt %ve : f32",
        f"%y = arith.mulf {name}, %rs : f32",
        f"%g = arith.extf %i{k + 1} : f16 to f32",
        "%yg = arith.mulf %y, %g : f32",
    ]
    last = "%yg"
    if g.random.random() < 0.4:
        inputs.append((g.load((value.shape[d],)), (d,)))
        body += [f"%bias = arith.extf %i{k + 2} : f16 to f32", "%yb = arith.addf %yg, %bias : f32"]
        last = "%yb"
    element = element or g.random.choice(("f16", "f16", "f32"))
    return g.generic(inputs, (value.shape, element), "p" * len(own), [*body, *narrowed(last, element, "%r")])


MASKS = ("", "causal", "window", "added", "booleans")
"""Kinds of masks: none, by position, also with a window, what is added, what is chosen."""


def masked_scores(g: Draws, scores: Value, inner: int, masks: tuple[str, ...] = MASKS) -> Value:
    """Scores of queries of `inner` elements, the last two dims rows and keys, scaled and masked."""
    rows, keys = scores.shape[-2:]
    own = _own(scores)
    scale = [f"%z = arith.constant {inner**-0.5:.6e} : f32", "%s = arith.mulf %i0, %z : f32"]
    inputs: list[tuple[Value, tuple[int | None, ...]]] = [(scores, own)]
    hidden = [f"%n = arith.constant {_LOWEST} : f32", "%r = arith.select %h, %n, %s : f32"]
    mask = g.random.choice(masks)
    match mask:
        case "causal" | "window":
            scale += [
                f"%x = linalg.index {own[-2]} : index", f"%y = linalg.index {own[-1]} : index",
                "%p = arith.index_cast %x : index to i64", "%q = arith.index_cast %y : index to i64",
                f"%f = arith.constant {max(0, keys - rows)} : i64", "%l = arith.addi %p, %f : i64",
                f"{'%h' if mask == 'causal' else '%later'} = arith.cmpi sgt, %q, %l : i64",
            ]  # fmt: skip
            if mask == "window":
                scale += [
                    f"%width = arith.constant {g.random.choice((1, 2, 7, 64))} : i64", "%first = arith.subi %l, %width : i64",
                    "%early = arith.cmpi sle, %q, %first : i64", "%h = arith.ori %later, %early : i1",
                ]  # fmt: skip
            scale += hidden
        case "booleans":
            inputs.append((g.load((rows, keys), "i1"), own[-2:]))
            scale += ["%away = arith.constant -3.0e+04 : f32", "%r = arith.select %i1, %s, %away : f32"]
        case "added":
            inputs.append((g.load((rows, keys)), own[-2:]))
            scale += ["%w = arith.extf %i1 : f16 to f32", "%r = arith.addf %s, %w : f32"]
        case _:
            scale[-1] = scale[-1].replace("%s", "%r")
    return g.generic(inputs, (scores.shape, "f32"), "p" * len(own), scale)


def attention(g: Draws) -> None:
    """Queries of groups of heads that share keys, with or without a mask by position or a tensor; the softmax of the scores; values."""
    heads, group = g.random.choice((1, 2, 3)), g.random.choice((1, 1, 2, 3))
    rows, keys = g.random.choice((1, 2, 5, 17, 64, 65)), g.random.choice((1, 3, 17, 64, 65, 130))
    inner, outer = g.random.choice((1, 8, 24, 64, 66)), g.random.choice((1, 16, 64, 65))
    if heads * group * rows * keys > g.largest:
        return
    kept = [v for v in g.values if len(v.shape) == 4 and v.element == "f16" and v.shape[2] * v.shape[0] * v.shape[1] * keys <= g.largest]
    q = g.random.choice(kept) if kept and g.random.random() < 0.6 else g.load((heads, group, rows, inner))
    heads, group, rows, inner = q.shape
    if heads * keys * max(inner, outer) > g.largest or heads * group * rows * outer > g.largest:
        return
    k, v = g.load((heads, keys, inner)), g.load((heads, keys, outer))
    shape = (heads, group, rows, keys)
    scores = g.generic([(q, (0, 1, 2, 4)), (k, (0, 3, 4))], (shape, "f32"), "ppppr", PRODUCT, "0.0")
    weights = softmax_of(g, masked_scores(g, scores, inner, ("", "causal", "added")), 3, "f16")
    result = g.generic([(weights, (0, 1, 2, 4)), (v, (0, 4, 3))], ((heads, group, rows, outer), "f32"), "ppppr", PRODUCT, "0.0")
    g.pointwise(result, "f16", ["%r = arith.truncf %i0 : f32 to f16"])


def rotary(g: Draws) -> None:
    """Rotary positions of a value."""
    rotated(g, g.pick(range(2, 5), ("f16",)))


def rotated(g: Draws, value: Value) -> Value | None:
    """Halves of the last dim exchanged, one of them negated, and both weighted by tables; None for an odd extent."""
    *lead, width = value.shape
    if width % 2:
        return None
    half = width // 2
    pieces = []
    for start in (half, 0):
        shape = (*lead, half)
        text = f"tensor.extract_slice {value.name}{[0] * len(lead) + [start]} {list(shape)} {[1] * len(shape)}"
        pieces.append(g.moved(text, shape, value, "to"))
    pieces[0] = g.pointwise(pieces[0], "f16", ["%r = arith.negf %i0 : f16"])
    turned = g.joined(pieces, len(lead))
    tables = [(g.load((lead[-1], width)), (len(lead) - 1, len(lead))) for _ in range(2)]
    body = [f"%w{i} = arith.extf %i{i} : f16 to f32" for i in range(4)]
    body += ["%x = arith.mulf %w0, %w2 : f32", "%y = arith.mulf %w1, %w3 : f32", "%s = arith.addf %x, %y : f32"]
    own = _own(value)
    return g.generic(
        [(value, own), (turned, own), *tables], (value.shape, "f16"), "p" * len(own), [*body, "%r = arith.truncf %s : f32 to f16"]
    )


OPS = {linear: 4, stacked: 3, gated: 1, softmax: 3, norm: 3, attention: 3, rotary: 2}
"""Ops and how often they come."""
