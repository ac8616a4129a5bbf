"""Binary form: round trip and refusal of everything else."""

import gc
import math
import re
import time
import zlib
from collections.abc import Callable

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import programs

from ktir.isa.binary.encoding import decode, encode
from ktir.isa.descriptor import Bound, Descriptor
from ktir.isa.problem import EncodingError, ProgramError
from ktir.isa.program import Argument, Channel, Kernel, Program, Word, word
from ktir.isa.units import Unit


@given(programs())
@settings(max_examples=examples(150), deadline=None)
def test_round_trip(program):
    data = encode(program)
    again = decode(data)
    assert again == program
    assert encode(again) == data
    assert len(data) % 128 == 0


def test_speed():
    body = [word("loop", trips=3, level=0)]
    body += [word("wait", token=i % 7, sender=Unit.MNIL, count=1, source=i % 5) for i in range(50_000)]
    body += [word("sig", token=i % 7, receiver=Unit.MNIL, count=1) for i in range(50_000)]
    program = Program("p", [], [Kernel("k", 32, {Unit.LXLU: [*body, word("endl", level=0), word("halt")]}, [])])
    assert len(decode(encode(program)).kernels[0].units[Unit.LXLU]) == 100_003
    assert any(_seconds(lambda: decode(encode(program))) < 1.5 for _ in range(3))


def _seconds(run: Callable[[], object]) -> float:
    """Process time of a run, without collections of the garbage that other tests have left."""
    gc.disable()
    start = time.process_time()
    run()
    took = time.process_time() - start
    gc.enable()
    return took


def sample() -> Program:
    lx = Descriptor("lx", 2, (4,), (1,), bounds=(Bound(limit=3, dim=0),))
    ddr = Descriptor("ddr", 2, (4,), (1,), arg=0, core_table=0)
    units = {
        Unit.MNIL: [word("move", src=1, dst=0, group=0), word("halt")],
        Unit.SFP: [word("rep", groups=1, each=1, sticks=1), word("vconst", dst=3, value=1.5), word("halt")],
    }
    kernel = Kernel("k", 2, units, [lx, ddr], [[0, 4]], [[0, 0]], [Channel(Unit.MNIL, Unit.LXLU, 0, 2)])
    return Program("p", [Argument("x", "input", 8, 2)], [kernel])


def patched(offset: int, value: bytes) -> bytes:
    """The sample with bytes replaced and its checksum repaired."""
    data = bytearray(encode(sample()))
    data[offset : offset + len(value)] = value
    data[8:12] = bytes(4)
    data[8:12] = zlib.crc32(data).to_bytes(4, "little")
    return bytes(data)


STRINGS, ARGUMENTS, KERNELS, DESCRIPTORS, WORDS = 128, 256, 384, 512, 1024


def test_layout_of_the_sample():
    data = encode(sample())
    assert (data[STRINGS], data[ARGUMENTS], data[KERNELS], data[WORDS]) == (3, 1, 2, 0x10)
    assert len(data) == WORDS + 256


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [
        (0, b"SISX", "magic"),
        (4, b"\x01\x00", "is of version 1, but only version 4 of the instruction set is read"),
        (4, b"\x02\x00", "is of version 2, but only version 4 of the instruction set is read"),
        (6, b"\x00\x00", "expects a header of 128 bytes"),
        (12, b"\x09", "expects 4 sections"),
        (16, b"\xff", "the header says"),
        (24, b"\x01", "reserved bytes of the header"),
        (100, b"\x01", "reserved bytes of the header"),
        (32, b"\x01", "is not a multiple of 128"),
        (48, b"\x00\x02", "leaves a gap"),
        (48, b"\x80\x00", "overlaps"),
        (40, b"\xff\xff\xff\xff\xff\xff\xff\xff", "ends beyond the file"),
        (40, b"\x18", "out of order or outside"),
        (STRINGS, b"\xff\xff\xff\xff", "string offsets need"),
        (STRINGS, b"\x00\x00\x00\x00", "has no name"),
        (STRINGS + 20, b"\xff", "not valid UTF-8"),
        (STRINGS + 60, b"\xff", "padding is not zero"),
        (ARGUMENTS, b"\x09", "string 9 is not one of 3"),
        (ARGUMENTS, b"\x02", "not in canonical form"),
        (ARGUMENTS + 4, b"\x09", "unknown role code 9"),
        (ARGUMENTS + 5, b"\x03", "element_bytes expects 1, 2 or 4"),
        (ARGUMENTS + 6, b"\x09", "unknown half code 9"),
        (ARGUMENTS + 7, b"\x01", "reserved field"),
        (KERNELS + 4, b"\x00", "expects 1 to 1024 cores"),
        (KERNELS + 4, b"\xff\xff\xff\xff", "expects 1 to 1024 cores"),
        (KERNELS + 8, b"\xff\xff\xff\xff", "4294967295 units need"),
        (KERNELS + 12, b"\xff\xff\xff\xff", "4294967295 channels need"),
        (KERNELS + 16, b"\xff\xff\xff\xff", "4294967295 descriptors need"),
        (KERNELS + 20, b"\xff\xff\xff\xff", "values of 4294967295 tables need"),
        (KERNELS + 28, b"\x01", "reserved field"),
        (KERNELS + 32, b"\x09", "unknown unit code 9"),
        (KERNELS + 48, b"\x00", "out of order or listed twice"),
        (KERNELS + 32, b"\x02", "'move' cannot run on LXLU"),
        (KERNELS + 36, b"\x01", "start at 2, expected 1"),
        (KERNELS + 52, b"\xff\xff\xff\xff", "words of unit SFP need"),
        (KERNELS + 64, b"\x07", "unknown unit code 7"),
        (KERNELS + 66, b"\x01", "reserved field of a channel"),
        (KERNELS + 70, b"\x01", "token expects"),
        (KERNELS + 100, b"\x01", "padding is not zero"),
        (DESCRIPTORS + 8, b"\x00", "an lx descriptor has no argument"),
        (DESCRIPTORS + 10, b"\x01\x00", "core_table 1"),
        (DESCRIPTORS + 12, b"\x02", "unknown space code 2"),
        (DESCRIPTORS + 13, b"\x03", "log2_element_bytes"),
        (DESCRIPTORS + 14, b"\x05", "rank expects 0 to 4"),
        (DESCRIPTORS + 15, b"\x80", "unknown flags 0x80"),
        (DESCRIPTORS + 136, b"\x02", "not in canonical form"),
        (DESCRIPTORS + 20, b"\x01", "beyond the rank must be zero"),
        (DESCRIPTORS + 152, b"\x00", "buffers expects 1 to 255"),
        (DESCRIPTORS + 153, b"\x01", "must be zero for one buffer"),
        (DESCRIPTORS + 154, b"\x09", "unknown half code 9"),
        (DESCRIPTORS + 155, b"\x01", "reserved field is not zero"),
        (DESCRIPTORS + 160, b"\x03", "dim 3 is not one of"),
        (DESCRIPTORS + 161, b"\x09", "level expects 0 to 7"),
        (DESCRIPTORS + 162, b"\x05\x00", "table 5 is not one of"),
        (DESCRIPTORS + 164, b"\x00", "an unused bound must be zero"),
        (DESCRIPTORS + 176, b"\x01", "an unused bound must be zero"),
        (DESCRIPTORS + 182, b"\x01", "an unused bound must be zero"),
        (DESCRIPTORS + 384 + 16, b"\x02", "group 0 expects values of 0 to 1"),
        (WORDS, b"\x77", "unknown opcode 0x77"),
        (WORDS + 1, b"\x01", "'move' does not use flags"),
        (WORDS + 2, b"\x02", "expects src in 0 to 1"),
        (WORDS + 6, b"\x01", "'move' does not use src"),
        (WORDS + 12, b"\x01", "expects index in 0 to 1"),
        (WORDS + 24, b"\x01", "expects group in 0 to 0"),
        (WORDS + 23, b"\x80", "negative source id"),
        (WORDS + 32, b"\x10\x00\x02", "expects src in"),
        (WORDS + 96 + 7, b"\x10", "expects dst in 0 to 15"),
        (WORDS + 96 + 28, b"\x01", "expects value in 0 to 4294967295"),
        (WORDS + 250, b"\x01", "padding is not zero"),
    ],
)
def test_faults_are_named(offset, value, reason):
    with pytest.raises(EncodingError) as e:
        decode(patched(offset, value))
    assert reason in e.value.reason, e.value.reason
    assert "offset 0x" in str(e.value)


def test_damaged_files():
    data = encode(sample())
    for n in range(len(data)):
        with pytest.raises(EncodingError):
            decode(data[:n])
        damaged = bytearray(data)
        damaged[n] ^= 1 << n % 8
        with pytest.raises(EncodingError):
            decode(bytes(damaged))
    with pytest.raises(EncodingError, match="followed by garbage"):
        decode(data + b"\0")


@given(st.data())
@settings(max_examples=examples(300), deadline=None)
def test_damaged_payload_with_a_good_checksum(data):
    """Whatever stands in the file: a program that encodes to exactly these bytes, or a clean error."""
    size = len(encode(sample()))
    piece = data.draw(st.binary(min_size=1, max_size=8))
    hostile = patched(data.draw(st.integers(0, size - len(piece))), piece)
    try:
        program = decode(hostile)
    except EncodingError:
        return
    assert encode(program) == hostile


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda k: k.units[Unit.MNIL].append(Word("nop", {})), "unknown instruction 'nop'"),
        (lambda k: k.units[Unit.MNIL].append(Word("loop", {"trips": 1})), "'loop' needs level"),
        (lambda k: k.units[Unit.MNIL].append(Word("halt", {"x": 1})), "'halt' has no field 'x'"),
        (lambda k: k.units[Unit.MNIL].append(Word("fill", {"lx": 0, "value": 0.1})), "value expects an integer"),
        (lambda k: k.units[Unit.MNIL].append(Word("fill", {"lx": 1.0, "value": 0})), "lx expects an integer"),
        (lambda k: k.units[Unit.MNIL].append(word("fill", lx=2)), "expects lx in 0 to 1"),
        (lambda k: k.units[Unit.MNIL].append(word("loop", trips=2**31)), "trips expects a value of"),
        (lambda k: k.units[Unit.MNIL].append(word("wait", sender="XX")), "sender expects one of"),
        (lambda k: k.units[Unit.MNIL].append(word("mm")), "'mm' cannot run on MNIL"),
        (lambda k: k.tables.append([1]), "table 1 expects 2 values"),
        (lambda k: k.descriptors.append(Descriptor("lx", 2, (0,), (1,))), "extent expects values of 1"),
        (lambda k: k.descriptors.append(Descriptor("lx", 2, (2**16, 2**16), (1, 1))), "more than a descriptor can"),
        (lambda k: k.descriptors.append(Descriptor("lx", 2, (1,), (2**38,))), "stride expects values of -137438953472 to 137438953472"),
        (lambda k: k.channels.append(k.channels[0]), "is declared twice"),
        (lambda k: k.descriptors.append(Descriptor("lx", 2, (1,), (1,), lane_stride=2)), "only a ddr descriptor has a lane_stride"),
        (lambda k: k.descriptors.append(Descriptor("ddr", 2, (1,), (1,), arg=0, lane_stride=2, corelet_step=2)), "has no corelet_step"),
        (lambda k: k.descriptors.append(Descriptor("ddr", 2, (1,), (1,), arg=0, lane_stride=2**38)), "lane_stride expects values of"),
        (lambda k: k.descriptors.append(Descriptor("ddr", 1, (1,), (1,), arg=0, half="e4m3")), "elements of 1 byte have a lane_stride"),
        (lambda k: k.descriptors.append(Descriptor("ddr", 1, (1,), (1,), arg=0, lane_stride=1)), "half is f16, but elements have 1 bytes"),
        (lambda k: k.descriptors.append(Descriptor("ddr", 2, (1,), (1,), arg=0, half="e5m2")), "half is e5m2, but elements have 2 bytes"),
        (lambda k: k.units[Unit.MNIL].append(word("move", dim=4, size=1)), "expects dim in 0 to 3"),
        (lambda k: k.units[Unit.MNIL].append(word("move", size=-1)), "expects size in 0 to"),
    ],
)
def test_encode_refuses(change, message):
    program = sample()
    change(program.kernels[0])
    with pytest.raises(ProgramError, match=re.escape(message)):
        encode(program)


def test_every_lane_survives():
    program = sample()
    values = (-0.0, math.nan, math.inf, 1, -1, 0x7FC00001)
    program.kernels[0].units[Unit.MNIL] = [word("fill", lx=0, value=v) for v in values]
    bits = [w["value"] for w in decode(encode(program)).kernels[0].units[Unit.MNIL]]
    assert bits == [0x80000000, 0x7FC00000, 0x7F800000, 1, 0xFFFFFFFF, 0x7FC00001]
    assert decode(encode(program)) == program
