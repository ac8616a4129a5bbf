"""Captured programs at every level: the same values, and the same bits from the tiled level down to the instruction stream."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ktir.assembly import parse_module
from ktir.checking import Mismatch, check_levels
from ktir.checking.levels import BIT_EXACT_FROM
from ktir.context import context
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import entry_function
from ktir.mlir import ir

PROGRAMS = sorted((Path(__file__).parents[2] / "lit" / "inductor").glob("*.mlir"))


def arguments(text: str, seed: int = 0) -> list[np.ndarray]:
    """Random host arrays for a captured program, by the types of its arguments."""
    rng = np.random.default_rng(seed)
    arrays = []
    with context(), ir.Location.unknown():
        module = parse_module(text)
        for item in ir.ArrayAttr(entry_function(module).operation.attributes["arg_attrs"]):
            type_ = ir.RankedTensorType(ir.TypeAttr(ir.DictAttr(item)["ktir.type"]).value)
            dtype = np.float16 if isinstance(type_.element_type, ir.F16Type) else np.float32
            arrays.append((rng.standard_normal(tuple(type_.shape)) * 0.5).astype(np.float16).astype(dtype))
    return arrays


@pytest.mark.parametrize("cores", [32, 3])
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_levels_agree(path: Path, cores: int) -> None:
    text = path.read_text()
    results = check_levels(text, arguments(text), cores=cores, source=path.name)
    names = [r.name for r in results]
    assert names[0] == "logical"
    assert names[-2:] == ["tape", "step"]
    for result in results[names.index(BIT_EXACT_FROM) + 1 :]:
        assert result.exact, f"{result.name} has other bits than the level before"


def test_a_wrong_pass_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks switched off: pads reach a sum, and the check names the pass."""
    from ktir.passes import ktir_assign_layouts

    path = next(p for p in PROGRAMS if "softmax" in p.stem)
    text = path.read_text()
    monkeypatch.setattr(ktir_assign_layouts, "_masked", lambda value, *_: value)
    with pytest.raises(Mismatch, match="ktir-assign-layouts"):
        check_levels(text, arguments(text), source=path.name)
