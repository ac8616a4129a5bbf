"""Where `ktir-run` takes arrays from: files, random numbers, constants. What is read is never executed."""

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.checking import inputs
from ktir.diagnostics import KtirError

FORMS = """\
@x.npy, @x.npz:KEY      an array from a file (of an archive with one array KEY may be left out)
random[:SEED][:TYPE[SHAPE]]   random values: floats around 0, integers from 0 that are indices in range where they are used as such
zeros, ones, iota (arange), fill:VALUE, each with [:TYPE[SHAPE]]
NUMBER                  for arguments that are numbers; true and false are 1 and 0
TYPE[SHAPE] is written as f16[64,128]; it may be left out where the views of the kernel tell it. Types: """ + ", ".join(inputs.DTYPES)

_GENERATED = re.compile(
    r"(?P<kind>random|zeros|ones|iota|arange|fill)(?::(?P<value>[^:\[\]]*?))??(?::?(?P<element>[A-Za-z]\w*)\[(?P<shape>[^\]]*)\])?"
)


class SourceError(KtirError):
    """A value on the command line that cannot be had."""


@dataclass(frozen=True)
class Expected:
    """What the kernel says of an argument; None where it cannot be told."""

    element: str | None = None
    shape: tuple[int, ...] | None = None
    below: int | None = None
    is_number: bool = False


def read_value(label: str, text: str, expected: Expected, seed: int) -> Any:
    """The array or number that `text` names, for messages about `label`. Raises SourceError."""
    if text.startswith("@"):
        return read_array(label, text[1:])
    match = _GENERATED.fullmatch(text)
    if match is not None:
        return _generated(label, text, match, expected, seed)
    return _number(label, text, expected)


def _number(label: str, text: str, expected: Expected) -> int | float:
    if text in ("true", "false"):
        return int(text == "true")
    for kind in (lambda t: int(t, 0), float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if not expected.is_number and expected.element is not None:
            raise SourceError(f"{label}: expects an array, but got the number {text}; a constant array is 'fill:{text}'")
        return value
    near = difflib.get_close_matches(text.partition(":")[0], ["random", "zeros", "ones", "iota", "arange", "fill"], 1)
    hint = f"; did you mean '{near[0]}'?" if near else ("; a file is given as '@" + text + "'" if "." in text else "")
    raise SourceError(f"{label}: expected a number, @FILE, random, zeros, ones, iota or fill:VALUE, but got '{text}'{hint}")


def _generated(label: str, text: str, match: re.Match[str], expected: Expected, seed: int) -> NDArray[Any]:
    kind, value = match["kind"], match["value"]
    element, shape = match["element"] or expected.element, expected.shape
    if expected.is_number:
        raise SourceError(f"{label}: expects a number, but got '{text}'")
    if match["shape"] is not None:
        sizes = [s.strip() for s in re.split(r"[,x]", match["shape"])] if match["shape"].strip() else []
        if not all(s.isdecimal() for s in sizes):
            raise SourceError(f"{label}: '{text}' has the shape [{match['shape']}], expected sizes such as [64,128]")
        shape = tuple(map(int, sizes))
    if element is None or shape is None:
        raise SourceError(f"{label}: the kernel does not tell the shape; write it as in '{kind}:f16[64,128]'")
    if element not in inputs.DTYPES:
        near = difflib.get_close_matches(element, inputs.DTYPES, 1)
        hint = f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(inputs.DTYPES)}"
        raise SourceError(f"{label}: '{element}' is no element type{hint}")
    if kind == "random":
        if value and not value.isdecimal():
            raise SourceError(f"{label}: expected a whole number as seed, but got '{value}'")
        rng = np.random.default_rng(int(value) if value else seed)
        return _enough_memory(label, lambda: inputs.generate(rng, element, shape, expected.below))
    number = 0.0
    if kind == "fill":
        try:
            number = float(value or "")
        except ValueError:
            raise SourceError(f"{label}: expected 'fill:VALUE', but got '{text}'") from None
        if element not in inputs.FLOATS and not number.is_integer():
            raise SourceError(f"{label}: {value} is no value of type {element}")
    elif value:
        raise SourceError(f"{label}: expected '{kind}:TYPE[SHAPE]', but got '{text}'")
    return _enough_memory(label, lambda: inputs.fill("iota" if kind == "arange" else kind, element, shape, number))


def _enough_memory(label: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    try:
        return make()
    except (MemoryError, ValueError, OverflowError) as error:
        raise SourceError(f"{label}: the array cannot be made: {error}") from None


def read_array(label: str, name: str) -> NDArray[Any]:
    """The array in the file `name`, or `name:KEY` of an archive. Raises SourceError; never unpickles."""
    path, key = name, None
    if not Path(name).exists() and ":" in name:
        path, _, key = name.rpartition(":")
    return contents(label, path, key)


def contents(label: str, path: str, key: str | None) -> NDArray[Any]:
    """The array of `path`, with `key` that of an archive."""
    arrays = archive(label, path)
    if isinstance(arrays, np.ndarray):
        if key is not None:
            raise SourceError(f"{label}: '{path}' holds one array, there is no '{key}'")
        return arrays
    if key is None and len(arrays) == 1:
        return next(iter(arrays.values()))
    if key is None:
        raise SourceError(f"{label}: '{path}' holds {len(arrays)} arrays, name one as @{path}:KEY; it has {', '.join(arrays) or 'none'}")
    if key not in arrays:
        raise SourceError(f"{label}: '{path}' has no array '{key}'{near(key, arrays)}")
    return arrays[key]


def archive(label: str, path: str) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """What a `.npy` file or a `.npz` archive holds. Raises SourceError."""
    try:
        with open(path, "rb") as file:
            start = file.read(6)
        if start[:4] not in (b"PK\x03\x04", b"PK\x05\x06") and start != b"\x93NUMPY":
            raise SourceError(f"{label}: '{path}' is no .npy or .npz file")
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return _plain(label, path, loaded)
        with loaded:
            return {k: _plain(label, f"{path}:{k}", loaded[k]) for k in loaded.files}
    except SourceError:
        raise
    except OSError as error:
        raise SourceError(f"{label}: cannot read '{path}': {error.strerror or error}") from None
    except Exception as error:  # NumPy and zipfile raise many kinds for damaged files
        text = str(error).partition("\n")[0]
        if "allow_pickle" in text or "pickled" in text.lower():
            text = "it holds Python objects, which are not loaded"
        raise SourceError(f"{label}: cannot read '{path}': {text or type(error).__name__}") from None


def _plain(label: str, path: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "fiub" or array.dtype.name == "longdouble":
        raise SourceError(f"{label}: '{path}' holds values of type {array.dtype}, which KTIR does not have")
    # The machine's own byte order, and a fresh copy that the program may write.
    return np.array(array, array.dtype.newbyteorder("="), order="C")


def near(name: str, known: Iterable[str]) -> str:
    """A hint at the name that may have been meant, and all that there are."""
    names = list(known)
    close = difflib.get_close_matches(name, names, 1)
    return (f"; did you mean '{close[0]}'?" if close else "") + (f" (there are {', '.join(names)})" if names else " (there are none)")


def write_array(label: str, path: str, array: NDArray[Any]) -> None:
    """Writes a `.npy` file. Raises SourceError."""
    try:
        with open(path, "wb") as file:
            np.save(file, array, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise SourceError(f"{label}: cannot write '{path}': {getattr(error, 'strerror', None) or error}") from None
