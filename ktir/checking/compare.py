"""Where two arrays differ: the smallest box of coordinates that holds all differing elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Difference", "compare"]

_SHOWN = 4


@dataclass(frozen=True)
class Difference:
    """How `found` differs from `wanted`. `box`: first coordinate and end per dim; `largest`: the largest absolute difference, and
    `relative` that in relation to the largest finite magnitude of `wanted`; `first`: the first differing element's coordinates."""

    box: tuple[tuple[int, int], ...]
    count: int
    size: int
    largest: float
    relative: float
    first: tuple[int, ...]
    elements: tuple[str, ...]
    """The first differing elements."""

    @property
    def slice_text(self) -> str:
        """The box as Python writes it: `[0, 32:64]`."""
        return "[" + ", ".join(str(a) if b == a + 1 else f"{a}:{b}" for a, b in self.box) + "]" if self.box else ""

    def listing(self, name: str) -> list[str]:
        """The first differing elements of the array `name`, one per line, and how many there are besides."""
        rest = self.count - len(self.elements)
        return [name + element for element in self.elements] + ([f"and {rest} more"] if rest else [])

    def describe(self, name: str) -> str:
        return f"{name}{self.slice_text} differs: {self.count} of {self.size} elements, the largest difference is {self.largest:.6g}"


def compare(wanted: NDArray[Any], found: NDArray[Any], *, atol: float | NDArray[Any] = 0.0, rtol: float = 0.0) -> Difference | None:
    """None if each element of `found` is within atol + rtol * |wanted| of `wanted` (NaN equals NaN), without tolerance if all bits but
    those of NaNs are equal. `atol` may be a bound per element. Shapes must be equal."""
    exact = not np.any(atol) and rtol == 0.0
    # Integers are compared as such: beyond 2^53 float64 would take different ones for equal.
    x, y = (a if a.dtype.kind in "iub" else a.astype(np.float64) for a in (wanted, found))
    with np.errstate(invalid="ignore", over="ignore"):
        magnitude = np.abs(x.astype(np.float64))
        biggest = float(np.max(magnitude, where=np.isfinite(magnitude), initial=0.0))
        same = (x == y) | ((x != x) & (y != y))
        if exact and x.dtype.kind == "f":
            same &= np.signbit(x) == np.signbit(y) if x.dtype == y.dtype else True
            same |= (x != x) & (y != y)
        apart = np.where(same, 0.0, np.abs(x.astype(np.float64) - y.astype(np.float64)))
        apart = np.nan_to_num(apart, nan=np.inf, posinf=np.inf)
        wrong = ~same if exact else ~same & ~(np.isfinite(apart) & (apart <= atol + rtol * magnitude))
    if not wrong.any():
        return None
    places = np.argwhere(wrong)
    box = tuple((int(a), int(b) + 1) for a, b in zip(places.min(0), places.max(0), strict=True))
    lines = []
    for place in places[:_SHOWN]:
        at = tuple(int(i) for i in place)
        label = "[" + ", ".join(map(str, at)) + "]" if at else ""
        lines.append(f"{label} expected {_shown(wanted[at])}, but got {_shown(found[at])}")
    largest = float(np.max(apart, where=wrong, initial=0.0))
    return Difference(box, len(places), wanted.size, largest, largest / max(biggest, 1e-30), tuple(int(i) for i in places[0]), tuple(lines))


def _shown(value: Any) -> str:
    """A number with as many digits as its type needs."""
    return str(value.item()) if isinstance(value, np.bool_ | np.integer) else np.format_float_positional(value, trim="0", unique=True)
