"""The numbers of a case: as its JSON file spells them, as lists, and as NumPy arrays."""

from __future__ import annotations

import math
import struct
from typing import Any

_FORMATS = {"f16": "<e", "f32": "<f"}
NUMPY = {"f16": "float16", "f32": "float32", "i32": "int32", "i64": "int64"}
"""Element type -> its name in NumPy."""


def rounded(kind: str, values: list[Any], count: int) -> list[Any]:
    """`count` values, repeating those that are spelled, each rounded to the type."""
    if count and not values:
        raise ValueError("a buffer without values")
    numbers = [float(v) if kind in _FORMATS else int(v) for v in values]
    if kind in _FORMATS:
        numbers = [v if not math.isfinite(v) else struct.unpack(_FORMATS[kind], struct.pack(_FORMATS[kind], v))[0] for v in numbers]
    return [numbers[i % len(numbers)] for i in range(count)]


def array(spec: dict[str, Any]) -> Any:
    """The NumPy array of an argument with a shape; zeros for one that nothing has written."""
    import numpy as np

    count = math.prod(spec["shape"])
    values = [0] * count if spec.get("uninitialized") else rounded(spec["type"], spec["values"], count)
    return np.array(values, NUMPY[spec["type"]]).reshape(spec["shape"])


def spelled(values: list[Any]) -> list[Any]:
    """Numbers as a JSON file has them."""
    return [v if isinstance(v, int) or math.isfinite(v) else "nan" if math.isnan(v) else str(v) for v in values]


def difference(specs: list[dict[str, Any]], expected: dict[str, list[Any]], found: dict[str, list[Any]]) -> str | None:
    """Where what buffers hold is not what they must hold, bit by bit except for NaNs; None if nowhere."""
    kinds = {s["name"]: s for s in specs}
    for name, values in expected.items():
        spec = kinds[name]
        wanted = rounded(spec["type"], values, math.prod(spec["shape"]))
        got = rounded(spec["type"], found.get(name, []) or [0], len(found.get(name, [])))
        if len(got) != len(wanted):
            return f"'{name}' has {len(got)} values instead of {len(wanted)}"
        wrong = [i for i, (a, b) in enumerate(zip(got, wanted, strict=True)) if not _same(a, b)]
        if wrong:
            return f"'{name}' holds {got[wrong[0]]!r} instead of {wanted[wrong[0]]!r} at {wrong[0]}, and differs at {len(wrong)} places"
    return None


def _same(a: Any, b: Any) -> bool:
    return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (math.isnan(a) and math.isnan(b))
