"""Hypothesis strategies for well-formed programs over the whole instruction table. They mean nothing, but every form can hold them.

Each strategy is made once: to make and to check one takes longer than to draw from it.
"""

from functools import cache

from hypothesis import strategies as st

from ktir.isa.descriptor import LEVELS, MAX_RANK, PADS, Bound, Descriptor
from ktir.isa.instructions import FIRST_ACCUMULATOR, OPCODES, REGISTERS, Field, Opcode
from ktir.isa.program import ROLES, Argument, Channel, Kernel, Program, Source, Word
from ktir.isa.units import FIFOS, Unit

STEP = st.integers(-(2**37), 2**37)
LEVEL_STEP = st.just(0) | STEP
LANE_STEP = st.sampled_from([0, 2, 4]) | STEP
U16 = st.integers(0, 2**16 - 1)
U32 = st.integers(0, 2**32 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(["x", "a b", '"', "\\", "// c", "\n", "é"])
BODY_ONLY = tuple([op.name for op in OPCODES.values() if op.body_only])
CHANNELS = st.lists(
    st.builds(Channel, st.sampled_from(Unit), st.sampled_from(Unit), U16, U32),
    max_size=2,
    unique_by=lambda c: (c.sender, c.receiver, c.token),
)
ARGUMENTS = st.lists(st.builds(Argument, TEXT, st.sampled_from(ROLES), U32, st.sampled_from([2, 4])), max_size=3)
PLACE = st.builds("{}:{}:{}".format, st.sampled_from(["a.mlir", "dir/b c.py"]), st.integers(0, 99), st.integers(0, 99))
SOURCES = st.lists(st.builds(Source, st.sampled_from(["linalg.generic", "ktdp.load"]), PLACE), min_size=1, max_size=3, unique=True)

between = cache(st.integers)
one_of = cache(st.sampled_from)
lists = cache(st.lists)


@cache
def operand(op: Opcode, field: Field, descriptors: int, groups: int):
    """Values that `field` may have in a kernel with so many descriptors and groups."""
    if field.kind == "fifo":
        end = "producer" if field.slot == "dst" else "consumer"
        names = [f.name for f in FIFOS.values() if getattr(f, end) in op.units]
        return st.sampled_from([n for n in names if not field.values or n in field.values])
    if field.optional and field.kind in ("descriptor", "group"):
        named = descriptors if field.kind == "descriptor" else groups
        return st.none() | st.integers(0, named - 1) if named else st.none()
    high = FIRST_ACCUMULATOR if field.name == "dst" else REGISTERS
    return {
        "int": lambda: st.integers(field.low, min(field.high, 4)) | st.integers(field.low, field.high),
        "descriptor": lambda: st.integers(0, descriptors - 1),
        "group": lambda: st.integers(0, groups - 1),
        "unit": lambda: st.sampled_from([u.name for u in Unit]),
        "register": lambda: st.integers(0, high - 1),
        "accumulator": lambda: st.integers(FIRST_ACCUMULATOR, REGISTERS - 1),
        "enum": lambda: st.sampled_from(field.values),
        "flag": st.booleans,
        "lane": lambda: U32,
    }[field.kind]()


@st.composite
def words(draw, unit: Unit, kernel: Kernel, sources: int, levels: tuple[int, ...] = ()) -> list[Word]:
    """A list of words with matched loops, REP bodies and PAR streams."""
    known = len(kernel.descriptors), len(kernel.groups)

    def make(name: str, **fixed) -> Word:
        op = OPCODES[name]
        values = {f.name: fixed[f.name] if f.name in fixed else draw(operand(op, f, *known)) for f in op.fields}
        return Word(name, values, draw(between(0, sources - 1)))

    def usable(op: Opcode) -> bool:
        kinds = {f.kind for f in op.fields if not f.optional}
        return (
            unit in op.units and ("descriptor" not in kinds or bool(kernel.descriptors)) and ("group" not in kinds or bool(kernel.groups))
        )

    plain = tuple(
        [o.name for o in OPCODES.values() if usable(o) and not o.body_only and o.name not in ("halt", "endl", "par", "rep", "loop")]
    )
    streams = tuple([n for n in plain if n in ("push", "pull")])
    choices = ("plain", "loop") if len(levels) < 3 else ("plain",)
    choices += ("rep",) * (unit is Unit.SFP) + ("par",) * bool(streams)
    out: list[Word] = []
    for choice in draw(lists(one_of(choices), max_size=4)):
        if choice == "plain":
            out.append(make(draw(one_of(plain))))
        elif choice == "loop":
            level = draw(one_of(tuple([n for n in range(LEVELS) if n not in levels])))
            out += [make("loop", level=level), *draw(words(unit, kernel, sources, (*levels, level))), make("endl", level=level)]
        elif choice == "rep":
            names = draw(lists(one_of(BODY_ONLY), max_size=5))
            start, end = (draw(between(0, len(names) // 2)) for _ in range(2))
            out += [make("rep", start=start, each=len(names) - start - end, end=end), *(make(n) for n in names)]
        else:
            names = draw(lists(one_of(streams), min_size=1, max_size=3))
            out += [make("par", streams=len(names)), *(make(n) for n in names)]
    if not levels and draw(st.booleans()):
        out.append(make("halt"))
    return out


@cache
def optional(strategy):
    """None or a value of the strategy."""
    return st.none() | strategy


@cache
@st.composite
def bounds(draw, rank: int, tables: int) -> Bound:
    """Any bound of a descriptor of that rank."""
    dim = draw(optional(between(0, rank - 1))) if rank else None
    level = draw(optional(between(0, LEVELS - 1)))
    table = draw(optional(between(0, tables - 1))) if tables else None
    return Bound(
        limit=0 if table is not None else draw(U32),
        table=table,
        dim=dim,
        dim_step=1 if dim is None else draw(U16),
        level=level,
        level_step=0 if level is None else draw(U16),
        corelet_step=draw(U16),
        lanes=draw(st.booleans()),
    )


@cache
@st.composite
def descriptors(draw, arguments: int, tables: int) -> Descriptor:
    """Any descriptor of a kernel with so many arguments and tables."""
    rank = draw(between(0, MAX_RANK))
    space = draw(one_of(("ddr", "lx") if arguments else ("lx",)))
    element = space == "ddr" and draw(st.booleans())
    buffers = draw(between(1, 3))
    return Descriptor(
        space=space,
        element_bytes=draw(one_of((2, 4))),
        extent=tuple(draw(between(1, 40)) for _ in range(rank)),
        stride=tuple(draw(STEP) for _ in range(rank)),
        base=draw(between(0, 2**40)),
        arg=draw(between(0, arguments - 1)) if space == "ddr" else None,
        core_table=draw(optional(between(0, tables - 1))) if tables else None,
        level_step=tuple(draw(lists(LEVEL_STEP, min_size=LEVELS, max_size=LEVELS))),
        buffers=buffers,
        rotate_levels=0 if buffers == 1 else draw(between(0, 255)),
        rotate_step=0 if buffers == 1 else abs(draw(STEP)),
        corelet_step=0 if element else draw(STEP),
        lane_stride=draw(LANE_STEP) if element else None,
        splat=draw(st.booleans()),
        pad=draw(one_of(PADS)),
        bounds=tuple(draw(lists(bounds(rank, tables), max_size=2))),
    )


@cache
@st.composite
def kernels(draw, arguments: int, sources: int) -> Kernel:
    """Any kernel of a program with so many arguments."""
    cores = draw(between(1, 32))
    row = lists(between(-(2**40), 2**40), min_size=cores, max_size=cores)
    group = lists(between(0, cores - 1), min_size=cores, max_size=cores)
    kernel = Kernel(draw(TEXT), cores, {}, [], draw(lists(row, max_size=2)), draw(lists(group, max_size=2)))
    kernel.channels = draw(CHANNELS)
    kernel.descriptors = draw(lists(descriptors(arguments, len(kernel.tables)), max_size=3))
    for unit in draw(lists(one_of(Unit), unique=True)):
        kernel.units[unit] = draw(words(unit, kernel, sources))
    return kernel


@cache
@st.composite
def programs(draw) -> Program:
    """Any well-formed program, with a table of sources."""
    arguments = draw(ARGUMENTS)
    sources = [Source("", ""), *draw(SOURCES)]
    body = draw(lists(kernels(len(arguments), len(sources)), max_size=2))
    return Program(draw(TEXT), arguments, body, sources)
