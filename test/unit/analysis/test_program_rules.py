"""What is printed at a level is read again, whatever the types of a program's arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import ktir
from ktir.tools import ktir_explain, ktir_opt

ROOT = Path(__file__).parents[3]
TYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float32)


@pytest.mark.parametrize("stage", ["logical", "flat", "laid-out", "allocated"])
@pytest.mark.parametrize("dtype", TYPES)
def test_every_level_is_read_again(dtype: torch.dtype, stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = torch.ones(9, 3).half(), torch.tensor([1, 0, 1]).to(dtype)
    (tmp_path / "f.mlir").write_text(ktir.capture(lambda x, y: x * y.to(torch.float16), x, y, stage=stage))
    assert ktir_opt.main([str(tmp_path / "f.mlir"), "-o", str(tmp_path / "g.mlir")]) == 0, capsys.readouterr().err


def test_a_kernel_by_hand_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ktir.tools import ktir_compile

    assert ktir_compile.main([str(ROOT / "examples" / "add.mlir"), "-o", str(tmp_path / "add")]) == 0
    assert ktir_explain.main([str(tmp_path / "add")]) == 0, capsys.readouterr().err
    assert "grid: 4 of 32 cores; as its author divides it" in capsys.readouterr().out


def test_a_limit_that_is_no_number_of_elements(capsys: pytest.CaptureFixture[str]) -> None:
    assert ktir_opt.main([str(ROOT / "examples" / "add.mlir"), f"--mlir-elide-elementsattrs-if-larger={10**20}"]) != 0
    assert "expected a number below 2**63" in capsys.readouterr().err
