"""Softmax over blocks of keys: against float64, level by level, and on the machine bit for bit."""

from __future__ import annotations

import cost_kernels
import numpy as np
import pytest
from amounts import examples
from attention_programs import Form, arrays, attention, expected, softmax
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ktir.assembly import parse_module
from ktir.checking.levels import LevelResult, check_levels
from ktir.context import context
from ktir.diagnostics import remarks
from ktir.emulator.machine import Machine
from ktir.emulator.machine.control.control import control
from ktir.isa.units import Unit
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.passes.ktir_to_allocated import ToAllocated
from ktir.passes.tiling.tile_hints import OnlineSoftmax
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET


def levels(form: Form, *, cores: int = 32, online: OnlineSoftmax = "always", seed: int = 0) -> list[LevelResult]:
    """All levels and both modes of the machine; the last values are held against float64."""
    program = attention(form)
    given_ = arrays(form, program, seed)
    results = check_levels(program.text(), given_, cores=cores, online_softmax=online)
    wanted = expected(form, given_)
    found = results[-1].arrays[len(given_) - 1 - form.shows - 3 * form.states].astype(np.float64).reshape(wanted.shape)
    assert (np.isnan(found) == np.isnan(wanted)).all()
    assert np.nanmax(np.abs(found - wanted), initial=0.0) <= 2e-3 * max(np.nanmax(np.abs(wanted), initial=0.0), 0.1)
    return results


def is_online(results: list[LevelResult]) -> bool:
    """Whether the program was reordered: `ktir-tile` has changed values."""
    (tiled,) = [r for r in results if r.name == "ktir-tile"]
    return not tiled.exact


FORMS = {
    "plain": Form(heads=2, group=2, rows=16, keys=256),
    "odd": Form(heads=2, group=2, rows=17, keys=330, inner=80, outer=80),
    "causal": Form(heads=2, rows=33, keys=400, mask="causal", guard=True),
    "added": Form(heads=3, rows=7, keys=1000, mask="added", cap=True),
    "divided after": Form(rows=9, keys=640, inner=128, outer=128, after=True),
    "sinks": Form(heads=2, group=3, rows=9, keys=300, mask="causal", sink=True),
    "decode": Form(heads=2, rows=1, keys=700, inner=128, outer=128),
    "decode of grouped heads": Form(heads=2, group=4, rows=1, keys=500),
    "weights too": Form(rows=8, keys=700, shows=True),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str) -> None:
    assert is_online(levels(FORMS[name]))


@pytest.mark.parametrize("after", [False, True])
def test_what_the_loop_carries_is_stored(after: bool) -> None:
    form = Form(heads=2, rows=5, keys=200, after=after, states=True)
    results = levels(form)
    assert is_online(results)
    q, k, v, *_, most, total, product = (a.astype(np.float64) for a in results[-1].arrays)
    scores = np.einsum("hri,hki->hrk", q.reshape(2, 5, 64), k.reshape(2, 200, 64)) / 8
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights = powers if after else powers / powers.sum(-1, keepdims=True)
    for found, wanted in ((most, scores.max(-1)), (total, powers.sum(-1)), (product, weights @ v.reshape(2, 200, 64))):
        assert np.abs(found.reshape(wanted.shape) - wanted).max() <= 2e-3 * np.abs(wanted).max()


@pytest.mark.parametrize("guard", [False, True])
def test_row_without_a_key(guard: bool) -> None:
    """Its result is NaN, or zeros where the program says so, as in the plain form."""
    form = Form(rows=5, keys=200, mask="hidden", guard=guard)
    results = levels(form)
    row = results[-1].arrays[-1].reshape(form.rows, -1)[0]
    assert np.isnan(row).all() if not guard else (row == 0).all()


def test_softmax_alone() -> None:
    program = softmax(5, 700)
    given_ = program.arrays()
    results = check_levels(program.text(), given_, cores=3, online_softmax="always")
    x = given_[0].astype(np.float64)
    wanted = np.exp(x - x.max(-1, keepdims=True))
    assert np.abs(results[-1].arrays[1] - wanted / wanted.sum(-1, keepdims=True)).max() < 1e-4


@pytest.mark.turn
def test_the_cheaper_form_is_chosen() -> None:
    """Heads of 2048 queries and keys: each of Q, K, V and O is moved once, and no scores; few keys stay as they are."""
    with context(), ir.Location.unknown(), remarks() as found:
        module = parse_module(attention(Form(heads=32, rows=2048, keys=2048, inner=128, outer=128)).text())
        run_pipeline(module, ToAllocated(verify=False).text())
        program = lower_program(module)
    (said,) = [r.message for r in found if r.message.startswith("softmax")]
    assert said.startswith("softmax over blocks of ")
    assert "67,108,864 bytes moved; the runner-up is a softmax of whole rows" in said
    (kernel,) = control(program, DATASHEET).statistics
    assert (kernel.dram_read, kernel.dram_written) == (3 * 16_777_216, 16_777_216)
    few = levels(Form(heads=2, rows=16, keys=128), online="auto")
    assert not is_online(few)


def test_whole_rows_are_chosen_where_both_take_as_long() -> None:
    """By their price, which is what reading takes: blocks wait for each other besides."""

    def cycles(online: OnlineSoftmax) -> int:
        with context(), ir.Location.unknown():
            module = parse_module(cost_kernels.attention(1, 512, 512, 128))
            run_pipeline(module, ToAllocated(verify=False, online_softmax=online).text())
            return sum(kernel.cycles for kernel in control(lower_program(module), DATASHEET, checks=False).statistics)

    assert cycles("auto") == cycles("never") < 0.9 * cycles("always")


def test_array_and_vector_unit_work_at_the_same_time() -> None:
    """Scores of the next keys beside the softmax of these: PT and SFP together are at work for longer than the kernel takes."""
    with context(), ir.Location.unknown():
        module = parse_module(attention(Form(heads=2, rows=128, keys=2048, inner=128, outer=128)).text())
        run_pipeline(module, ToAllocated(cores=2, online_softmax="always", verify=False).text())
        (kernel,) = Machine(lower_program(module), DATASHEET).report.kernels
    assert kernel.unit(Unit.PT).busy + kernel.unit(Unit.SFP).busy > 1.1 * kernel.cycles


@pytest.mark.long
def test_very_many_keys_of_one_query() -> None:
    """A row of scores would take 512 KiB, twice and more."""
    form = Form(heads=2, group=2, rows=1, keys=131_072)
    assert is_online(levels(form, online="auto"))


@pytest.mark.turn
@settings(max_examples=examples(8), deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_shape(data: st.DataObject) -> None:
    draw = data.draw
    heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    form = Form(
        heads=heads,
        group=group,
        rows=draw(st.sampled_from((1, 2, 5, 16, 33))),
        keys=draw(st.sampled_from((65, 128, 190, 257, 576))),
        inner=draw(st.sampled_from((16, 64, 80, 128))),
        outer=draw(st.sampled_from((16, 64, 80, 128))),
        mask=draw(st.sampled_from(("", "causal", "added", "hidden"))),
        guard=draw(st.booleans()),
        cap=draw(st.booleans()),
        sink=heads * group > 1 and draw(st.booleans()),
        after=draw(st.booleans()),
    )
    levels(form, cores=draw(st.sampled_from((1, 3, 32))), seed=draw(st.integers(0, 9)))
