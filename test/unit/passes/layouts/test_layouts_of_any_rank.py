"""Random programs of any rank, laid out: the level holds and the values stay, but for the order in which sums add their sticks."""

from __future__ import annotations

import random

import numpy as np
import pytest
from campaign.graphs import each, graph

from ktir.assembly import parse_module
from ktir.checking.levels import run_device_level
from ktir.context import context
from ktir.emulator.reference import execute
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import entry_function
from ktir.mlir import ir
from ktir.passes.layouts.ktir_assign_layouts import AssignLayoutsPass
from ktir.pipeline import run_pipeline

SOME, ALL = 25, 1500


def check(seed: int) -> None:
    """The flat program of a seed, and the same one laid out and with its bodies split, give the same values."""
    text, arguments = graph(seed, ops=random.Random(seed).choice((2, 4, 7)))
    with context(), ir.Location.unknown():
        module = parse_module(text, f"graph-{seed}.mlir")
        run_pipeline(module, "cse,ktir-generalize,ktir-break-views")
        flat = [a.copy() for a in arguments]
        own = len(entry_function(module).operation.regions[0].blocks[0].arguments) - len(flat)
        execute(module, None, [*map(np.atleast_1d, flat), *[None] * own])
        run_pipeline(module, "ktir-assign-layouts,ktir-verify-level", verify_each=True)
        laid_out = run_device_level(module, arguments)
        run_pipeline(module, "ktir-split-bodies,ktir-verify-level", verify_each=True)
        split = run_device_level(module, arguments)
    for wanted, found, last in zip(flat, laid_out, split, strict=True):
        assert found.tobytes() == last.tobytes()
        if found.tobytes() != wanted.tobytes():
            scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1)
            np.testing.assert_allclose(found, wanted, rtol=AssignLayoutsPass.tolerance, atol=AssignLayoutsPass.tolerance * scale)


@pytest.mark.parametrize("seed", range(SOME))
def test_graph(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(SOME, ALL, 50))
def test_more_graphs(first: int) -> None:
    each(range(first, min(first + 50, ALL)), check)
