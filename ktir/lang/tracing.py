"""Tracing a kernel: its function, called on memory that stands for the arguments, becomes KTIR text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import ktir.lang.arrays  # noqa: F401  (tiles have NumPy's functions by it)
from ktir.lang.base.buffers import bytes_of, laid_out, room
from ktir.lang.base.mistakes import RETURNS, Mistake, of_python
from ktir.lang.base.ranges import Ranges
from ktir.lang.base.scalars import element_of
from ktir.lang.control import ended, running
from ktir.lang.exchange import Exchange, emitted
from ktir.lang.graph import Op, Value, Writer, place
from ktir.lang.indices import Index
from ktir.lang.memory import Memory
from ktir.lang.structured import constant
from ktir.lang.tile import Tile, apply, as_tile
from ktir.lang.trace import Trace


class Tracing(Trace):
    """A trace that knows tiles and memory."""

    def apply(self, ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Tile:  # type: ignore[override]
        """A function of NumPy on tiles, numbers and indices."""
        if method != "__call__" or options:
            raise Mistake(f"the language has no 'np.{ufunc.__name__}' of numbers of the device like this")
        return apply(self, ufunc, inputs)

    def full(self, shape: tuple[int, ...], value: Any, dtype: Any) -> Tile:
        """A tile of equal numbers."""
        return Tile.of(self, constant(self, value, shape, dtype), dtype)

    def buffer(self, shape: tuple[int, ...], dtype: Any, address: int | None) -> Memory:
        """Memory in the scratchpad of each tile. Where the author gives no address its rows begin at sticks."""
        if self.grid is None:
            raise Mistake("this kernel runs without a grid, so the compiler places what it computes; give it one: kernel[4](..)")
        laid = laid_out(shape, address)
        self.lx, address = room(self.lx, laid, dtype, address)
        base = self.number(address // bytes_of(dtype))
        return Memory(self, shape, dtype, base, "ct_local", laid=laid)

    def exchange(self, kind: Exchange, value: Any, axis: int | None) -> Tile:
        """What this tile gets of the values of the others."""
        if self.grid is None:
            raise Mistake("this kernel runs without a grid, so it has no tiles that exchange values; give it one: kernel[4](..)")
        tile = as_tile(self, value)
        return Tile.of(self, emitted(self, kind, tile._dense(), tile.dtype, axis), tile.dtype)


@dataclass(frozen=True)
class Traced:
    """A kernel as KTIR, for arguments of some shapes and types."""

    name: str
    text: str
    roles: tuple[str, ...]
    """Per argument `input`, `output`, `input_output`, `number`, or `unused`: memory that no tile of a grid touches."""
    tiles: tuple[int, ...] | None
    """The grid, of one tile for a kernel that has none but loops or conditions; None for what the compiler divides."""
    ranges: Ranges = field(default_factory=Ranges, compare=False, repr=False)
    """What numbers have to fit."""

    def written(self, arguments: Iterable[str]) -> list[str]:
        """Those arguments into which the kernel stores, of the names of all in order."""
        return [name for name, role in zip(arguments, self.roles, strict=True) if role in ("output", "input_output")]


def trace(
    function: Callable[..., object],
    arguments: Mapping[str, Any],
    parameters: Mapping[str, Any],
    grid: tuple[int, ...] | None,
    location: str,
    stated: Sequence[str] = (),
    *,
    known: bool = False,
) -> Traced:
    """The KTIR of a kernel. arguments: by name arrays, of which shape and type count, and numbers. location: where the function is.
    stated: further attributes of a kernel with a grid. known: with the numbers that arguments are."""
    tracing = Tracing(grid)
    given: dict[str, Any] = {}
    for name, value in arguments.items():
        base = Value("index", tracing.root)
        tracing.root.arguments.append(base)
        if isinstance(value, int):
            given[name] = tracing.index(value) if known else Index.of(tracing, base)
            tracing.ranges.note(base, "given", name)
        else:
            given[name] = Memory(tracing, value.shape, value.dtype, base)
    token = running.set(tracing)
    try:
        with of_python():
            result = function(**given, **parameters)
    finally:
        running.reset(token)
    if tracing.fault is not None:
        raise tracing.fault
    ended(tracing)
    if result is not None:
        raise Mistake(RETURNS, location)
    tracing.root.ops.append(Op("return", (), location))
    roles = tuple(m.role if isinstance(m, Memory) else "number" for m in given.values())
    empty = tracing.idle or any(isinstance(m, Memory) and not m.size for m in given.values())
    if not empty and not any(role in ("output", "input_output") for role in roles):
        raise Mistake("a kernel stores into at least one of its arguments", location)
    return Traced(
        function.__name__,
        _text(function.__name__, tracing, given, roles, location, stated),
        roles,
        grid or ((1,) if tracing.is_divided else None),
        tracing.ranges.settled(),
    )


def _text(name: str, tracing: Tracing, given: Mapping[str, Any], roles: Sequence[str], location: str, stated: Sequence[str]) -> str:
    writer = Writer(places=True, around=location)
    arguments = []
    for (key, memory), base, role in zip(given.items(), tracing.root.arguments, roles, strict=True):
        writer.names[base] = f"%{key}"
        facts = f'ktir.name = "{key}"'
        if isinstance(memory, Memory) and role != "unused":
            shape = "".join(f"{n}x" for n in memory.shape)
            facts += "" if tracing.is_divided else f', ktir.role = "{role}"'
            facts += f", ktir.type = tensor<{shape}{element_of(memory.dtype)}>"
        arguments.append(f"%{key}: index {{{facts}}} {place(location)}")
    body = writer.region(tracing.root, "  ")
    grid = f" attributes {{{', '.join((f'grid = {list(tracing.grid or (1,))}', *stated))}}}" if tracing.is_divided else ""
    level = "" if tracing.is_divided else ' attributes {ktir.level = "logical"}'
    here = place(location)
    return f"{writer.aliases()}module{level} {{\nfunc.func @{name}({', '.join(arguments)}){grid} {{\n{body}}} {here}\n}} {here}\n"
