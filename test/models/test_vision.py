"""Vision parts compiled to logical KTIR without fallbacks and run on the KTIR executor, against eager PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from models.vision import PARTS, build
from torch._inductor.utils import fresh_cache

QUICK = ("qwen_block", "resnet_basic")


@pytest.mark.parametrize("part", [p if p in QUICK else pytest.param(p, marks=pytest.mark.long) for p in PARTS])
def test_part(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path / "packages"))
    torch._dynamo.reset()
    module, inputs = build(part)
    options: dict[str, Any] = {"engine": "ktir", "fallback": "error"}
    with fresh_cache(), torch.no_grad():
        actual = torch.compile(module, backend="ktir", fullgraph=True, dynamic=False, options=options)(*inputs)
        torch.testing.assert_close(actual, module(*inputs), rtol=0, atol=1e-5)
