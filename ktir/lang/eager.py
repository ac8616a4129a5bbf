"""A kernel on NumPy, tile after tile: what it does can be printed, and looked at in a debugger."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ktir.lang.base.arguments import check_memory
from ktir.lang.base.buffers import Scratchpad
from ktir.lang.base.mistakes import INTERLEAVED, RETURNS, UNFINISHED, UNFINISHED_BRANCH, Mistake, here, kind_of, of_python, place_of
from ktir.lang.base.touched import Touched
from ktir.lang.base.values import converted, tile_of
from ktir.lang.control import ended, running
from ktir.lang.exchange import Exchange, members
from ktir.lang.keys import Gathered, Number, Part, Parts, Shaped, gathered_layout, of_device, parts_of


class Array(Shaped, NDArrayOperatorsMixin):
    """Memory of an eager run. Reading gives arrays of NumPy."""

    def __init__(self, array: np.ndarray, *, masked: bool = False, touched: Touched | None = None) -> None:
        """touched: notes who reads and writes what, of memory that tiles share."""
        self._array, self._masked, self._touched = array, masked, touched
        self._done: set[str] = set()
        self.shape, self.dtype = array.shape, array.dtype

    @property
    def masked(self) -> Array:
        """The same memory, for keys that may reach beyond it."""
        other = Array(self._array, masked=True, touched=self._touched)
        other._done = self._done
        return other

    @property
    def is_written(self) -> bool:
        """Whether anything was stored."""
        return "store" in self._done

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, key: Any) -> Any:
        parts = parts_of(self.shape, of_device(key), masked=self._masked)
        if any(isinstance(p, Gathered) for p in parts):
            return tile_of(self._array[self._noted(self._gathered(parts), writes=False)])
        source, target, extents, shape = _places(parts, self.shape)
        self._noted(source, writes=False)
        found = np.zeros(extents, self.dtype)
        found[target] = self._array[source]
        found = found.reshape(shape)
        return tile_of(found if shape else found[()])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._done.add("store")
        parts = parts_of(self.shape, of_device(key), masked=self._masked)
        if any(isinstance(p, Gathered) for p in parts):
            self._array[self._noted(self._gathered(parts), writes=True)] = converted(value, self.dtype)
            return
        source, target, extents, shape = _places(parts, self.shape)
        try:
            given = np.broadcast_to(np.asarray(converted(value, self.dtype)).astype(self.dtype), shape)
        except ValueError:
            raise Mistake(f"expects a tile that can be broadcast to shape {tuple(shape)}, but got shape {np.shape(value)}") from None
        self._array[self._noted(source, writes=True)] = given.reshape(extents)[target]

    def __iter__(self) -> Any:
        raise Mistake("memory is read by keys, as x[0]; a loop over its rows is 'for i in range(x.shape[0])'")

    def _noted(self, key: tuple[Any, ...], *, writes: bool) -> tuple[Any, ...]:
        """A key of NumPy by which this tile reads or writes. Raises Mistake for what races with another tile."""
        run = running.get(None)
        if self._touched is not None and isinstance(run, EagerTile):
            self._touched.note(key, run.tile(None), run.exchanges, writes=writes)
        return key

    def _gathered(self, parts: Parts) -> tuple[Any, ...]:
        """The key of NumPy for one with tiles of numbers."""
        gathered_layout(parts, [np.shape(p.numbers) for p in parts if isinstance(p, Gathered)])
        key, dim = [], 0
        for part in parts:
            if isinstance(part, Gathered):
                numbers = np.asarray(part.numbers)
                if numbers.size and not (0 <= numbers.min() and numbers.max() < self.shape[dim]):
                    raise Mistake(f"numbers from {numbers.min()} to {numbers.max()} reach beyond dim {dim} of {self.shape[dim]}")
                key.append(numbers)
            else:
                key.append(None if part is None else slice(part.start, part.start + part.size))
            dim += part is not None
        return tuple(key)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **__: Any) -> Any:
        if ufunc is np.add and method == "at" and inputs[0] is self:
            parts = parts_of(self.shape, of_device(inputs[1]), masked=self._masked)
            if any(isinstance(p, Gathered) for p in parts):
                self._done.add("store")
                np.add.at(self._array, self._noted(self._gathered(parts), writes=True), inputs[2])
            else:
                self[inputs[1]] = self[inputs[1]] + inputs[2]
            return
        raise Mistake(f"'np.{ufunc.__name__}' works on tiles; load one of this argument: x[...]")

    def __array_function__(self, func: Any, *_: Any) -> Any:
        raise Mistake(f"'np.{func.__name__}' works on tiles; load one of this argument: x[...]")

    def __repr__(self) -> str:
        return f"<memory {kind_of(self)}>"


def _places(parts: Parts, shape: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...], tuple[int, ...], tuple[int, ...]]:
    """Where in memory and in the tile the elements lie that are inside; the extents of the tile over the dims of memory; its shape."""
    source, target, extents, tile = [], [], [], []
    dim = 0
    for part in parts:
        if part is None:
            tile.append(1)
            continue
        assert isinstance(part, Part)
        start = int(part.start)
        if part.limit is None and not 0 <= start <= shape[dim] - part.size:
            raise Mistake(f"elements {start} to {start + part.size - 1} reach beyond dim {dim} of {shape[dim]}")
        limit = shape[dim] if part.limit is None else part.limit
        low, high = min(max(start, 0), limit), max(min(start + part.size, limit), 0)
        high = max(low, high)
        source.append(slice(low, high))
        target.append(slice(low - start, high - start) if high > low else slice(0, 0))
        extents.append(part.size)
        if not part.dropped:
            tile.append(part.size)
        dim += 1
    return tuple(source), tuple(target), tuple(extents), tuple(tile)


class _Together(BaseException):
    """A tile exchanges with others, so all must run at once."""


class Meeting:
    """Where the tiles of an eager run exchange values. One tile runs at a time; it waits where all have to be."""

    def __init__(self, tiles: int) -> None:
        self.tiles, self.turn = tiles, threading.Condition()
        self.rounds: dict[tuple[tuple[int, ...], int], dict[int, Any]] = {}
        self.waiting: dict[int, tuple[tuple[int, ...], int]] = {}
        """Of each tile that waits, the exchange."""
        self.ended: set[int] = set()
        self.failed: BaseException | None = None

    def meet(self, group: tuple[int, ...], number: int, tile: int, value: Any) -> dict[int, Any]:
        """The values of the tiles of a group in an exchange; `number` counts those of this tile in this group."""
        everyone = self.rounds.setdefault((group, number), {})
        everyone[tile] = value
        self.waiting[tile] = group, number
        self.turn.notify_all()
        while len(everyone) < len(group):
            if self.failed is not None or self._stuck(group, everyone):
                raise Mistake("this exchange waits for tiles that have ended without it, or wait in another one")
            self.turn.wait()
        self.waiting.pop(tile, None)
        return everyone

    def _stuck(self, group: tuple[int, ...], everyone: Mapping[int, Any]) -> bool:
        """Whether a tile of the group has ended without coming, or nobody is left who may come."""
        if any(t in self.ended for t in group if t not in everyone):
            return True
        blocked = [t for t, (g, n) in self.waiting.items() if len(self.rounds[g, n]) < len(g)]
        return len(blocked) + len(self.ended) == self.tiles


class EagerTile:
    """One tile of an eager run."""

    def __init__(self, grid: tuple[int, ...] | None, place: tuple[int, ...], meeting: Meeting | None = None) -> None:
        self.grid, self.place, self.meeting = grid, place, meeting
        self.exchanges = 0
        self.met: dict[tuple[int, ...], int] = {}
        """Exchanges of each group so far."""
        self.dealt: tuple[int, ...] = ()
        self.fault: Mistake | None = None
        self.waiting: list[Any] = []
        self.scratchpad = Scratchpad()
        self._loops: list[object] = []

    def tile(self, axis: int | None) -> int:
        """The number of the tile, along an axis of the grid or over all."""
        if self.grid is None:
            raise Mistake("this kernel runs without a grid, so it has no tiles; give it one: kernel[4](..)")
        return Number(self.place[axis] if axis is not None else np.ravel_multi_index(self.place, self.grid))

    def loop(self, start: Any, stop: Any, step: Any) -> Iterator[int]:
        """A loop."""
        if step <= 0:
            raise Mistake(f"a loop expects a step of at least 1, but got {step}")
        at, loop, used = here(), object(), self.scratchpad.used
        for number in range(int(start), int(stop), int(step)):
            self.scratchpad.used = used  # buffers of a trip lie where those of the others do
            self._loops.append(loop)
            finished = False
            try:
                yield Number(number)
                finished = True
            finally:
                inner = self._loops.pop()
                if not finished:
                    self.fault = self.fault or Mistake(UNFINISHED, at)
            if inner is not loop:
                raise Mistake(INTERLEAVED, at)

    def branch(self, condition: Any, body: Callable[[], object]) -> None:
        """What runs where a condition holds."""
        one = (
            condition.size == 1 and condition.dtype == np.bool_
            if isinstance(condition, np.ndarray)
            else isinstance(condition, bool | np.bool_)
        )
        if not one:
            raise Mistake(f"'when' expects a comparison of numbers, but got {kind_of(condition)}")
        if condition:
            at = here()
            try:
                body()
            except Exception:
                self.fault = self.fault or Mistake(UNFINISHED_BRANCH, at)
                raise

    def full(self, shape: tuple[int, ...], value: Any, dtype: Any) -> np.ndarray:
        """A tile of equal numbers."""
        return tile_of(np.full(shape, value, dtype))

    def exchange(self, kind: Exchange, value: Any, axis: int | None) -> np.ndarray:
        """What this tile gets of the values of the others."""
        if self.grid is None:
            raise Mistake("this kernel runs without a grid, so it has no tiles that exchange values; give it one: kernel[4](..)")
        group, position = members(self.grid, self.place, axis)
        kind.result(np.shape(value), len(group))
        if self.meeting is None and prod(self.grid) > 1:
            raise _Together
        mine = self.tile(None)
        number = self.met.get(tuple(group), 0)
        values = {mine: value} if self.meeting is None else self.meeting.meet(tuple(group), number, mine, np.array(value))
        self.met[tuple(group)] = number + 1
        self.exchanges += 1
        return tile_of(kind.deliver([np.asarray(values[i]) for i in group], position))

    def buffer(self, shape: tuple[int, ...], dtype: Any, address: int | None) -> Array:
        """Memory of the tile, with nothing in it: NaN, or -1."""
        if self.grid is None:
            raise Mistake("this kernel runs without a grid, so the compiler places what it computes; give it one: kernel[4](..)")
        return Array(self.scratchpad.buffer(shape, dtype, address))


def _run_tile(function: Callable[..., object], memory: Mapping[str, Any], parameters: Mapping[str, Any], tile: EagerTile) -> None:
    token = running.set(tile)
    try:
        with of_python():
            result = function(**memory, **parameters)
        if result is not None:
            raise Mistake(RETURNS, place_of(function))
        if tile.fault is not None:
            raise tile.fault
        ended(tile)
    finally:
        running.reset(token)


def _run_together(function: Callable[..., object], memory: Mapping[str, Any], parameters: Mapping[str, Any], grid: tuple[int, ...]) -> None:
    """All tiles, each in a thread of its own, one at a time."""
    meeting = Meeting(prod(grid))

    def work(place: tuple[int, ...]) -> None:
        with meeting.turn:
            try:
                _run_tile(function, memory, parameters, EagerTile(grid, place, meeting))
            except BaseException as error:
                meeting.failed = meeting.failed or error
            meeting.ended.add(int(np.ravel_multi_index(place, grid)))
            meeting.turn.notify_all()

    threads = [threading.Thread(target=work, args=(place,)) for place in product(*map(range, grid))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if meeting.failed is not None:
        raise meeting.failed


def run(function: Callable[..., object], arguments: Mapping[str, Any], parameters: Mapping[str, Any], grid: tuple[int, ...] | None) -> None:
    """Run a kernel on NumPy; arrays are written in place, when all tiles are done. Tiles run one after the other, or in threads that take
    turns from the first exchange on: the run then begins again."""

    def fresh() -> dict[str, Any]:
        several = prod(grid or ()) > 1
        arrays = {name: a for name, a in arguments.items() if isinstance(a, np.ndarray)}
        numbers = {name: Number(a) for name, a in arguments.items() if name not in arrays}
        shared = {name: Array(a.copy(), touched=Touched(name, a.shape) if several else None) for name, a in arrays.items()}
        return {name: shared[name] if name in shared else numbers[name] for name in arguments}

    memory = fresh()
    try:
        for place in product(*map(range, grid or ())):
            _run_tile(function, memory, parameters, EagerTile(grid, place))
    except _Together:
        memory = fresh()
        _run_together(function, memory, parameters, grid or ())
    written = [name for name, own in memory.items() if isinstance(own, Array) and own.is_written]
    check_memory(arguments, written)
    for name in written:
        arguments[name][...] = memory[name][...]
