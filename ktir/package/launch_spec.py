"""`launch_spec.json`, version 1: what the arguments of a program are and how host tensors become device sticks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from ktir.isa.program import ROLES, Program
from ktir.package.errors import PackageError, dump_json, load_json
from ktir.roles import OWN_ROLES, reach
from ktir.target import BY_DTYPE, BY_PUBLISHED, LANES, ONES, STICK_BYTES, Format

NAME = "launch_spec.json"
VERSION = 1
ARRANGEMENTS = ("STANDARD",)
MAX_MEMORY = 7 << 34
"""Bytes of device memory for arguments: seven of the eight segments of 16 GiB; the last one holds the program."""
_MAX = 2**48
_LARGEST = 2**63
_BITS = (8, 16, 32, 64)
_MAX_HOST = 2**16 - 1
MAX_DIMS = 64
"""Of a tensor or layout: of NumPy's arrays, and of what PyTorch's reductions take."""


@dataclass(frozen=True)
class HostView:
    """Which elements of host argument `arg` a device tensor holds; offset, sizes and strides in elements."""

    arg: int
    offset: int
    size: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class ValueRange:
    """The values of an argument for which the program is proved: from `low` to `high`, no NaN.

    bits: of the program's integers, which a host array of as many bits gives as signed numbers, whatever its own type; None for floats.
    spare: what stands in the program for the integers that 32 bits do not hold, of an output that is written in parts; no element that is
    written holds it.
    """

    low: int
    high: int
    bits: int | None = None
    spare: int | None = None

    @property
    def is_wide(self) -> bool:
        """Whether it has integers that 32 bits do not hold, of which the program takes the low bits."""
        return self.low < -(2**31) or self.high > 2**31 - 1

    def is_all_of(self, dtype: str) -> bool:
        """Whether it has whatever an element of a layout of that type may be."""
        return dtype == "i32" and self.low <= -(2**31) and self.high >= 2**31 - 1


@dataclass(frozen=True)
class HostTensor:
    """A tensor that the caller gives: element type as KTIR has it (`f16`, `i64`, ..), shape, and strides in elements."""

    element: str
    size: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def reach(self) -> int:
        """Elements from the first to the last one, gaps included."""
        return reach(0, self.size, self.strides)


@dataclass(frozen=True)
class PublishedLayout:
    """The published fields of a device layout, and the logical `size` that they describe."""

    size: tuple[int, ...]
    device_size: tuple[int, ...]
    stride_map: tuple[int, ...]
    device_dtype: str
    element_arrangement: str
    pad: str


@dataclass(frozen=True)
class LaunchArgument:
    """One program argument. A pool, and an iota, whose element i holds i, have no host view."""

    arg_index: int
    name: str
    role: str
    host: HostView | None
    dtype: str
    layout: PublishedLayout
    range: ValueRange | None = None
    """None: whatever floats hold, and integers of 32 bits."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical size."""
        return self.layout.size

    @property
    def sticks(self) -> int:
        """Sticks of the device tensor."""
        return prod(self.layout.device_size[:-1]) * BY_DTYPE[self.dtype].bytes // 2

    @property
    def format(self) -> Format:
        """What the program has there."""
        own = BY_PUBLISHED[self.layout.device_dtype]
        return ONES[own.name] if own.name in ONES and len(self.layout.device_size) == 2 else own


@dataclass(frozen=True)
class LaunchSpec:
    """The arguments of a program in order. `pool_size` is the bytes of all pool arguments together.

    `hosts` are the tensors that the caller gives, by the number that host views have; empty where the producer does not say.
    """

    kernel_name: str
    pool_size: int
    args: tuple[LaunchArgument, ...]
    hosts: tuple[HostTensor, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "version": VERSION,
            "kernel_name": self.kernel_name,
            "pool_size": self.pool_size,
            "args": [_argument_json(a) for a in self.args],
            "hosts": [{"element": h.element, "size": list(h.size), "strides": list(h.strides)} for h in self.hosts],
        }

    def to_bytes(self) -> bytes:
        """The file."""
        return dump_json(self.to_json())

    @staticmethod
    def from_json(value: Any) -> LaunchSpec:
        """The spec of a JSON object. Raises PackageError with all problems; unknown keys are ignored."""
        reader = _Reader()
        spec = reader.spec(value)
        if reader.problems or spec is None:
            raise PackageError(NAME, reader.problems)
        return spec

    @staticmethod
    def from_bytes(data: bytes) -> LaunchSpec:
        """The spec of a file."""
        return LaunchSpec.from_json(load_json(data, NAME))

    def disagreements(self, program: Program) -> list[str]:
        """Where the spec and the program do not fit together."""
        out = []
        if self.kernel_name != program.name:
            out.append(f"kernel_name is {self.kernel_name!r}, but the program is named {program.name!r}")
        if len(self.args) != len(program.arguments):
            out.append(f"has {len(self.args)} arguments, but the program has {len(program.arguments)}")
        for i, (a, b) in enumerate(zip(self.args, program.arguments, strict=False)):
            pairs = (
                ("name", a.name, b.name),
                ("role", a.role, b.role),
                ("sticks", a.sticks, b.sticks),
                ("element bytes", 1 if a.format.one else max(BY_DTYPE[a.dtype].bytes, 2), b.element_bytes),
                ("half", a.format.half, b.half),
            )
            out += [f"argument {i}: {what} is {mine!r}, but {other!r} in the program" for what, mine, other in pairs if mine != other]
        pool = STICK_BYTES * sum(a.sticks for a in program.arguments if a.role == "pool")
        if self.pool_size != pool:
            out.append(f"pool_size is {self.pool_size}, but the program's pool has {pool} bytes")
        total = STICK_BYTES * sum(a.sticks for a in program.arguments)
        if total > MAX_MEMORY:
            out.append(f"the arguments need {total} bytes, more than the {MAX_MEMORY} of the device")
        return out


def _argument_json(a: LaunchArgument) -> dict[str, Any]:
    layout = a.layout
    value: dict[str, Any] = {
        "arg_index": a.arg_index,
        "name": a.name,
        "role": a.role,
        "shape": list(a.shape),
        "dtype": a.dtype,
        "layout": {
            "size": list(layout.size),
            "device_size": list(layout.device_size),
            "stride_map": list(layout.stride_map),
            "device_dtype": layout.device_dtype,
            "element_arrangement": layout.element_arrangement,
            "pad": layout.pad,
        },
    }
    if a.host is not None:
        host = a.host
        value["host"] = {"arg": host.arg, "offset": host.offset, "size": list(host.size), "strides": list(host.strides)}
    if a.range is not None:
        value["range"] = {name: number for name, number in asdict(a.range).items() if number is not None}
    return value


class _Reader:
    """Reads fields and collects what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def fail(self, where: str, message: str) -> None:
        self.problems.append(f"{where}: {message}" if where else message)

    def object(self, value: Any, where: str) -> dict[str, Any] | None:
        if isinstance(value, dict):
            return value
        self.fail(where, f"expects an object, but got {_short(value)}")
        return None

    def field(self, value: dict[str, Any], name: str, where: str) -> Any:
        if name not in value:
            self.fail(where, f"{name} is missing")
        return value.get(name)

    def integer(self, value: dict[str, Any], name: str, where: str, high: int = _MAX) -> int:
        found = self.field(value, name, where)
        if type(found) is int and 0 <= found <= high:
            return found
        if name in value:
            self.fail(where, f"{name} expects an integer of 0 to {high}, but got {_short(found)}")
        return 0

    def integers(self, value: dict[str, Any], name: str, where: str, low: int = 0) -> tuple[int, ...]:
        found = self.field(value, name, where)
        if isinstance(found, list) and len(found) <= MAX_DIMS and all(type(v) is int and low <= v <= _MAX for v in found):
            return tuple(found)
        if name in value:
            self.fail(where, f"{name} expects at most {MAX_DIMS} integers of {low} to {_MAX}, but got {_short(found)}")
        return ()

    def text(self, value: dict[str, Any], name: str, where: str, choices: tuple[str, ...] = ()) -> str:
        found = self.field(value, name, where)
        if isinstance(found, str) and (not choices or found in choices):
            return found
        if name in value:
            self.fail(where, f"{name} expects {'one of ' + ', '.join(choices) if choices else 'text'}, but got {_short(found)}")
        return choices[0] if choices else ""

    def spec(self, value: Any) -> LaunchSpec | None:
        top = self.object(value, "")
        if top is None:
            return None
        version = self.field(top, "version", "")
        if "version" in top and version != VERSION:
            self.fail("", f"version {_short(version)} is not supported, only {VERSION}")
        args = self.field(top, "args", "")
        if "args" in top and not isinstance(args, list):
            self.fail("", f"args expects a list, but got {_short(args)}")
        name, pool = self.text(top, "kernel_name", ""), self.integer(top, "pool_size", "")
        found = tuple(self.argument(a, i) for i, a in enumerate(args if isinstance(args, list) else []))
        arguments = tuple(a for a in found if a is not None)
        return LaunchSpec(name, pool, arguments, self.hosts(top["hosts"], arguments) if top.get("hosts") else ())

    def hosts(self, value: Any, arguments: tuple[LaunchArgument, ...]) -> tuple[HostTensor, ...]:
        if not isinstance(value, list):
            self.fail("", f"hosts expects a list, but got {_short(value)}")
            return ()
        found = tuple(self.host_tensor(v, f"hosts[{i}]") for i, v in enumerate(value))
        for i, a in enumerate(arguments):
            if a.host is None:
                continue
            if a.host.arg >= len(found):
                self.fail(f"args[{i}].host", f"arg expects one of {len(found)} hosts, but got {a.host.arg}")
                continue
            host, end = found[a.host.arg], reach(a.host.offset, a.host.size, a.host.strides)
            if end > host.reach:
                self.fail(f"args[{i}].host", f"reaches {end} elements, but hosts[{a.host.arg}] has {host.reach}")
            if host.element not in BY_DTYPE[a.dtype].hosts:
                self.fail(f"args[{i}]", f"dtype is {a.dtype}, but hosts[{a.host.arg}] has {_short(host.element)}")
        return found

    def host_tensor(self, value: Any, where: str) -> HostTensor:
        v = self.object(value, where) or {}
        size, strides = self.integers(v, "size", where), self.integers(v, "strides", where)
        return HostTensor(self.text(v, "element", where), size, self.as_many(strides, size, where))

    def as_many(self, strides: tuple[int, ...], size: tuple[int, ...], where: str) -> tuple[int, ...]:
        """Strides of as many dims as there are sizes."""
        if len(size) == len(strides):
            return strides
        self.fail(where, f"strides expects {len(size)} values, but got {len(strides)}")
        return (0,) * len(size)

    def argument(self, value: Any, index: int) -> LaunchArgument | None:
        where = f"args[{index}]"
        a = self.object(value, where)
        if a is None:
            return None
        before = len(self.problems)
        arg_index = self.integer(a, "arg_index", where)
        if arg_index != index and len(self.problems) == before:
            self.fail(where, f"arg_index expects {index}, but got {arg_index}")
        name, role = self.text(a, "name", where), self.text(a, "role", where, ROLES)
        dtype = self.text(a, "dtype", where, tuple(BY_DTYPE))
        layout = self.layout(self.field(a, "layout", where), dtype, f"{where}.layout") if "layout" in a else None
        if layout is None:
            if "layout" not in a:
                self.fail(where, "layout is missing")
            return None
        if self.integers(a, "shape", where, 1) != layout.size and "shape" in a:
            self.fail(where, f"shape is {_short(a['shape'])}, but the layout's size is {list(layout.size)}")
        host = self.host(a["host"], layout, f"{where}.host") if a.get("host") is not None else None
        if (host is None) != (role in OWN_ROLES) and "role" in a:
            self.fail(where, f"a {role} argument has no host view" if host is not None else "host is missing")
        if role == "iota" and dtype != "int32":
            self.fail(where, f"an iota expects dtype int32, but got {dtype}")
        range_ = self.range(a["range"], dtype, f"{where}.range") if a.get("range") is not None else None
        return LaunchArgument(arg_index, name, role, host, dtype, layout, range_)

    def range(self, value: Any, dtype: str, where: str) -> ValueRange | None:
        v = self.object(value, where)
        if v is None:
            return None
        found: dict[str, Any] = {name: v.get(name) for name in ("low", "high", "bits", "spare")}
        low, high, bits, spare = found.values()
        for name, number in found.items():
            if not (type(number) is int and -_LARGEST <= number < _LARGEST) and (number is not None or name in ("low", "high")):
                self.fail(where, f"{name} expects an integer of 64 bits, but got {_short(number)}")
                return None
        if bits not in (_BITS if dtype in ("int32", "int8") else (None,)):
            self.fail(where, f"bits expects one of {', '.join(map(str, _BITS))} for integers and none for floats, but got {_short(bits)}")
        if low > high or (bits and not -(1 << bits - 1) <= low <= high < 1 << bits - 1):
            self.fail(where, f"expects low and high in order and within the type, but got {low} and {high}")
        if spare is not None and (bits != 64 or not -(2**31) <= spare < 2**31):
            self.fail(where, f"spare expects a number of 32 bits that stands for integers of 64, but got {spare}")
        return ValueRange(low, high, bits, spare)

    def layout(self, value: Any, dtype: str, where: str) -> PublishedLayout | None:
        v = self.object(value, where)
        if v is None:
            return None
        size, device = self.integers(v, "size", where, 1), self.integers(v, "device_size", where, 1)
        strides = self.integers(v, "stride_map", where, -1)
        device_dtype = self.text(v, "device_dtype", where)
        arrangement = self.text(v, "element_arrangement", where, ARRANGEMENTS)
        if len(device) != len(strides):
            self.fail(where, f"stride_map expects {len(device)} strides, one per device dimension, but got {len(strides)}")
        if not device or device[-1] != LANES:
            self.fail(where, f"device_size expects a last dimension of {LANES} lanes, but got {list(device)}")
        known = BY_DTYPE[dtype].device_dtypes
        if "device_dtype" in v and device_dtype not in known:
            self.fail(where, f"device_dtype expects {' or '.join(known)} for {dtype}, but got {_short(device_dtype)}")
            device_dtype = known[0]
        if prod(device) < prod(size):
            self.fail(where, f"{list(size)} does not fit into device_size {list(device)}")
        return PublishedLayout(size, device, strides, device_dtype, arrangement, self.text(v, "pad", where))

    def host(self, value: Any, layout: PublishedLayout, where: str) -> HostView | None:
        v = self.object(value, where)
        if v is None:
            return None
        arg, offset = self.integer(v, "arg", where, _MAX_HOST), self.integer(v, "offset", where)
        size = self.integers(v, "size", where, 1)
        strides = self.as_many(self.integers(v, "strides", where), size, where)
        if prod(size) != prod(layout.size):
            self.fail(where, f"{list(size)} has {prod(size)} elements, but the layout's size {list(layout.size)} has {prod(layout.size)}")
        return HostView(arg, offset, size, strides)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
