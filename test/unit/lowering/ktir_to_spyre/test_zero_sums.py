"""A sum whose terms are all -0 is +0, in the executor and on the chip, whatever `outs` is."""

from __future__ import annotations

import numpy as np
import pytest
from logical_programs import Logical

from ktir.assembly import parse_module
from ktir.context import context
from ktir.emulator.reference import execute
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.runtime.executable import Executable


@pytest.mark.parametrize("outs", ["0.0", "-0.0"])
@pytest.mark.parametrize("length", [50, 64, 128])
def test_terms_of_minus_zero(length, outs):
    program = Logical()
    program.output(program.row_sum(program.input(4, length, dtype="f32")))
    text = program.text()
    assert text.count("constant 0.0 : f32") == 1
    text = text.replace("constant 0.0 : f32", f"constant {outs} : f32")
    with context(), ir.Location.unknown():
        executable = Executable(read(compile_logical(parse_module(text, "sum"))))
    x = np.full((4, length), -0.0, np.float32)
    for run in (
        lambda y: execute(text, args=[x, y]),
        lambda y: executable(x, y),
        lambda y: executable(x, y, mode="step"),
    ):
        y = np.ones(4, np.float32)
        run(y)
        assert not y.view(np.uint32).any()
