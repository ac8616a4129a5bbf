"""The machine description: one frozen object that passes, cost model, lowering and emulator read; and the formats of its elements.

Each number carries its status and its source: *stated* = a public source says it, *inferred* = arithmetic on stated figures, *fitted* = a
published fit to device measurements, *default* = the placeholder of a public sample file, *unofficial* = a community note, *assumed* = no
public figure exists and ours is a placeholder, *derived* = computed here from the others. `Target.figures` lists them. Two presets:
`datasheet` has peak rates, `fitted` the rates that the published models fitted to the device. `ktir.targets` finds others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from math import ceil, isfinite
from typing import Any, Literal, NamedTuple, get_args

STICK_BYTES = 128
"""The only layout quantum of the chip: 128-byte, 128-byte-aligned sticks (stated, torch-spyre architecture pages)."""

LANES = 64
"""Elements of an f16 stick (stated); an f32 tensor uses two adjacent sticks per 64 lanes in our layouts."""
CORELETS = 2
"""Per core, between which programs divide the rows of a block, and of which each has places of its own."""


MOST_CORES = 1024
"""Of any target: what a program names cores by has 16 bits, and checks look at each pair."""


@dataclass(frozen=True)
class Format:
    """A format of elements in sticks. One table has them all; whoever needs bytes, letters or names of one looks them up there."""

    name: str
    """As KTIR spells the type."""
    dtype: str
    """As PyTorch and launch specs call it."""
    published: str
    """As published layouts call it, with IEEE's meaning."""
    bytes: Literal[1, 2, 4]
    letter: Literal["f", "i"]
    """What a lane holds of it: an f32 value, or the bits of an i32 (`ktir.isa.kinds`)."""
    hosts: tuple[str, ...]
    """Types of KTIR whose elements the host turns into it."""
    lowest: float = 0.0
    """The lowest finite number of a float."""
    pair: str = ""
    """Of one byte: what instructions and descriptors call two of them, which share the 16 bits of a place in a stick."""
    two: str = ""
    """Of two elements of one byte that are one of 16 bits: the same."""
    one: str = ""
    """Of one byte by itself: what instructions and descriptors call it."""

    @property
    def device_dtypes(self) -> tuple[str, ...]:
        """What the device may hold for it, by the names of published layouts."""
        return (self.published, DL16.published) if self.bytes == 2 and not self.two else (self.published,)

    @property
    def half(self) -> str:
        """What 16 bits of it are, as instructions and descriptors say it; the first one for wider ones, which say nothing by it."""
        return self.one or self.pair or self.two or (self.name if self.bytes == 2 else HALVES[0])


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("f16", "float16", "IEEE_FP16", 2, "f", ("f16", "f32", "f8E4M3FN", "f8E5M2"), -65504.0),
        Format("bf16", "bfloat16", "BFLOAT16", 2, "f", ("bf16", "f32"), -3.3895313892515355e38),
        Format("f32", "float32", "IEEE_FP32", 4, "f", ("f32", "f16", "bf16"), -3.4028234663852886e38),
        Format("i32", "int32", "IEEE_INT32", 4, "i", ("i32", "i64", "i16", "i8", "i1")),
    )
}
"""All formats that lanes compute with, by name."""
BYTES: dict[str, Format] = {
    f.name: f
    for f in (
        Format("f8E4M3FN", "float8_e4m3fn", "SEN143_FP8", 1, "f", ("f8E4M3FN",), -448.0, "e4m3x2"),
        Format("f8E5M2", "float8_e5m2", "SEN152_FP8", 1, "f", ("f8E5M2",), -57344.0, "e5m2x2"),
        Format("i8", "int8", "SENINT8", 1, "i", ("i8",), pair="i8x2"),
    )
}
"""Formats of one byte, by name: matmuls read second operands of them. Rows 2r and 2r + 1 share a stick, whose place l has both lanes l."""
PAIRS: tuple[str, ...] = tuple(f.pair for f in BYTES.values())
"""What the 16 bits of a place hold that are no float of 16 bits. Their codes follow those of `HALVES`."""
TWOS: dict[str, Format] = {
    (name := f"vector<2x{f.name}>"): Format(name, f"{f.dtype}_x2", f.published, 2, f.letter, (f.name,), two=f.pair) for f in BYTES.values()
}
"""Two elements of one byte that lie next to each other, as one of 16 bits: both operands of a matmul may be of them, along K."""
ONES: dict[str, Format] = {f.name: replace(f, pair="", one=f.pair.removesuffix("x2")) for f in BYTES.values() if f.letter == "f"}
"""Floats of one byte that lie one after the other, as on the host: what a program reads and writes by elements. Moves widen and round."""
BY_DTYPE: dict[str, Format] = {f.dtype: f for f in (*FORMATS.values(), *BYTES.values(), *TWOS.values())}
"""All by the names that PyTorch has."""
DL16 = Format("dl16", "", "SEN169_FP16", 2, "f", ("f16", "bf16", "f32"), -8573157376.0)
"""DLFloat16, which the device has in place of f16 and bf16: 1 sign bit, 6 of exponent, 9 of fraction. No type of programs."""
BY_PUBLISHED: dict[str, Format] = {f.published: f for f in (*FORMATS.values(), *BYTES.values(), DL16)}
"""What the device holds by the names of published layouts."""
HALVES: tuple[str, ...] = tuple(f.name for f in BY_PUBLISHED.values() if f.bytes == 2)
"""Floats of 16 bits. The place of one here is its code in instructions: new ones are added at the end."""
SIXTEEN = (*HALVES, *PAIRS)
"""What 16 bits of a stick may be."""
MOVED = (*SIXTEEN, *(f.one for f in ONES.values()))
"""What elements of one and two bytes may be. The place of one here is its code in descriptors and arguments: new ones go to the end."""
NARROW: dict[str, str] = {f.one: f.name for f in ONES.values()}
"""What descriptors call an element of one byte -> type of KTIR."""


def held(type_: Any) -> Format:
    """The format of a type of KTIR, or of its name. Raises KeyError for one that sticks do not hold."""
    name = str(type_)
    return FORMATS.get(name) or TWOS.get(name) or BYTES[name]


def element_bytes(type_: Any) -> int:
    """Bytes of an element of a type that sticks hold."""
    return 2 if is_half(type_) else held(type_).bytes


def is_narrower(one: Any, other: Any, or_equal: bool = False) -> bool:
    """Whether elements of a type have fewer bytes than those of another; of types that sticks do not hold none has."""
    try:
        less = element_bytes(one) - element_bytes(other)
    except KeyError:
        return False
    return less < 0 or (or_equal and less == 0)


def is_byte(type_: Any) -> bool:
    """Whether a type has one byte, which sticks hold in pairs of rows."""
    return str(type_) in BYTES


def widened(type_: Any) -> str:
    """What tensors hold of elements in memory that are not moved as they are: f16 of a float of one byte."""
    return "f16" if is_byte_float(type_) else str(type_)


def is_two(type_: Any) -> bool:
    """Whether a type is two elements of one byte each."""
    return str(type_) in TWOS


def is_byte_float(type_: Any) -> bool:
    """Whether a type is a float of one byte."""
    return is_byte(type_) and BYTES[str(type_)].letter == "f"


def type_letter(type_: Any) -> str:
    """What a lane holds of a type: f, i, m (a mask of i1), or "" of a type that it cannot hold."""
    name = str(type_)
    return "m" if name == "i1" else FORMATS[name].letter if name in FORMATS else ""


def is_half(type_: Any) -> bool:
    """Whether a type is a float of 16 bits, to which results are rounded."""
    return str(type_) in HALVES


def format_names() -> str:
    """All formats for messages."""
    *first, last = FORMATS
    return f"{', '.join(first)} and {last}"


class Figure(NamedTuple):
    """A number of the machine description and where it comes from."""

    name: str
    value: int | float
    unit: str
    status: str
    source: str


def _figure(value: Any, unit: str, status: str, source: str, least: float = 1, most: float = 2**40) -> Any:
    return field(default=value, metadata={"unit": unit, "status": status, "source": source, "least": least, "most": most})


def _derived(compute: Callable[[Target], int | float], unit: str, source: str, needs: tuple[str, ...]) -> Any:
    """A figure that is computed from the figures `needs`, unless whoever makes the target gives it."""
    return field(default=None, metadata={"unit": unit, "status": "derived", "source": source, "compute": compute, "needs": needs})


_PLANNER = "torch-spyre work_division.py"
_COST = "torch-spyre cost_model.py"
_ACCELERATOR = "torch-spyre spyre_accelerator.md"
_SAMPLE = "sample device of dataflow-scheduler"
_NOTE = "note 'Matrix Multiplication on the IBM AIU'"
_NONE = "no public figure"


DL16_MODES = Literal["exact", "native"]


@dataclass(frozen=True)
class Target:
    """A Spyre chip. Cycles are of `clock_ghz`; rates are per cycle."""

    name: str = "datasheet"
    dl16: DL16_MODES = "exact"
    """What f16 and bf16 are: as programs have them, or DLFloat16, as on the device."""
    cores: int = _figure(32, "cores", "stated", _ACCELERATOR, most=MOST_CORES)
    corelets: int = _figure(2, "per core", "stated", f"{_ACCELERATOR}: two share one scratchpad", most=2)
    clock_ghz: float = _figure(1.5, "GHz", "inferred", "98.304 TFLOP/s = 32 cores x 2 corelets x 512 MAC x 2 flop x 1.5e9", 1e-3, 1e3)
    lx_bytes: int = _figure(2 * 1024 * 1024, "bytes per core", "stated", _ACCELERATOR, STICK_BYTES, 2**30)
    lx_reserved_bytes: int = _figure(64 * 1024, "bytes per core", "stated", "scratchpad planner: program and debug space", 0)
    lx_planned_share: float = _figure(0.8, "", "stated", "scratchpad planner: of what is not reserved", 1e-3, 1)
    lx_planned_bytes: int = _derived(
        lambda t: ceil(t.lx_planned_share * (t.lx_bytes - t.lx_reserved_bytes) / STICK_BYTES) * STICK_BYTES,
        "bytes per core",
        "the planned share of LX without the reserved bytes, in whole sticks",
        ("lx_bytes", "lx_reserved_bytes", "lx_planned_share"),
    )
    fifo_entries: int = _figure(16, "entries", "default", f"{_SAMPLE}: ordered FIFOs", 2, 2**16)
    dram_gb_per_second: float = _figure(204.8, "GB/s", "stated", f"{_PLANNER}: one channel for the chip", 1e-3, 1e9)
    dram_bytes_per_cycle: float = _derived(
        lambda t: t.dram_gb_per_second / t.clock_ghz, "bytes per cycle", "bytes per second and clock", ("dram_gb_per_second", "clock_ghz")
    )
    dram_turnaround_ns: float = _figure(
        0.0, "ns per byte", "inferred", "peak rate without loss; the channel's time per byte of the smaller of reads and writes", 0
    )
    dram_turnaround: float = _derived(
        lambda t: t.dram_turnaround_ns * t.clock_ghz, "cycles per byte", "the time and the clock", ("dram_turnaround_ns", "clock_ghz")
    )
    dram_granule_bytes: int = _figure(
        32, "bytes", "inferred", "JEDEC JESD209-5 (LPDDR5): a burst of 16 on a channel of 16 bits; the chip has LPDDR5 (stated)", 4, 128
    )
    dram_latency: int = _figure(300, "cycles", "assumed", _NONE, 0)
    span_bytes: int = _figure(
        256 * 1024 * 1024 - 4096, "bytes", "inferred", f"{_ACCELERATOR}: at most 255.996 MiB of addresses per core and tensor", STICK_BYTES
    )
    ring_bytes_per_cycle: int = _figure(128, "bytes per cycle and direction", "stated", _ACCELERATOR)
    multicast_free: int = _figure(8, "consumers", "fitted", f"{_PLANNER}: delivery is free up to here")
    multicast_power: float = _figure(0.75, "", "fitted", f"{_PLANNER}: beyond, time grows with this power of the consumers", 0, 8)
    partial_sum_bytes_per_cycle: float = _figure(32, "bytes per cycle", "unofficial", f"{_NOTE}: a ring of its own for partial sums", 1e-3)
    partial_sum_corelets: int = _figure(1, "per core", "stated", f"{_PLANNER}: a reduction across cores runs on one corelet", most=2)
    pt_macs: int = _figure(512, "per cycle and corelet", "inferred", "98.304 TFLOP/s, as of clock_ghz", most=LANES * LANES)
    pt_row_cycles: int = _derived(
        lambda t: ceil(LANES * LANES / t.pt_macs), "cycles", "64 x 64 MACs of a row at the MACs of a cycle and corelet", ("pt_macs",)
    )
    pt_weight_cycles: int = _figure(
        64, "cycles per block", "unofficial", f"{_NOTE}: the array idles while 64 rows of weights are loaded", 0
    )
    pt_fill_cycles: int = _figure(24, "cycles", "assumed", f"{_NONE}: time to drain the systolic array", 0)
    pt_efficiency: float = _figure(1.0, "", "stated", f"{_PLANNER}: peak of 1,536 MAC/ns and core", 1e-3, 1)
    sfp_latency: int = _figure(16, "cycles", "assumed", _NONE, 0)
    sfp_transcendental_cycles: int = _figure(4, "cycles per stick", "assumed", _NONE)
    sfp_long_cycles: int = _figure(
        8, "cycles per stick", "assumed", f"{_NONE}: range reduction and a longer polynomial, or digits of a quotient"
    )
    sfp_lane_reduction_cycles: int = _figure(6, "cycles", "assumed", f"{_NONE}: a halving tree over 64 lanes")
    signal_cycles: int = _figure(8, "cycles", "assumed", _NONE, 0)
    launch_cycles: int = _figure(0, "cycles per kernel", "fitted", f"{_COST}: the newest fit has no fixed cost", 0)
    host_gb_per_second: float = _figure(
        63.0, "GB/s", "inferred", f"{_ACCELERATOR}: PCIe 5.0 x16, 32 GT/s in 128 of 130 bits, one direction", 1e-3, 1e9
    )
    host_launch_us: float = _figure(0.0, "us per program", "assumed", f"{_NONE}: what the host spends on a launch", 0, 1e9)
    vector_registers: int = _figure(16, "registers", "default", f"{_SAMPLE}: 2 KB of registers of 128 B", 4, 16)
    accumulators: int = _figure(8, "registers", "assumed", "ours: f32 x 64 lanes each", 8, 8)
    pt_accumulator_rows: int = _figure(256, "rows", "assumed", "ours: rows of f32 partial sums that PT holds between LDWs", 2, 2**16)
    sources: tuple[tuple[str, str, str], ...] = field(default=(), compare=False, repr=False)
    """Figure, status and source, of figures that are not the datasheet's."""
    idle_cores: int = field(default=0, compare=False, repr=False)
    """Cores of the machine that are left out of `cores`."""

    def __post_init__(self) -> None:
        for f in fields(self):
            if "compute" in f.metadata and getattr(self, f.name) is None:
                object.__setattr__(self, f.name, f.metadata["compute"](self))

    def with_cores(self, cores: int) -> Target:
        """This target with another number of active cores: 1 to all."""
        if not 1 <= cores <= self.cores:
            raise ValueError(f"expects 1 to {self.cores} cores, but got {cores}")
        return replace(self, cores=cores, idle_cores=self.idle_cores + self.cores - cores)

    def with_room(self, lx_bytes: int) -> Target:
        """This target with `lx_bytes` of each core's scratchpad to plan with, 1 to all."""
        if not 1 <= lx_bytes <= self.lx_bytes:
            raise ValueError(f"expects 1 to {self.lx_bytes} bytes of scratchpad, but got {lx_bytes}")
        return replace(self, lx_planned_bytes=lx_bytes)

    def changed(self, sources: Mapping[str, tuple[str, str]] | None = None, **figures: Any) -> Target:
        """This target with other figures, whose status and source `sources` has, else *assumed*; what is derived from them is computed
        anew. Raises FigureError for figures that there are not, are computed, or cannot be.
        """
        for name, value in figures.items():
            if wrong := own_fault(name, value):
                raise FigureError(name, wrong)
        derived = {f.name: None for f in fields(self) if "compute" in f.metadata}
        unsourced = {name: ("assumed", "") for name in figures if name in _LIMITS}
        own = {name: (status, source) for name, status, source in self.sources} | unsourced | dict(sources or {})
        target = replace(self, sources=tuple((n, *s) for n, s in own.items()), **derived, **figures)
        for name, wrong in target._contradictions():
            raise FigureError(name, wrong)
        return target

    def faults(self) -> list[tuple[str, str]]:
        """What cannot be, each with what is wrong: of targets that `changed` did not make."""
        names = [f.name for f in fields(self) if f.name in _WORDS or "least" in f.metadata]
        found = [(name, wrong) for name in names if (wrong := own_fault(name, getattr(self, name)))]
        return found or list(self._contradictions())

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        if self.lx_bytes % STICK_BYTES:
            yield "lx_bytes", f"expects whole sticks of {STICK_BYTES} bytes, but got {self.lx_bytes!r}"
        if self.lx_reserved_bytes >= self.lx_bytes:
            yield "lx_reserved_bytes", f"expects less than the {self.lx_bytes} bytes of 'lx_bytes', but got {self.lx_reserved_bytes!r}"
        if self.dram_granule_bytes & (self.dram_granule_bytes - 1):
            yield "dram_granule_bytes", f"expects a power of two, but got {self.dram_granule_bytes!r}"
        if self.partial_sum_corelets > self.corelets:
            yield "partial_sum_corelets", f"expects at most the {self.corelets} of 'corelets', but got {self.partial_sum_corelets!r}"

    def figures(self) -> list[Figure]:
        """Every number with its unit, status and source; a target's own figures say so."""
        own = {name: (status, source) for name, status, source in self.sources}
        out = []
        for f in fields(self):
            if f.metadata:
                status, source = own.get(f.name, (f.metadata["status"], f.metadata["source"]))
                out.append(Figure(f.name, getattr(self, f.name), f.metadata["unit"], status, source))
        return out

    def multicast_slowdown(self, members: float) -> float:
        """How many times longer it takes to deliver data to `members` cores than to one."""
        return max(1.0, (members / self.multicast_free) ** self.multicast_power)

    def microseconds(self, cycles: float) -> float:
        """Cycles as time."""
        return cycles / self.clock_ghz / 1000


class FigureError(ValueError):
    """A figure of a target that there is not, or that cannot be."""

    def __init__(self, figure: str, wrong: str) -> None:
        super().__init__(f"'{figure}' {wrong}")
        self.figure, self.wrong = figure, wrong


_WORDS = ("name", "dl16")
_LIMITS = {f.name: (f.type == "int", f.metadata) for f in fields(Target) if "least" in f.metadata}
_DERIVED = {f.name: f.metadata["needs"] for f in fields(Target) if "needs" in f.metadata}


def own_fault(name: str, value: Any) -> str | None:
    """What is wrong with a figure, or a word, of a target by itself, if anything."""
    if name == "name":
        wrong = not isinstance(value, str) or not re.fullmatch(r"[\w.+-]{1,80}", value)
        return f"expects a word of letters, digits, '-', '_', '+' and '.', but got {value!r}" if wrong else None
    if name == "dl16":
        return None if value in get_args(DL16_MODES) else f"expects {' or '.join(get_args(DL16_MODES))}, but got {value!r}"
    if name in _DERIVED:
        return f"is computed from {', '.join(map(repr, _DERIVED[name]))} and cannot be given"
    if name not in _LIMITS:
        from ktir.diagnostics import close_to  # loads MLIR, which targets go without

        return f"is no figure of a target{close_to(name, _LIMITS)} (figures: {', '.join(_LIMITS)})"
    whole, m = _LIMITS[name]
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not isfinite(value):
        return f"expects {'an integer' if whole else 'a number'}, but got {value!r}"
    if not m["least"] <= value <= m["most"]:
        return f"expects {m['least']} to {m['most']} {m['unit']}".rstrip() + f", but got {value!r}"
    return None


DATASHEET = Target()
FITTED = DATASHEET.changed(
    {
        "dram_gb_per_second": ("fitted", f"{_COST}: in one direction"),
        "dram_bytes_per_cycle": ("derived", "fitted bytes per second, and clock"),
        "dram_turnaround_ns": ("fitted", f"{_COST}: so that a balanced copy runs at 105 GB/s"),
        "dram_turnaround": ("derived", "the fitted time, and the clock"),
        "pt_efficiency": ("fitted", f"{_COST}: 1,140 of 1,536 MAC/ns and core"),
        "partial_sum_bytes_per_cycle": ("fitted", f"{_PLANNER}: 1e-3 us per f32 element and hop"),
    },
    name="fitted",
    dram_gb_per_second=150.0,
    dram_turnaround_ns=0.00574,
    pt_efficiency=1140 / 1536,
    partial_sum_bytes_per_cycle=4 / 1.5,
)
PRESETS = {t.name: t for t in (DATASHEET, FITTED)}
