"""A function bound to argument sizes: recorded, checked, and launched on the caller's arrays."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import numerics, pairs
from ktir.arithmetic.integers import fit
from ktir.emulator.policy import Policy
from ktir.emulator.reference.arguments import ELEMENT_OF, RAW, Bound
from ktir.emulator.reference.binding import bind
from ktir.emulator.reference.compile.program import Argument, Function, Program
from ktir.emulator.reference.observer import Observer, Watched, timed
from ktir.emulator.reference.ops.indirect_steps import Gather, Scatter
from ktir.emulator.reference.record.access import AnyAccess, Points, resolve
from ktir.emulator.reference.record.checks import Traffic, check
from ktir.emulator.reference.record.recorder import Recorder
from ktir.emulator.reference.record.recording import Counts
from ktir.emulator.reference.tape.moves import keep_bits
from ktir.emulator.reference.tape.tape import Assemble
from ktir.emulator.reference.tape.values import (
    CARRIERS,
    ELEMENT_BYTES,
    PAIRS,
    AccessTile,
    Buffer,
    Pointer,
    Strided,
    Tensor,
    Value,
    View,
    is_odd,
)

__all__ = ["Plan"]


class Plan:
    """A function bound to argument sizes: the tape and what a launch copies. One launch at a time.

    `eager`: recording has run every step already, on the arrays of `bound`; the plan serves one launch. `by_tile`: kernels that are
    recorded tile by tile.
    """

    def __init__(
        self,
        program: Program,
        function: Function,
        bound: Bound,
        policy: Policy,
        *,
        eager: bool = False,
        by_tile: frozenset[str] = frozenset(),
        observer: Observer | None = None,
    ) -> None:
        rec = Recorder(program, policy, eager, by_tile) if observer is None else Watched(program, policy, observer, eager, by_tile)
        rec.where = function.where
        self.rec, self.eager, self.policy = rec, eager, policy
        buffers = {i: _buffer(rec, i, a, function, bound) for i, a in enumerate(bound.arrays) if _is_argument(bound, i)}
        local = self._place(bound)
        if eager:
            for buffer in rec.memory.buffers:
                buffer.source = _reader(buffer, bound.arrays, policy.poison)
        self._preload(local)
        with numerics.quiet():
            rec.call(
                function,
                [
                    _value(rec, entry, argument, buffers, bound.arrays, policy.poison)
                    for entry, argument in zip(bound.signature, function.arguments, strict=True)
                ],
            )
            self._read_back(local)
        if isinstance(rec, Watched):
            rec.ended()
        self.traffic: list[tuple[Buffer, Traffic]] = []
        self.runtime: list[tuple[Buffer, list[AnyAccess]]] = []
        self.raw: list[tuple[int, Gather]] = []
        self.deferred: list[tuple[int, Scatter]] = []
        self._in_place: set[Buffer] = set()
        if not eager:
            keep_bits(rec.steps, _HOST)
        for buffer, accesses in rec.memory.accesses.items():
            self._settle(buffer, accesses)
        self._defer()
        self.calls, self.origins = ([], []) if eager else bind(rec.steps)
        self._counts: Counts = rec.counts
        self.lx_peak = rec.scratchpad.peak
        self.lx_peaks = tuple(int(x) for x in rec.scratchpad.peaks)
        self.poison = policy.poison
        written = {b for b, t in self.traffic if t.write_back}
        self.written: frozenset[int] = frozenset(
            [b.argument for b in written if b.argument is not None]
            + [number for b in written for _, number, _, _ in b.placed]
            + [number for number, _ in self.deferred]
        )
        """Numbers of the arrays that a launch writes."""
        self.bytes = sum(
            s.array.nbytes for s in {t.storage for step in rec.steps for t in (*step.reads, *step.writes)} if s.array is not None
        )
        self.lock = threading.Lock()

    def _defer(self) -> None:
        """Gathers and scatters that work on an array in place."""
        for step in self.rec.steps:
            if isinstance(step, Gather | Scatter) and step.source.buffer in self._in_place:
                number = step.source.buffer.argument
                assert number is not None
                if isinstance(step, Gather):
                    step.in_place = True
                    self.raw.append((number, step))
                else:
                    step.deferred = True
                    self.deferred.append((number, step))

    def _launched(self) -> Counts:
        """What the last launch has done."""
        result = self._counts.copy()
        for step, view, space, size, write in self.rec.measured:
            result.moved(view, space, step.count * size, write=write)
        return result

    # Arrays at addresses

    def _place(self, bound: Bound) -> list[tuple[Buffer, int, int, str, int]]:
        """Buffers for the arrays in LX: (buffer, tile, offset, type, elements)."""
        rec = self.rec
        local: list[tuple[Buffer, int, int, str, int]] = []
        for space, tile, offset, number, element, count in bound.placed:
            size = ELEMENT_BYTES[element]
            if space == "global":
                memory = rec.memory.numbered()
                memory.placed.append((offset * size, number, element, count))
                memory.carrier(element)
            else:
                name = f"LX of tile {tile} from element {offset}"
                buffer = rec.memory.new(Buffer(name, count * size, initialized=True, argument=number, element=element))
                local.append((buffer, tile, offset, element, count))
        return local

    def _preload(self, local: list[tuple[Buffer, int, int, str, int]]) -> None:
        for buffer, tile, offset, element, count in local:
            rec, at = self.rec, Strided((1, count), (0, 1), offset)
            tiles = np.arange(tile + 1) == tile
            value = rec.loaded(Tensor(buffer.carrier(element), Strided((tile + 1, count), (0, 1)), element))
            rec.scratchpad.write(at, value, tiles, rec.where)
            rec.scratchpad.entries[-1].kernel = -1

    def _read_back(self, local: list[tuple[Buffer, int, int, str, int]]) -> None:
        rec = self.rec
        for buffer, tile, offset, element, count in local:
            at = Strided((1, count), (0, 1), offset)
            rec.kernel += 1
            tile_access = AccessTile(View(buffer, 0, (count,), (1,), (False,), element), (0,), (count,), (0,))
            resolved = resolve(rec, tile_access, rec.where, write=True)
            found = rec.plain(rec.scratchpad.read(at, element, np.ones(rec.tiles, np.bool_), rec.where, tile))
            untouched = found.storage is buffer.carriers.get(element)
            if not untouched:
                target = Tensor(buffer.carrier(element), Strided((1, count), (0, 1)), element)
                rec.emit(Assemble((found.moved(found.at.tiles(0, 1)),), (target,), based=True))
                rec.memory.accesses.setdefault(buffer, []).append(resolved)
            else:
                rec.memory.accesses.setdefault(buffer, []).append(replace(resolved, write=False))

    # Memory

    def _settle(self, buffer: Buffer, accesses: list[AnyAccess]) -> None:
        """Check what can be checked now, and find out what a launch has to copy."""
        dynamic = [a for a in accesses if isinstance(a, Points) and a.dynamic]
        if buffer.size is None:
            ends = [high * ELEMENT_BYTES[a.element] for a in accesses if a not in dynamic for _, high in a.spans()]
            ends += [a.reach * ELEMENT_BYTES[a.element] for a in dynamic]
            ends += [start + n * ELEMENT_BYTES[e] for start, _, e, n in buffer.placed]
            buffer.size = max(ends, default=0)
        if self.eager:
            self.traffic.append((buffer, check(buffer, accesses, self.policy)))
            return
        traffic = Traffic()
        writes = any(a.write for a in accesses)
        if dynamic and (writes or not buffer.initialized):
            self.runtime.append((buffer, accesses))
        else:
            traffic = check(buffer, [a for a in accesses if a not in dynamic], self.policy)
        alone = buffer.argument is not None and len({a.element for a in accesses}) == 1
        if alone and not writes and any(isinstance(a, Points) for a in accesses):
            self._in_place.add(buffer)
            if all(isinstance(a, Points) for a in accesses):
                return
        elif alone and len(dynamic) == len(accesses) and all(a.write and not a.adds for a in dynamic):
            self._in_place.add(buffer)
            return
        elif dynamic or buffer.placed:
            for element in buffer.carriers:
                whole = (0, buffer.size // ELEMENT_BYTES[element])
                traffic.fill[element] = whole
                if writes:
                    traffic.write_back[element] = [whole]
        self.traffic.append((buffer, traffic))
        for element, storage in buffer.carriers.items():
            storage.size = buffer.size // ELEMENT_BYTES[element]
            storage.array = np.zeros(storage.size, storage.dtype)

    def launch(self, arrays: Sequence[NDArray[Any]], observer: Observer | None = None) -> Counts:
        """Run the tape on `arrays`, in place; returns what has been done."""
        with self.lock, numerics.quiet():
            flat: dict[tuple[int, str], NDArray[Any]] = {}
            for number, step in self.raw:
                key = number, step.source.element
                if key not in flat:
                    flat[key] = _flat(arrays[number], key[1])
                step.source.raw = flat[key]
            try:
                self._run(arrays, observer)
            finally:
                for _, step in self.raw:
                    step.source.raw = None
            return self._launched()

    def _run(self, arrays: Sequence[NDArray[Any]], observer: Observer | None) -> None:
        if not self.eager:
            for buffer, traffic in self.traffic:
                for element, (low, high) in traffic.fill.items():
                    carrier = buffer.carriers[element].array
                    assert carrier is not None
                    _fill(buffer, element, low, carrier[low:high], arrays, None if self.policy.uninitialized else self.poison)
            if observer is not None:
                timed(self.calls, self.origins, observer)
            else:
                for function, arguments in self.calls:
                    function(*arguments)
            for buffer, accesses in self.runtime:
                if len(accesses) == 1 and isinstance(only := accesses[0], Points) and only.apart and not only.adds:
                    continue  # nobody else is there, and its own places are all different
                check(buffer, accesses, self.policy)
        for buffer, traffic in self.traffic:
            for start, number, element, count in buffer.placed:
                if traffic.write_back:
                    first = start // ELEMENT_BYTES[element]
                    carrier = buffer.carriers[element].array
                    assert carrier is not None
                    _leave(carrier[first : first + count], _flat(arrays[number], element), element)
            if buffer.argument is None:
                continue
            for element, ranges in traffic.write_back.items():
                carrier = buffer.carriers[element].array
                assert carrier is not None
                flat = _flat(arrays[buffer.argument], element)
                for low, high in ranges:
                    _leave(carrier[low:high], flat[low:high], element)
                if _is_joined(arrays[buffer.argument], element):
                    arrays[buffer.argument].reshape(-1).view(RAW)[: 2 * flat.size] = pairs.parted(flat)
        for number, step in self.deferred:
            step.finish(_flat(arrays[number], step.source.element))


def _is_argument(bound: Bound, number: int) -> bool:
    return any(entry[:2] == ("array", number) for entry in bound.signature)


def _reader(buffer: Buffer, arrays: Sequence[NDArray[Any]], poison: bool) -> Any:
    def read(element: str, low: int, high: int) -> NDArray[Any]:
        carrier = np.empty(high - low, CARRIERS[element])
        _fill(buffer, element, low, carrier, arrays, poison)
        return carrier

    return read


def _fill(buffer: Buffer, element: str, low: int, carrier: NDArray[Any], arrays: Sequence[NDArray[Any]], poison: bool | None) -> None:
    """The initial content of elements `low` and on. `poison` None: what nothing has written stays as it is, reading it is a finding."""
    if buffer.argument is not None:
        _enter(_flat(arrays[buffer.argument], element)[low : low + carrier.size], carrier, element)
        return
    if poison is not None:
        _empty(carrier, poison)
    for start, number, kind, count in buffer.placed:
        if kind == element:
            first = start // ELEMENT_BYTES[element] - low
            begin, end = max(0, first), min(carrier.size, first + count)
            if begin < end:
                _enter(_flat(arrays[number], element)[begin - first : end - first], carrier[begin:end], element)


def _empty(carrier: NDArray[Any], poison: bool) -> None:
    integer = np.issubdtype(carrier.dtype, np.integer) or carrier.dtype == np.bool_
    carrier[...] = (-1 if integer else np.nan) if poison else 0


_HOST: dict[str, type] = {
    **CARRIERS,
    "f16": np.float16,
    **{k: v for k, v in numerics.BITS.items() if k != "f16"},
    **{k: np.uint16 for k in PAIRS if ELEMENT_BYTES[k] == 2},
}
"""Element type -> NumPy type of an element in the caller's memory."""


def _flat(array: NDArray[Any], element: str) -> NDArray[Any]:
    flat = array.reshape(-1)
    host = np.dtype(_HOST[element])
    if _is_joined(array, element):
        return pairs.joined(flat.view(RAW))
    if array.dtype.name == RAW or array.itemsize < host.itemsize:
        flat = flat.view(RAW)
        return flat[: flat.size // host.itemsize * host.itemsize].view(host)
    return flat if flat.dtype == host else flat.view(host)


def _is_joined(array: NDArray[Any], element: str) -> bool:
    """Whether elements are pairs of bytes that lie one after the other in an array."""
    return element in PAIRS and array.itemsize == 1


def _enter(source: NDArray[Any], carrier: NDArray[Any], element: str) -> None:
    if carrier.dtype == source.dtype and element in numerics.NARROW:
        np.copyto(carrier, source)
    elif element == "f16":
        numerics.f16_to_f32(source, out=carrier)
    elif element in numerics.NARROW:
        carrier[...] = numerics.decode(element, source)
    elif element in PAIRS:
        carrier.real, carrier.imag = pairs.both(source, PAIRS[element])
    elif is_odd(element):
        carrier[...] = fit(source, element)
    else:
        np.copyto(carrier, source)


def _leave(carrier: NDArray[Any], target: NDArray[Any], element: str) -> None:
    if carrier.dtype == target.dtype and element in numerics.NARROW:
        np.copyto(target, carrier)
    elif element == "f16":
        numerics.f32_to_f16(carrier, out=target, on_grid=True)
    elif element in numerics.NARROW:
        target[...] = numerics.encode(element, carrier)
    elif element in PAIRS:
        target[...] = pairs.bits(np.real(carrier), np.imag(carrier), PAIRS[element])
    else:
        np.copyto(target, carrier)


def _buffer(rec: Recorder, number: int, array: NDArray[Any], function: Function, bound: Bound) -> Buffer:
    at = next(i for i, entry in enumerate(bound.signature) if entry[:2] == ("array", number))
    name = function.arguments[at].name or f"argument {at}"
    element = None if array.dtype.name == RAW else ELEMENT_OF[array.dtype.name]
    return rec.memory.new(Buffer(name, array.nbytes, initialized=True, argument=number, element=element))


def _value(
    rec: Recorder,
    entry: tuple[Any, ...],
    argument: Argument,
    buffers: dict[int, Buffer],
    arrays: Sequence[NDArray[Any]],
    poison: bool,
) -> Value:
    kind, first, *rest = entry
    if kind == "array":
        return Pointer(buffers[first], 0)
    if kind == "scratch":
        name = argument.name or "scratch"
        buffer = rec.memory.new(Buffer(name, first * ELEMENT_BYTES[rest[0]], initialized=False))
        if rec.eager:
            buffer.source = _reader(buffer, arrays, poison)
        return Pointer(buffer, 0)
    return first
