"""Ops of random programs on floats, and those that move elements of any type."""

from __future__ import annotations

from math import prod

from campaign.graph_draws import ANY, FLOATS, INTEGERS, Draws, narrowed, wide

_UNARY = ("math.exp", "math.absf", "arith.negf", "math.tanh", "math.sin", "math.cos", "math.floor", "math.ceil", "math.roundeven")
_OF_POSITIVE = ("math.sqrt", "math.rsqrt", "math.log", "math.log1p", "math.expm1")
_BINARY = ("arith.addf", "arith.subf", "arith.mulf", "arith.maximumf", "arith.minimumf", "arith.divf")


def unary(g: Draws) -> None:
    """One op, with a change of type now and then, the result in another order of dims."""
    value = g.pick()
    loops = list(range(len(value.shape)))
    g.random.shuffle(loops)
    shape = tuple(value.shape[loops.index(i)] for i in range(len(loops)))
    element = g.random.choice(("f16", "f16", "f32"))
    body = [f"%u = {g.random.choice(_UNARY)} %i0 : {value.element}"]
    if g.random.random() < 0.3:
        body = [
            f"%half = arith.constant 0.5 : {value.element}",
            f"%size = math.absf %i0 : {value.element}",
            f"%more = arith.addf %size, %half : {value.element}",
            f"%u = {g.random.choice(_OF_POSITIVE)} %more : {value.element}",
        ]
    body += [*wide("%u", value.element, "%w"), *narrowed("%w", element, "%r")]
    g.generic([(value, tuple(loops))], (shape, element), "p" * len(loops), body)


def binary(g: Draws) -> None:
    """Two or three operands, computed in f32."""
    value = g.pick()
    loops = tuple(range(len(value.shape)))
    elements = ANY if g.random.random() < 0.2 else FLOATS
    inputs = [(value, loops), *(g.operand(value.shape, elements) for _ in range(g.random.choice((1, 1, 2))))]
    body: list[str] = []
    for i, (v, _) in enumerate(inputs):
        body += wide(f"%i{i}", v.element, f"%w{i}")
    name = "%w0"
    for i in range(1, len(inputs)):
        body.append(f"%c{i} = {g.random.choice(_BINARY)} {name}, %w{i} : f32")
        name = f"%c{i}"
    element = g.random.choice(FLOATS)
    g.generic(inputs, (value.shape, element), "p" * len(loops), [*body, *narrowed(name, element, "%r")])


def masked(g: Draws) -> None:
    """What lies beyond a diagonal, or behind a position, becomes a constant."""
    value = g.pick(range(2, 5))
    a, b = g.random.sample(range(len(value.shape)), 2)
    body = [
        f"%x = linalg.index {a} : index",
        f"%y = linalg.index {b} : index",
        "%p = arith.index_cast %x : index to i64",
        "%q = arith.index_cast %y : index to i64",
        f"%c = arith.cmpi {g.random.choice(('sgt', 'sle', 'eq'))}, %p, %q : i64",
        f"%k = arith.constant {g.random.choice(('0.0', '-1.0', '0.5'))} : {value.element}",
        f"%r = arith.select %c, %k, %i0 : {value.element}",
    ]
    g.pointwise(value, value.element, body)


def reduction(g: Draws) -> None:
    """The sum or an extreme over one dim or two."""
    value = g.pick(range(1, 5))
    rank = len(value.shape)
    reduced = set(g.random.sample(range(rank), min(rank, g.random.choice((1, 1, 1, 2)))))
    combine, start = g.random.choice((("addf", "0.0"), ("maximumf", "0xFF800000"), ("minimumf", "0x7F800000")))
    body = [*wide("%i0", value.element, "%w"), f"%r = arith.{combine} %o, %w : f32"]
    kinds = "".join("r" if i in reduced else "p" for i in range(rank))
    shape = tuple(n for i, n in enumerate(value.shape) if i not in reduced)
    g.generic([(value, tuple(range(rank)))], (shape, "f32"), kinds, body, start)


def contraction(g: Draws) -> None:
    """A product over the last dim of an f16 value, with or without batch dims in common, and the result in f16."""
    value = g.pick(range(1, 5), ("f16",))
    *rows, depth = value.shape
    batch = g.random.randrange(len(rows)) if len(rows) > 1 and g.random.random() < 0.6 else 0
    width = g.random.choice(g.sizes)
    if prod(rows) * width > g.largest or prod(rows[:batch]) * width * depth > g.largest:
        return
    n, k = len(rows), len(rows) + 1
    loops = [*range(batch), *((n, k) if g.random.random() < 0.5 else (k, n))]
    wanted = tuple((*rows, width, depth)[i] for i in loops)
    found = [v for v in g.values if v.shape == wanted and v.element == "f16" and v != value]
    other = g.random.choice(found) if found and g.random.random() < 0.7 else g.load(wanted)
    body = [
        "%a = arith.extf %i0 : f16 to f32",
        "%b = arith.extf %i1 : f16 to f32",
        "%m = arith.mulf %a, %b : f32",
        "%r = arith.addf %o, %m : f32",
    ]
    product = g.generic([(value, (*range(n), k)), (other, tuple(loops))], ((*rows, width), "f32"), "p" * (n + 1) + "r", body, "0.0")
    g.pointwise(product, "f16", ["%r = arith.truncf %i0 : f32 to f16"])


def _groups(rank: int, at: int) -> list[list[int]]:
    """Dims of a larger shape per dim of a smaller one of `rank`, whose dim `at` is two."""
    groups = [[i + (i > at)] for i in range(rank)]
    groups[at] = [at, at + 1]
    return groups


def reshape(g: Draws) -> None:
    """Two neighbours become one dim, or one becomes two."""
    value = g.pick(range(1, 5), ANY)
    rank = len(value.shape)
    d = g.random.randrange(rank)
    if rank < 4 and g.random.random() < 0.5:
        factors = [f for f in range(1, value.shape[d] + 1) if value.shape[d] % f == 0]
        factor = g.random.choice(factors)
        shape = (*value.shape[:d], factor, value.shape[d] // factor, *value.shape[d + 1 :])
        g.moved(f"tensor.expand_shape {value.name} {_groups(rank, d)} output_shape {list(shape)}", shape, value)
    elif d + 1 < rank:
        shape = (*value.shape[:d], value.shape[d] * value.shape[d + 1], *value.shape[d + 2 :])
        g.moved(f"tensor.collapse_shape {value.name} {_groups(rank - 1, d)}", shape, value)


def unit(g: Draws) -> None:
    """A dim of extent 1 comes, or one position of a dim is taken, whose dim stays or goes."""
    value = g.pick(range(4), ANY)
    rank = len(value.shape)
    if g.random.random() < 0.5:
        if rank == 0:
            g.moved(f"tensor.expand_shape {value.name} [] output_shape [1]", (1,), value)
            return
        d = g.random.randrange(rank)
        shape = (*value.shape[: d + 1], 1, *value.shape[d + 1 :]) if g.random.random() < 0.5 else (*value.shape[:d], 1, *value.shape[d:])
        g.moved(f"tensor.expand_shape {value.name} {_groups(rank, d)} output_shape {list(shape)}", shape, value)
    elif rank:
        d = g.random.randrange(rank)
        starts = [g.random.randrange(n) if i == d else 0 for i, n in enumerate(value.shape)]
        sizes = [1 if i == d else n for i, n in enumerate(value.shape)]
        shape = tuple(sizes) if g.random.random() < 0.5 else tuple(n for i, n in enumerate(sizes) if i != d)
        g.moved(f"tensor.extract_slice {value.name}{starts} {sizes} {[1] * rank}", shape, value, "to")


def slice_(g: Draws) -> None:
    """A box of a value, or every other element of it."""
    value = g.pick(range(1, 5), ANY)
    starts = [g.random.choice([s for s in (0, 0, 1, 2, 64) if s < n]) for n in value.shape]
    steps = [g.random.choice((1, 1, 1, 1, 2)) for _ in value.shape]
    left = [-(-(n - s) // t) for n, s, t in zip(value.shape, starts, steps, strict=True)]
    shape = tuple(g.random.choice((m, m, (m + 1) // 2)) for m in left)
    g.moved(f"tensor.extract_slice {value.name}{starts} {list(shape)} {steps}", shape, value, "to")


def pad(g: Draws) -> None:
    """A value with constants around it."""
    value = g.pick(range(1, 4), (*FLOATS, *INTEGERS))
    low, high = ([g.random.choice((0, 0, 1, 3)) for _ in value.shape] for _ in range(2))
    shape = tuple(n + a + b for n, a, b in zip(value.shape, low, high, strict=True))
    if prod(shape) > g.largest:
        return
    block = ", ".join(f"%x{i}: index" for i in range(len(shape)))
    scalar = g.line(f"arith.constant {'-7' if value.element in INTEGERS else '0.25'} : {value.element}")
    text = f"tensor.pad {value.name} low{low} high{high} {{\n    ^bb0({block}):\n      tensor.yield {scalar} : {value.element}\n    }}"
    g.moved(text, shape, value, "to")


def concatenation(g: Draws) -> None:
    """Two values that differ in one extent at most, joined along it."""
    value = g.pick(elements=("f16", "f32", *INTEGERS))
    d = g.random.randrange(len(value.shape))
    extent = g.random.choice(g.sizes)
    if prod(value.shape) // value.shape[d] * (value.shape[d] + extent) > g.largest:
        return
    other = g.load((*value.shape[:d], extent, *value.shape[d + 1 :]), value.element)
    g.joined([value, other], d)


OPS = {
    unary: 4, binary: 8, masked: 2, reduction: 4, contraction: 4, reshape: 4, unit: 3, slice_: 4, pad: 1, concatenation: 2,
}  # fmt: skip
"""Ops and how often they come."""
