"""25 tiny models with default options: right, and in 16 bits wholly on the chip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from models.zoo import MODELS, run
from torch._inductor.utils import fresh_cache

QUICK = ("clip", "recommender", "graph")
"""What looks up through several indices, bags of embeddings, sums at indices: cheap, and of no other test."""

ELSEWHERE: dict[str, str] = {}
"""Models of which an op runs on the executor in 16 bits: which op, and why."""


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path / "packages"))
    with fresh_cache():
        yield


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in MODELS])
def test_float16(name: str) -> None:
    outcome = run(name, torch.float16)
    assert outcome.right, outcome
    assert outcome.wholly_on_chip == (name not in ELSEWHERE), outcome


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_bfloat16(name: str) -> None:
    outcome = run(name, torch.bfloat16)
    assert outcome.right, outcome
    assert outcome.wholly_on_chip == (name not in ELSEWHERE), outcome


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_float32(name: str) -> None:
    outcome = run(name, torch.float32)
    assert outcome.right, outcome
    assert not outcome.launches.torch, outcome
