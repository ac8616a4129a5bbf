"""Ops of random programs on integers and flags, and between them and floats."""

from __future__ import annotations

from campaign.graph_draws import BELOW, FLAGS, FLOATS, INTEGERS, Draws, narrowed, wide

_BINARY = ("addi", "subi", "maxsi", "minsi", "andi", "ori", "xori", "muli")
_DIVISIONS = ("divsi", "remsi", "floordivsi")


def clamped(name: str, element: str) -> list[str]:
    """Lines that bound an integer, so that its sums fit 32 bits, as %r."""
    return [
        f"%most = arith.constant {BELOW} : {element}",
        f"%least = arith.constant -{BELOW} : {element}",
        f"%top = arith.minsi {name}, %most : {element}",
        f"%r = arith.maxsi %top, %least : {element}",
    ]


def arithmetic(g: Draws) -> None:
    """Two integers of one type, and a division by a constant now and then."""
    value = g.pick(elements=INTEGERS)
    element = value.element
    other, loops = g.operand(value.shape, (element,))
    own = tuple(range(len(value.shape)))
    body = [f"%a = arith.{g.random.choice(_BINARY)} %i0, %i1 : {element}"]
    name = "%a"
    if g.random.random() < 0.3:
        body += [f"%n = arith.constant {g.random.choice((2, 7, -3))} : {element}"]
        body += [f"%q = arith.{g.random.choice(_DIVISIONS)} %a, %n : {element}"]
        name = "%q"
    g.generic([(value, own), (other, loops)], (value.shape, element), "p" * len(own), [*body, *clamped(name, element)])


def conversion(g: Draws) -> None:
    """An integer, a flag or a float as another of these."""
    value = g.pick(elements=(*INTEGERS, *FLAGS, "f16", "f16"))
    target = g.random.choice([e for e in (*FLOATS, *INTEGERS) if e != value.element])
    if target in FLOATS:
        body = [*wide("%i0", value.element, "%w"), *narrowed("%w", target, "%r")]
    elif value.element in FLOATS:
        body = [
            *wide("%i0", value.element, "%w"),
            "%known = arith.cmpf ord, %w, %w : f32",
            "%zero = arith.constant 0.0 : f32",
            "%number = arith.select %known, %w, %zero : f32",
            "%small = math.tanh %number : f32",
            "%fifty = arith.constant 50.0 : f32",
            "%large = arith.mulf %small, %fifty : f32",
            f"%r = arith.fptosi %large : f32 to {target}",
        ]
    else:
        op = "extui" if value.element in FLAGS else "extsi" if target == "i64" else "trunci"
        body = [f"%r = arith.{op} %i0 : {value.element} to {target}"]
    g.pointwise(value, target, body)


def comparison(g: Draws) -> None:
    """Flags by comparing two values of one type."""
    value = g.pick(elements=(*FLOATS, *INTEGERS))
    other, loops = g.operand(value.shape, (value.element,))
    own = tuple(range(len(value.shape)))
    if value.element in INTEGERS:
        body = [f"%r = arith.cmpi {g.random.choice(('slt', 'sge', 'eq', 'ne'))}, %i0, %i1 : {value.element}"]
    else:
        body = [*wide("%i0", value.element, "%a"), *wide("%i1", other.element, "%b")]
        body += [f"%r = arith.cmpf {g.random.choice(('olt', 'oge', 'une', 'uno'))}, %a, %b : f32"]
    g.generic([(value, own), (other, loops)], (value.shape, "i1"), "p" * len(own), body)


def logic(g: Draws) -> None:
    """Two flags."""
    value = g.pick(elements=FLAGS)
    other, loops = g.operand(value.shape, FLAGS)
    own = tuple(range(len(value.shape)))
    body = [f"%r = arith.{g.random.choice(('andi', 'ori', 'xori'))} %i0, %i1 : i1"]
    g.generic([(value, own), (other, loops)], (value.shape, "i1"), "p" * len(own), body)


def selection(g: Draws) -> None:
    """One of two values by a flag."""
    value = g.pick(elements=(*FLOATS, *INTEGERS))
    flag, where = g.operand(value.shape, FLAGS)
    other, loops = g.operand(value.shape, (value.element,))
    own = tuple(range(len(value.shape)))
    body = [f"%r = arith.select %i0, %i1, %i2 : {value.element}"]
    g.generic([(flag, where), (value, own), (other, loops)], (value.shape, value.element), "p" * len(own), body)


def integer_reduction(g: Draws) -> None:
    """The sum or an extreme of integers over one or two dims, or whether any or all of flags hold."""
    value = g.pick(range(1, 5), (*INTEGERS, *FLAGS))
    rank = len(value.shape)
    reduced = set(g.random.sample(range(rank), min(rank, g.random.choice((1, 1, 2)))))
    kinds = "".join("r" if i in reduced else "p" for i in range(rank))
    shape = tuple(n for i, n in enumerate(value.shape) if i not in reduced)
    if value.element in FLAGS:
        op, start = g.random.choice((("ori", "false"), ("andi", "true")))
    else:
        reduced = {g.random.choice(sorted(reduced))}  # the decomposition takes one loop of integers
        kinds = "".join("r" if i in reduced else "p" for i in range(rank))
        shape = tuple(n for i, n in enumerate(value.shape) if i not in reduced)
        op, start = g.random.choice((("addi", "0"), ("maxsi", "-2147483648"), ("minsi", "2147483647")))
    found = g.generic([(value, tuple(range(rank)))], (shape, value.element), kinds, [f"%r = arith.{op} %o, %i0 : {value.element}"], start)
    if value.element in INTEGERS:
        g.pointwise(found, value.element, clamped("%i0", value.element))


OPS = {arithmetic: 3, conversion: 3, comparison: 2, logic: 2, selection: 3, integer_reduction: 3}
"""Ops and how often they come."""
