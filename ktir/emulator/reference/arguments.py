"""The arguments of a launch: matched to the parameters of a function, checked, and described by what a plan depends on."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import numerics
from ktir.arithmetic.integers import width
from ktir.diagnostics import KtirError
from ktir.emulator.reference.compile.program import OWN_ROLES, Argument, Function
from ktir.emulator.reference.tape.values import CARRIERS, ELEMENT_BYTES, is_float
from ktir.emulator.strides import as_memory, with_strides

__all__ = ["ELEMENT_OF", "RAW", "Bound", "Copy", "Scratch", "bind_arguments"]

ELEMENT_OF = {
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
RAW = "uint8"
"""An array of this type is bytes: views of any element type may lie on it."""


@dataclass(frozen=True)
class Scratch:
    """A buffer argument without content: `elements` of type `element`. Reading what the program has not written is a finding."""

    elements: int
    element: str = "f16"


@dataclass(frozen=True)
class Copy:
    """An array of the caller's as the program takes it: in i32, or lying as it declares. `number` of the array; `view`: its elements."""

    number: int
    host: NDArray[Any]
    view: NDArray[Any]

    def write_back(self) -> None:
        np.copyto(self.host, self.view, casting="unsafe")


@dataclass(frozen=True)
class Bound:
    """Arguments of a call: a hashable description, and the distinct arrays that it refers to by number.

    `placed`: arrays that lie at addresses: space, tile, offset in elements, number of the array, type, elements.
    """

    signature: tuple[Any, ...]
    arrays: list[NDArray[Any]]
    placed: tuple[tuple[str, int, int, int, str, int], ...] = ()
    copies: tuple[Copy, ...] = ()
    """Those of arrays that are not as the program takes them."""
    given: tuple[tuple[int, int, NDArray[Any]], ...] = ()
    """Where there are copies: number of the argument, of its array, and what the caller gave."""

    def apart(self, function: Function, written: Collection[int]) -> None:
        """Raises KtirError where the program takes memory of the caller's as several arrays, and writes one of them: the others would not
        hold that.
        """
        for copy, (i, number, host) in itertools.product(self.copies, self.given):
            if number != copy.number and (number in written or copy.number in written) and _share(copy.host, host):
                first = next(k for k, n, _ in self.given if n == copy.number)
                both = " and ".join(_label(function, k) for k in sorted((first, i)))
                text = f"{both} of '{function.name}' share memory, of which the program takes copies that lie otherwise, and one is written"
                raise KtirError(f"{text}; give it memory of its own", function.where.location)


def _share(one: NDArray[Any], other: NDArray[Any]) -> bool:
    try:
        return np.shares_memory(one, other, max_work=_SOUGHT)
    except np.exceptions.TooHardError:
        return True


_SOUGHT: Any = 1 << 16
"""Places that are tried until it is known whether two arrays share elements."""


def _label(function: Function, i: int) -> str:
    name = function.arguments[i].name
    return f"argument {i}" + (f" ('{name}')" if name else "")


def bind_arguments(function: Function, args: Sequence[Any] | Mapping[str, Any], memory: Mapping[Any, Any]) -> Bound:
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
    elif isinstance(args, str) or not isinstance(args, Iterable):
        raise KtirError(f"expects arguments by name or in a sequence, but got {type(args).__name__}", function.where.location)
    else:
        values = list(args)
        required = [p for p in parameters if p.role not in OWN_ROLES]
        if len(values) == len(required) < len(parameters):
            given = iter(values)
            values = [None if p.role in OWN_ROLES else next(given) for p in parameters]
        if len(values) != len(parameters):
            raise KtirError(f"'{function.name}' takes {len(parameters)} arguments, but got {len(values)}", function.where.location)
    arrays = _Arrays()
    signature: list[tuple[Any, ...]] = []
    whole: list[tuple[int, NDArray[Any]]] = []
    made: dict[tuple[Any, ...], tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = {}
    for i, (value, parameter) in enumerate(zip(values, parameters, strict=True)):
        if isinstance(value, np.ndarray):
            whole.append((i, value))
        if isinstance(value, np.ndarray) and value.ndim and _is_other(parameter, value):
            place = (value.__array_interface__["data"][0], value.nbytes, value.strides, parameter.narrow, parameter.lies)
            if place not in made:
                view = _as_taken(function, i, parameter, value)
                made[place] = (value, view, as_memory(view) if parameter.lies else view)
            value = made[place][2]
        elif parameter.role == "iota" and value is None and parameter.elements is not None:
            value = np.arange(parameter.elements, dtype=np.int32)
        signature.append(_describe(function, i, parameter, value, arrays))
    placed: list[tuple[str, int, int, int, str, int]] = []
    for place, value in memory.items():
        placed.append(_placed(place, value, arrays))
    placed.sort()
    _check_places(placed)
    numbers = {id(array): number for number, array in enumerate(arrays.listed)} if made else {}
    copies = [Copy(numbers[id(memory)], host, view) for host, view, memory in made.values() if view is not host and id(memory) in numbers]
    known = [(i, entry[1], value) for i, value in whole if copies and (entry := signature[i])[0] == "array"]
    return Bound(tuple(signature), arrays.listed, tuple(placed), tuple(copies), tuple(known))


def _is_other(parameter: Argument, value: NDArray[Any]) -> bool:
    """Whether an array is not memory as the program takes it: of wider integers, or a tensor that the program declares to lie otherwise."""
    if parameter.narrow and value.dtype != np.int32:
        return True
    return parameter.lies is not None and value.shape == parameter.lies[0]


def _as_taken(function: Function, i: int, parameter: Argument, value: NDArray[Any]) -> NDArray[Any]:
    """The elements of an array, of the type and with the strides that the program takes. Raises KtirError."""
    if parameter.narrow and value.dtype != np.int32:
        value = _narrowed(function, i, value)
    if parameter.lies is None or value.shape != parameter.lies[0]:
        return value
    laid = with_strides(value, parameter.lies[1], parameter.name or str(i))
    if not value.flags.writeable:
        laid.flags.writeable = False
    return laid


def _narrowed(function: Function, i: int, value: NDArray[Any]) -> NDArray[Any]:
    """A copy of an array of integers in i32; raises KtirError for one that does not fit."""
    if value.dtype.kind == "u":
        value = value.view(f"i{value.itemsize}")  # narrower integers are held sign-extended
    if value.dtype.kind not in "ib":
        raise KtirError(f"argument {i} of '{function.name}' expects integers, but got {value.dtype}", function.where.location)
    copy = value.astype(np.int32)
    if value.dtype.itemsize > 4 and not np.array_equal(copy, value):
        wrong = value.reshape(-1)[np.flatnonzero(copy != value)[0]]
        raise KtirError(f"argument {i} of '{function.name}' has {wrong}, which does not fit into 32 bits", function.where.location)
    copy.flags.writeable = value.flags.writeable
    return copy


def _placed(place: Any, value: Any, arrays: _Arrays) -> tuple[str, int, int, int, str, int]:
    """An array at an address: ("global", offset), also with a type behind it, or ("lx", tile, offset), offsets in elements of the array."""
    label = f"memory at {place}"

    def fault(text: str) -> KtirError:
        return KtirError(f"{label} {text}")

    typed = isinstance(place, tuple) and len(place) == 3 and place[0] == "global" and isinstance(place[2], str)
    at = place[:2] if typed else place
    known = isinstance(at, tuple) and at and at[0] in ("global", "lx") and len(at) == (2 if at[0] == "global" else 3)
    if not known or not all(isinstance(x, int | np.integer) and x >= 0 for x in at[1:]):
        raise fault('expects a place of the form ("global", offset) or ("lx", tile, offset) with offsets in elements')
    if not isinstance(value, np.ndarray) or (name := _name(value.dtype)) not in ELEMENT_OF or name == "uint16":
        raise fault(f"expects an array of a float or integer type, but got {getattr(value, 'dtype', type(value).__name__)}")
    _check_array(value, fault)
    tile = int(at[1]) if at[0] == "lx" else 0
    return at[0], tile, int(at[-1]), arrays.number(value, fault), ELEMENT_OF[name], value.size


def _check_places(placed: list[tuple[str, int, int, int, str, int]]) -> None:
    """No two arrays may lie over each other."""
    spans = sorted((s, t, o * ELEMENT_BYTES[e], (o + n) * ELEMENT_BYTES[e], f"{o} of {n} {e}") for s, t, o, _, e, n in placed)
    for a, b in itertools.pairwise(spans):
        if a[:2] == b[:2] and b[2] < a[3]:
            where = "global memory" if a[0] == "global" else f"LX of tile {a[1]}"
            raise KtirError(f"two arrays share byte {b[2]} of {where}: those at {a[4]} and at {b[4]} elements")


def _describe(function: Function, i: int, parameter: Argument, value: Any, arrays: _Arrays) -> tuple[Any, ...]:
    def fault(text: str) -> KtirError:
        return KtirError(f"{_label(function, i)} of '{function.name}' {text}", function.where.location)

    if value is None:
        if parameter.role != "pool" or parameter.elements is None or parameter.element is None:
            raise fault("is missing")
        value = Scratch(parameter.elements, parameter.element)
    if isinstance(value, Scratch):
        if value.element not in ELEMENT_BYTES:
            raise fault(f"has element type '{value.element}', which has no NumPy carrier")
        if parameter.type != "index" or isinstance(value.elements, bool) or not isinstance(value.elements, int) or value.elements < 0:
            raise fault(f"cannot be scratch memory of {value.elements!r} elements")
        return ("scratch", value.elements, value.element)
    if isinstance(value, np.ndarray) and (value.ndim or (parameter.type == "index" and value.dtype.kind == "f")):
        if parameter.type != "index":
            raise fault(f"expects a number of type {parameter.type}, but got an array")
        name = _name(value.dtype)
        if name not in ELEMENT_OF and name != RAW:
            raise fault(f"expects a float or a signed integer type, or uint8 (bytes), but got {value.dtype}")
        _check_array(value, fault)
        return ("array", arrays.number(value, fault), name, value.size)
    return ("number", _scalar(parameter.type, value[()] if isinstance(value, np.ndarray) else value, fault), parameter.type)


def _check_array(value: NDArray[Any], fault: Callable[[str], KtirError]) -> None:
    """Raises KtirError for an array whose memory is not its elements in C order, as this machine keeps them."""
    if isinstance(value, np.ma.MaskedArray):
        raise fault("expects an array without a mask")
    if not value.dtype.isnative:
        raise fault(f"expects an array in the byte order of this machine, but got {value.dtype.str}")
    if not value.flags.c_contiguous:
        raise fault("expects a C-contiguous array")


def _scalar(type_: str, value: Any, fault: Callable[[str], KtirError]) -> int | float:
    """A number as a value of type `type_`: integers must fit, floats are rounded."""
    whole = isinstance(value, bool | int | np.integer | np.bool_)
    if type_ not in CARRIERS or not (whole or (isinstance(value, float | np.floating) and is_float(type_))):
        raise fault(f"expects {'an array or an address' if type_ == 'index' else type_}, but got {type(value).__name__}")
    if is_float(type_):
        try:
            number = np.asarray(float(value), np.float64)
        except OverflowError:
            raise fault(f"expects {type_}, but got a number beyond all floats") from None
        with numerics.quiet():
            return float(numerics.round_to(type_, number.astype(CARRIERS[type_])))
    if np.issubdtype(CARRIERS[type_], np.complexfloating):
        raise fault(f"expects {type_}, which callers cannot give")
    bits = width(type_)
    low, high = (0, 1) if bits == 1 else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    if not low <= int(value) <= high:
        raise fault(f"expects {type_}, from {low} to {high}, but got {int(value)}")
    return bool(value) if bits == 1 else int(value)


class _Arrays:
    """The distinct arrays of a launch, and where their memory begins."""

    def __init__(self) -> None:
        self.listed: list[NDArray[Any]] = []
        self._spans: list[tuple[int, int]] = []

    def number(self, value: NDArray[Any], fault: Callable[[str], KtirError]) -> int:
        """The number of an array; the same memory given twice is one."""
        low, size = value.__array_interface__["data"][0], value.nbytes
        for number, (start, length) in enumerate(self._spans):
            if start == low and length == size and self.listed[number].dtype == value.dtype:
                return number
            if size and length and low < start + length and start < low + size:
                raise fault("shares a part of its memory with another argument")
        self.listed.append(value)
        self._spans.append((low, size))
        return len(self.listed) - 1


@functools.cache
def _name(dtype: np.dtype[Any]) -> str:
    """NumPy makes the name of a type anew each time."""
    return dtype.name
