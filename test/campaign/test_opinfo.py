"""PyTorch's operator database against the backend: a part of it here, all of it as a long test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from campaign import opinfo, opinfo_samples
from campaign.opinfo_page import BAD, page, updated, worst
from torch._inductor import config as inductor

import ktir.lowering.inductor  # noqa: F401  registers the backend
from ktir.device.autoload import register

ENOUGH = 300
"""Variants that run as programs in float32, at least."""

PART = """
    add argmax atan2 baddbmm cat cumsum diagonal_copy floor_divide gather index_add index_select logaddexp logsumexp masked_fill
    nn.functional.conv2d nn.functional.max_pool2d native_layer_norm remainder roll scatter_add sort topk var
""".split()
"""A part of those of which `test/unit/lowering/inductor/test_values.py` has none, or that have unusual samples."""


@pytest.fixture(scope="module")
def variants() -> dict[str, opinfo_samples.OpInfo]:
    return opinfo_samples.variants()


@pytest.mark.parametrize("name", PART)
def test_part(name: str, variants: dict[str, opinfo_samples.OpInfo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    with inductor.patch(force_disable_caches=True):
        outcome = opinfo_samples.check(variants[name], "float32", 1)
    assert sum(outcome.counts.values()) == 1
    assert set(outcome.counts) <= {"chip", "executor", "no code"}, outcome.reasons


def test_wrong_elements_are_found() -> None:
    right = torch.tensor([1.0, 2.0, torch.nan])
    assert opinfo_samples._elements(right, [right.clone()], None) == ""
    assert "1 of 3 elements differ, at [1] 2.5" in opinfo_samples._elements(torch.tensor([1.0, 2.5, torch.nan]), [right], None)
    assert opinfo_samples._elements(right + 1e-3, [right, right.double()], None), "eager has no error here"


def test_samples_are_spread(variants: dict[str, opinfo_samples.OpInfo]) -> None:
    every = opinfo_samples._samples(variants["add"], "float32", 0)
    few = opinfo_samples._samples(variants["add"], "float32", 3)
    assert len(few) == 3 < len(every)
    assert len({str(s) for s in few}) == 3


def test_a_fallback_is_told(variants: dict[str, opinfo_samples.OpInfo]) -> None:
    with inductor.patch(force_disable_caches=True):
        outcome = opinfo_samples.check(variants["cholesky"], "float32", 1)
    assert outcome.counts == {"PyTorch": 1}
    assert "aten.cholesky" in outcome.reasons["PyTorch"]


def test_the_place_of_a_launch_is_told(variants: dict[str, opinfo_samples.OpInfo]) -> None:
    """On the chip by default; on the executor where it is the engine, and where the chip has no such type."""
    with inductor.patch(force_disable_caches=True):
        found = [
            opinfo_samples.check(variants["nn.functional.relu"], d, 1, e).counts
            for d, e in (("float16", "spyre"), ("float16", "ktir"), ("float64", "spyre"))
        ]
    assert found == [{"chip": 1}, {"executor": 1}, {"executor": 1}]


def test_tensors_of_the_device(variants: dict[str, opinfo_samples.OpInfo], monkeypatch: pytest.MonkeyPatch) -> None:
    """`--device spyre`: samples are made on the host, compiled for tensors of the device, and compared on the host."""
    register()
    places: list[str] = []
    plain = opinfo_samples._to_host

    def noted(found: Any) -> Any:
        places.append(str(found[0].device))
        return plain(found)

    monkeypatch.setattr(opinfo_samples, "_to_host", noted)
    with inductor.patch(force_disable_caches=True):
        found = [opinfo_samples.check(variants["sum"], d, 1, device="spyre").counts for d in ("float16", "int32")]
    assert found == [{"chip": 1}, {"chip": 1}]
    assert places == ["spyre:0", "spyre:0"]


def test_results_are_of_a_device(tmp_path: Path) -> None:
    """What ran on the device does not stand for what ran on the host."""
    file, common = tmp_path / "results", {"name": "sum", "dtype": "float16", "counts": {"chip": 1}, "reasons": {}, "samples": 1}
    lines = [{**common, "engine": engine, "device": device} for engine, device in (("spyre", "cpu"), ("eager", "spyre"))]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = [len(opinfo.results_of(file, *key)) for key in (("spyre", "cpu"), ("spyre", "spyre"), ("eager", "spyre"))]
    assert found == [1, 0, 1]


def test_integers_are_equal_or_wrong() -> None:
    right = torch.tensor([2**40, 7])
    assert opinfo_samples._elements(right, [right.clone()], None) == ""
    assert "1 of 2 elements differ" in opinfo_samples._elements(right + torch.tensor([1, 0]), [right], None)


def test_places_of_equal_elements_are_open(variants: dict[str, opinfo_samples.OpInfo]) -> None:
    x = torch.tensor([[3, 5, 5, 5], [1, 2, 2, 0]])
    found = torch.topk(x, 2)
    expected = [[found, ((x, 2), {})]]

    def reason(*places: list[int]) -> str:
        got = [type(found)((found.values, torch.tensor(places))), ((x, 2), {})]
        return opinfo_samples._difference(variants["topk"], torch.int64, got, expected)

    assert reason([1, 2], [1, 2]) == reason([3, 1], [2, 1]) == ""
    assert reason([1, 1], [1, 2])
    assert reason([1, 0], [1, 2])


NOTHING, COPIED = ("view", "permute", "empty", "expand", "item"), ("ones", "clone", "bernoulli", "equal", "tril")


@pytest.mark.turn
def test_what_has_nothing_to_launch(variants: dict[str, opinfo_samples.OpInfo]) -> None:
    """Views, memory and metadata; what the host or the copy engine makes is something."""

    def something(name: str) -> set[bool]:
        samples = opinfo_samples._samples(variants[name], "float32", 0)
        return {opinfo_samples._makes_elements(variants[name], s) for s in samples}

    assert all(something(name) == {False} for name in NOTHING)
    assert all(True in something(name) for name in COPIED)


def test_page() -> None:
    results = [
        {"name": "add", "dtype": "float32", "samples": 8, "counts": {"chip": 7, "no code": 1}, "reasons": {}},
        {
            "name": "lu",
            "dtype": "int64",
            "samples": 8,
            "counts": {"PyTorch": 1, "chip": 3},
            "reasons": {"PyTorch": "'lu|x' op of shape [3]"},
        },
        {"name": "qr", "dtype": "float16", "samples": 2, "counts": {"executor": 2}, "reasons": {"executor": "'lu|x' op of shape [5]"}},
    ]
    text = page(results)
    assert "up to 2 samples of 1 pairs of variant and type, up to 8 samples of 2 pairs" in text
    assert "| `add` | chip |  |  |  |  |  |  |  |" in text
    assert "| `lu` |  |  |  | PyTorch 1/4 |  |  |  | lu\\|x op |" in text
    assert "| 2 | lu\\|x op |" in text


def test_parts_of_the_page_are_written_anew() -> None:
    """As if all of it had been: what is left as it was, and counts."""

    def result(name: str, dtype: str, reasons: dict[str, str], **counts: int) -> dict[str, Any]:
        return {"name": name, "dtype": dtype, "engine": "spyre", "samples": 8, "counts": counts, "reasons": reasons}

    slow = result("add", "bfloat16", {"executor": "'ktir.scan' op is slow"}, executor=1, chip=7)
    kept = [result("add", "float32", {}, chip=8), result("sort", "bool", {"executor": "'ktir.sort' op is slow"}, executor=1)]
    others = [*kept, result("mul", "bool", {"PyTorch": "'x' op (y) no"}, PyTorch=3), result("mul", "int64", {}, chip=8)]
    better = result("add", "bfloat16", {}, chip=8)
    assert updated(page([slow, *others]), [better]) == page([better, *others])
    none, found = result("add", "bfloat16", {}), result("add", "bfloat16", {"PyTorch": "'y' op (z) no"}, PyTorch=2)
    more = [*others, result("nop", "bool", {})]
    assert updated(page([none, *more]), [found]) == page([found, *more]), "one that had no sample, the only one of its type"
    with pytest.raises(ValueError, match="no variant div"):
        updated(page(others), [result("div", "bool", {}, chip=1)])
    with pytest.raises(ValueError, match="no outcome 'untraced'"):
        updated(page(others), [result("mul", "int64", {}, untraced=1)])
    with pytest.raises(ValueError, match="no float16 of mul"):
        updated(page(others), [result("mul", "float16", {}, chip=1)])


def test_the_page_is_not_about_uncompiled_operators(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--engine", "eager", "--list", "--results", str(tmp_path / "none.jsonl")]
    assert opinfo.main(line) == 0
    assert "0 samples" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        opinfo.main([*line, "--page", str(tmp_path / "page.md")])
    assert "engine spyre or ktir, but got engine eager" in capsys.readouterr().err


@pytest.mark.long
def test_all(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    status = opinfo.main(["--results", str(results), "--page", str(tmp_path / "coverage.md")])
    outcomes = [(name, dtype, worst(r)) for (name, dtype), r in opinfo.results_of(results, "spyre").items()]
    assert [o for o in outcomes if o[2] in BAD] == []
    assert status == 0
    assert sum(dtype == "float32" and what in ("chip", "executor") for _, dtype, what in outcomes) >= ENOUGH
