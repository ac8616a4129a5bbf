"""The door to the KTIR executor: `execute` runs a function of a module on arrays."""

from __future__ import annotations

import hashlib
import io
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from ktir.emulator.reference.memory import Buffer
from ktir.emulator.reference.recorder import Counts, Recorder
from ktir.emulator.reference.tape import Call, bind
from ktir.emulator.reference.values import CARRIERS, ELEMENT_BYTES, Pointer, Value
from ktir.mlir import ir

__all__ = ["Report", "Scratch", "execute"]

_ELEMENT_OF = {
    "float16": "f16",
    "float32": "f32",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "bool": "i1",
}
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
    0 if the plan was at hand. Bytes are summed over all tiles, per memory space ("global", "ct_local"); `ops` counts executed ops,
    one per trip for all tiles together; `lx_peak_bytes` is the highest LX address used on a tile."""

    ops: int
    bytes_read: Mapping[str, int]
    bytes_written: Mapping[str, int]
    lx_peak_bytes: int
    seconds: float
    prepare_seconds: float


@dataclass(frozen=True)
class _Bound:
    """Arguments of a call: a hashable description, and the distinct arrays that it refers to by number."""

    signature: tuple[Any, ...]
    arrays: list[NDArray[Any]]


class _Plan:
    """A function bound to argument sizes: the tape and what a launch copies. One launch at a time."""

    def __init__(self, program: Program, function: Function, bound: _Bound, policy: Policy) -> None:
        rec = Recorder(program, policy)
        rec.where = function.where
        buffers = {i: _buffer(rec, i, a, function, bound) for i, a in enumerate(bound.arrays)}
        rec.call(
            function,
            [_value(rec, entry, argument, buffers) for entry, argument in zip(bound.signature, function.arguments, strict=True)],
        )
        self.traffic: list[tuple[Buffer, Traffic]] = []
        for buffer, accesses in rec.memory.accesses.items():
            self.traffic.append((buffer, check(buffer, accesses, policy)))
            if buffer.size is None:
                buffer.size = max(
                    (a.at(p, r).span()[1] * ELEMENT_BYTES[a.tile.view.element] for a in accesses for p in a.parts for r in p.runs),
                    default=0,
                )
            for element, storage in buffer.carriers.items():
                storage.size = buffer.size // ELEMENT_BYTES[element]
                storage.array = np.zeros(storage.size, storage.dtype)
        self.calls: list[Call] = bind(rec.steps)
        self.counts: Counts = rec.counts
        self.lx_peak = rec.scratchpad.peak
        self.poison = policy.poison
        self.bytes = sum(
            s.array.nbytes for s in {t.storage for step in rec.steps for t in (*step.reads, *step.writes)} if s.array is not None
        )
        self.lock = threading.Lock()

    def launch(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Run the tape on `arrays`, in place."""
        with self.lock, numerics.quiet():
            for buffer, traffic in self.traffic:
                for element, (low, high) in traffic.fill.items():
                    carrier = buffer.carriers[element].array
                    assert carrier is not None
                    if buffer.argument is None:
                        _empty(carrier[low:high], self.poison)
                    else:
                        _enter(_flat(arrays[buffer.argument], element)[low:high], carrier[low:high])
            for function, arguments in self.calls:
                function(*arguments)
            for buffer, traffic in self.traffic:
                if buffer.argument is None:
                    continue
                for element, ranges in traffic.write_back.items():
                    carrier = buffer.carriers[element].array
                    assert carrier is not None
                    flat = _flat(arrays[buffer.argument], element)
                    for low, high in ranges:
                        _leave(carrier[low:high], flat[low:high])


def _empty(carrier: NDArray[Any], poison: bool) -> None:
    carrier[...] = (np.nan if carrier.dtype == np.float32 else -1) if poison else 0


def _flat(array: NDArray[Any], element: str) -> NDArray[Any]:
    flat = array.reshape(-1)
    if array.dtype.name == _RAW:
        size = ELEMENT_BYTES[element]
        flat = flat[: flat.size // size * size].view({"f16": np.float16, "f32": np.float32}.get(element) or CARRIERS[element])
    return flat


def _enter(source: NDArray[Any], carrier: NDArray[Any]) -> None:
    if source.dtype == np.float16:
        numerics.f16_to_f32(source, out=carrier)
    else:
        np.copyto(carrier, source)


def _leave(carrier: NDArray[Any], target: NDArray[Any]) -> None:
    if target.dtype == np.float16:
        numerics.f32_to_f16(carrier, out=target, on_grid=True)
    else:
        np.copyto(target, carrier)


def _buffer(rec: Recorder, number: int, array: NDArray[Any], function: Function, bound: _Bound) -> Buffer:
    at = next(i for i, entry in enumerate(bound.signature) if entry[:2] == ("array", number))
    name = function.arguments[at].name or f"argument {at}"
    element = None if array.dtype.name == _RAW else _ELEMENT_OF[array.dtype.name]
    return rec.memory.new(Buffer(name, array.nbytes, initialized=True, argument=number, element=element))


def _value(rec: Recorder, entry: tuple[Any, ...], argument: Argument, buffers: dict[int, Buffer]) -> Value:
    kind, first, *rest = entry
    if kind == "array":
        return Pointer(buffers[first], 0)
    if kind == "scratch":
        name = argument.name or "scratch"
        return Pointer(rec.memory.new(Buffer(name, first * ELEMENT_BYTES[rest[0]], initialized=False)), 0)
    return first


# Arguments


def _bind(function: Function, args: Sequence[Any] | Mapping[str, Any]) -> _Bound:
    """Match `args` to the parameters of `function` by position, or by `ktir.name`."""
    parameters = function.arguments
    if isinstance(args, Mapping):
        names = [p.name for p in parameters]
        unknown = [k for k in args if k not in names]
        if unknown:
            raise KtirError(
                f"'{function.name}' has no argument named '{unknown[0]}'; it has {', '.join(map(str, names))}",
                function.where.location,
            )
        values = [args.get(p.name) if p.name is not None else None for p in parameters]
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
    return _Bound(tuple(signature), arrays)


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
            raise fault(f"expects float16, float32, an integer type or uint8 (bytes), but got {value.dtype}")
        if not value.flags.c_contiguous:
            raise fault("expects a C-contiguous array")
        return ("array", _number(value, arrays, fault), value.dtype.name, value.size)
    if isinstance(value, bool | int | np.integer | np.bool_) or (isinstance(value, np.ndarray) and value.dtype.kind in "iub"):
        if parameter.type.startswith("f"):
            return ("number", float(value), parameter.type)
        return ("number", int(value), parameter.type)
    if isinstance(value, float | np.floating) and parameter.type in ("f16", "f32"):
        number = np.asarray(value, np.float32)
        return ("number", float(numerics.round_f16(number) if parameter.type == "f16" else number), parameter.type)
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
_lock = threading.Lock()


def _program(module: ir.Module | str) -> tuple[bytes, Program]:
    """The compiled program of a module, found again by its contents: a module may have been changed since."""
    if isinstance(module, str):
        key = b"text" + hashlib.sha256(module.encode()).digest()
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
            program = compile_module(parse_module(module, "<text>"))
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
) -> Report:
    """Execute a function of `module`, at any level, on `args`; arrays are updated in place.

    module: an MLIR module, or KTIR text. func: its name; None takes the one function that no other calls. args: by position, or by
    `ktir.name`. An `index` parameter that is a base address takes a C-contiguous NumPy array (float16, float32, integers, or uint8
    for plain bytes; its memory in C order is the buffer) or `Scratch`; other parameters take numbers. A parameter of role `pool`
    may be left out.

    Raises Finding (`ktir.emulator.findings`) for a fault of the program, before any array is touched; KtirError for arguments that
    do not fit and Unsupported for constructs that cannot be executed.
    """
    begin = time.perf_counter()
    policy = policy or Policy()
    key, program = _program(module)
    name = func or program.entry
    if name is None or name not in program.functions:
        known = ", ".join(program.functions)
        raise KtirError(f"the module has no function named '{name}'; it has {known}" if name else f"expects the name of one of {known}")
    function = program.functions[name]
    if function.body is None:
        raise KtirError(f"function '{name}' has no body", function.where.location)
    bound = _bind(function, args)
    made: list[float] = []

    def make() -> _Plan:
        plan = _Plan(program, function, bound, policy)
        made.append(time.perf_counter() - begin)
        return plan

    plan = _plan((key, name, bound.signature, policy), make)
    start = time.perf_counter()
    plan.launch(bound.arrays)
    end = time.perf_counter()
    counts = plan.counts
    return Report(counts.ops, dict(counts.read), dict(counts.written), plan.lx_peak, end - start, made[0] if made else 0.0)
