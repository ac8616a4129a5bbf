"""The kinds of attributes that ours are of: what a value has to be, in words and as a check that takes any attribute."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import prod
from typing import Any

from ktir.dialects import ktir as kt
from ktir.mlir import ir
from ktir.roles import Role
from ktir.target import BYTES, FORMATS, LANES, PRESETS, is_byte, is_two


@dataclass(frozen=True)
class Kind:
    """`what` completes "expects '..' to be"; `holds` takes any attribute; `choices`: the strings of an enumeration."""

    what: str
    holds: Callable[[ir.Attribute], bool]
    choices: tuple[str, ...] = ()


def is_a(kind: type[ir.Attribute], a: ir.Attribute) -> bool:
    """Whether an attribute is of a class: the constructors of all classes take attributes of their own and no others."""
    try:
        kind(a)
    except (TypeError, ValueError):
        return False
    return True


def _integer(a: ir.Attribute) -> int | None:
    found = ir.IntegerAttr(a) if is_a(ir.IntegerAttr, a) else None
    return found.value if found is not None and isinstance(found.type, ir.IntegerType) and found.type.width > 1 else None


def _is_count(a: ir.Attribute, least: int = 0) -> bool:
    number = _integer(a)
    return number is not None and number >= least


def _is_integer(a: ir.Attribute) -> bool:
    return _integer(a) is not None


def _items(a: ir.Attribute) -> list[ir.Attribute] | None:
    return list(ir.ArrayAttr(a)) if is_a(ir.ArrayAttr, a) else None


def _all(holds: Callable[[ir.Attribute], bool]) -> Callable[[ir.Attribute], bool]:
    def check(a: ir.Attribute) -> bool:
        items = _items(a)
        return items is not None and all(map(holds, items))

    return check


def _is_target(a: ir.Attribute) -> bool:
    return (is_a(ir.StringAttr, a) and ir.StringAttr(a).value in PRESETS) or is_a(ir.DictAttr, a)


def _numbers(a: ir.Attribute) -> list[int] | None:
    return list(ir.DenseI64ArrayAttr(a)) if is_a(ir.DenseI64ArrayAttr, a) else None


def _all_numbers(least: int, empty: bool = True) -> Callable[[ir.Attribute], bool]:
    def check(a: ir.Attribute) -> bool:
        numbers = _numbers(a)
        return numbers is not None and (empty or bool(numbers)) and all(n >= least for n in numbers)

    return check


def _is_grid(a: ir.Attribute) -> bool:
    """Sizes are integers of any type or of `index`, as text of others has them."""
    sizes = _items(a)
    return sizes is not None and 1 <= len(sizes) <= 3 and all(_is_count(n, 1) or _is_index_count(n) for n in sizes)


def _is_index_count(a: ir.Attribute) -> bool:
    return is_a(ir.IntegerAttr, a) and isinstance(ir.IntegerAttr(a).type, ir.IndexType) and ir.IntegerAttr(a).value >= 1


def _is_tensor_type(a: ir.Attribute) -> bool:
    type_ = ir.TypeAttr(a).value if is_a(ir.TypeAttr, a) else None
    return isinstance(type_, ir.RankedTensorType) and ir.RankedTensorType(type_).has_static_shape


def _is_host_type(a: ir.Attribute) -> bool:
    type_ = ir.TypeAttr(a).value if is_a(ir.TypeAttr, a) else None
    return isinstance(type_, ir.RankedTensorType | ir.MemRefType) and ir.ShapedType(type_).has_static_shape


def _is_number(a: ir.Attribute) -> bool:
    return is_a(ir.FloatAttr, a) and 0 <= ir.FloatAttr(a).value < float("inf")


def _of(cls: Any, also: Callable[[Any], bool] = lambda _: True) -> Callable[[ir.Attribute], bool]:
    """Whether an attribute is one of ours, with parameters that can be: its text may be MLIR's, which does not check them."""

    def check(a: ir.Attribute) -> bool:
        try:
            own = cls(a)
            values = {name: getattr(own, name) for name in cls.codecs}
            return cls.check(values) is None and also(own)
        except (TypeError, ValueError, RuntimeError, IndexError):
            return False

    return check


_PADS = ("uninit", "zero")


_MOST_ELEMENTS = 1 << 48
"""More than any memory has."""


def layout_fault(a: ir.Attribute) -> str | None:
    """What is wrong with a layout of memory; its attribute only has to be well-formed, as an encoding that a text quotes may be."""
    layout = kt.LayoutAttr(a)
    size, device, strides = list(layout.size), list(layout.device), list(layout.strides)
    if str(layout.dtype) not in FORMATS and not is_byte(layout.dtype) and not is_two(layout.dtype):
        return f"elements of type {', '.join((*FORMATS, *BYTES))}, but got {layout.dtype}"
    if layout.arrangement != "standard":
        return f"the arrangement 'standard', but got '{layout.arrangement}'"
    if layout.pad not in _PADS:
        return f"a pad that is one of {', '.join(_PADS)}, but got '{layout.pad}'"
    if not device or device[-1] != LANES:
        return f"sticks of {LANES} lanes as the last device dimension, but got {device}"
    if prod(device) > _MOST_ELEMENTS:
        return f"at most 2**{_MOST_ELEMENTS.bit_length() - 1} elements, but got device {device}"
    reached = sum((n - 1) * max(s, 0) for n, s in zip(device, strides, strict=True)) + 1
    if prod(device) < prod(size) or (0 not in device and reached < prod(size)):
        return f"a place for each of the {prod(size)} elements of size {size}, but got device {device} with strides {strides}"
    return None


def _enumeration(values: Collection[str]) -> Kind:
    choices = tuple(values)

    def holds(a: ir.Attribute) -> bool:
        return is_a(ir.StringAttr, a) and ir.StringAttr(a).value in choices

    return Kind(f"one of {', '.join(choices)}", holds, choices)


def _is_entry(a: ir.Attribute) -> bool:
    """Whether an attribute is what a plan says of one kernel."""
    if not is_a(ir.DictAttr, a):
        return False
    entry = {x.name: x.attr for x in ir.DictAttr(a)}
    counts = {name: _is_count(entry[name]) for name in ("columns", "sums", "depth_share") if name in entry}
    known = "columns" in counts and all(counts.values()) and set(entry) <= {*counts, "work"}
    return known and ("work" not in entry or _of(kt.WorkAttr)(entry["work"]))


def _is_range(a: ir.Attribute) -> bool:
    if not is_a(ir.DictAttr, a):
        return False
    numbers = {x.name: x.attr for x in ir.DictAttr(a)}
    wanted = {"low", "high"} <= set(numbers) <= {"low", "high", "bits", "spare"}
    return (wanted or not numbers) and all(map(_is_integer, numbers.values()))


def _is_ranges(a: ir.Attribute) -> bool:
    return is_a(ir.DictAttr, a) and all(_all(_is_range)(x.attr) for x in ir.DictAttr(a))


def levels(names: Collection[str]) -> Kind:
    """The name of a level."""
    return _enumeration(names)


ROLE = _enumeration(Role)
GRID = Kind("an array of one to three positive integers", _is_grid)
STRING = Kind("a string that is not empty", lambda a: is_a(ir.StringAttr, a) and bool(ir.StringAttr(a).value))
UNIT = Kind("a unit attribute", lambda a: is_a(ir.UnitAttr, a))
TARGET = Kind(f"one of {', '.join(PRESETS)}, or a dictionary of figures", _is_target, tuple(PRESETS))
COUNT = Kind("an integer that is not negative", _is_count)
POSITIVE = Kind("a positive integer", lambda a: _is_count(a, 1))
NUMBER = Kind("a float that is not negative", _is_number)
EXTENTS = Kind("an array<i64> of positive extents", _all_numbers(1, empty=False))
STRIDES = Kind("an array<i64> of strides that are not negative", _all_numbers(0))
DIMENSIONS = Kind("an array<i64> of dimensions, -1 for none", _all_numbers(-1))
TENSOR_TYPE = Kind("a tensor type of static shape", _is_tensor_type)
HOST_TYPES = Kind("an array of tensor and memref types of static shape", _all(_is_host_type))
PLANNED = Kind("a dictionary of 'columns', 'work', 'sums' and 'depth_share'", _is_entry)
PLAN = Kind("an array of dictionaries of 'columns', 'work', 'sums' and 'depth_share'", _all(_is_entry))
RANGES = Kind("a dictionary of arrays of ranges", _is_ranges)
LAYOUT = Kind("a #ktir.layout", _of(kt.LayoutAttr))
HOST = Kind("a #ktir.host_view", _of(kt.HostViewAttr))
WORK = Kind("a #ktir.work", _of(kt.WorkAttr))
ACC = Kind("a #ktir.acc", _of(kt.AccAttr, lambda a: a.unit in ("PT", "SFP")))
ROTATE = Kind("a #ktir.rotate", _of(kt.RotateAttr))
RESIDENT = Kind("a #ktir.resident", _of(kt.ResidentAttr))
RESIDENTS = Kind("an array of #ktir.resident", _all(_of(kt.ResidentAttr)))
