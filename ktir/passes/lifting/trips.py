"""Ops on the tensors of tiles, with what trips of a loop add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ktir.diagnostics import refused
from ktir.dialects.structured import COMBINERS, identity
from ktir.mlir import ir, is_a, linalg
from ktir.passes.lifting.axes import Axis
from ktir.passes.lifting.bodies import Body, position
from ktir.passes.lifting.forms import Form, element_type
from ktir.passes.lifting.scaled import Kind, kind_of
from ktir.passes.lifting.structured_ops import StructuredOps, is_identity
from ktir.passes.lifting.values import Carried, Decay, Decayed, Decided, Number, Partial, Position, Relative, Total, Value, Whole
from ktir.target import LANES

_NO_SUM = "reads what goes on from trip to trip in a way that is no sum, product or extreme over the trips"


class TripOps(StructuredOps):
    """Writes ops, and notes which of them sum in another order than the author's."""

    def write(self, form: Form, given: Sequence[Value | None]) -> Value:
        """What an op makes; `given`: what its operands are, None for a tensor without content. Raises Unsupported."""
        if form.reduced:
            return self._reduction(form, list(given))
        read = [i for i in range(len(given)) if self._is_read(form, i)]
        counted = self._counted(form, given, read)
        if counted is not None:
            return counted
        if (i := form.operand_of(form.yielded)) is not None and isinstance(only := given[i], Number):
            return only
        kind = kind_of(form, given, form.yielded)
        if kind.what in ("plain", "log", "linear"):
            made = self._at_top(given)
            axes, order = self._loops(form, made, read)
            whole = self._pointwise(form, made, read, axes, order)
            return whole if whole.relative is None else replace(whole, relative=replace(whole.relative, log=kind.what == "log"))
        if kind.what in ("fall", "decay", "decayed"):
            return self._decay(form, kind)
        if kind.what == "sum":
            return self._scaled(form, list(given), kind)
        carried = [i for i in read if isinstance(given[i], Carried)]
        if len(carried) != 1 or any(self._is_scaled(given[i]) for i in read):
            raise refused(form.op, _NO_SUM)
        value = given[carried[0]]
        assert isinstance(value, Carried)
        return self._running(form, list(given), carried[0], value)

    def _is_scaled(self, value: Value | None) -> bool:
        whole = value.whole if isinstance(value, Partial) else value
        return isinstance(value, Total | Decay | Decayed) or (isinstance(whole, Whole) and whole.relative is not None)

    def _counted(self, form: Form, given: Sequence[Value | None], read: Sequence[int]) -> Value | None:
        """What an op makes of positions and numbers alone."""
        if any(not isinstance(given[i], Position | Decided | Number) for i in read):
            return None
        ops = [o for region in form.op.regions for block in region.blocks for o in block.operations]
        if all(isinstance(given[i], Number) for i in read) and not any(is_a(o, linalg.IndexOp) for o in ops):
            return None
        found = position(form, given, form.yielded, self.axes)
        if found is None:
            return Decided(form, tuple(given))
        return Position(found.base, {form.walks[-1].index(loop): step for loop, step in found.steps.items()})

    # Reductions

    def _reduction(self, form: Form, given: list[Value | None]) -> Value:
        """A reduction of a tile: of whole tensors, or, along what trips of a loop take, one trip's part."""
        combine, mapped = form.combination(form.accumulator)
        read = [i for i in range(len(given) - 1) if form.reads(mapped, form.arguments[i])]
        kind, init = kind_of(form, given, mapped), given[-1]
        if isinstance(init, Decayed) and kind.what == "linear" and kind.top == init.by.top and COMBINERS[combine.name] == "add":
            return self._sum(form, self._at_top(given), read, combine, mapped, init)
        if (
            kind.what not in ("plain", "linear")
            or isinstance(init, Total | Decayed)
            or (isinstance(init, Carried) and kind.what != "plain")
        ):
            raise refused(form.op, _NO_SUM)
        if isinstance(init, Carried):
            return self._running(form, given, len(given) - 1, init)
        given = self._at_top(given)
        axes, hidden = self._loops(form, given, read)
        depths = {d for loop in form.reduced if loop in axes for d in self._trips(axes[loop], form)}
        if not depths:
            if isinstance(init, Partial):
                raise refused(form.op, "begins with what goes on from trip to trip")
            return self._reduced(form, given, read, axes, hidden, init, combine, mapped)
        (depth,) = depths if len(depths) == 1 else (-1,)
        name = COMBINERS[combine.name]
        if depth < 0 or not isinstance(init, Number) or not is_identity(init, name):
            raise refused(form.op, "sums what one trip has, but does not begin with what leaves the sum as it is")
        return Partial(name, depth, self._over_trips(form, given, read, init, combine, depth, mapped))

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
        part, kind = given[read[0]] if len(read) == 1 else None, COMBINERS[combine.name]
        if isinstance(part, Partial) and not form.reduced:
            if part.combiner != kind or part.depth != value.depth or mapped not in form.arguments:
                raise refused(form.op, "combines trips otherwise than what each trip has")
            self._note(form.op, kind)
            if isinstance(value.init, Number) and is_identity(value.init, kind):
                return Total(value, kind, part.whole)
            given[read[0]], given[operand] = part.whole, value.init
            both = [read[0], operand]
            axes, hidden = self._loops(form, given, both)
            return Total(value, kind, self._pointwise(form, given, both, axes, hidden))
        return Total(value, kind, self._over_trips(form, given, read, value.init, combine, value.depth, mapped))

    def _over_trips(
        self,
        form: Form,
        given: list[Value | None],
        read: Sequence[int],
        init: Number | Whole,
        combine: ir.Operation,
        depth: int,
        mapped: ir.Value,
    ) -> Whole:
        """A reduction over what all trips of a loop have."""
        axes, hidden = self._loops(form, given, read)
        over = [a for a in (*axes.values(), *hidden) if a.varies(depth)]
        if not over or any(axes[loop].varies(depth) for loop in axes if loop not in form.reduced):
            raise refused(form.op, "combines with what is the same in each trip, or with other elements in each")
        for axis in over:
            self.axes.check_trips(axis, depth, form.op)
        kind = COMBINERS[combine.name]
        if depth in self.axes.skips and Body(form, given, self._scope(axes, [*hidden, *axes])).outside(mapped, depth) != identity(
            kind, mapped.type
        ):
            raise refused(form.op, "goes over trips that only some tiles make, of which the others are not known to leave it as it is")
        in_blocks = form.is_contraction and len(over) == 1 and over[0] not in hidden and over[0].block % LANES == 0
        if not in_blocks:
            self._note(form.op, kind)
        summed = [a for a in hidden if a.varies(depth)]
        return self._reduced(form, given, read, axes, hidden, init, combine, mapped, summed)

    # Sums that each trip scales

    def _at_top(self, given: Sequence[Value | None]) -> list[Value | None]:
        """Operands with the greatest value of all trips for that so far."""
        return [
            replace(v.whole, relative=Relative(v, tuple(range(len(v.whole.axes))), log=False)) if isinstance(v, Total) else v for v in given
        ]

    def _decay(self, form: Form, kind: Kind) -> Value:
        """What makes what earlier trips have smaller, or that made smaller."""
        assert kind.top is not None
        by = Decay(kind.top, kind.what == "fall", self._dims(form, kind.loops))
        if kind.what != "decayed":
            return by
        if kind.carried is None or kind.walk != form.walks[-1] or kind.carried.depth != kind.top.carried.depth:
            raise refused(form.op, _NO_SUM)
        return Decayed(kind.carried, by)

    def _dims(self, form: Form, loops: Mapping[int, int]) -> dict[int, int]:
        """Dims of greatest values by dims of what an op makes, not by its loops. Raises Unsupported."""
        if any(loop not in form.walks[-1] for loop in loops):
            raise refused(form.op, _NO_SUM)
        return {form.walks[-1].index(loop): k for loop, k in loops.items()}

    def _scaled(self, form: Form, given: list[Value | None], kind: Kind) -> Total:
        """A sum of what earlier trips have, made smaller, and what this one has."""
        decayed = self._decay(form, replace(kind, what="decayed"))
        assert isinstance(decayed, Decayed)
        assert kind.part is not None
        read = [i for i in range(len(given)) if form.reads(kind.part, form.arguments[i])]
        operand = form.operand_of(kind.part)
        if operand is None or not isinstance(part := given[operand], Partial):
            return self._sum(form, self._at_top(given), read, form.yielded.owner.operation, kind.part, decayed)
        if (part.combiner, part.depth) != ("add", decayed.carried.depth) or form.walks[operand] != form.walks[-1]:
            raise refused(form.op, "combines trips otherwise than what each trip has")
        return self._total(form, part.whole, decayed)

    def _sum(
        self, form: Form, given: list[Value | None], read: Sequence[int], combine: ir.Operation, mapped: ir.Value, decayed: Decayed
    ) -> Total:
        zero = Number(ir.FloatAttr.get(element_type(form.yielded), 0.0))
        return self._total(form, self._over_trips(form, given, read, zero, combine, decayed.carried.depth, mapped), decayed)

    def _total(self, form: Form, whole: Whole, decayed: Decayed) -> Total:
        """The sum over all trips. Raises Unsupported unless each element is relative to what scales it, and its begin leaves nothing."""
        by, carried = decayed.by, decayed.carried
        relative, dims = whole.relative, {k: d for d, k in by.dims.items()}
        if relative is None or relative.top != by.top:
            raise refused(form.op, _NO_SUM)
        for k, place in enumerate(relative.places):
            if (k in dims and whole.dims[dims[k]] != place) or (k not in dims and place is not None and place in whole.dims):
                raise refused(form.op, "scales other elements than those that it adds")
        begin = by.top.carried.init
        lowest = isinstance(begin, Number) and is_identity(begin, "max")
        if not isinstance(carried.init, Number) or not (lowest or is_identity(carried.init, "add")):
            raise refused(form.op, "scales what it begins with, which is not 0")
        self.moved.append(form.op)
        return Total(carried, "add", replace(whole, relative=None), by.top)
