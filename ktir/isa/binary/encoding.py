"""Program <-> bytes: the file `program.bin`.

A header of 128 bytes, then four sections at multiples of 128, padded with zeros: strings, arguments, kernels, words. All numbers are
little-endian. The CRC-32 covers the whole file with the CRC field zero. Sections:

    strings    count u32; count + 1 offsets u32 into the text that follows, UTF-8, in order of first use; string 0 names the program
    arguments  records of `ARGUMENT_DTYPE`
    kernels    per kernel, padded to 128: `KERNEL_DTYPE`, units (`UNIT_DTYPE`), channels (`CHANNEL_DTYPE`), padding to 128, descriptors,
               core tables (i64 per core), groups (u16 per core)
    words      all units' words in the order of the unit directories

There is one encoding of a program: unused fields are zero, and `decode` refuses any other form. Sources are not part of the file.
"""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import Any

import numpy as np

from ktir.isa.binary import descriptor_codec, validate, words
from ktir.isa.binary.words import WORD_DTYPE
from ktir.isa.descriptor import DESCRIPTOR_BYTES
from ktir.isa.instructions import WORD_BYTES
from ktir.isa.problem import EncodingError, Problem, ProgramError
from ktir.isa.program import ROLES, Argument, Channel, Kernel, Program
from ktir.isa.units import Unit
from ktir.target import MOVED

MAGIC = b"SIS0"
VERSION = 4
"""Of the instruction set and its encoding: raised whenever a program of before would mean something else."""
ALIGN = 128
SECTIONS = ("strings", "arguments", "kernels", "words")

HEADER_DTYPE = np.dtype(
    [
        ("magic", "u1", 4),
        ("version", "<u2"),
        ("header_bytes", "<u2"),
        ("crc", "<u4"),
        ("section_count", "<u4"),
        ("file_bytes", "<u8"),
        ("reserved", "<u8"),
        ("sections", [("offset", "<u8"), ("length", "<u8")], len(SECTIONS)),
        ("padding", "u1", 32),
    ]
)
ARGUMENT_DTYPE = np.dtype([("name", "<u4"), ("role", "u1"), ("element_bytes", "u1"), ("half", "u1"), ("reserved", "u1"), ("sticks", "<u8")])
KERNEL_DTYPE = np.dtype([(n, "<u4") for n in ("name", "cores", "units", "channels", "descriptors", "tables", "groups", "reserved")])
UNIT_DTYPE = np.dtype([("unit", "<u4"), ("count", "<u4"), ("first", "<u8")])
CHANNEL_DTYPE = np.dtype([("sender", "u1"), ("receiver", "u1"), ("reserved", "<u2"), ("token", "<u4"), ("leftover", "<u8")])
assert HEADER_DTYPE.itemsize == ALIGN
_CRC_AT = 8


def _pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGN)


class _Strings:
    """Strings in the order of first use."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def id(self, text: str) -> int:
        return self.ids.setdefault(text, len(self.ids))

    def encode(self) -> bytes:
        raw = [s.encode() for s in self.ids]
        offsets = np.cumsum([0, *map(len, raw)])
        return np.array([len(raw), *offsets], "<u4").tobytes() + b"".join(raw)


def encode(program: Program) -> bytes:
    """The bytes of a program. Raises ProgramError if it is not well-formed."""
    packed: validate.Packed = {}
    problems = validate.validate(program, packed)
    if problems:
        raise ProgramError(problems)
    arrays = [packed[k, unit] for k, kernel in enumerate(program.kernels) for unit in sorted(kernel.units)]
    return _assemble(program, b"".join(a.tobytes() for a in arrays))


def _assemble(program: Program, word_bytes: bytes) -> bytes:
    strings = _Strings()
    strings.id(program.name)
    arguments = np.zeros(len(program.arguments), ARGUMENT_DTYPE)
    for record, a in zip(arguments, program.arguments, strict=True):
        record["name"], record["role"] = strings.id(a.name), ROLES.index(a.role)
        record["element_bytes"], record["half"], record["sticks"] = a.element_bytes, MOVED.index(a.half), a.sticks
    kernels, first = bytearray(), 0
    for kernel in program.kernels:
        kernels += _kernel_bytes(kernel, strings.id(kernel.name), first)
        first += sum(map(len, kernel.units.values()))
    bodies = (strings.encode(), arguments.tobytes(), bytes(kernels), word_bytes)
    header = np.zeros((), HEADER_DTYPE)
    header["magic"] = list(MAGIC)
    header["version"], header["header_bytes"], header["section_count"] = VERSION, ALIGN, len(SECTIONS)
    at = ALIGN
    for section, body in zip(header["sections"], bodies, strict=True):
        section["offset"], section["length"] = at, len(body)
        at += len(_pad(body))
    header["file_bytes"] = at
    payload = b"".join(map(_pad, bodies))
    header["crc"] = zlib.crc32(payload, zlib.crc32(header.tobytes()))
    return header.tobytes() + payload


def _kernel_bytes(kernel: Kernel, name: int, first: int) -> bytes:
    head = np.zeros((), KERNEL_DTYPE)
    head["name"], head["cores"] = name, kernel.cores
    for field in ("units", "channels", "descriptors", "tables", "groups"):
        head[field] = len(getattr(kernel, field))
    units = np.zeros(len(kernel.units), UNIT_DTYPE)
    for record, unit in zip(units, sorted(kernel.units), strict=True):
        record["unit"], record["count"], record["first"] = unit, len(kernel.units[unit]), first
        first += len(kernel.units[unit])
    channels = np.zeros(len(kernel.channels), CHANNEL_DTYPE)
    for record, c in zip(channels, kernel.channels, strict=True):
        record["sender"], record["receiver"], record["token"], record["leftover"] = (
            c.sender,
            c.receiver,
            c.token,
            c.leftover,
        )
    tables = np.array(kernel.tables, "<i8").tobytes()
    groups = np.array(kernel.groups, "<u2").tobytes()
    front = _pad(head.tobytes() + units.tobytes() + channels.tobytes())
    return _pad(front + descriptor_codec.pack(kernel.descriptors).tobytes() + tables + groups)


class _Reader:
    """Takes records out of one section; every failure is an EncodingError that names the offset in the file."""

    def __init__(self, data: bytes, start: int, length: int, section: str) -> None:
        self.data, self.start, self.at, self.end, self.section = data, start, start, start + length, section

    def take(self, dtype: Any, count: int, what: str) -> np.ndarray:
        """`count` records without a copy."""
        dtype = np.dtype(dtype)
        if count * dtype.itemsize > self.end - self.at:
            rest = self.end - self.at
            raise EncodingError(
                self.at,
                f"{count} {what} need {count * dtype.itemsize} bytes, but the {self.section} section has {rest} left",
            )
        array = np.frombuffer(self.data, dtype, count, self.at)
        self.at += count * dtype.itemsize
        return array

    def align(self) -> None:
        """Skip padding, which must be zero."""
        stop = min(self.at + -(self.at - self.start) % ALIGN, self.end)
        self.zeros(stop)

    def zeros(self, stop: int) -> None:
        """Skip bytes up to `stop`, which must be zero."""
        for i in range(self.at, stop):
            if self.data[i]:
                raise EncodingError(i, "padding is not zero")
        self.at = stop

    def finish(self) -> None:
        """Check that the section is used up."""
        if self.at != self.end:
            raise EncodingError(self.at, f"{self.end - self.at} bytes too many in the {self.section} section")


def decode(data: bytes) -> Program:
    """The program that `data` holds. Raises EncodingError (offset, reason) on anything but the one encoding of a well-formed program."""
    data = bytes(data)
    strings, arguments, kernels, word_reader = _sections(data)
    texts = _read_strings(strings)
    args = _read_arguments(arguments, texts)
    program = Program(texts[0], args, [])
    first = 0
    offsets: list[tuple[dict[Unit, int], int]] = []
    while kernels.at < kernels.end:
        kernel, used, places = _read_kernel(kernels, texts, word_reader, first, len(args))
        program.kernels.append(kernel)
        offsets.append(places)
        first += used
    word_reader.finish()
    problems = validate.validate_headers(program)
    if problems:
        raise _located(problems[0], offsets, arguments.start)
    canonical = _assemble(program, data[word_reader.start : word_reader.end])
    if canonical != data:
        at = next((i for i, (a, b) in enumerate(zip(canonical, data, strict=False)) if a != b), min(len(canonical), len(data)))
        raise EncodingError(at, "not in canonical form")
    return program


def _sections(data: bytes) -> list[_Reader]:
    if len(data) < ALIGN:
        raise EncodingError(0, f"expects a header of {ALIGN} bytes, but the file has {len(data)}")
    if data[:4] != MAGIC:
        raise EncodingError(0, f"expects the magic {MAGIC.decode()!r}, but got {data[:4]!r}")
    header = np.frombuffer(data, HEADER_DTYPE, 1)[0]
    if header["version"] != VERSION:
        raise EncodingError(4, f"is of version {header['version']}, but only version {VERSION} of the instruction set is read")
    if header["header_bytes"] != ALIGN:
        raise EncodingError(6, f"expects a header of {ALIGN} bytes, but got {header['header_bytes']}")
    if header["section_count"] != len(SECTIONS):
        raise EncodingError(12, f"expects {len(SECTIONS)} sections, but got {header['section_count']}")
    if header["file_bytes"] != len(data):
        kind = "truncated" if len(data) < header["file_bytes"] else "followed by garbage"
        raise EncodingError(16, f"the header says {header['file_bytes']} bytes, but the file has {len(data)}: {kind}")
    crc = zlib.crc32(data[_CRC_AT + 4 :], zlib.crc32(data[:_CRC_AT] + bytes(4)))
    if crc != header["crc"]:
        raise EncodingError(_CRC_AT, f"the checksum is {crc:#010x}, but the header says {header['crc']:#010x}: the file is damaged")
    if header["reserved"] or header["padding"].any():
        raise EncodingError(24, "reserved bytes of the header are not zero")
    readers, free = [], ALIGN
    for i, (name, section) in enumerate(zip(SECTIONS, header["sections"], strict=True)):
        offset, length, entry = int(section["offset"]), int(section["length"]), 32 + 16 * i
        if offset % ALIGN:
            raise EncodingError(entry, f"offset {offset:#x} of the {name} section is not a multiple of {ALIGN}")
        if offset + length > len(data):
            raise EncodingError(entry, f"the {name} section at {offset:#x}, {length} bytes, ends beyond the file of {len(data)} bytes")
        if offset < free:
            raise EncodingError(entry, f"the {name} section at {offset:#x} overlaps what stands before it up to {free:#x}")
        if offset > free:
            raise EncodingError(entry, f"the {name} section at {offset:#x} leaves a gap from {free:#x}")
        readers.append(_Reader(data, offset, length, name))
        free = offset + length + -length % ALIGN
    if free != len(data):
        raise EncodingError(min(free, len(data)), f"the sections end at {free:#x}, but the file at {len(data):#x}")
    for r in readers:
        _Reader(data, r.end, 0, r.section).zeros(r.end + -(r.end - r.start) % ALIGN)
    return readers


def _read_strings(r: _Reader) -> list[str]:
    count = int(r.take("<u4", 1, "counts")[0])
    if count == 0:
        raise EncodingError(r.start, "the program has no name")
    table = r.at
    offsets = r.take("<u4", count + 1, "string offsets").astype(np.int64)
    text = r.take("u1", r.end - r.at, "bytes of text").tobytes()
    bad = np.flatnonzero(np.diff(offsets) < 0)
    if offsets[0] != 0 or len(bad) or offsets[-1] != len(text):
        at = 0 if offsets[0] else int(bad[0]) + 1 if len(bad) else count
        raise EncodingError(table + 4 * at, f"string offset {int(offsets[at])} is out of order or outside the {len(text)} bytes of text")
    out, edges = [], offsets.tolist()
    for start, stop in pairwise(edges):
        try:
            out.append(text[start:stop].decode())
        except UnicodeDecodeError as e:
            raise EncodingError(r.end - len(text) + start + e.start, "text is not valid UTF-8") from None
    return out


def _text(texts: list[str], index: int, at: int) -> str:
    if index >= len(texts):
        raise EncodingError(at, f"string {index} is not one of {len(texts)}")
    return texts[index]


def _read_arguments(r: _Reader, texts: list[str]) -> list[Argument]:
    out = []
    count, rest = divmod(r.end - r.start, ARGUMENT_DTYPE.itemsize)
    if rest:
        raise EncodingError(r.end - rest, f"the arguments section has {rest} bytes too many")
    for i, record in enumerate(r.take(ARGUMENT_DTYPE, count, "arguments").tolist()):
        name, role, element_bytes, half, reserved, sticks = record
        at = r.start + i * ARGUMENT_DTYPE.itemsize
        if role >= len(ROLES):
            raise EncodingError(at + 4, f"unknown role code {role}")
        if half >= len(MOVED):
            raise EncodingError(at + 6, f"unknown half code {half}")
        if reserved:
            raise EncodingError(at + 7, "reserved field is not zero")
        out.append(Argument(_text(texts, name, at), ROLES[role], sticks, element_bytes, MOVED[half]))
    return out


def _unit(code: int, at: int) -> Unit:
    if code >= len(Unit):
        raise EncodingError(at, f"unknown unit code {code}")
    return Unit(code)


def _read_kernel(
    r: _Reader, texts: list[str], body: _Reader, first: int, arguments: int
) -> tuple[Kernel, int, tuple[dict[Unit, int], int]]:
    """The kernel at `r`, how many words it has, and where its words and descriptors stand."""
    start = r.at
    head = r.take(KERNEL_DTYPE, 1, "kernels")[0]
    if head["reserved"]:
        raise EncodingError(r.at - 4, "reserved field is not zero")
    cores = int(head["cores"])
    kernel = Kernel(_text(texts, int(head["name"]), start), cores, {}, [])
    units_at = r.at
    directory = r.take(UNIT_DTYPE, int(head["units"]), "units").tolist()
    for record in r.take(CHANNEL_DTYPE, int(head["channels"]), "channels").tolist():
        sender, receiver, reserved, token, leftover = record
        if reserved:
            raise EncodingError(r.at, "reserved field of a channel is not zero")
        kernel.channels.append(Channel(_unit(sender, r.at), _unit(receiver, r.at), token, leftover))
    r.align()
    descriptors_at = r.at
    for i, record in enumerate(r.take(descriptor_codec.DESCRIPTOR_DTYPE, int(head["descriptors"]), "descriptors")):
        d, problems = descriptor_codec.unpack(record)
        if d is None or problems:
            raise EncodingError(descriptors_at + 128 * i, f"descriptor {i} of kernel {kernel.name!r}: {problems[0]}")
        kernel.descriptors.append(d)
    if not 1 <= cores <= validate.MAX_CORES:
        raise EncodingError(start + 4, f"expects 1 to {validate.MAX_CORES} cores, but got {cores}")
    for field, dtype in (("tables", "<i8"), ("groups", "<u2")):
        count = int(head[field])
        setattr(kernel, field, r.take(dtype, count * cores, f"values of {count} {field}").reshape(count, cores).tolist())
    r.align()
    used, places = 0, {}
    limits = {"descriptor": len(kernel.descriptors), "group": len(kernel.groups)}
    for i, (code, count, start_word) in enumerate(directory):
        at = units_at + i * UNIT_DTYPE.itemsize
        unit = _unit(code, at)
        if unit in kernel.units or (kernel.units and unit < max(kernel.units)):
            raise EncodingError(at, f"unit {unit.name} is out of order or listed twice")
        if start_word != first + used:
            raise EncodingError(at + 8, f"the words of unit {unit.name} start at {start_word}, expected {first + used}")
        places[unit] = body.at
        array = body.take(WORD_DTYPE, count, f"words of unit {unit.name}")
        for index, message in words.check(array, unit, limits):
            where = Problem(message, kernel_name=kernel.name, kernel=0, unit=unit, word=index)
            raise EncodingError(places[unit] + WORD_BYTES * index, where.text)
        kernel.units[unit] = words.unpack(array)
        used += count
    return kernel, used, (places, descriptors_at)


def _located(p: Problem, offsets: list[tuple[dict[Unit, int], int]], arguments_at: int) -> EncodingError:
    at = 0
    if p.argument is not None:
        at = arguments_at + p.argument * ARGUMENT_DTYPE.itemsize
    elif p.kernel is not None:
        at = offsets[p.kernel][1] + DESCRIPTOR_BYTES * (p.descriptor or 0)
    return EncodingError(at, p.text)
