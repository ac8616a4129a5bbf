"""Single ops on the tensors of tiles, written on whole tensors at the insertion point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ktir.diagnostics import refused
from ktir.dialects.structured import COMBINERS, affine_map, elementwise, fill, filled, generic, identity
from ktir.mlir import arith, ir, tensor
from ktir.passes.lifting.axes import Axes, Axis
from ktir.passes.lifting.bodies import Body, Scope
from ktir.passes.lifting.forms import Form, element_type
from ktir.passes.lifting.values import Decided, Number, Position, Relative, Value, Whole

_SAME_IN_ANY_ORDER = ("max", "min", "addi", "maxsi", "minsi")


class StructuredOps:
    """Writes ops of which each tile has all that they combine."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.moved: list[ir.Operation] = []
        """Ops whose sums have another order than in the author's text."""

    def _note(self, op: ir.Operation, kind: str) -> None:
        if kind not in _SAME_IN_ANY_ORDER:
            self.moved.append(op)

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
            if isinstance(value, Number | Position | Decided):
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
        result: list[int | None] = list(range(count))
        maps = [affine_map(count, walk) for walk in (*(self._walk(form, i, v, order) for i, v in wholes), result)]

        scope = self._scope(axes, order)

        def body(arguments: list[ir.Value]) -> ir.Value:
            return Body(form, given, scope, {form.arguments[i]: a for (i, _), a in zip(wholes, arguments, strict=False)}).emit(what)

        value = generic([v.value for _, v in wholes], init, maps, ["parallel"] * count, body, loc=form.op.location)
        dims = tuple(order.index(loop) if loop in axes and loop is not None else None for loop in form.walks[-1])
        read_only = Body(form, given, scope)
        known = {w: n for w in (*(a for a in labels if a.is_short), *self.axes.skips) if (n := read_only.outside(what, w)) is not None}
        return Whole(value, labels or (self.axes.whole(1),), dims, known, self._relative(form, wholes, order))

    def _relative(self, form: Form, wholes: Sequence[tuple[int, Whole]], order: Sequence[Axis | int]) -> Relative | None:
        """What an op makes of operands that are relative to a greatest value, one of them or that itself. Raises Unsupported."""
        found: dict[tuple[int | None, ...], Relative] = {}
        for i, v in wholes:
            if v.relative is not None:
                walk = self._walk(form, i, v, order)
                found[tuple(None if p is None else walk[p] for p in v.relative.places)] = v.relative
        if not found:
            return None
        (places, one), *others = found.items()
        if others or any(v.relative is not None and v.relative.top != one.top for _, v in wholes):
            raise refused(form.op, "brings together what is relative to different values")
        return Relative(one.top, places, log=False)

    def _scope(self, axes: Mapping[int, Axis], order: Sequence[Axis | int]) -> Scope:
        """The loops of a new op; `order` has the hidden axes, and the author's loops by number."""
        loops = {loop: order.index(loop) for loop in axes if loop in order}
        return Scope(self.axes, loops, axes, {a: i for i, a in enumerate(order) if isinstance(a, Axis)})

    def _reduced(
        self,
        form: Form,
        given: list[Value | None],
        read: Sequence[int],
        axes: dict[int, Axis],
        hidden: list[Axis],
        init: Value | None,
        combine: ir.Operation,
        mapped: ir.Value,
        summed: Sequence[Axis] = (),
    ) -> Whole:
        """A generic that combines `init` with what the body maps, along the reduced loops and the axes `summed`."""
        kind = COMBINERS[combine.name]
        over = [*(axes[loop] for loop in form.reduced if loop in axes), *summed]
        scope = self._scope(axes, [*hidden, *axes])
        if any(a.is_short and Body(form, given, scope).outside(mapped, a) != identity(kind, mapped.type) for a in over):
            raise refused(form.op, "reduces positions beyond the end of memory, which are not known to leave the result as it is")
        kept = [a for a in hidden if a not in summed]
        out = [loop for loop in form.walks[-1] if loop in axes and loop not in form.reduced]
        loops: list[Axis | int] = [*kept, *(loop for loop in out if loop is not None), *summed, *sorted(form.reduced & axes.keys())]
        labels = (*kept, *(axes[loop] for loop in out if loop is not None))
        dims = tuple(loops.index(loop) if loop in out and loop is not None else None for loop in form.walks[-1])
        type_ = element_type(form.op.results[0])
        begin = aligned(form.op, init, labels, dims, type_)
        own = isinstance(init, Number) and is_identity(init, kind)  # else what it begins with is combined by an op of its own
        start = begin if own else filled([a.extent for a in labels] or [1], type_, identity(kind, type_))
        reduced = set(range(len(labels), len(loops)))
        if not reduced:
            raise refused(form.op, "reduces a single position, which is not lifted")
        scope = self._scope(axes, loops)
        value = self._combined(form, given, read, loops, labels, reduced, combine, mapped, start, scope)
        if not own:
            self._note(form.op, kind)
            value = _combination(form, combine, [begin, value])
        relative = self._relative(form, [(i, v) for i in read if isinstance(v := given[i], Whole)], loops)
        if relative is not None and any(p is not None and p >= len(labels) for p in relative.places):
            raise refused(form.op, "reduces what is relative to different values")
        return Whole(value, labels or (self.axes.whole(1),), dims, relative=relative)

    def _combined(
        self,
        form: Form,
        given: Sequence[Value | None],
        read: Sequence[int],
        loops: Sequence[Axis | int],
        labels: Sequence[Axis],
        reduced: set[int],
        combine: ir.Operation,
        mapped: ir.Value,
        start: ir.Value,
        scope: Scope,
    ) -> ir.Value:
        wholes = [(i, v) for i in read if isinstance(v := given[i], Whole)]
        walks = [self._walk(form, i, v, loops) for i, v in wholes]
        if not reduced <= {loop for walk in walks for loop in walk}:  # memory has a single position of it
            raise refused(form.op, "reduces along what no operand has more than one position of, which is not lifted")
        result: list[int | None] = list(range(len(labels))) or [None]

        def body(arguments: list[ir.Value]) -> ir.Value:
            scalars = {form.arguments[i]: a for (i, _), a in zip(wholes, arguments, strict=False)}
            element = Body(form, given, scope, scalars).emit(mapped)
            return ir.Operation.create(combine.name, results=[arguments[-1].type], operands=[arguments[-1], element]).results[0]

        maps = [affine_map(len(loops), walk) for walk in (*walks, result)]
        kinds = ["reduction" if k in reduced else "parallel" for k in range(len(loops))]
        return generic([v.value for _, v in wholes], start, maps, kinds, body, loc=form.op.location)


def _combination(form: Form, combine: ir.Operation, values: Sequence[ir.Value]) -> ir.Value:
    """Two tensors combined element by element."""

    def body(scalars: list[ir.Value]) -> ir.Value:
        return ir.Operation.create(combine.name, results=[scalars[0].type], operands=scalars[:2]).results[0]

    with form.op.location:
        type_ = ir.RankedTensorType(values[0].type)
        return elementwise(values, tensor.EmptyOp(list(type_.shape), type_.element_type).result, body)


def is_identity(init: Number, kind: str) -> bool:
    return getattr(init.attribute, "value", None) == identity(kind, init.attribute.type)


def aligned(op: ir.Operation, value: Value | None, axes: Sequence[Axis], dims: Sequence[int | None], type_: ir.Type) -> ir.Value:
    """A tensor along axes; `dims`: which of them each dim of the tile runs along. Raises Unsupported."""
    if isinstance(value, Number):
        empty = tensor.EmptyOp([a.extent for a in axes] or [1], type_).result
        return fill(arith.ConstantOp(type_, value.attribute).result, empty)
    if not isinstance(value, Whole):
        raise refused(op, "reads a tensor without content, positions, or a part of a sum over trips")
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
