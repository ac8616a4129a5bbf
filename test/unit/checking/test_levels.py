"""Captured programs at every level: the same values, and the same bits from the tiled level down to the instruction stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from builders import in_bf16
from combinations import each_once

import ktir
from ktir.assembly import parse_module
from ktir.checking import Mismatch, check_levels, levels
from ktir.checking.inputs import array_of, readable
from ktir.checking.levels import BIT_EXACT_FROM
from ktir.context import context
from ktir.emulator.policy import Policy
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import entry_function
from ktir.mlir import ir

PROGRAMS = sorted((Path(__file__).parents[2] / "lit" / "lowering" / "inductor").glob("*.mlir"))


def arguments(text: str, seed: int = 0) -> list[np.ndarray]:
    """Random host arrays for a captured program, by the types of its arguments."""
    rng = np.random.default_rng(seed)
    arrays = []
    with context(), ir.Location.unknown():
        module = parse_module(text)
        for item in ir.ArrayAttr(entry_function(module).operation.attributes["arg_attrs"]):
            type_ = ir.RankedTensorType(ir.TypeAttr(ir.DictAttr(item)["ktir.type"]).value)
            values = (rng.standard_normal(tuple(type_.shape)) * 0.5).astype(np.float16)
            arrays.append(array_of(values.astype(np.float32), str(type_.element_type)))
    return arrays


@pytest.mark.parametrize(("name", "how"), each_once([p.stem for p in PROGRAMS], [(32, "f16"), (3, "f16"), (3, "bf16")]))
def test_levels_agree(name: str, how: tuple[int, str]) -> None:
    cores, half = how
    (path,) = (p for p in PROGRAMS if p.stem == name)
    text = path.read_text() if half == "f16" else in_bf16(path.read_text())
    results = check_levels(text, arguments(text), cores=cores, source=path.name)
    names = [r.name for r in results]
    assert names[0] == "logical"
    assert names[-2:] == ["tape", "step"]
    for result in results[names.index(BIT_EXACT_FROM) + 1 :]:
        assert result.exact, f"{result.name} has other bits than the level before"


def test_a_wrong_pass_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks switched off: pads reach a sum, and the check names the pass."""
    from ktir.passes.layouts import physical_ops

    path = next(p for p in PROGRAMS if "softmax" in p.stem)
    text = path.read_text()
    monkeypatch.setattr(physical_ops, "masked", lambda value, *_: value)
    with pytest.raises(Mismatch, match="ktir-assign-layouts"):
        check_levels(text, arguments(text), source=path.name)


def corrupted(monkeypatch: pytest.MonkeyPatch, change: Callable[[np.ndarray], None]) -> None:
    """From now on the laid-out level has other results than it computes."""
    run = levels._run

    def wrong(module: ir.Module, given: Sequence[np.ndarray], policy: Policy | None = None) -> list[np.ndarray]:
        arrays = run(module, given, policy)
        if policy is None and ir.StringAttr(module.operation.attributes["ktir.level"]).value == "laid-out":
            change(arrays[-1])
        return arrays

    monkeypatch.setattr(levels, "_run", wrong)


def zero_tail(y: np.ndarray) -> None:
    assert ((y > 0) & (y < 2e-4)).any()
    y[y < 2e-4] = 0


def one_place(y: np.ndarray) -> None:
    y.flat[np.argmin(np.abs(y - np.median(y)))] += np.abs(y).max() / 300


def small_place(y: np.ndarray) -> None:
    """By less than a thousandth of the largest value, but by much of its own."""
    y.flat[np.argmin(np.abs(y))] += np.abs(y).max() / 2000


def shifted(y: np.ndarray) -> None:
    y[...] = np.roll(y, 1, -1)


@pytest.mark.parametrize("change", [zero_tail, one_place, small_place, shifted])
def test_a_wrong_element_is_caught(monkeypatch: pytest.MonkeyPatch, change: Callable[[np.ndarray], None]) -> None:
    """The bound of an element is its own: the tail of a softmax is not measured by its head."""
    text = next(p for p in PROGRAMS if p.stem == "softmax").read_text()
    given = arguments(text)
    given[0][...] = np.linspace(4, -8, given[0].shape[-1])
    check_levels(text, given)
    corrupted(monkeypatch, change)
    with pytest.raises(Mismatch, match=r"ktir-assign-layouts.* changes values"):
        check_levels(text, given)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_sums_of_scatters_are_sums(dtype: torch.dtype) -> None:
    """Rows that are added to the same place many times, each time rounded before and once after: the levels agree as far as sums do."""
    at = torch.tensor([0, 1, 1, 1, 2, 2, 7, 1, 1, 0]).repeat(3)
    x, y = torch.linspace(-3, 3, 8 * 66).reshape(8, 66).to(dtype), torch.linspace(5, -2, 30 * 66).sin().reshape(30, 66).to(dtype)
    text = ktir.capture(lambda x, at, y: x.index_add(0, at, y), x, at, y)
    half = "bf16" if dtype == torch.bfloat16 else None
    arrays = [each.view(torch.uint16).numpy() if half and each is not at else each.numpy() for each in (x, at, y, torch.zeros_like(x))]
    results = {r.name: r for r in check_levels(text, arrays)}
    assert 0 < results["ktir-break-views"].difference or dtype == torch.float32
    wanted = x.double().index_add(0, at, y.double())
    terms = x.double().abs().index_add(0, at, y.double().abs())
    got = torch.from_numpy(readable(results["step"].arrays[-1], half)).double()
    once, in_f32 = torch.finfo(dtype).eps / 2 * wanted.abs(), 16 * 2.0**-24 * terms  # at most 16 terms come to one place
    assert ((got - wanted).abs() <= once + in_f32).all()
