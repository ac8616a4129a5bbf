"""Integers are run-time arguments of one program; each size has a program of its own, and a warning says so."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.utils import fresh_cache

from ktir.lowering.inductor import wrapper


@pytest.fixture
def lowered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The regions that were compiled."""
    found: list[Any] = []
    compile_region = wrapper.compile_region
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path / "packages"))
    monkeypatch.setattr(wrapper, "compile_region", lambda region: found.append(region) or compile_region(region))
    torch._dynamo.reset()
    with fresh_cache(), torch.no_grad():
        yield found


def compiled(function: Any) -> Any:
    return torch.compile(function, backend="ktir", dynamic=True, options={"engine": "ktir", "fallback": "error"})


def masked(x: torch.Tensor, position: int) -> torch.Tensor:
    return torch.where(torch.arange(8) <= position, x * position, 0.5).sum(-1)


def test_integers_are_arguments(lowered: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    """Nine values, at most two programs: the first one has its integer as a constant."""
    run = torch.compile(masked, backend="ktir", options={"engine": "ktir", "fallback": "error"})
    x = torch.arange(24.0).reshape(3, 8)
    for position in range(2, 11):
        torch.testing.assert_close(run(x, position), masked(x, position))
    assert len(lowered) <= 2
    assert any(b.dtype == "int64" and b.size == () and b.role == "input" for b in lowered[-1].buffers.values())
    assert "each value is compiled on its own" not in caplog.text


def test_sizes_are_constants(lowered: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    run = compiled(masked)
    for rows in (3, 5, 3):
        for position in (2, 4, 6, 7):
            x = torch.arange(8.0 * rows).reshape(rows, 8)
            torch.testing.assert_close(run(x, position), masked(x, position))
    assert len(lowered) <= 4  # per size: the first integer as a constant, the others as an argument
    assert "dynamic shapes: size 0 of input" in caplog.text


def test_an_integer_that_becomes_a_size(lowered: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    run = torch.compile(lambda x, n: x[:n] * n, backend="ktir", options={"engine": "ktir", "fallback": "error"})
    x = torch.arange(24.0).reshape(8, 3)
    for n in (2, 4, 6, 4):
        torch.testing.assert_close(run(x, n), x[:n] * n)
    assert len(lowered) == 3
    assert "each value is compiled on its own" in caplog.text


def test_floating_point_numbers(lowered: list[Any]) -> None:
    function = lambda x, s: x * s + 1.5  # noqa: E731
    run = compiled(function)
    for s in (2.5, 3.5, -1.0):
        torch.testing.assert_close(run(torch.ones(4, 5), s), function(torch.ones(4, 5), s))
