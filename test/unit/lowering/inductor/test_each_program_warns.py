"""What a program's data or its target bring about is said of each program, once: not of the first one alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ktir.runtime import metrics, notices

Function = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    notices.forget()


def test_data_out_of_range(caplog: pytest.LogCaptureFixture) -> None:
    functions: list[Function] = [lambda x: x.to(torch.int64), lambda x: x.to(torch.int64) + 1]
    x = torch.full((64,), float("nan")).half()
    for number, f in enumerate(functions, 1):
        compiled = torch.compile(f, backend="ktir", options={"engine": "spyre"})
        for _ in range(2):
            with metrics.counted() as counted:
                compiled(x)
            assert counted().executor == 1
            assert caplog.text.count("it runs on the KTIR executor instead") == number


def test_a_target_that_loses_digits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "native.toml").write_text('name = "native"\ndl16 = "native"\n')
    options: dict[str, Any] = {"engine": "spyre", "target": str(tmp_path / "native.toml")}
    for number, (f, kind) in enumerate([(lambda x: x * 3, torch.float16), (lambda x: x + 1, torch.bfloat16)], 1):
        compiled = torch.compile(f, backend="ktir", options=options)
        for _ in range(2):
            compiled(torch.ones(64, dtype=kind))
            assert caplog.text.count("as DLFloat16, as the target says") == number
