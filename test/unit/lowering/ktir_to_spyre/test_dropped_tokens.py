"""Synchronisation of compiled streams: every token is there for a reason, and a missing one is caught."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.emulator.machine import Machine, carrier_shape
from ktir.emulator.machine.control.control import control
from ktir.isa.program import Program
from ktir.isa.wellformed.verify import verify
from ktir.lowering.compile import pipeline
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET

PROGRAMS = sorted((Path(__file__).parents[3] / "lit" / "lowering" / "inductor").glob("*.mlir"))


def lowered(path: Path, **options: str) -> Program:
    """A captured program, lowered; `options` replace pass texts of the pipeline."""
    text = pipeline(32)
    for name, replacement in options.items():
        text = ",".join(replacement if step.startswith(name.replace("_", "-")) else step for step in text.split(","))
    with context(), ir.Location.unknown():
        module = parse_module(path.read_text(), path.name)
        run_pipeline(module, text)
        return lower_program(module)


def faults(program: Program) -> str:
    """What the checks say: '' = nothing."""
    problems = verify(program, DATASHEET)
    if problems:
        return str(problems[0])
    try:
        control(program, DATASHEET)
    except KtirError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_each_dropped_word_is_caught(path: Path) -> None:
    program = lowered(path)
    assert faults(program) == ""
    dropped = 0
    for k, kernel in enumerate(program.kernels):
        for unit, words in kernel.units.items():
            for i, word in enumerate(words):
                if word.op in ("sig", "wait"):
                    mutant = copy.deepcopy(program)
                    del mutant.kernels[k].units[unit][i]
                    assert faults(mutant), f"{unit.name} word {i} ({word.op}) can be dropped unseen"
                    dropped += 1
    assert dropped


def stepped(program: Program) -> list[np.ndarray]:
    """All arguments after a launch of the reference mode on fixed inputs."""
    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal(carrier_shape(a)).astype(np.float16).astype(np.float32) for a in program.arguments]
    Machine(program, DATASHEET).launch(arguments, mode="step")
    return arguments


def without_channel(program: Program, k: int, sender: str, receiver: str, token: int) -> Program:
    """The program with both ends of a channel gone."""
    mutant = copy.deepcopy(program)
    kernel = mutant.kernels[k]
    for unit, words in kernel.units.items():
        kernel.units[unit] = [
            w
            for w in words
            if not (w.op == "sig" and (unit.name, w["receiver"], w["token"]) == (sender, receiver, token))
            and not (w.op == "wait" and (w["sender"], unit.name, w["token"]) == (sender, receiver, token))
        ]
    kernel.channels = [c for c in kernel.channels if (c.sender.name, c.receiver.name, c.token) != (sender, receiver, token)]
    return mutant


@pytest.mark.parametrize("path", [p for p in PROGRAMS if p.stem in ("softmax", "linear_relu")], ids=lambda p: p.stem)
def test_channels_are_needed(path: Path) -> None:
    """With both ends of a channel gone the counts still agree: then the hazard itself must be found, but where other tokens give the same
    order; then the values must be the same on an LX that is really written word by word."""
    program = lowered(path)
    expected = stepped(program)
    hazards = 0
    for k, kernel in enumerate(program.kernels):
        channels = {(u.name, str(w["receiver"]), int(w["token"])) for u, words in kernel.units.items() for w in words if w.op == "sig"}
        assert channels
        for channel in sorted(channels):
            mutant = without_channel(program, k, *channel)
            if faults(mutant):
                hazards += 1
            else:
                assert [a.tobytes() for a in stepped(mutant)] == [a.tobytes() for a in expected], channel
        assert hazards >= len(channels) // 2


def test_reuse_of_addresses_between_corelets_is_synchronised() -> None:
    """Reused addresses hold other rows: a token must pass from one corelet to the other."""
    for path in PROGRAMS:
        program = lowered(
            path,
            ktir_divide="ktir-divide-work{cores=3}",
            ktir_tile="ktir-tile{rows=4}",
            ktir_allocate="ktir-allocate-scratchpad{reuse=true}",
        )
        assert faults(program) == "", path.name
