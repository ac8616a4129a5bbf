"""The numbers of a case: as its JSON file spells them, as lists, and as NumPy arrays."""

from __future__ import annotations

import math
import struct
from typing import Any

_FLOATS = ("f16", "bf16", "f32")
NUMPY = {"f16": "float16", "bf16": "uint16", "f32": "float32", "i32": "int32", "i64": "int64"}
"""Element type -> its name in NumPy, which holds a bf16 as its bits."""


def packed(kind: str, value: float) -> bytes:
    """A float in memory, rounded to nearest, ties to even. A bf16 is the upper half of an f32."""
    if kind != "bf16":
        return struct.pack("<e" if kind == "f16" else "<f", value)
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 if not math.isnan(value) else 0x7FC0)


def unpacked(kind: str, data: bytes) -> float:
    """The float that lies in memory so."""
    return struct.unpack({"f16": "<e", "bf16": "<f", "f32": "<f"}[kind], bytes(2) + data if kind == "bf16" else data)[0]


def rounded(kind: str, values: list[Any], count: int) -> list[Any]:
    """`count` values, repeating those that are spelled, each rounded to the type."""
    if count and not values:
        raise ValueError("a buffer without values")
    numbers = [float(v) if kind in _FLOATS else int(v) for v in values]
    if kind in _FLOATS:
        numbers = [v if not math.isfinite(v) else unpacked(kind, packed(kind, v)) for v in numbers]
    return [numbers[i % len(numbers)] for i in range(count)]


def array(spec: dict[str, Any]) -> Any:
    """The NumPy array of an argument with a shape; zeros for one that nothing has written."""
    import numpy as np

    count = math.prod(spec["shape"])
    values = [0] * count if spec.get("uninitialized") else rounded(spec["type"], spec["values"], count)
    if spec["type"] == "bf16":
        values = [int.from_bytes(packed("bf16", v), "little") for v in values]
    return np.array(values, NUMPY[spec["type"]]).reshape(spec["shape"])


def numbers_of(spec: dict[str, Any], held: Any) -> list[Any]:
    """What the array of an argument holds, in order."""
    values = held.reshape(-1).tolist()
    return [unpacked("bf16", v.to_bytes(2, "little")) for v in values] if spec["type"] == "bf16" else values


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
