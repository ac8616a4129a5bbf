"""Arrays for a program: filled at random with values that make sense where they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.analysis.interface.parameters import Parameter, Place
from ktir.arithmetic import numerics
from ktir.diagnostics import KtirError
from ktir.emulator.reference.tape.values import CARRIERS
from ktir.roles import OWN_ROLES

__all__ = ["DTYPES", "FLOATS", "array_of", "fill", "generate", "generate_all", "number", "places_of", "readable"]

DTYPES: dict[str, str] = {
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "bf16": "uint16",
    "dl16": "uint16",
    "f8E4M3FN": "uint8",
    "f8E5M2": "uint8",
    "i1": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "index": "int64",
}
"""Element type -> NumPy type of its arrays; those that NumPy lacks are held as bits."""

FLOATS = frozenset(e for e in DTYPES if np.issubdtype(CARRIERS[e], np.floating))
_BITS = ("bf16", "dl16", "f8E4M3FN", "f8E5M2")
_INTEGERS_BELOW = 8
"""Integers whose use is not known are small and not negative: they may be counts, lengths or indices."""


def places_of(place: Place) -> set[tuple[str, int] | tuple[str, int, str]]:
    """All ways to say where memory is: its type may stand there also where no other memory begins at the same number."""
    return {place.key, ("global", place.offset, place.element)}


def array_of(values: NDArray[Any], element: str) -> NDArray[Any]:
    """`values` as an array of element type `element`."""
    with numerics.quiet():  # what is beyond a type is infinite in it
        if element in _BITS:
            return np.asarray(numerics.encode(element, values.astype(np.float32)), order="C")
        return np.asarray(values.astype(DTYPES[element]), order="C")


def readable(array: NDArray[Any], element: str | None) -> NDArray[Any]:
    """`array` of element type `element` as numbers; bits of narrow floats are decoded."""
    if element in _BITS and array.dtype.name in ("uint16", "uint8"):
        bits = array.view(numerics.BITS[element]) if array.dtype.name == "uint8" else array
        return numerics.decode(element, bits)
    return array


def fill(kind: str, element: str, shape: Sequence[int], value: float = 0.0) -> NDArray[Any]:
    """An array of `kind` `zeros`, `ones`, `iota` or `fill` (all `value`). Raises KtirError for an element type that has no arrays."""
    _known(element)
    shape = tuple(shape)
    if kind == "iota":
        return array_of(np.arange(prod(shape)).reshape(shape), element)
    return array_of(np.full(shape, {"zeros": 0, "ones": 1}.get(kind, value)), element)


def generate(rng: np.random.Generator, element: str, shape: Sequence[int], below: int | None = None) -> NDArray[Any]:
    """Random values: floats of a normal distribution around 0 with deviation 1/2; integers from 0, less than `below`, each value once
    as long as that is possible. Raises KtirError for an element type that has no arrays."""
    _known(element)
    shape = tuple(shape)
    if element in FLOATS:
        return array_of(rng.standard_normal(shape, np.float32) * np.float32(0.5), element)
    if element == "i1":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if below is not None and prod(shape) <= below:
        return array_of(rng.choice(below, prod(shape), replace=False).reshape(shape), element)
    return array_of(rng.integers(0, below or _INTEGERS_BELOW, shape), element)


def number(rng: np.random.Generator, parameter: Parameter) -> int | float | None:
    """A value for a number argument that promises a range or is a float, or None: what an integer means is not known."""
    if parameter.element in FLOATS:
        return float(np.round(rng.uniform(0.125, 1.0), 3))
    if parameter.most is not None:
        return parameter.most // parameter.granularity * parameter.granularity
    return None


def generate_all(found: Sequence[Parameter | Place], seed: int, given: Mapping[str, Any]) -> list[Any]:
    """A value for each of `found` (None: cannot be told), those that have a name in `given` excepted. An output is filled too: what a
    program leaves untouched must stay."""
    values: list[Any] = []
    for i, each in enumerate(found):
        rng = np.random.default_rng([seed, i])
        if isinstance(each, Parameter) and each.name in given:
            values.append(given[each.name])
        elif isinstance(each, Parameter) and not each.is_buffer:
            values.append(number(rng, each))
        elif each.shape is None or each.role in OWN_ROLES:
            values.append(None)
        else:
            values.append(generate(rng, each.element, each.shape, each.below))
    return values


def _known(element: str) -> None:
    if element not in DTYPES:
        raise KtirError(f"element type '{element}' has no arrays; those that have are {', '.join(DTYPES)}")
