"""The door to the KTIR executor: `execute` runs a function of a module on arrays."""

from __future__ import annotations

import hashlib
import io
import itertools
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir import numerics
from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.emulator.policy import Policy
from ktir.emulator.reference.checks import Traffic, check
from ktir.emulator.reference.compiler import Argument, Function, Program, compile_module
from ktir.emulator.reference.indirect import Gather, Scatter
from ktir.emulator.reference.memory import AnyAccess, Buffer, Points, resolve
from ktir.emulator.reference.recorder import Counts, NeedsData, Recorder
from ktir.emulator.reference.tape import Assemble, Call, bind
from ktir.emulator.reference.values import (
    CARRIERS,
    ELEMENT_BYTES,
    AccessTile,
    Pointer,
    Strided,
    Tensor,
    Value,
    View,
    is_float,
)
from ktir.mlir import ir

__all__ = ["Report", "Scratch", "execute"]

_ELEMENT_OF = {
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e5m2": "f8E5M2",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "bool": "i1",
    "uint16": "u16",
}
"""NumPy type -> element type. uint16 are the bits of any 16-bit type; names that NumPy itself lacks are those of ml_dtypes."""
_RAW = "uint8"
"""An array of this type is bytes: views of any element type may lie on it."""


@dataclass(frozen=True)
class Scratch:
    """A buffer argument without content: `elements` of type `element`. Reading what the program has not written is a finding."""

    elements: int
    element: str = "f16"


@dataclass(frozen=True)
class Report:
    """What an execution did. `seconds` is the wall time of the launch; `prepare_seconds` that of compiling, recording and checking,
    0 if the plan was at hand. Bytes are summed over all tiles, per memory space ("global", "ct_local") and per view (read, written;
    views are named by their place in the source); `ops` counts executed ops, one per trip for all tiles together; `arithmetic` counts
    scalar operations per op name, over all tiles; `lx_peak_bytes` is the highest LX address used on a tile, `lx_peaks` per tile."""

    ops: int
    bytes_read: Mapping[str, int]
    bytes_written: Mapping[str, int]
    lx_peak_bytes: int
    seconds: float
    prepare_seconds: float
    views: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    arithmetic: Mapping[str, int] = field(default_factory=dict)
    lx_peaks: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Bound:
    """Arguments of a call: a hashable description, and the distinct arrays that it refers to by number.

    `placed`: arrays that lie at addresses: space, tile, offset in elements, number of the array, type, elements.
    """

    signature: tuple[Any, ...]
    arrays: list[NDArray[Any]]
    placed: tuple[tuple[str, int, int, int, str, int], ...] = ()


class _Plan:
    """A function bound to argument sizes: the tape and what a launch copies. One launch at a time.

    `eager`: recording has run every step already, on the arrays of `bound`; the plan serves one launch.
    """

    def __init__(self, program: Program, function: Function, bound: _Bound, policy: Policy, *, eager: bool = False) -> None:
        rec = Recorder(program, policy, eager)
        self.rec = rec
        rec.where = function.where
        self.eager, self.policy = eager, policy
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
        self.traffic: list[tuple[Buffer, Traffic]] = []
        self.runtime: list[tuple[Buffer, list[AnyAccess]]] = []
        self.raw: list[tuple[int, Gather]] = []
        self.deferred: list[tuple[int, Scatter]] = []
        self._in_place: set[Buffer] = set()
        for buffer, accesses in rec.memory.accesses.items():
            self._settle(buffer, accesses)
        for step in rec.steps:
            if isinstance(step, Gather | Scatter) and step.source.buffer in self._in_place:
                number = step.source.buffer.argument
                assert number is not None
                if isinstance(step, Gather):
                    self.raw.append((number, step))
                else:
                    step.deferred = True
                    self.deferred.append((number, step))
        self.calls: list[Call] = [] if eager else bind(rec.steps)
        self.counts: Counts = rec.counts
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

    # Arrays at addresses

    def _place(self, bound: _Bound) -> list[tuple[Buffer, int, int, str, int]]:
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
        elif alone and len(dynamic) == len(accesses) and all(a.write for a in accesses):
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

    def launch(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Run the tape on `arrays`, in place."""
        with self.lock, numerics.quiet():
            for number, step in self.raw:
                step.source.raw = _flat(arrays[number], step.source.element)
            try:
                self._run(arrays)
            finally:
                for _, step in self.raw:
                    step.source.raw = None

    def _run(self, arrays: Sequence[NDArray[Any]]) -> None:
        if not self.eager:
            for buffer, traffic in self.traffic:
                for element, (low, high) in traffic.fill.items():
                    carrier = buffer.carriers[element].array
                    assert carrier is not None
                    _fill(buffer, element, low, carrier[low:high], arrays, self.poison)
            for function, arguments in self.calls:
                function(*arguments)
            for buffer, accesses in self.runtime:
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
        for number, step in self.deferred:
            step.finish(_flat(arrays[number], step.source.element))


def _is_argument(bound: _Bound, number: int) -> bool:
    return any(entry[:2] == ("array", number) for entry in bound.signature)


def _reader(buffer: Buffer, arrays: Sequence[NDArray[Any]], poison: bool) -> Any:
    def read(element: str, low: int, high: int) -> NDArray[Any]:
        carrier = np.empty(high - low, CARRIERS[element])
        _fill(buffer, element, low, carrier, arrays, poison)
        return carrier

    return read


def _fill(buffer: Buffer, element: str, low: int, carrier: NDArray[Any], arrays: Sequence[NDArray[Any]], poison: bool) -> None:
    """The initial content of elements `low` and on."""
    if buffer.argument is not None:
        _enter(_flat(arrays[buffer.argument], element)[low : low + carrier.size], carrier, element)
        return
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


_HOST: dict[str, type] = {**CARRIERS, "f16": np.float16, **{k: v for k, v in numerics.BITS.items() if k != "f16"}}
"""Element type -> NumPy type of an element in the caller's memory."""


def _flat(array: NDArray[Any], element: str) -> NDArray[Any]:
    flat = array.reshape(-1)
    host = np.dtype(_HOST[element])
    if array.dtype.name == _RAW:
        return flat[: flat.size // host.itemsize * host.itemsize].view(host)
    return flat if flat.dtype == host else flat.view(host)


def _enter(source: NDArray[Any], carrier: NDArray[Any], element: str) -> None:
    if element == "f16":
        numerics.f16_to_f32(source, out=carrier)
    elif element in numerics.NARROW:
        carrier[...] = numerics.decode(element, source)
    else:
        np.copyto(carrier, source)


def _leave(carrier: NDArray[Any], target: NDArray[Any], element: str) -> None:
    if element == "f16":
        numerics.f32_to_f16(carrier, out=target, on_grid=True)
    elif element in numerics.NARROW:
        target[...] = numerics.encode(element, carrier)
    else:
        np.copyto(target, carrier)


def _buffer(rec: Recorder, number: int, array: NDArray[Any], function: Function, bound: _Bound) -> Buffer:
    at = next(i for i, entry in enumerate(bound.signature) if entry[:2] == ("array", number))
    name = function.arguments[at].name or f"argument {at}"
    element = None if array.dtype.name == _RAW else _ELEMENT_OF[array.dtype.name]
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


# Arguments


def _bind(function: Function, args: Sequence[Any] | Mapping[str, Any], memory: Mapping[Any, Any]) -> _Bound:
    """Match `args` to the parameters of `function` by position, or by `ktir.name` or the name in the text."""
    parameters = function.arguments
    if isinstance(args, Mapping):
        names = [p.name if p.name is not None else p.alias for p in parameters]
        unknown = [k for k in args if k not in names and k not in [p.alias for p in parameters]]
        if unknown:
            raise KtirError(
                f"'{function.name}' has no argument named '{unknown[0]}'; it has {', '.join(map(str, names))}",
                function.where.location,
            )
        values = [next((args[n] for n in (p.name, p.alias) if n is not None and n in args), None) for p in parameters]
    else:
        values = list(args)
        required = [p for p in parameters if p.role != "pool"]
        if len(values) == len(required) < len(parameters):
            given = iter(values)
            values = [None if p.role == "pool" else next(given) for p in parameters]
        if len(values) != len(parameters):
            raise KtirError(f"'{function.name}' takes {len(parameters)} arguments, but got {len(values)}", function.where.location)
    arrays: list[NDArray[Any]] = []
    signature: list[tuple[Any, ...]] = []
    for i, (value, parameter) in enumerate(zip(values, parameters, strict=True)):
        signature.append(_describe(function, i, parameter, value, arrays))
    placed: list[tuple[str, int, int, int, str, int]] = []
    for place, value in memory.items():
        placed.append(_placed(place, value, arrays))
    placed.sort()
    _check_places(placed)
    return _Bound(tuple(signature), arrays, tuple(placed))


def _placed(place: Any, value: Any, arrays: list[NDArray[Any]]) -> tuple[str, int, int, int, str, int]:
    """An array at an address: ("global", offset) or ("lx", tile, offset), offsets in elements of the array."""
    label = f"memory at {place}"

    def fault(text: str) -> KtirError:
        return KtirError(f"{label} {text}")

    known = isinstance(place, tuple) and place and place[0] in ("global", "lx") and len(place) == (2 if place[0] == "global" else 3)
    if not known or not all(isinstance(x, int | np.integer) and x >= 0 for x in place[1:]):
        raise fault('expects a place of the form ("global", offset) or ("lx", tile, offset) with offsets in elements')
    if not isinstance(value, np.ndarray) or value.dtype.name not in _ELEMENT_OF or value.dtype.name == "uint16":
        raise fault(f"expects an array of a float or integer type, but got {getattr(value, 'dtype', type(value).__name__)}")
    if not value.flags.c_contiguous:
        raise fault("expects a C-contiguous array")
    tile = int(place[1]) if place[0] == "lx" else 0
    return place[0], tile, int(place[-1]), _number(value, arrays, fault), _ELEMENT_OF[value.dtype.name], value.size


def _check_places(placed: list[tuple[str, int, int, int, str, int]]) -> None:
    """No two arrays may lie over each other."""
    spans = sorted((s, t, o * ELEMENT_BYTES[e], (o + n) * ELEMENT_BYTES[e]) for s, t, o, _, e, n in placed)
    for a, b in itertools.pairwise(spans):
        if a[:2] == b[:2] and b[2] < a[3]:
            raise KtirError(f"two arrays share byte {b[2]} of {'global memory' if a[0] == 'global' else f'LX of tile {a[1]}'}")


def _describe(function: Function, i: int, parameter: Argument, value: Any, arrays: list[NDArray[Any]]) -> tuple[Any, ...]:
    label = f"argument {i}" + (f" ('{parameter.name}')" if parameter.name else "") + f" of '{function.name}'"

    def fault(text: str) -> KtirError:
        return KtirError(f"{label} {text}", function.where.location)

    if value is None:
        if parameter.role != "pool" or parameter.elements is None or parameter.element is None:
            raise fault("is missing")
        value = Scratch(parameter.elements, parameter.element)
    if isinstance(value, Scratch):
        if value.element not in ELEMENT_BYTES:
            raise fault(f"has element type '{value.element}', which has no NumPy carrier")
        return ("scratch", value.elements, value.element)
    if isinstance(value, np.ndarray) and (value.ndim or (parameter.type == "index" and value.dtype.kind == "f")):
        if parameter.type != "index":
            raise fault(f"expects a number of type {parameter.type}, but got an array")
        if value.dtype.name not in _ELEMENT_OF and value.dtype.name != _RAW:
            raise fault(f"expects a float or a signed integer type, or uint8 (bytes), but got {value.dtype}")
        if not value.flags.c_contiguous:
            raise fault("expects a C-contiguous array")
        return ("array", _number(value, arrays, fault), value.dtype.name, value.size)
    if isinstance(value, bool | int | np.integer | np.bool_) or (isinstance(value, np.ndarray) and value.dtype.kind in "iub"):
        if parameter.type in CARRIERS and is_float(parameter.type):
            return ("number", float(value), parameter.type)
        return ("number", int(value), parameter.type)
    if isinstance(value, float | np.floating) and parameter.type in CARRIERS and is_float(parameter.type):
        number = np.asarray(value, CARRIERS[parameter.type])
        return ("number", float(numerics.round_to(parameter.type, number)), parameter.type)
    raise fault(f"expects {'an array or an address' if parameter.type == 'index' else parameter.type}, but got {type(value).__name__}")


def _number(value: NDArray[Any], arrays: list[NDArray[Any]], fault: Any) -> int:
    """Number of the array among the distinct ones; the same memory given twice is one buffer."""
    low = value.__array_interface__["data"][0]
    for number, other in enumerate(arrays):
        start = other.__array_interface__["data"][0]
        if start == low and other.nbytes == value.nbytes and other.dtype == value.dtype:
            return number
        if value.nbytes and other.nbytes and low < start + other.nbytes and start < low + value.nbytes:
            raise fault("shares a part of its memory with another argument")
    arrays.append(value)
    return len(arrays) - 1


# Caches

_MOST_PROGRAMS = 64
_MOST_PLANS = 512
_MOST_BYTES = 2 << 30
"""Memory that the plans at hand may hold together; the newest one is always kept."""

_programs: OrderedDict[bytes, Program] = OrderedDict()
_plans: OrderedDict[tuple[Any, ...], _Plan] = OrderedDict()
_eager: set[tuple[Any, ...]] = set()
"""Programs whose control flow or addresses depend on data."""
_lock = threading.Lock()


_FUNCTION = re.compile(r"func\.func\s+(?:public\s+|private\s+)?@([\w$.-]+)\s*\(([^)]*(?:\([^)]*\)[^)]*)*)\)")
_PARAMETER = re.compile(r"%([\w$.-]+)\s*:")


def _name_arguments(program: Program, text: str) -> None:
    """Names of function arguments as the text has them; MLIR does not keep them."""
    bare = re.sub(r"//[^\n]*", "", text)
    for match in _FUNCTION.finditer(bare):
        function, names = program.functions.get(match.group(1)), _PARAMETER.findall(match.group(2))
        if function is not None and len(names) == len(function.arguments):
            function.arguments = [replace(a, alias=n) for a, n in zip(function.arguments, names, strict=True)]


def _program(module: ir.Module | str, source: str = "<text>") -> tuple[bytes, Program]:
    """The compiled program of a module, found again by its contents: a module may have been changed since."""
    if isinstance(module, str):
        key = b"text" + hashlib.sha256(f"{source}\n{module}".encode()).digest()
    else:
        contents = io.BytesIO()
        module.operation.write_bytecode(contents)  # with locations; several times as fast as printing
        key = b"module" + hashlib.sha256(contents.getvalue()).digest()
    with _lock:
        if key in _programs:
            _programs.move_to_end(key)
            return key, _programs[key]
    if isinstance(module, str):
        with context():
            program = compile_module(parse_module(module, source))
        _name_arguments(program, module)
    else:
        program = compile_module(module)
    with _lock:
        _programs[key] = program
        while len(_programs) > _MOST_PROGRAMS:
            _programs.popitem(last=False)
    return key, program


def _plan(key: tuple[Any, ...], make: Any) -> _Plan:
    with _lock:
        if key in _plans:
            _plans.move_to_end(key)
            return _plans[key]
    plan = make()
    with _lock:
        _plans[key] = plan
        while len(_plans) > 1 and (len(_plans) > _MOST_PLANS or sum(p.bytes for p in _plans.values()) > _MOST_BYTES):
            _plans.popitem(last=False)
    return plan


def execute(
    module: ir.Module | str,
    func: str | None = None,
    args: Sequence[Any] | Mapping[str, Any] = (),
    *,
    policy: Policy | None = None,
    memory: Mapping[Any, Any] | None = None,
    source: str = "<text>",
) -> Report:
    """Execute a function of `module`, at any level, on `args`; arrays are updated in place.

    module: an MLIR module, or KTIR text. func: its name; None takes the one function that no other calls. args: by position, or by
    `ktir.name` (in text also by the name of the argument). An `index` parameter that is a base address takes a C-contiguous NumPy
    array (floats, signed integers, uint16 for the bits of a 16-bit float that NumPy lacks, or uint8 for plain bytes; its memory in C
    order is the buffer) or `Scratch`; other parameters take numbers. A parameter of role `pool` may be left out. memory: arrays at
    addresses that the program has as numbers: `("global", offset)` or `("lx", tile, offset)`, in elements of the array.
    source: what messages call the text.

    Raises Finding (`ktir.emulator.findings`) for a fault of the program, before any array is touched; KtirError for arguments that
    do not fit and Unsupported for constructs that cannot be executed.
    """
    begin = time.perf_counter()
    policy = policy or Policy()
    key, program = _program(module, source)
    name = func or program.entry
    if name is None or name not in program.functions:
        known = ", ".join(program.functions)
        raise KtirError(f"the module has no function named '{name}'; it has {known}" if name else f"expects the name of one of {known}")
    function = program.functions[name]
    if function.body is None:
        raise KtirError(f"function '{name}' has no body", function.where.location)
    bound = _bind(function, args, memory or {})
    whole = (key, name, bound.signature, bound.placed, policy)
    made: list[float] = []

    def make() -> _Plan:
        plan = _Plan(program, function, bound, policy)
        made.append(time.perf_counter() - begin)
        return plan

    plan: _Plan | None = None
    if whole not in _eager:
        try:
            plan = _plan(whole, make)
        except NeedsData:
            _eager.add(whole)
            if len(_eager) > _MOST_PLANS:
                _eager.pop()
    if plan is None:
        begin = time.perf_counter()
        plan = _Plan(program, function, bound, policy, eager=True)
    _check_writable(plan, function, bound)
    start = time.perf_counter()
    plan.launch(bound.arrays)
    end = time.perf_counter()
    counts = plan.counts
    return Report(
        counts.ops,
        dict(counts.read),
        dict(counts.written),
        plan.lx_peak,
        end - (begin if plan.eager else start),
        made[0] if made else 0.0,
        {view: (read, written) for view, (read, written) in counts.views.items()},
        dict(counts.arithmetic),
        plan.lx_peaks,
    )


def _check_writable(plan: _Plan, function: Function, bound: _Bound) -> None:
    for number in plan.written:
        if bound.arrays[number].flags.writeable:
            continue
        at = next((i for i, entry in enumerate(bound.signature) if entry[:2] == ("array", number)), None)
        what = "memory at an address" if at is None else f"argument {at}"
        if at is not None and (name := function.arguments[at].name or function.arguments[at].alias):
            what += f" ('{name}')"
        raise KtirError(f"{what} of '{function.name}' is written, but the array is read-only", function.where.location)
