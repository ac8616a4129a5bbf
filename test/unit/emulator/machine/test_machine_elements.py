"""Element descriptors, gathers and scatters: all executors agree with NumPy, bit for bit; every fault has its place."""

import numpy as np
import pytest
from element_programs import indexed, relayout
from machine_programs import Case
from naive import Naive

from ktir.emulator.machine import Machine


def agrees(case: Case, seed: int) -> None:
    """Tape, step and the naive emulator give the expected bits, the tape twice."""
    machine = Machine(case.program)
    for mode in ("tape", "tape", "step", "naive"):
        got = [a.copy() for a in case.arguments if a is not None]
        if mode == "naive":
            Naive(case.program, 2, seed).run(got)
        else:
            machine.launch(got, mode=mode)
        for i, (a, e) in enumerate(zip(got, case.expected, strict=True)):
            if e is not None:
                assert np.array_equal(a.view(np.uint32), e.view(np.uint32)), (mode, i)


@pytest.mark.parametrize("seed", range(60))
def test_relayouts(seed):
    agrees(relayout(seed), seed)


@pytest.mark.parametrize("seed", range(40))
def test_gathers(seed):
    agrees(indexed(seed, scatter=False), seed)


@pytest.mark.parametrize("seed", range(40))
def test_scatters(seed):
    agrees(indexed(seed, scatter=True), seed)
