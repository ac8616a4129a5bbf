"""The table of instructions: name, code, units, named fields of the 32-byte word, meaning.

Word layout (little-endian): op u8, flags u8, dsc u16, dtype u8, sub u8, src u8, dst u8, i0 i32, i1 i32, i2 i32, i3 i32, imm u64. `i3`
is the id of the source op in every word (index into `Program.sources`), 0 = none. Fields that an instruction does not name are zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from ktir.isa.kinds import BINARY, REDUCTIONS, TERNARY, UNARY
from ktir.isa.units import Unit
from ktir.target import HALVES, SIXTEEN

Kind = Literal["int", "descriptor", "fifo", "unit", "register", "accumulator", "enum", "flag", "group", "lane"]

SLOTS = ("op", "flags", "dsc", "dtype", "sub", "src", "dst", "i0", "i1", "i2", "i3", "imm")
"""Slots of a word in order; `SLOT_FORMATS` gives their NumPy types."""
SLOT_FORMATS = ("u1", "u1", "<u2", "u1", "u1", "u1", "u1", "<i4", "<i4", "<i4", "<i4", "<u8")
WORD_BYTES = 32


@dataclass(frozen=True)
class Field:
    """A named operand of an instruction.

    `slot` is where it is encoded; `shift` and `bits` select part of the slot (only `flags` is shared). `values` lists an enum's names in
    code order, or the only names that a FIFO field may have. `lane` fields hold an f32 or i32. `low` and `high` limit ints.
    """

    name: str
    slot: str
    kind: Kind
    doc: str
    values: tuple[str, ...] = ()
    shift: int = 0
    bits: int = 0
    low: int = 0
    high: int = 2**31 - 1
    optional: bool = False
    """Whether it may be left out: then it is 0, or names nothing."""

    @property
    def may_lack(self) -> bool:
        """Whether texts leave out what has its default: of what is optional, and of flags and enums beside them."""
        return self.optional or self.slot == "flags"


class Does(Enum):
    """What a word does: who runs, checks or prices words has a branch for each, whatever their names are."""

    HALT = auto()
    LOOP = auto()
    END_LOOP = auto()
    WAIT = auto()
    SIGNAL = auto()
    TOGETHER = auto()
    """Words that follow run concurrently."""
    MOVE = auto()
    """Between memory and LX."""
    FILL = auto()
    SEND = auto()
    RECEIVE = auto()
    """Entries over the ring."""
    PUSH = auto()
    PULL = auto()
    """Entries between LX and a FIFO of the corelet."""
    WEIGHTS = auto()
    MULTIPLY = auto()
    DRAIN = auto()
    REPEAT = auto()
    # in the body of a REP:
    TAKE = auto()
    GIVE = auto()
    """An entry of a FIFO."""
    CONSTANT = auto()
    FUNCTION = auto()
    REDUCE = auto()
    ACCUMULATE = auto()
    LIVE = auto()
    MASK = auto()


@dataclass(frozen=True)
class Opcode:
    """An instruction: `name` is its mnemonic, `units` those that may execute it.

    `reads` and `writes` are the fields of the descriptors through which it does so, `pops` and `pushes` the FIFO, or `fifo` where the field
    of that name says which.
    """

    name: str
    code: int
    units: tuple[Unit, ...]
    does: Does
    fields: tuple[Field, ...]
    doc: str
    reads: tuple[str, ...] = ()
    writes: str = ""
    pops: str = ""
    pushes: str = ""
    holds: tuple[str, ...] = ()
    """The fields that count the words that follow and belong to it, list after list."""

    @property
    def body_only(self) -> bool:
        """Whether it is legal only inside the body of a REP."""
        return self.does in BODY


MAX_TOKEN = 0xFFFF
MAX_SOURCE = 2**31 - 1
FIRST_ACCUMULATOR = 16
REGISTERS = 24
"""Registers 0 to 15 are vector registers, 16 to 23 the accumulators of VACC (and a source of later ops)."""

ALL = tuple(Unit)

PARTS = ("start", "each", "end")
"""The lists of a REP's body, in order: what runs once at the start of a group, at each of its sticks, once at its end."""
STREAMS = (Does.PUSH, Does.PULL)
"""What may run concurrently."""
BODY = (Does.TAKE, Does.GIVE, Does.CONSTANT, Does.FUNCTION, Does.REDUCE, Does.ACCUMULATE, Does.LIVE, Does.MASK)
"""What stands in the body of a REP."""

_ROUND = Field(
    "round",
    "flags",
    "flag",
    "round the result to the float of 16 bits that `half` names, to nearest even, of dl16 ties up",
    bits=1,
)
_HALF = Field("half", "flags", "enum", "float of 16 bits", HALVES, shift=1, bits=2)
_FACTOR = Field("half", "flags", "enum", "what 16 bits of an operand are", SIXTEEN, shift=1, bits=3)
_DST = Field("dst", "dst", "register", "destination register")
_SRC = Field("src", "src", "register", "source register")
_SRC2 = Field("src2", "i0", "register", "second source register")
_SRC3 = Field("src3", "i1", "register", "third source register")
_ACC = Field("dst", "dst", "accumulator", "accumulator")
_VALUE = Field("value", "imm", "lane", "value of every lane")
_TOKEN = Field("token", "i0", "int", "channel id", high=MAX_TOKEN)


def _dsc(slot: str, name: str, doc: str, optional: bool = False) -> Field:
    return Field(name, slot, "descriptor", doc, optional=optional)


OPCODES: dict[str, Opcode] = {
    o.name: o
    for o in (
        Opcode("halt", 0x01, ALL, Does.HALT, (), "End of the unit's program of this kernel."),
        Opcode(
            "loop",
            0x02,
            ALL,
            Does.LOOP,
            (
                Field("trips", "i0", "int", "trip count, 0 is legal"),
                Field("level", "i1", "int", "loop counter, 0 to 7", high=7),
                Field("region", "i2", "int", "loops of different units with one region id (> 0) are one iteration space"),
            ),
            "Counted loop up to the matching `endl`.",
        ),
        Opcode("endl", 0x03, ALL, Does.END_LOOP, (Field("level", "i1", "int", "level of the loop that ends", high=7),), "End of a loop."),
        Opcode(
            "wait",
            0x04,
            ALL,
            Does.WAIT,
            (
                _TOKEN,
                Field("sender", "src", "unit", "unit that posts on this channel"),
                Field("count", "i2", "int", "tokens to take"),
            ),
            "Take tokens of the channel (sender, this unit, token); blocks. A core unit takes from both corelets of a corelet unit.",
        ),
        Opcode(
            "sig",
            0x05,
            ALL,
            Does.SIGNAL,
            (
                _TOKEN,
                Field("receiver", "dst", "unit", "unit that waits on this channel"),
                Field("count", "i2", "int", "tokens to post"),
            ),
            "Post tokens, after this unit's asynchronous transfers. A core unit posts to both corelets of a corelet unit.",
        ),
        Opcode(
            "par",
            0x4E,
            (Unit.LXLU, Unit.LXSU),
            Does.TOGETHER,
            (Field("streams", "i0", "int", "words that follow and run concurrently", low=1),),
            "The next PUSH or PULL words stream concurrently and complete together.",
            holds=("streams",),
        ),
        Opcode(
            "move",
            0x10,
            (Unit.MNIL, Unit.MNIS),
            Does.MOVE,
            (
                _dsc("dsc", "src", "in memory or LX; none: from the ring", optional=True),
                _dsc("i0", "dst", "in LX or memory; none: to the ring", optional=True),
                Field("group", "imm", "group", "per core: the core whose read, or whose entries, it receives", optional=True),
                _dsc("i1", "index", "element descriptor of i32 in memory: lane 0, an entry per position of `dim`", optional=True),
                Field("dim", "sub", "int", "inner dim in memory whose position the index replaces", high=3, optional=True),
                Field("size", "i2", "int", "indices are 0 to size - 1", optional=True),
                Field("ahead", "dtype", "int", "how many of its first runs may be before the kernel begins", high=255, optional=True),
            ),
            "Move entries. MNIL moves into LX, MNIS out of it. What a bound clips is the pad value in LX, and stays as it is in memory. "
            "With an index, the address in memory counts `stride[dim]` times the index, where bounds count the position; of entries for "
            "one place a core's last stays, and two cores may not share one. With a group, memory, and the indices, are read once per "
            "leader and delivered to its members. What goes over the ring has the same group on both sides, and goes to the cores for "
            "which the group names the sender, which blocks while 16 entries are on the way to one of them. The first `ahead` runs of a "
            "load may take place while the kernel before still runs.",
            reads=("src", "index"),
            writes="dst",
        ),
        Opcode(
            "fill",
            0x14,
            (Unit.MNIL,),
            Does.FILL,
            (_dsc("dsc", "lx", "destination in LX"), _VALUE),
            "Fill LX with a constant: its bits, or, in elements of 2 bytes, the float of 16 bits that is the f32 of these bits.",
            writes="lx",
        ),
        Opcode(
            "push",
            0x20,
            (Unit.LXLU,),
            Does.PUSH,
            (
                _dsc("dsc", "lx", "source in LX"),
                Field("fifo", "dst", "fifo", "W, A, I0, I1 or I2"),
                Field("transpose", "flags", "flag", "transpose each block of 64 entries: its nth entry has lane n of each of them", bits=1),
            ),
            "Stream entries from LX into a FIFO; a splat descriptor repeats lane 0 over all lanes.",
            reads=("lx",),
            pushes="fifo",
        ),
        Opcode(
            "pull",
            0x28,
            (Unit.LXSU,),
            Does.PULL,
            (_dsc("dsc", "lx", "destination in LX"), Field("fifo", "src", "fifo", "O or Q")),
            "Stream entries from a FIFO into LX.",
            writes="lx",
            pops="fifo",
        ),
        Opcode(
            "ldw",
            0x30,
            (Unit.PT,),
            Does.WEIGHTS,
            (_FACTOR,),
            "Pop 64 weight entries W[k][n] (one entry per k, or per 2k and 2k + 1 of pairs, lanes n) and make them the stationary block.",
            pops="W",
        ),
        Opcode(
            "mm",
            0x31,
            (Unit.PT,),
            Does.MULTIPLY,
            (Field("rows", "i1", "int", "activation rows"), _FACTOR),
            "Pop rows A[m][k]; accumulator[m][n] += f32(exact sum over the 64 k, or 128 of pairs, of A*W); of i8x2 in i32, modulo 2^32. "
            "Starts from +0 after a PTO.",
            pops="A",
        ),
        Opcode(
            "pto",
            0x33,
            (Unit.PT,),
            Does.DRAIN,
            (),
            "Push the accumulator rows, f32 or of i8x2 i32, as many as the last MM above has, to FIFO P and clear them.",
            pushes="P",
        ),
        Opcode(
            "rep",
            0x4F,
            (Unit.SFP,),
            Does.REPEAT,
            (
                Field("groups", "i0", "int", "groups per corelet"),
                Field("sticks", "i2", "int", "sticks per group"),
                Field("start", "dsc", "int", "words of the body that run once at the start of a group", high=0xFFFF),
                Field("each", "i1", "int", "words that run at each stick of a group"),
                Field("end", "imm", "int", "words that run once at its end"),
            ),
            "Vector loop: the body, three lists of words that follow, runs for each of the groups.",
            holds=PARTS,
        ),
        Opcode(
            "vin",
            0x40,
            (Unit.SFP,),
            Does.TAKE,
            (_DST, Field("fifo", "src", "fifo", "I0, I1, I2 or P")),
            "Pop an entry, at the start of a group or at each stick.",
            pops="fifo",
        ),
        Opcode(
            "vout",
            0x41,
            (Unit.SFP,),
            Does.GIVE,
            (_SRC, Field("fifo", "dst", "fifo", "O or Q")),
            "Push an entry, at each stick or at the end of a group.",
            pushes="fifo",
        ),
        Opcode(
            "v1",
            0x42,
            (Unit.SFP,),
            Does.FUNCTION,
            (Field("kind", "sub", "enum", "operation", UNARY), _DST, _SRC, _ROUND, _HALF),
            "dst = kind(src). Lanes are f32 values, i32 bits, or masks (i32 0 or 1), as the kind says.",
        ),
        Opcode(
            "v2",
            0x43,
            (Unit.SFP,),
            Does.FUNCTION,
            (Field("kind", "sub", "enum", "operation", BINARY), _DST, _SRC, _SRC2, _ROUND, _HALF),
            "dst = kind(src, src2); a comparison gives a mask.",
        ),
        Opcode(
            "v3",
            0x44,
            (Unit.SFP,),
            Does.FUNCTION,
            (Field("kind", "sub", "enum", "operation", TERNARY), _DST, _SRC, _SRC2, _SRC3, _ROUND, _HALF),
            "dst = kind(src, src2, src3); `select` is src2 where the mask src is not 0, else src3.",
        ),
        Opcode(
            "vred",
            0x45,
            (Unit.SFP,),
            Does.REDUCE,
            (Field("kind", "sub", "enum", "combiner", REDUCTIONS), _DST, _SRC),
            "dst = all lanes hold the reduction of src's 64 lanes by a halving tree (32+32, 16+16, ...).",
        ),
        Opcode(
            "vacc",
            0x46,
            (Unit.SFP,),
            Does.ACCUMULATE,
            (Field("kind", "sub", "enum", "combiner", REDUCTIONS), _ACC, _SRC),
            "accumulator = kind(accumulator, src) per lane, stick after stick; starts from the identity at each group.",
        ),
        Opcode(
            "vmask",
            0x47,
            (Unit.SFP,),
            Does.MASK,
            (
                _DST,
                _SRC,
                Field("lanes", "i0", "int", "live lanes of a group's sticks * 64 lanes"),
                Field("fill", "imm", "lane", "value of the other lanes"),
            ),
            "dst = src where 64*stick + lane < lanes, else fill; stick counts within the group.",
        ),
        Opcode(
            "vconst",
            0x49,
            (Unit.SFP,),
            Does.CONSTANT,
            (_DST, _VALUE),
            "dst = a constant, which all words below may read.",
        ),
        Opcode(
            "vlive",
            0x48,
            (Unit.SFP,),
            Does.LIVE,
            (_DST, Field("lanes", "i0", "int", "live lanes of a group's sticks * 64 lanes")),
            "dst = the mask 64*stick + lane < lanes; stick counts within the group.",
        ),
    )
}
OPCODE_BY_CODE = {o.code: o for o in OPCODES.values()}


def default(field: Field) -> int | float | str | bool | None:
    """What a field that is left out of a word means: None if it must be given, or, of one that is optional, if it names nothing."""
    if field.optional:
        return None if field.kind in ("descriptor", "group") else 0
    return {"flag": False, "enum": field.values[0] if field.values else None, "fifo": None, "unit": None}.get(field.kind, 0)


def register_name(number: int) -> str:
    """`r3`, or `acc0` for an accumulator."""
    return f"r{number}" if number < FIRST_ACCUMULATOR else f"acc{number - FIRST_ACCUMULATOR}"
