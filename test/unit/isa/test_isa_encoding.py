"""Binary form: round trip and refusal of everything else."""

import time

import pytest
from hypothesis import given, settings
from random_programs import programs

from ktir.isa.encoding import decode, encode
from ktir.isa.program import Kernel, Program, word
from ktir.isa.units import Unit


@given(programs())
@settings(max_examples=150, deadline=None)
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
    start = time.process_time()
    assert len(decode(encode(program)).kernels[0].units[Unit.LXLU]) == 100_003
    assert time.process_time() - start < 1.5
