"""What is counted as launched where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.utils import fresh_cache

import ktir
from ktir.runtime import metrics
from ktir.runtime.metrics import Launches


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))


def launched(f: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> Launches:
    """What a call launches, the second one as well as the first."""
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="spyre", dynamic=False, options=options)
    found = []
    with fresh_cache(), torch.no_grad():
        for _ in range(2):
            with metrics.counted() as launches:
                compiled(*inputs)
            found.append(launches())
    assert found[0] == found[1]
    return found[0]


def test_programs_and_operators() -> None:
    x, m = torch.rand(5, 9).half(), torch.eye(3) * 2
    assert launched(torch.relu, x) == Launches(chip=1)
    assert launched(torch.relu, x, engine="ktir") == Launches(executor=1)
    assert launched(lambda x: x.double() + 1, x) == Launches(executor=1), "the chip has no f64"
    assert launched(lambda m: torch.linalg.cholesky_ex(m).L + 1, m) == Launches(chip=1, torch=1)


def test_operators_of_a_nested_layer_count_at_each_call() -> None:
    @ktir.nested
    def layer(m: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cholesky_ex(m).L + torch.eye(3)

    assert launched(lambda m: layer(layer(layer(m))), torch.eye(3) * 2).torch == 3


def test_a_block_ends_where_it_ends() -> None:
    with metrics.counted() as launches:
        metrics.count(chip=2)
        assert launches() == Launches(chip=2)
    metrics.count(torch=1)
    assert launches() == Launches(chip=2)


def test_an_error_is_no_launch() -> None:
    with metrics.counted() as launches, pytest.raises(IndexError), torch.no_grad():
        torch.compile(lambda x, i: x[i], backend="spyre", options={"engine": "ktir"})(torch.rand(5), torch.tensor([7]))
    assert launches().executor == 0
