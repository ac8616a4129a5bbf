"""PyTorch's operator database against the backend: a part of it here, all of it as a long test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from campaign import opinfo, opinfo_samples
from campaign.opinfo_page import page, worst
from torch._inductor import config as inductor

import ktir.lowering.inductor  # noqa: F401  registers the backend

ENOUGH = 300
"""Variants that run without fallback in float32, at least."""

PART = """
    add amax argmax atan2 baddbmm cat clamp cumsum diagonal_copy erf exp floor_divide gather index_add index_select logaddexp logsumexp
    masked_fill matmul maximum nn.functional.conv2d nn.functional.gelu nn.functional.layer_norm nn.functional.max_pool2d
    native_layer_norm remainder roll scatter_add softmax sort topk var where
""".split()


@pytest.fixture(scope="module")
def variants() -> dict[str, opinfo_samples.OpInfo]:
    return opinfo_samples.variants()


@pytest.mark.parametrize("name", PART)
def test_part(name: str, variants: dict[str, opinfo_samples.OpInfo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    with inductor.patch(force_disable_caches=True):
        outcome = opinfo_samples.check(name, variants[name], "float32", 1)
    assert sum(outcome.counts.values()) == 1
    assert set(outcome.counts) <= {"passes", "no code"}, outcome.reasons


def test_wrong_elements_are_found() -> None:
    right = torch.tensor([1.0, 2.0, torch.nan])
    assert opinfo_samples._elements(right, [right.clone()], None) == ""
    assert "1 of 3 elements differ, at [1] 2.5" in opinfo_samples._elements(torch.tensor([1.0, 2.5, torch.nan]), [right], None)
    assert opinfo_samples._elements(right + 1e-3, [right, right.double()], None), "eager has no error here"


def test_samples_are_spread(variants: dict[str, opinfo_samples.OpInfo]) -> None:
    every = opinfo_samples.samples(variants["add"], "float32", 0)
    few = opinfo_samples.samples(variants["add"], "float32", 3)
    assert len(few) == 3 < len(every)
    assert len({str(s) for s in few}) == 3


def test_a_fallback_is_told(variants: dict[str, opinfo_samples.OpInfo]) -> None:
    with inductor.patch(force_disable_caches=True):
        outcome = opinfo_samples.check("cholesky", variants["cholesky"], "float32", 1)
    assert outcome.counts == {"falls back": 1}
    assert "aten.cholesky" in outcome.reasons["falls back"]


def test_page() -> None:
    results = [
        {"name": "add", "dtype": "float32", "counts": {"passes": 7, "no code": 1}, "reasons": {}},
        {"name": "lu", "dtype": "float32", "counts": {"falls back": 1, "passes": 3}, "reasons": {"falls back": "'lu|x' op of shape [3]"}},
        {"name": "qr", "dtype": "float32", "counts": {"falls back": 2}, "reasons": {"falls back": "'lu|x' op of shape [5]"}},
    ]
    text = page(results)
    assert "| `add` | passes |  |  |" in text
    assert "| `lu` | falls back 1/4 |  | lu\\|x op |" in text
    assert "| 2 | lu\\|x op |" in text


@pytest.mark.long
def test_all(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    status = opinfo.main(["--results", str(results), "--page", str(tmp_path / "coverage.md")])
    outcomes = [(r["name"], r["dtype"], worst(r)) for r in map(json.loads, results.read_text().splitlines())]
    assert [o for o in outcomes if o[2] in ("wrong", "fails", "crashes")] == []
    assert status == 0
    assert sum(dtype == "float32" and what == "passes" for _, dtype, what in outcomes) >= ENOUGH
