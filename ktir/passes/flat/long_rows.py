"""Reductions of one long row: parts of it are rows, which cores share, and what these come to is reduced once more.

A kernel of its own costs a launch and the way through memory, so a row is cut only where its body takes longer than that.

A search for the greatest or least element, as of an argmax, is cut together with the reduction that finds that element: each part is
searched for its own extreme, and what parts come to counts where theirs is that of the row. So no part waits for the others, and the row is
read once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

from ktir.cost.bodies import stick_cycles
from ktir.cost.estimate import kernel_start
from ktir.dialects.structured import (
    IDENTITY,
    Generic,
    affine_map,
    clone_ops,
    constant,
    element_of,
    elementwise,
    fill,
    generic,
    identity,
    index_constant,
    loop_extents,
)
from ktir.mlir import arith, func, ir, is_a, linalg, tensor
from ktir.passes.flat.memory.reshapes import part_of, split
from ktir.target import LANES, Target


class Cut(NamedTuple):
    """Parts of a row of `length` elements each; what is left of it comes last."""

    parts: int
    length: int

    @property
    def end(self) -> int:
        """The first element that is left."""
        return self.parts * self.length


class Parts(NamedTuple):
    """What the parts of a row come to, a tensor of one dim, and what is left of it comes to."""

    rows: ir.Value
    rest: ir.Value | None


class Extreme(NamedTuple):
    """The greatest or least element of a row that has been cut."""

    row: ir.Value
    cut: Cut
    parts: Parts


class Search(NamedTuple):
    """What a reduction chooses where an element is equal to an extreme of the row, and a constant elsewhere."""

    wanted: int
    """The input that is the extreme."""
    element: int
    """The input that is the row."""
    choice: ir.Operation
    """The select."""
    behind: list[ir.Operation]
    """What the body makes of the chosen before it is combined."""


_EXTREMES = ("max", "min", "maxnum", "minnum")


def long_rows_in_parts(function: func.FuncOp, target: Target) -> None:
    """Cut the reductions of `function` to a single number that take long, in place."""
    extremes: dict[ir.Value, Extreme] = {}
    for op in [o.operation for o in function.regions[0].blocks[0].operations]:
        if is_a(op, linalg.GenericOp):
            g = Generic(op)
            search, extreme = next(((s, e) for value, e in extremes.items() if (s := _search(g, value, e.row))), (None, None))
            cut = extreme.cut if extreme else _cut([g, *_searches_of(g)], target)
            if cut is not None:
                with ir.InsertionPoint(op), op.location:
                    parts = _parts(g, cut, {search.wanted: extreme.parts} if search and extreme else {})
                    whole = _whole(g, parts, search, extreme)
                op.results[0].replace_all_uses_with(whole)
                if _is_extreme(g):
                    extremes[whole] = Extreme(g.inputs[0], cut, parts)
                op.erase()


def _cut(reductions: Sequence[Generic], target: Target) -> Cut | None:
    """How a row of these is cut into whole sticks, one part for each core at most; None where that saves nothing. Parts of all of it are
    the best, since what is left is one more row."""
    g = reductions[0]
    if g.iterators != ["reduction"] or g.combiner not in IDENTITY:
        return None
    (size,) = loop_extents(g.op)
    sticks, cores = -(-size // LANES), min(target.cores, size // LANES)
    if (sticks - sticks // max(cores, 1)) * sum(stick_cycles(r, target) for r in reductions) <= 2 * kernel_start(target):
        return None
    even = max(n for n in range(1, cores + 1) if size % (n * LANES) == 0 or n == 1)
    return Cut(even, size // even) if 2 * even >= cores else Cut(cores, size // LANES // cores * LANES)


def _is_extreme(g: Generic) -> bool:
    """Whether it finds the greatest or least element of a tensor."""
    return g.iterators == ["reduction"] and g.combiner in _EXTREMES and len(g.inputs) == 1 and g.mapped == g.body.arguments[0]


def _searches_of(g: Generic) -> list[Generic]:
    """The reductions that search a row for what `g` finds in it."""
    readers = (
        [Generic(u.owner.operation) for u in g.op.results[0].uses if is_a(u.owner.operation, linalg.GenericOp)] if _is_extreme(g) else []
    )
    return [reader for reader in readers if _search(reader, g.op.results[0], g.inputs[0])]


def _search(g: Generic, extreme: ir.Value, row: ir.Value) -> Search | None:
    """How `g` searches a row for its extreme; None where it does not, or asks more of the extreme than what is equal to it.

    Where a part's own extreme is equal to the row's, the same elements are equal to either; elsewhere, none of the part is equal to the
    row's.
    """
    if g.iterators != ["reduction"] or g.combiner not in _EXTREMES or [g.inputs.count(v) for v in (extreme, row)] != [1, 1]:
        return None
    value, behind = _behind(g.mapped, arith.SelectOp)
    if value is None:
        return None
    condition, _, other = value.operands
    wanted, element = g.inputs.index(extreme), g.inputs.index(row)
    number = g.body.arguments[wanted]
    asked = _equality(condition, g.body.arguments[element], number)
    constant_other = not isinstance(other.owner, ir.Block) and is_a(other.owner, arith.ConstantOp)
    if not constant_other or asked is None or {u.owner.operation for u in number.uses} != asked or g.walk(element) != [0]:
        return None
    return Search(wanted, element, value, behind)


def _behind(value: ir.Value, kind: type) -> tuple[ir.Operation | None, list[ir.Operation]]:
    """The op of this kind that a scalar is made of by ops of one operand, and those; None where it is not made so."""
    found: list[ir.Operation] = []
    while not isinstance(value.owner, ir.Block):
        if is_a(value.owner, kind):
            return value.owner, found
        if len(value.owner.operands) != 1:
            break
        found.insert(0, value.owner)
        value = value.owner.operands[0]
    return None, []


def _equality(condition: ir.Value, element: ir.Value, number: ir.Value) -> set[ir.Operation] | None:
    """The ops that read `number`, where a condition is that both are equal, or that they are equal or both no numbers; else None."""

    def compares(value: ir.Value, predicate: int, first: ir.Value, second: ir.Value) -> bool:
        op = value.owner
        found = not isinstance(op, ir.Block) and is_a(op, arith.CmpFOp) and ir.IntegerAttr(op.attributes["predicate"]).value == predicate
        return found and list(op.operands) in ([first, second], [second, first])

    def pair(value: ir.Value, kind: type) -> list[ir.Value]:
        return list(value.owner.operands) if not isinstance(value.owner, ir.Block) and is_a(value.owner, kind) else []

    oeq, uno = arith.CmpFPredicate.OEQ, arith.CmpFPredicate.UNO
    if compares(condition, oeq, element, number):
        return {condition.owner}
    for same, neither in permutations(pair(condition, arith.OrIOp)):
        for one, other in permutations(pair(neither, arith.AndIOp)):
            if compares(same, oeq, element, number) and compares(one, uno, element, element) and compares(other, uno, number, number):
                return {same.owner, other.owner}
    return None


def _parts(g: Generic, cut: Cut, own: Mapping[int, Parts]) -> Parts:
    """What the parts come to; `own`: inputs of which each part has a number of its own."""
    (size,) = loop_extents(g.op)

    def place() -> ir.Value:
        begin = arith.MulIOp(linalg.IndexOp(0).result, index_constant(cut.length)).result
        return arith.AddIOp(begin, linalg.IndexOp(1).result).result

    def rows(value: ir.Value) -> ir.Value:
        return split(part_of(value, 0, 0, cut.end) if cut.end < size else value, 0, [cut.parts, cut.length])

    found = _mapped(g, rows, place, [cut.parts], {i: p.rows for i, p in own.items()})
    if cut.end == size:
        return Parts(found, None)

    def last() -> ir.Value:
        return arith.AddIOp(linalg.IndexOp(0).result, index_constant(cut.end)).result

    rests = {i: p.rest for i, p in own.items() if p.rest is not None}
    return Parts(found, _mapped(g, lambda v: part_of(v, 0, cut.end, size - cut.end), last, [], rests))


def _whole(g: Generic, parts: Parts, search: Search | None, extreme: Extreme | None) -> ir.Value:
    """What the row comes to: what its parts come to is reduced once more, of a search those whose extreme is the row's."""
    combiner = g.yielded.owner.operation.name
    owns = [extreme.parts.rows] if extreme else []
    wholes = [g.inputs[search.wanted]] if search else []

    def combined(scalars: list[ir.Value]) -> ir.Value:
        found, *asked, so_far = scalars
        counted = _counted(g, search, found, *asked) if search else found
        return ir.Operation.create(combiner, results=[so_far.type], operands=[so_far, counted]).results[0]

    maps = [affine_map(1, [0]) for _ in [parts.rows, *owns]] + [affine_map(1, []) for _ in [*wholes, g.init]]
    whole = generic([parts.rows, *owns, *wholes], g.init, maps, ["reduction"], combined, loc=g.op.location)
    if parts.rest is None:
        return whole
    rests = [extreme.parts.rest] if extreme and extreme.parts.rest is not None else []
    into = tensor.empty([], element_of(whole))
    return elementwise([parts.rest, *rests, *wholes, whole], into, lambda scalars: combined(scalars[:-1]))


def _counted(g: Generic, search: Search, found: ir.Value, own: ir.Value, extreme: ir.Value) -> ir.Value:
    """What a part comes to where its own extreme is that of the row; else what the body makes of elements that are not chosen."""
    condition, _, other = search.choice.operands
    mapping = {g.body.arguments[search.element]: own, g.body.arguments[search.wanted]: extreme}
    asking = {condition.owner}
    for op in reversed(g.body_ops):
        if any(u.owner.operation in asking for u in op.results[0].uses):
            asking.add(op)
    clone_ops([op for op in g.body_ops if op in asking], mapping)
    mapping[search.choice.results[0]] = mapping.get(other) or other.owner.clone().results[0]
    clone_ops(search.behind, mapping)
    return arith.SelectOp(mapping[condition], found, mapping[g.mapped]).result


def _mapped(
    g: Generic, of: Callable[[ir.Value], ir.Value], place: Callable[[], ir.Value], rows: list[int], own: Mapping[int, ir.Value]
) -> ir.Value:
    """The reduction of a part of a row, or of several: of operands as `of` gives them, of `own` where each part has one, with `place` as
    the position."""
    loops, element = len(rows) + 1, element_of(g.op.results[0])
    walked = [len(m.results) > 0 and g.loop_of(i, 0) is not None for i, m in enumerate(g.maps[:-1])]
    inputs = [own.get(i, of(v) if w else v) for i, (v, w) in enumerate(zip(g.inputs, walked, strict=True))]
    maps = [affine_map(loops, range(loops) if w else [None] * len(m.results)) for w, m in zip(walked, g.maps, strict=False)]
    for i in own:
        maps[i] = affine_map(loops, range(len(rows)))

    def body(scalars: list[ir.Value]) -> ir.Value:
        mapping = dict(zip(g.body.arguments, scalars, strict=True))
        for op in g.body_ops:
            if is_a(op, linalg.IndexOp):
                mapping[op.results[0]] = place()
            else:
                clone_ops([op], mapping)
        return mapping[g.yielded]

    assert g.combiner is not None
    init = fill(constant(element, identity(g.combiner, element)), tensor.empty(rows, element))
    kinds = ["parallel"] * len(rows) + ["reduction"]
    return generic(inputs, init, [*maps, affine_map(loops, range(len(rows)))], kinds, body, loc=g.op.location)
