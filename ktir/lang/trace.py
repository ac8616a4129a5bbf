"""A trace: the body of a kernel runs once, on values that write down what is done to them.

Python runs the body of a device loop twice. What the second trip does must be what the first did: a value that goes from trip to trip
through a Python variable, and a number that Python counts, are found so and refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from ktir.lang.base.mistakes import INTERLEAVED, UNFINISHED, UNFINISHED_BRANCH, Mistake, here, kind_of
from ktir.lang.graph import Builder, Op, Region, Value, Writer
from ktir.lang.indices import Condition, Index


class Trace(Builder):
    """A kernel as it is traced."""

    def __init__(self, grid: tuple[int, ...] | None) -> None:
        super().__init__(grid)
        self.fault: Mistake | None = None
        self.waiting: list[Any] = []
        self.dealt: tuple[int, ...] = ()
        self.lx = 0
        """Bytes of LX that buffers have so far."""
        self.checking = 0
        """Loops whose second trip is being traced."""
        self.origins: dict[Value, tuple[Value, list[Index]]] = {}
        """Of integers that were loaded, the view and from where on."""
        self.stale: set[Value] = set()
        """Integers that were loaded from what has been written since."""
        self.ragged: set[Value] = set()
        """Integers that were loaded from where memory may end."""
        self.views: dict[tuple[Any, ...], Value] = {}
        """Of memory, by what they are views of."""
        self._tiles: list[Index] = []
        self._controls = False
        self.idle = False
        """Whether a loop has no trip, so that a kernel may store nothing."""

    @property
    def is_divided(self) -> bool:
        """As of any kernel, or of one tile for loops and conditions, which no program of whole tensors has."""
        return super().is_divided or self._controls

    # Control

    def loop(self, start: Any, stop: Any, step: Any) -> Iterator[Index]:
        """A device loop."""
        if isinstance(step, int) and step <= 0:
            raise Mistake(f"a loop expects a step of at least 1, but got {step}")
        known = [self.index(x).known for x in (start, stop)]
        if known[0] is not None and known[1] is not None and known[0] >= known[1]:
            self.idle = True
            return
        ends = [self.index(x) for x in (start, stop)]
        bounds = [x.emitted() for x in (*ends, self.index(step))]
        at = here()
        self._controls = True
        region = Region("loop", at)
        self.stack.append(region)
        induction = Value("index", region)
        region.arguments.append(induction)
        self.ranges.note(induction, "from", *ends)
        lx, finished = self.lx, False
        try:
            yield Index.of(self, induction)
            finished = True
        finally:
            if not finished and self.fault is None:
                self.fault = Mistake(UNFINISHED, at)
        self._leave(region)
        if self.checking == 0:
            self.lx = lx
            yield from self._second(region, ends)
        self._close_loop(region, bounds, at)

    def _leave(self, region: Region) -> None:
        if self.stack[-1] is not region:
            raise Mistake(INTERLEAVED, region.location)
        self.stack.pop()

    def _second(self, first: Region, ends: Sequence[Index]) -> Iterator[Index]:
        """The second trip of a loop, which must be as the first."""
        second = Region("loop", first.location)
        self.stack.append(second)
        second.arguments.append(Value("index", second))
        self.ranges.note(second.arguments[0], "from", *ends)
        self.checking += 1
        finished = False
        try:
            yield Index.of(self, second.arguments[0])
            finished = True
        finally:
            self.checking -= 1
            if not finished and self.fault is None:
                self.fault = Mistake(UNFINISHED, first.location)
        self._leave(second)
        if _summary(first) != _summary(second):
            raise Mistake(
                "the body of this loop does something else in its second trip: let what changes depend on the loop's index, or use "
                "Python's 'range'",
                first.location,
            )

    def _close_loop(self, region: Region, bounds: Sequence[Value], at: str | None) -> None:
        carried = self._changed(region)
        initial = [self.read(cell) for cell in carried]
        yields = [region.now[cell] for cell in carried]
        types = ", ".join(v.type for v in initial)
        text = "scf.for $v0 = $0 to $1 step $2 "
        if carried:
            region.arguments += [region.entered[c] for c in carried]
            named = ", ".join(f"$p{i} = ${i + 3}" for i in range(len(carried)))
            text += f"iter_args({named}) -> ({types}) "
        region.ops.append(Op("scf.yield" + _typed(0, yields), yields, at))
        op = Op(text + "$R0", [*bounds, *initial], at, (region,))
        self._results(op, carried)

    def branch(self, condition: Any, body: Callable[[], object]) -> None:
        """Ops that run where a condition holds."""
        if isinstance(condition, bool | np.bool_):
            if condition:
                body()
            return
        convert = getattr(condition, "_as_condition", None)
        if convert is not None:
            condition = convert()
        if not isinstance(condition, Condition):
            raise Mistake(f"'when' expects a comparison of numbers, but got {kind_of(condition)}")
        value, at = condition.value, here()
        self._controls = True
        region, other = Region("condition", at), Region("condition", at)
        self.stack.append(region)
        try:
            body()
        except Exception:  # which the kernel may catch: what follows would be in here
            self.fault = self.fault or Mistake(UNFINISHED_BRANCH, at)
            raise
        self._leave(region)
        changed = self._changed(region)
        before, after = [self.read(cell) for cell in changed], [region.now[cell] for cell in changed]
        region.ops.append(Op("scf.yield" + _typed(0, after), after, at))
        other.ops.append(Op("scf.yield" + _typed(0, before), before, at))
        types = f" -> ({', '.join(v.type for v in before)})" if changed else ""
        op = Op(
            f"scf.if $0{types} $R0" + (" else $R1" if changed else ""), [self.within(value)], at, (region, other) if changed else (region,)
        )
        self._results(op, changed)

    def _changed(self, region: Region) -> list[object]:
        """The cells of the outside that a region writes; what it only reads is what it was outside."""
        changed = []
        for cell, value in region.now.items():
            entered = region.entered.get(cell)
            if entered is value:
                value.stands_for = self.read(cell)
            elif any(cell in outer.now for outer in self.stack):
                changed.append(cell)
                if entered is None:
                    region.entered[cell] = Value(value.type, region)
                elif region.kind == "condition":
                    entered.stands_for = self.read(cell)
        return changed

    def _results(self, op: Op, changed: Sequence[object]) -> None:
        here_ = self.stack[-1]
        op.results = tuple(Value(self.read(cell).type, here_) for cell in changed)
        here_.ops.append(op)
        here_.now.update(zip(changed, op.results, strict=True))

    # What kernels ask for

    def index(self, value: Any) -> Index:
        """A number that addresses: Python's, one of the device, or an integer that was loaded or computed."""
        found = Index.maybe(self, value)
        if found is None:
            raise Mistake(f"expects an integer, but got {kind_of(value)}")
        return found

    def tile(self, axis: int | None) -> Any:
        """The number of the tile, along an axis of the grid or over all."""
        grid = self.grid
        if grid is None:
            raise Mistake("this kernel runs without a grid, so it has no tiles; give it one: kernel[4](..)")
        if not self._tiles:
            ids = self.at_first(f"ktdp.get_compute_tile_id : {', '.join(['index'] * len(grid))}", (), *["index"] * len(grid))
            self._tiles = [Index.of(self, v) for v in ids]
            for value, count in zip(ids, grid, strict=True):
                self.ranges.note(value, "from", self.index(0), self.index(count))
        if axis is not None:
            return self._tiles[axis]
        return sum((t * prod(grid[i + 1 :]) for i, t in enumerate(self._tiles)), start=Index.of(self, 0))


def _typed(first: int, values: Sequence[Value]) -> str:
    """Operands with their types, for the end of an op."""
    if not values:
        return ""
    return " " + ", ".join(f"${first + i}" for i in range(len(values))) + " : " + ", ".join(v.type for v in values)


def _summary(region: Region) -> str:
    """What a region does, without places and names."""
    writer = Writer(places=False)
    writer.inside.add(region)
    for value in region.arguments:
        writer.name(value)
    for cell, value in region.entered.items():
        writer.names[value] = f"%cell{id(cell)}"
    text = writer.region(region, "")
    written = [(id(cell), writer.name(v)) for cell, v in region.now.items() if cell in region.entered and region.entered[cell] is not v]
    return text + str(sorted(written))
