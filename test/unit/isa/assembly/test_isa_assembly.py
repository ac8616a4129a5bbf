"""Text form: round trip, and errors with line and column."""

from contextlib import suppress

import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import programs

from ktir.isa.assembly.text import parse_program, print_program
from ktir.isa.binary.encoding import decode, encode
from ktir.isa.lane import lane_text, read_lane
from ktir.isa.problem import AssemblyError


@given(programs())
@settings(max_examples=examples(150), deadline=None)
def test_round_trip(program):
    text = print_program(program)
    again = parse_program(text)
    assert again == program
    assert again.sources == program.sources
    assert print_program(again) == text
    assert encode(again) == encode(program)
    assert "\n".join(line for line in print_program(decode(encode(program))).splitlines()).startswith(".program")


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_every_lane_has_a_text(bits):
    text = lane_text(bits)
    assert read_lane(text) == bits
    if set(text) & set(".en"):
        assert int(np.float32(text).view(np.uint32)) == bits
    else:
        assert int(text) % 2**32 == bits


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("1.0", 0x3F800000),
        ("1", 1),
        ("-1", 2**32 - 1),
        ("-0.0", 1 << 31),
        ("0", 0),
        ("-inf", 0xFF800000),
        ("nan", 0x7FC00000),
    ],
)
def test_numbers_of_lanes(text, bits):
    """A point or an exponent makes an f32."""
    assert read_lane(text) == bits
    assert read_lane(f"{bits:#010x}") == bits
    assert lane_text(bits) == text


HEAD = '.program "p"\n.argument a0 = "x", role=input, sticks=8, element_bytes=2\n.kernel "k", cores=2\n'
LX = ".descriptor %d = lx, element_bytes=2, extent=[4], stride=[128]\n"


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("", 1, 1, "expects '.program'"),
        ('.kernel "k", cores=2', 1, 1, "expects '.program' first"),
        ('.program "p', 1, 10, "unterminated string"),
        (HEAD + ".unit FOO", 4, 7, "expects one of MNIL"),
        (HEAD + ".unit MNIL\n  nop", 5, 3, "unknown instruction 'nop'"),
        (HEAD + ".unit MNIL\n  mm rows=3", 5, 3, "'mm' cannot run on MNIL"),
        (HEAD + ".unit MNIL\n  loop trips=1, level=0", 5, 24, "'loop' needs region"),
        (HEAD + ".unit MNIL\n  loop trips=1, trips=0", 5, 17, "operand 'trips' is given twice"),
        (HEAD + ".unit MNIL\n  loop trips=x", 5, 14, "expects an integer, but got 'x'"),
        (HEAD + ".unit MNIL\n  halt halt", 5, 8, "'halt' has no operand 'halt'"),
        (HEAD + ".unit MNIL\n  fill lx=%d, value=0", 5, 11, "unknown descriptor '%d'"),
        (HEAD + LX + ".unit MNIL\n  fill lx=%d, value=1e40", 6, 21, "beyond the range of f32"),
        (HEAD + LX + ".unit LXLU\n push lx=%d, fifo=O", 6, 2, "fifo expects one of"),
        (HEAD + LX + ".unit MNIL\n halt @0", 6, 7, "source id 0 is out of range"),
        (HEAD + LX + ".unit MNIL\n loop trips=0, level=9, region=0", 6, 2, "level in 0 to 7"),
        (HEAD + ".unit SFP\n  vacc kind=add, dst=r3, src=r1", 5, 3, "dst in 16 to 23"),
        (HEAD + ".unit SFP\n  vacc kind=add, dst=r16, src=r1", 5, 22, "expects r0 to r15"),
        (HEAD + ".unit SFP\n  vacc kind=pow, dst=acc0, src=r1", 5, 13, "expects one of add"),
        (HEAD + ".table t1 = [0, 0]", 4, 8, "expects label 't0'"),
        (HEAD + ".table t0 = [0]", 3, 1, "table 0 expects 2 values"),
        (HEAD + ".group g0 = [0, 2]", 3, 1, "group 0 expects values of 0 to 1"),
        (HEAD + ".descriptor %d = ddr, element_bytes=2, extent=[4], stride=[128]", 4, 1, "needs an argument"),
        (HEAD + ".descriptor %d = ddr, element_bytes=2, extent=[4], stride=[128], arg=a1", 4, 1, "arg 1 is not one of"),
        (
            HEAD + ".descriptor %d = lx, element_bytes=2, extent=[4], stride=[128], bound=(dim=0)",
            4,
            78,
            "'bound' needs limit",
        ),
        (HEAD + '.source 2 = "op", "l"', 4, 1, "source 1 is missing"),
        (HEAD.replace("sticks=8", "sticks=-8"), 2, 1, "sticks expects a value"),
        (HEAD + ".unit MNIL\n ?", 5, 2, "unexpected character '?'"),
        (HEAD + ".foo", 4, 1, "unknown directive '.foo'"),
    ],
)
def test_errors(text, line, column, reason):
    with pytest.raises(AssemblyError) as e:
        parse_program(text, "f.s")
    assert (e.value.line, e.value.column) == (line, column), str(e.value)
    assert reason in str(e.value)
    assert str(e.value).startswith(f"f.s:{line}:{column}: error: ")


@given(programs(), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_damaged_text_never_crashes(program, data):
    text = print_program(program)
    at = data.draw(st.integers(0, len(text) - 1))
    piece = data.draw(st.sampled_from(["", " ", "0", "-", "=", ",", "%", "@9", '"', "\n", "x", "]", "é", "99999999999999999999"]))
    with suppress(AssemblyError):
        parse_program(text[:at] + piece + text[at + data.draw(st.integers(0, 4)) :])
