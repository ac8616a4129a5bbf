"""The arguments of a program as KTIR's entry function has them: device buffers, and what the host keeps of them."""

from __future__ import annotations

from math import prod

from ktir.checking.stream.tiles import BYTES, ONES
from ktir.dialects import ktir as kt
from ktir.isa.program import Argument
from ktir.mlir import func, ir
from ktir.package import LaunchArgument
from ktir.package.launch_spec import HostView, PublishedLayout, ValueRange
from ktir.passes.flat.integers.integer_proof import RANGES

_TYPES = {
    "f16": ("float16", "IEEE_FP16", 2),
    "bf16": ("bfloat16", "BFLOAT16", 2),
    "f32": ("float32", "IEEE_FP32", 4),
    "i32": ("int32", "IEEE_INT32", 4),
    "f8E4M3FN": ("float8_e4m3fn", "SEN143_FP8", 1),
    "f8E5M2": ("float8_e5m2", "SEN152_FP8", 1),
    "i8": ("int8", "SENINT8", 1),
    "vector<2xf8E4M3FN>": ("float8_e4m3fn_x2", "SEN143_FP8", 2),
    "vector<2xf8E5M2>": ("float8_e5m2_x2", "SEN152_FP8", 2),
    "vector<2xi8>": ("int8_x2", "SENINT8", 2),
}


def launch_arguments(module: ir.Module, entry: func.FuncOp) -> list[LaunchArgument]:
    """What the launch spec must say."""
    found = []
    ranges = _ranges(module, entry)
    attributes = entry.operation.attributes
    for i, item in enumerate(ir.ArrayAttr(attributes["arg_attrs"]) if "arg_attrs" in attributes else []):
        d = ir.DictAttr(item)
        layout = kt.LayoutAttr(d["ktir.layout"])
        dtype, device_dtype, _ = _TYPES[str(layout.dtype)]
        host = allowed = None
        if "ktir.host" in d:
            h = kt.HostViewAttr(d["ktir.host"])
            host = HostView(h.arg, h.offset, tuple(h.size), tuple(h.strides))
            allowed = None if dtype.endswith("_x2") else ranges.get(h.arg)
            if dtype == "int8" and allowed is not None and allowed.low <= -128 and 127 <= allowed.high:
                allowed = None  # a byte may be any
        published = PublishedLayout(tuple(layout.size), tuple(layout.device), tuple(layout.strides), device_dtype, "STANDARD", layout.pad)
        name, role = (ir.StringAttr(d[f"ktir.{key}"]).value for key in ("name", "role"))
        found.append(LaunchArgument(i, name, role, host, dtype, published, allowed))
    return found


def _ranges(module: ir.Module, entry: func.FuncOp) -> dict[int, ValueRange]:
    """Per host argument the values for which the program is proved, as an attribute of the module lists them."""
    if RANGES not in module.operation.attributes:
        return {}
    listed = ir.DictAttr(module.operation.attributes[RANGES])
    found: dict[int, ValueRange] = {}
    for i, item in enumerate(ir.ArrayAttr(listed[entry.name.value]) if entry.name.value in listed else []):
        fields = {a.name: ir.IntegerAttr(a.attr).value for a in ir.DictAttr(item)}
        if fields:
            found[i] = ValueRange(**fields)
    return found


def program_arguments(launch: list[LaunchArgument]) -> list[Argument]:
    """What the program must declare."""
    sizes = {name: size for name, _, size in _TYPES.values()}
    halves = {"bfloat16": "bf16", **{_TYPES[name][0] + of: pair for name, pair in BYTES.items() for of in ("", "_x2")}}
    ones = {_TYPES[name][0]: half for name, half in ONES.items()}
    found = []
    for a in launch:
        alone = a.dtype in ones and len(a.layout.device_size) == 2
        size, half = (1, ones[a.dtype]) if alone else (max(2, sizes[a.dtype]), halves.get(a.dtype, "f16"))
        found.append(Argument(a.name, a.role, prod(a.layout.device_size[:-1]) * sizes[a.dtype] // 2, size, half))
    return found
