"""Tiles of an eager run: arrays of NumPy that mean what tiles of the device mean where NumPy leaves it open."""

from __future__ import annotations

from typing import Any

import numpy as np

from ktir.arithmetic.elementary import from_float
from ktir.lang.base.mistakes import Mistake
from ktir.lang.base.scalars import ELEMENTS, element_of, family, is_float, literal

_DIVISIONS = frozenset({"floor_divide", "remainder", "fmod", "divmod"})
_COMPARISONS = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"})


class Values(np.ndarray):
    """An array. Floats beyond the integers to which they are converted, NaN too, become what `arith.fptosi` makes of them, and integers are
    not divided by zero: NumPy's processor decides the one, and a warning stands for the other. Sums of 16 bits are rounded once, which
    NumPy does of float16 alone, and there along the last dim alone."""

    def astype(self, dtype: Any, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        """The elements in another type."""
        wanted = np.dtype(dtype)
        if wanted.kind != "i" or wanted.name not in ELEMENTS or family(element_of(self.dtype)) != "f":
            return (
                super().astype(dtype, "C", *args, **options)
                if not args and "order" not in options
                else super().astype(dtype, *args, **options)
            )
        return tile_of(np.asarray(from_float(np.asarray(self), element_of(wanted))).astype(wanted))

    def __getitem__(self, key: Any) -> Any:
        return tile_of(super().__getitem__(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, converted(value, self.dtype))

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        return tile_of(array)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc.__name__ in _DIVISIONS and len(inputs) == 2 and np.result_type(*inputs).kind == "i" and not np.all(inputs[1]):
            raise Mistake(f"'np.{ufunc.__name__}' divides integers by zero")
        if ufunc.__name__ in _COMPARISONS:  # they alone let integers pass that the type beside them does not hold
            held = [x.dtype for x in inputs if isinstance(x, np.ndarray)]
            for number in inputs:
                if isinstance(number, int) and not isinstance(number, bool) and all(d.kind == "i" for d in held):
                    literal(number, np.result_type(*held))
        if "where" in options and options["where"] is not True:
            raise Mistake(f"the language has no 'np.{ufunc.__name__}' with 'where'")
        wanted = options.get("dtype")
        if method == "reduce" and wanted is not None:
            inputs = (converted(inputs[0], np.dtype(wanted)), *inputs[1:])
        out = options.get("out")
        if out:
            options["out"] = tuple(_plain(o) for o in out)
        narrow = None if wanted is not None or out else _added_wide(ufunc, method, inputs)
        if narrow is not None:
            inputs = tuple(_plain(x).astype(np.float32) for x in inputs)
        found = getattr(ufunc, method)(*map(_plain, inputs), **options)
        if narrow is not None:
            found = np.asarray(found).astype(narrow)
        if out:
            return out[0] if len(out) == 1 else out
        return tuple(map(tile_of, found)) if isinstance(found, tuple) else tile_of(_in_order(found))

    def __array_function__(self, function: Any, types: Any, given: Any, options: Any) -> Any:
        found = super().__array_function__(function, types, given, options)
        if function is np.where and isinstance(found, np.ndarray):  # it alone lets numbers wrap around that do not fit
            for number in given[1:]:
                if type(number) is int and found.dtype.kind == "i":
                    literal(number, found.dtype)
        return tile_of(found) if isinstance(found, np.ndarray) else found


def _added_wide(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...]) -> np.dtype[Any] | None:
    """The type of a sum that is taken in f32, and rounded then; None for what NumPy adds so by itself."""
    if not (ufunc is np.matmul or (ufunc is np.add and method == "reduce")):
        return None
    found = np.result_type(*(x.dtype for x in inputs if hasattr(x, "dtype")))
    return found if found.itemsize < 4 and is_float(element_of(found)) else None


def tile_of(value: Any) -> Any:
    """A value as a tile. Integers alone stay numbers, by which one may address."""
    if isinstance(value, np.generic) and value.dtype.kind not in "iub":
        return np.asarray(value).view(Values)
    return value.view(Values) if isinstance(value, np.ndarray) else value


def _in_order(found: Any) -> Any:
    """A new array whose elements lie in the order of its dims, as those of tiles do: so a view of it stays one."""
    return np.ascontiguousarray(found) if isinstance(found, np.ndarray) and found.ndim > 1 else found


def converted(value: Any, dtype: np.dtype[Any]) -> Any:
    """What is stored to elements of a type: floats become integers as they do in `Values.astype`. Raises Mistake for an integer of Python
    that they do not hold."""
    if dtype.kind == "i" and isinstance(value, int) and not isinstance(value, bool):
        literal(value, dtype)
    if dtype.kind != "i" or np.asarray(value).dtype.kind not in "fV":
        return value
    return np.asarray(value).view(Values).astype(dtype)


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Values) else value
