"""Ops on the tensors of tiles, written on whole tensors at the insertion point."""

from __future__ import annotations

from collections.abc import Sequence

from ktir.diagnostics import refused
from ktir.dialects.structured import COMBINERS, IDENTITY, affine_map, fill, generic
from ktir.mlir import arith, ir, tensor
from ktir.passes.lifting.axes import Axes, Axis
from ktir.passes.lifting.forms import Form, element_type, emit, is_zero
from ktir.passes.lifting.values import Carried, Number, Partial, Total, Value, Whole
from ktir.target import LANES

_SAME_IN_ANY_ORDER = ("max", "min", "addi", "maxsi", "minsi")


class StructuredOps:
    """Writes ops, and notes which of them sum in another order than the author's."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.moved: list[ir.Operation] = []
        """Ops whose sums have another order than in the author's text."""

    def write(self, form: Form, given: Sequence[Value | None]) -> Value:
        """What an op makes; `given`: what its operands are, None for a tensor without content. Raises Unsupported."""
        carried = [i for i, v in enumerate(given) if isinstance(v, Carried | Total) and self._is_read(form, i)]
        if len(carried) > 1 or any(isinstance(given[i], Total) for i in carried):
            raise refused(form.op, "reads what goes on from trip to trip in a way that is no sum, product or extreme over the trips")
        if carried:
            value = given[carried[0]]
            assert isinstance(value, Carried)
            return self._running(form, list(given), carried[0], value)
        if form.reduced:
            return self._reduction(form, list(given))
        read = [i for i in range(len(given)) if self._is_read(form, i)]
        if form.yielded in form.arguments and isinstance(only := given[form.arguments.index(form.yielded)], Number):
            return only
        axes, order = self._loops(form, given, read)
        return self._pointwise(form, given, read, axes, order)

    def _is_read(self, form: Form, operand: int) -> bool:
        """Whether a body looks at an operand; `outs` of a reduction is where that begins."""
        if operand == len(form.operands) - 1 and form.reduced:
            return True
        if operand == len(form.operands) - 1 and isinstance(form.accumulator, ir.OpResult):
            return False  # what an op of scalars makes
        return form.reads(form.yielded, form.arguments[operand])

    # Loops

    def _loops(self, form: Form, given: Sequence[Value | None], read: Sequence[int]) -> tuple[dict[int, Axis], list[Axis]]:
        """The axis of each loop of several positions; and the axes of operands that no loop of the tile walks."""
        axes: dict[int, Axis] = {}
        hidden: dict[Axis, None] = {}
        for i in read:
            value = given[i]
            if isinstance(value, Number):
                continue
            if not isinstance(value, Whole):
                what = "reads a tensor without content" if value is None else "reads a sum of one trip, which only the sum of all may do"
                raise refused(form.op, what)
            walked = set()
            for loop, dim in zip(form.walks[i], value.dims, strict=True):
                if dim is None:
                    continue
                walked.add(dim)
                if loop is None:
                    raise refused(form.op, "takes the first position of a dim, which is another one on each tile")
                if axes.setdefault(loop, value.axes[dim]) is not value.axes[dim]:
                    raise refused(form.op, "brings together dims that run along different blocks")
            hidden.update({a: None for k, a in enumerate(value.axes) if k not in walked and a.extent > 1})
        for loop, extent in enumerate(form.extents):
            if extent > 1 and loop not in axes:
                axes[loop] = self.axes.whole(extent)
        dealt = [a for a in (*axes.values(), *hidden) if a.at is not None]
        if len(set(dealt)) != len(dealt):
            raise refused(form.op, "runs along the same blocks in two dims")
        return axes, sorted(hidden, key=lambda a: a.number)

    def _walk(self, form: Form, i: int, value: Whole, order: Sequence[Axis | int]) -> list[int | None]:
        """The new loop along each dim of an operand; `order` has the hidden axes, and the author's loops by number."""
        loops = {
            dim: order.index(loop) for loop, dim in zip(form.walks[i], value.dims, strict=True) if dim is not None and loop is not None
        }
        return [loops.get(k, order.index(a) if a in order else None) for k, a in enumerate(value.axes)]

    def _pointwise(
        self,
        form: Form,
        given: Sequence[Value | None],
        read: Sequence[int],
        axes: dict[int, Axis],
        hidden: list[Axis],
    ) -> Whole:
        out = [loop for loop in form.walks[-1] if loop in axes]
        order: list[Axis | int] = [*hidden, *out]
        labels = (*hidden, *(axes[loop] for loop in out if loop is not None))
        what = form.yielded
        init = tensor.EmptyOp([a.extent for a in labels] or [1], element_type(what)).result
        wholes = [(i, v) for i in read if isinstance(v := given[i], Whole)]
        count = len(order) or 1  # of no dims it is a tensor of one element
        result: list[int | None] = list(range(len(order))) or [None]
        maps = [affine_map(count, walk) for walk in (*(self._walk(form, i, v, order) for i, v in wholes), result)]

        def body(arguments: list[ir.Value]) -> ir.Value:
            return emit(form, what, self._body(form, given, read, arguments))

        value = generic([v.value for _, v in wholes], init, maps, ["parallel"] * count, body, loc=form.op.location)
        dims = tuple(order.index(loop) if loop in axes and loop is not None else None for loop in form.walks[-1])
        return Whole(value, labels or (self.axes.whole(1),), dims, _zero(form, given, read, what))

    def _body(
        self, form: Form, given: Sequence[Value | None], read: Sequence[int], arguments: Sequence[ir.Value]
    ) -> dict[ir.Value, ir.Value]:
        """The scalars of a new body for those of the author's."""
        found: dict[ir.Value, ir.Value] = {}
        rest = iter(arguments)
        for i in read:
            value = given[i]
            if isinstance(value, Number):
                found[form.arguments[i]] = arith.ConstantOp(element_type(form.arguments[i]), value.attribute).result
            elif isinstance(value, Whole):
                found[form.arguments[i]] = next(rest)
        return found

    # Reductions

    def _reduction(self, form: Form, given: list[Value | None]) -> Value:
        """A reduction of a tile: of whole tensors, or, along what trips of a loop take, one trip's part."""
        combine, mapped = form.combination(form.accumulator)
        read = [i for i in range(len(given) - 1) if form.reads(mapped, form.arguments[i])]
        axes, hidden = self._loops(form, given, read)
        depths = {d for loop in form.reduced if loop in axes for d in self._trips(axes[loop], form)}
        init = given[-1]
        if not depths:
            if isinstance(init, Carried | Partial | Total):
                raise refused(form.op, "begins with what goes on from trip to trip")
            return self._reduced(form, given, read, axes, hidden, init, combine)
        (depth,) = depths if len(depths) == 1 else (-1,)
        kind = COMBINERS[combine.name]
        if depth < 0 or not isinstance(init, Number) or not _is_identity(init, kind):
            raise refused(form.op, "sums what one trip has, but does not begin with what leaves the sum as it is")
        return Partial(kind, depth, self._over_trips(form, given, read, axes, hidden, init, combine, depth))

    def _trips(self, axis: Axis, form: Form) -> list[int]:
        """The loops whose trips take different blocks of a reduced axis. Raises Unsupported for one that tiles share."""
        if axis.at is None:
            return []
        depths = [d for d in self.axes.carrying if axis.varies(d)]
        if not depths:
            raise refused(form.op, "reduces a dim of which each tile has a block")
        for depth in depths:
            self.axes.check_trips(axis, depth, form.op)
        return depths

    def _running(self, form: Form, given: list[Value | None], operand: int, value: Carried) -> Value:
        """What goes on from trip to trip, combined with what a trip has."""
        combine, mapped = form.combination(form.arguments[operand])
        read = [i for i in range(len(given)) if i != operand and form.reads(mapped, form.arguments[i])]
        part = given[read[0]] if len(read) == 1 else None
        if isinstance(part, Partial) and not form.reduced:
            kind = COMBINERS[combine.name]
            if part.combiner != kind or part.depth != value.depth or mapped not in form.arguments:
                raise refused(form.op, "combines trips otherwise than what each trip has")
            self._note(form.op, kind)
            if isinstance(value.init, Number) and _is_identity(value.init, kind):
                return Total(value, part.whole)
            given[read[0]], given[operand] = part.whole, value.init
            both = [read[0], operand]
            axes, hidden = self._loops(form, given, both)
            return Total(value, self._pointwise(form, given, both, axes, hidden))
        axes, hidden = self._loops(form, given, read)
        return Total(value, self._over_trips(form, given, read, axes, hidden, value.init, combine, value.depth, mapped))

    def _over_trips(
        self,
        form: Form,
        given: list[Value | None],
        read: Sequence[int],
        axes: dict[int, Axis],
        hidden: list[Axis],
        init: Number | Whole,
        combine: ir.Operation,
        depth: int,
        mapped: ir.Value | None = None,
    ) -> Whole:
        """A reduction over what all trips of a loop have."""
        over = [a for a in (*axes.values(), *hidden) if a.varies(depth)]
        if not over or any(axes[loop].varies(depth) for loop in axes if loop not in form.reduced):
            raise refused(form.op, "combines with what is the same in each trip, or with other elements in each")
        for axis in over:
            self.axes.check_trips(axis, depth, form.op)
        kind = COMBINERS[combine.name]
        in_blocks = form.is_contraction and len(over) == 1 and over[0] not in hidden and over[0].block % LANES == 0
        if not in_blocks:
            self._note(form.op, kind)
        summed = [a for a in hidden if a.varies(depth)]
        return self._reduced(form, given, read, axes, hidden, init, combine, summed)

    def _note(self, op: ir.Operation, kind: str) -> None:
        if kind not in _SAME_IN_ANY_ORDER:
            self.moved.append(op)

    def _reduced(
        self,
        form: Form,
        given: list[Value | None],
        read: Sequence[int],
        axes: dict[int, Axis],
        hidden: list[Axis],
        init: Value | None,
        combine: ir.Operation,
        summed: Sequence[Axis] = (),
    ) -> Whole:
        """A generic that combines `init` with what the body maps, along the reduced loops and the axes `summed`."""
        kind = COMBINERS[combine.name]
        over = [*(axes[loop] for loop in form.reduced if loop in axes), *summed]
        accumulator = next(v for v in combine.operands if self._is_running(form, v, given))
        (mapped,) = (v for v in combine.operands if v != accumulator)
        if any(a.is_short for a in over) and not (IDENTITY[kind] == 0 and _zero(form, given, read, mapped)):
            raise refused(form.op, "reduces positions beyond the end of memory, which are not known to leave the result as it is")
        kept = [a for a in hidden if a not in summed]
        out = [loop for loop in form.walks[-1] if loop in axes and loop not in form.reduced]
        loops: list[Axis | int] = [*kept, *(loop for loop in out if loop is not None), *summed, *sorted(form.reduced & axes.keys())]
        labels = (*kept, *(axes[loop] for loop in out if loop is not None))
        dims = tuple(loops.index(loop) if loop in out and loop is not None else None for loop in form.walks[-1])
        start = aligned(form.op, init, labels, dims, element_type(form.op.results[0]))
        reduced = set(range(len(labels), len(loops)))
        if not reduced:
            raise refused(form.op, "reduces a single position, which is not lifted")
        value = self._combined(form, given, read, loops, labels, reduced, combine, accumulator, mapped, start)
        return Whole(value, labels or (self.axes.whole(1),), dims)

    def _combined(
        self,
        form: Form,
        given: Sequence[Value | None],
        read: Sequence[int],
        loops: Sequence[Axis | int],
        labels: Sequence[Axis],
        reduced: set[int],
        combine: ir.Operation,
        accumulator: ir.Value,
        mapped: ir.Value,
        start: ir.Value,
    ) -> ir.Value:
        wholes = [(i, v) for i in read if isinstance(v := given[i], Whole)]
        walks = [self._walk(form, i, v, loops) for i, v in wholes]
        result: list[int | None] = list(range(len(labels))) or [None]

        def body(arguments: list[ir.Value]) -> ir.Value:
            element = emit(form, mapped, self._body(form, given, read, arguments))
            return ir.Operation.create(combine.name, results=[arguments[-1].type], operands=[arguments[-1], element]).results[0]

        maps = [affine_map(len(loops), walk) for walk in (*walks, result)]
        kinds = ["reduction" if k in reduced else "parallel" for k in range(len(loops))]
        return generic([v.value for _, v in wholes], start, maps, kinds, body, loc=form.op.location)

    def _is_running(self, form: Form, value: ir.Value, given: Sequence[Value | None]) -> bool:
        if value not in form.arguments:
            return False
        at = form.arguments.index(value)
        return isinstance(given[at], Carried) or (bool(form.reduced) and value == form.accumulator)


def _zero(form: Form, given: Sequence[Value | None], read: Sequence[int], what: ir.Value) -> bool:
    """Whether a scalar of a body is 0 beyond the ends of memory."""
    return is_zero(form, what, {form.arguments[i]: _is_zero(given[i]) for i in read})


def _is_identity(init: Number, kind: str) -> bool:
    return getattr(init.attribute, "value", None) == IDENTITY[kind]


def _is_zero(value: Value | None) -> bool:
    return value.zero if isinstance(value, Whole) else isinstance(value, Number) and getattr(value.attribute, "value", None) == 0


def aligned(op: ir.Operation, value: Value | None, axes: Sequence[Axis], dims: Sequence[int | None], type_: ir.Type) -> ir.Value:
    """A tensor along axes; `dims`: which of them each dim of the tile runs along. Raises Unsupported."""
    if isinstance(value, Number):
        empty = tensor.EmptyOp([a.extent for a in axes] or [1], type_).result
        return fill(arith.ConstantOp(type_, value.attribute).result, empty)
    if not isinstance(value, Whole):
        raise refused(op, "reads a tensor without content, or a part of a sum over trips")
    for own, wanted in zip(value.dims, dims, strict=True):
        if (own is None) != (wanted is None) or (own is not None and wanted is not None and value.axes[own] is not axes[wanted]):
            raise refused(op, "brings together dims that run along different blocks")
    place = {own: wanted for own, wanted in zip(value.dims, dims, strict=True) if own is not None}
    walk: list[int | None] = []
    for k, axis in enumerate(value.axes):
        if k not in place and axis.extent > 1 and axis not in axes:
            raise refused(op, "has other values at points that it does not tell apart")
        walk.append(place.get(k, list(axes).index(axis) if axis.extent > 1 else None))
    if walk == list(range(len(axes))) or not axes:
        return value.value
    empty = tensor.EmptyOp([a.extent for a in axes], type_).result
    maps = [affine_map(len(axes), walk), ir.AffineMap.get_identity(len(axes))]
    return generic([value.value], empty, maps, ["parallel"] * len(axes), lambda scalars: scalars[0], loc=op.location)
