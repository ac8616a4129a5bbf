"""What a trace is made of: values, ops, regions, their text, and the builder that writes them down."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ktir.lang.base.mistakes import Mistake, here
from ktir.lang.base.ranges import Ranges

_HOLE = re.compile(r"\$([apvLR]?)(\d+)")


class Value:
    """An SSA value. One that turned out to be another one `stands_for` that."""

    __slots__ = ("region", "stands_for", "type")

    def __init__(self, type_: str, region: Region) -> None:
        self.type, self.region = type_, region
        self.stands_for: Value | None = None

    def resolved(self) -> Value:
        """The value that is in the text."""
        value = self
        while value.stands_for is not None:
            value = value.stands_for
        return value


class Op:
    """An op: text with holes, `$0` for an operand, `$R0` for a region, `$a0` for the arguments of region 0, `$v0` for its first one,
    `$p0` for the first argument of region 0 that a loop carries, `$L0` for the place of an op in the text."""

    __slots__ = ("location", "operands", "regions", "results", "text")

    def __init__(self, text: str, operands: Sequence[Value], location: str | None, regions: Sequence[Region] = ()) -> None:
        self.text, self.operands, self.location, self.regions = text, tuple(operands), location, tuple(regions)
        self.results: tuple[Value, ...] = ()


class Region:
    """A block of ops, inside of which some values of the outside stand for what they are at its begin."""

    def __init__(self, kind: str, location: str | None = None) -> None:
        self.kind, self.location = kind, location
        self.arguments: list[Value] = []
        self.first: list[Op] = []
        """Ops that come before all others: constants, views, numbers of tiles."""
        self.ops: list[Op] = []
        self.now: dict[object, Value] = {}
        """The value of each cell, at the point that the trace has reached."""
        self.entered: dict[object, Value] = {}
        """The values of cells of the outside as the region finds them."""


class Writer:
    """Text of regions; equal text for regions that do the same."""

    def __init__(self, *, places: bool, around: str | None = None) -> None:
        """around: the place of ops that have none of their own."""
        self.places = places
        self.around = around
        self.inside: set[Region] = set()
        self.names: dict[Value, str] = {}
        self.locations: dict[str, str] = {}

    def name(self, value: Value) -> str:
        """The name of a value; those of the outside of what is compared are told by what they are."""
        value = value.resolved()
        if value not in self.names:
            self.names[value] = f"%{len(self.names)}" if self.places or value.region in self.inside else f"%outer{id(value)}"
        return self.names[value]

    def region(self, region: Region, indent: str) -> str:
        """The ops of a region."""
        self.inside.add(region)
        return "".join(self._op(op, indent) for op in (*region.first, *region.ops))

    def _op(self, op: Op, indent: str) -> str:
        self.inside.update(op.regions)
        operands = [self.name(v) for v in op.operands]
        at = op.location or self.around
        place = f" loc({self._place(at)})" if self.places and at else ""

        def fill(hole: re.Match[str]) -> str:
            kind, number = hole[1], int(hole[2])
            if kind == "a":
                return ", ".join(f"{self.name(v)}: {v.type}" for v in op.regions[number].arguments)
            if kind == "L":
                return place
            if kind == "p":
                return self.name(op.regions[0].arguments[number + 1])
            if kind == "v":
                return self.name(op.regions[number].arguments[0])
            if kind == "R":
                return "{\n" + self.region(op.regions[number], indent + "  ") + indent + "}"
            return operands[number]

        text = _HOLE.sub(fill, op.text)
        results = ", ".join(self.name(v) for v in op.results)
        return f"{indent}{results + ' = ' if results else ''}{text}{place}\n"

    def _place(self, location: str) -> str:
        return self.locations.setdefault(location, f"#at{len(self.locations)}")

    def aliases(self) -> str:
        """The places that the text names."""
        return "".join(f"{alias} = {place(location)}\n" for location, alias in self.locations.items())


def place(location: str | None) -> str:
    """A place as MLIR writes it."""
    if location is None:
        return "loc(unknown)"
    file, line, column = location.rsplit(":", 2)
    escaped = file.replace("\\", "\\\\").replace('"', '\\"')
    return f'loc("{escaped}":{line}:{column})'


class Builder:
    """Ops, numbers and cells of a kernel that is traced."""

    apply: Callable[[np.ufunc, str, Sequence[Any], dict[str, Any]], Any]
    """A function of NumPy on tiles, numbers and indices."""

    def __init__(self, grid: tuple[int, ...] | None) -> None:
        self.grid = grid
        self.root = Region("kernel")
        self.stack = [self.root]
        self._numbers: dict[int, Value] = {}
        self.ranges = Ranges()

    @property
    def is_divided(self) -> bool:
        """Whether a grid says who computes what."""
        return self.grid is not None

    def emit(self, text: str, operands: Sequence[Value] = (), types: Sequence[str] = (), regions: Sequence[Region] = ()) -> list[Value]:
        """An op at this point, and its results."""
        op = Op(text, [self.within(v) for v in operands], here(), regions)
        op.results = tuple(Value(t, self.stack[-1]) for t in types)
        self.stack[-1].ops.append(op)
        return list(op.results)

    def value(self, text: str, operands: Sequence[Value], type_: str) -> Value:
        """The result of an op that has one."""
        return self.emit(text, operands, (type_,))[0]

    def at_first(self, text: str, operands: Sequence[Value], *types: str) -> list[Value]:
        """The results of an op that stands at the begin of the kernel."""
        op = Op(text, operands, here())
        op.results = tuple(Value(t, self.root) for t in types)
        self.root.first.append(op)
        return list(op.results)

    def number(self, value: int) -> Value:
        """A number of type `index`."""
        if value not in self._numbers:
            self._numbers[value] = self.at_first(f"arith.constant {value} : index", (), "index")[0]
        return self._numbers[value]

    def within(self, value: Value) -> Value:
        """A value that may be used here. Raises Mistake for one of a loop or condition that has ended."""
        if value.region not in self.stack:
            raise Mistake(_gone(value.region))
        return value

    # Cells: values that change

    def write(self, cell: object, value: Value) -> None:
        """From here on a cell has another value."""
        self.stack[-1].now[cell] = value

    def read(self, cell: object) -> Value:
        """The value of a cell at this point."""
        return self._read(cell, len(self.stack) - 1)

    def _read(self, cell: object, depth: int) -> Value:
        region = self.stack[depth]
        found = region.now.get(cell)
        if found is None:
            if depth == 0:
                raise Mistake(_gone(getattr(cell, "region", None)))
            outer = self._read(cell, depth - 1)
            found = region.now[cell] = region.entered[cell] = Value(outer.type, region)
        return found


def _gone(region: Region | None) -> str:
    what = "loop" if region is None or region.kind == "loop" else "condition"
    return (
        f"this value was made inside of a {what} that has ended, or in an earlier trip of it; what outlives a trip is made before the "
        f"{what} and changed in place: acc[...] = .., acc += .."
    )
