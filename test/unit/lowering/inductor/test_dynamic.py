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
    assert "dynamic shapes: the integer 'l_n_': each value is compiled on its own" in caplog.text


def test_floating_point_numbers(lowered: list[Any]) -> None:
    function = lambda x, s: x * s + 1.5  # noqa: E731
    run = compiled(function)
    for s in (2.5, 3.5, -1.0):
        torch.testing.assert_close(run(torch.ones(4, 5), s), function(torch.ones(4, 5), s))


def test_an_integer_beside_a_loop_is_an_argument(lowered: list[Any]) -> None:
    """A slice of constant length that starts anywhere: the index is computed when the program runs."""

    def function(x: torch.Tensor, i: int) -> torch.Tensor:
        return x[:, i : i + 3].cumsum(1) * i

    run = torch.compile(function, backend="ktir", options={"engine": "ktir", "fallback": "error"})
    x = torch.arange(28.0).reshape(2, 14)
    for i in (0, 1, 4, 9, 11, 4):
        torch.testing.assert_close(run(x, i), function(x, i))
    assert len(lowered) <= 4  # 0 and 1 are constants, and so is the first other one


def test_marked_sizes(lowered: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    run = torch.compile(torch.softmax, backend="ktir", options={"engine": "ktir", "fallback": "error"})
    for rows in (4, 6, 5, 4):
        x = torch.arange(3.0 * rows).reshape(rows, 3)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(run(x, -1), torch.softmax(x, -1))
    assert len(lowered) == 3
    assert caplog.text.count("dynamic shapes: size 0 of input") == 1


@pytest.mark.parametrize(
    ("inputs", "warned"),
    [
        ([torch.arange(24.0)[:20].reshape(5, 4)[:, :3], torch.arange(30.0).reshape(5, 6)[:, :3]], "stride 0 of input 'l_x_'"),
        ([torch.arange(3.0).expand(5, 3), torch.arange(60.0).reshape(10, 6)[::2, ::2]], "stride 0 of input 'l_x_'"),
        ([torch.arange(90.0)[k : k + 15].reshape(5, 3) for k in (7, 9, 64)], ""),
    ],
    ids=["rows", "both", "offset"],
)
def test_strides_are_constants(lowered: list[Any], inputs: list[torch.Tensor], warned: str, caplog: pytest.LogCaptureFixture) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y.copy_(x) + x

    run = torch.compile(function, backend="ktir", options={"engine": "ktir", "fallback": "error"})
    for x in [*inputs, *reversed(inputs)]:
        y, z = torch.zeros(5, 3), torch.zeros(5, 3)
        assert torch.equal(run(x, y), function(x, z))
        assert torch.equal(y, z)
    assert len(lowered) <= len(inputs)
    assert warned in caplog.text


@pytest.mark.turn
def test_many_sizes_in_turn(lowered: list[Any]) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        q = x @ w
        return torch.softmax(q @ q.transpose(-1, -2) / 3, -1) @ x + x.shape[1]

    run, w = compiled(function), torch.eye(8) / 2
    for batch, rows in ((1, 5), (2, 5), (3, 13), (1, 33), (4, 1), (2, 65), (3, 13), (1, 1), (0, 5), (2, 0)):
        x = torch.arange(batch * rows * 8.0).reshape(batch, rows, 8) / 50
        torch.testing.assert_close(run(x, w), function(x, w), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [lambda x, n: x[x > 0].sum() + n, lambda x, n: torch.nonzero(x) * n, lambda x, n: x[: n.item()] * 2],
    ids=["mask", "nonzero", "item"],
)
def test_sizes_from_data_run_on_the_cpu(lowered: list[Any], function: Any, caplog: pytest.LogCaptureFixture) -> None:
    x, n = torch.arange(9.0) - 4, torch.tensor(4)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        run = torch.compile(function, backend="ktir", fullgraph=True, options={"engine": "ktir"})
        torch.testing.assert_close(run(x, n), function(x, n))
        assert "a size that depends on data" in caplog.text
        assert "each value is compiled on its own" not in caplog.text
        torch._dynamo.reset()
        with pytest.raises(Exception, match=r"test_dynamic.py:\d+:1: error: .* is not supported"):
            torch.compile(function, backend="ktir", fullgraph=True, options={"engine": "ktir", "fallback": "error"})(x, n)
