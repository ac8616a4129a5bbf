"""Random well-formed programs over the whole instruction table. They mean nothing, but every form can hold them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, Literal, TypeVar

from hypothesis import strategies as st

from ktir.isa.descriptor import LEVELS, MAX_RANK, PADS, Bound, Descriptor
from ktir.isa.instructions import FIRST_ACCUMULATOR, OPCODES, REGISTERS, Field, Opcode
from ktir.isa.program import ROLES, Argument, Channel, Kernel, Program, Source, Word
from ktir.isa.units import FIFOS, Unit

T = TypeVar("T")
BODY_ONLY = [op.name for op in OPCODES.values() if op.body_only]
UNITS = list(Unit)
CHARACTERS = [" ", '"', "\\", "/", "\n", "\t", "\0", "é", "x", "0", "@", "%", ",", "]", "\x7f", "\ud7ff", "\ue000", "\U0010ffff"]


def programs() -> st.SearchStrategy[Program]:
    """Any well-formed program, with a table of sources. Only its seed is drawn: what Hypothesis draws costs more than what is tested."""
    return st.integers(0, 2**63).map(lambda seed: program(Random(seed)))


def several(r: Random, make: Callable[[], T], most: int, least: int = 0) -> list[T]:
    return [make() for _ in range(r.randint(least, most))]


def between(r: Random, low: int, high: int) -> int:
    """Any number, the least and the largest one and small ones more often."""
    kind = r.randrange(5)
    return (
        low
        if kind == 0
        else high
        if kind == 1
        else r.randint(max(low, -4), min(high, 4))
        if kind == 2 and low <= 4
        else r.randint(low, high)
    )


def optional(r: Random, make: Callable[[], T]) -> T | None:
    return make() if r.random() < 0.5 else None


def text(r: Random) -> str:
    """No half of a surrogate pair, which UTF-8 does not have."""
    if r.random() < 0.4:
        return r.choice(["", "x", "a b", '"', "\\", "// c", "\n", "é"])
    return "".join(several(r, lambda: r.choice(CHARACTERS) if r.random() < 0.5 else chr(r.randrange(0xD800)), 8))


def step(r: Random) -> int:
    return between(r, -(2**37), 2**37)


def u16(r: Random) -> int:
    return between(r, 0, 2**16 - 1)


def u32(r: Random) -> int:
    return between(r, 0, 2**32 - 1)


@cache
def fifos(op: Opcode, field: Field) -> list[str]:
    end = "producer" if field.slot == "dst" else "consumer"
    names = [f.name for f in FIFOS.values() if getattr(f, end) in op.units]
    return [n for n in names if not field.values or n in field.values]


def operand(r: Random, op: Opcode, field: Field, descriptors: int, groups: int) -> Any:
    """A value that `field` may have in a kernel with so many descriptors and groups."""
    if field.kind == "fifo":
        return r.choice(fifos(op, field))
    if field.kind in ("descriptor", "group"):
        named = descriptors if field.kind == "descriptor" else groups
        return None if field.optional and (not named or r.random() < 0.5) else r.randrange(named)
    return {
        "int": lambda: between(r, field.low, field.high),
        "unit": lambda: r.choice(UNITS).name,
        "register": lambda: r.randrange(FIRST_ACCUMULATOR if field.name == "dst" else REGISTERS),
        "accumulator": lambda: r.randrange(FIRST_ACCUMULATOR, REGISTERS),
        "enum": lambda: r.choice(field.values),
        "flag": lambda: r.random() < 0.5,
        "lane": lambda: u32(r),
    }[field.kind]()


@cache
def plain_words(unit: Unit, descriptors: bool, groups: bool) -> tuple[list[str], list[str]]:
    """Words of a unit that stand alone, and those of them that are streams."""

    def usable(op: Opcode) -> bool:
        kinds = {f.kind for f in op.fields if not f.optional}
        return unit in op.units and ("descriptor" not in kinds or descriptors) and ("group" not in kinds or groups)

    apart = ("halt", "endl", "par", "rep", "loop")
    plain = [o.name for o in OPCODES.values() if usable(o) and not o.body_only and o.name not in apart]
    return plain, [n for n in plain if n in ("push", "pull")]


def words(r: Random, unit: Unit, kernel: Kernel, sources: int, levels: tuple[int, ...] = ()) -> list[Word]:
    """A list of words with matched loops, REP bodies and PAR streams."""
    known = len(kernel.descriptors), len(kernel.groups)

    def make(name: str, **fixed: int) -> Word:
        op = OPCODES[name]
        values = {f.name: fixed[f.name] if f.name in fixed else operand(r, op, f, *known) for f in op.fields}
        return Word(name, values, r.randrange(sources))

    plain, streams = plain_words(unit, bool(kernel.descriptors), bool(kernel.groups))
    choices = ["plain", "loop"] if len(levels) < 3 else ["plain"]
    choices += ["rep"] * (unit is Unit.SFP) + ["par"] * bool(streams)
    out: list[Word] = []
    for choice in several(r, lambda: r.choice(choices), 4):
        if choice == "plain":
            out.append(make(r.choice(plain)))
        elif choice == "loop":
            level = r.choice([n for n in range(LEVELS) if n not in levels])
            out += [make("loop", level=level), *words(r, unit, kernel, sources, (*levels, level)), make("endl", level=level)]
        elif choice == "rep":
            names = several(r, lambda: r.choice(BODY_ONLY), 5)
            start, end = (r.randint(0, len(names) // 2) for _ in range(2))
            out += [make("rep", start=start, each=len(names) - start - end, end=end), *map(make, names)]
        else:
            names = several(r, lambda: r.choice(streams), 3, 1)
            out += [make("par", streams=len(names)), *map(make, names)]
    if not levels and r.random() < 0.5:
        out.append(make("halt"))
    return out


def bound(r: Random, rank: int, tables: int) -> Bound:
    """Any bound of a descriptor of that rank."""
    dim = optional(r, lambda: r.randrange(rank)) if rank else None
    level = optional(r, lambda: r.randrange(LEVELS))
    table = optional(r, lambda: r.randrange(tables)) if tables else None
    return Bound(
        limit=0 if table is not None else u32(r),
        table=table,
        dim=dim,
        dim_step=1 if dim is None else u16(r),
        level=level,
        level_step=0 if level is None else u16(r),
        corelet_step=u16(r),
        lanes=r.random() < 0.5,
    )


def descriptor(r: Random, arguments: int, tables: int) -> Descriptor:
    """Any descriptor of a kernel with so many arguments and tables."""
    rank = r.randint(0, MAX_RANK)
    spaces: tuple[Literal["lx"], ...] | tuple[Literal["lx"], Literal["ddr"]] = ("lx", "ddr") if arguments else ("lx",)
    space = r.choice(spaces)
    element = space == "ddr" and r.random() < 0.5
    buffers = r.randint(1, 3)
    return Descriptor(
        space=space,
        element_bytes=r.choice((2, 4)),
        extent=tuple(r.randint(1, 40) for _ in range(rank)),
        stride=tuple(step(r) for _ in range(rank)),
        base=between(r, 0, 2**40),
        arg=r.randrange(arguments) if space == "ddr" else None,
        core_table=optional(r, lambda: r.randrange(tables)) if tables else None,
        level_step=tuple(0 if r.random() < 0.5 else step(r) for _ in range(LEVELS)),
        buffers=buffers,
        rotate_levels=0 if buffers == 1 else between(r, 0, 255),
        rotate_step=0 if buffers == 1 else abs(step(r)),
        corelet_step=0 if element else step(r),
        lane_stride=(r.choice((0, 2, 4)) if r.random() < 0.5 else step(r)) if element else None,
        splat=r.random() < 0.5,
        pad=r.choice(PADS),
        bounds=tuple(several(r, lambda: bound(r, rank, tables), 2)),
    )


def kernel(r: Random, arguments: int, sources: int) -> Kernel:
    """Any kernel of a program with so many arguments."""
    cores = r.randint(1, 32)
    tables = several(r, lambda: [between(r, -(2**40), 2**40) for _ in range(cores)], 2)
    made = Kernel(text(r), cores, {}, [], tables, several(r, lambda: [r.randrange(cores) for _ in range(cores)], 2))
    channels = several(r, lambda: Channel(r.choice(UNITS), r.choice(UNITS), u16(r), u32(r)), 2)
    made.channels = list({(c.sender, c.receiver, c.token): c for c in channels}.values())
    made.descriptors = several(r, lambda: descriptor(r, arguments, len(tables)), 3)
    for unit in r.sample(UNITS, r.randint(0, len(UNITS))):
        made.units[unit] = words(r, unit, made, sources)
    return made


def source(r: Random) -> Source:
    place = f"{r.choice(['a.mlir', 'dir/b c.py'])}:{r.randint(0, 99)}:{r.randint(0, 99)}"
    return Source(r.choice(["linalg.generic", "ktdp.load"]), place, r.choice(["", "mm", 'mm,re"lu']))


def program(r: Random) -> Program:
    arguments = several(r, lambda: Argument(text(r), r.choice(ROLES), u32(r), r.choice((2, 4))), 3)
    sources = [Source("", ""), *dict.fromkeys(several(r, lambda: source(r), 3, 1))]
    return Program(text(r), arguments, several(r, lambda: kernel(r, len(arguments), len(sources)), 2), sources)
