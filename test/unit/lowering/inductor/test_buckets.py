"""A ladder of sizes: few compilations, the results of the exact sizes; graphs that padding could change are compiled per size."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._inductor.utils import fresh_cache

from ktir.lowering.inductor import wrapper

SIZES = (3, 5, 16, 9, 17, 30, 4, 33)
RUNGS = (4, 16, 32)


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


def compiled(function: Any, rungs: Any = RUNGS) -> Any:
    return torch.compile(function, backend="ktir", options={"engine": "ktir", "fallback": "error", "buckets": rungs})


class Block(nn.Module):
    """Attention of sequences of seven positions, and a linear layer, with the residual connections between."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.qkv = nn.Linear(12, 36)
        self.up, self.down = nn.Linear(12, 20), nn.Linear(20, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.view(x.shape[0], 7, 3, 4).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        return x + self.down(F.gelu(self.up(self.norm(x))))


@pytest.mark.turn
def test_few_programs_serve_all_sizes(lowered: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model = Block().eval()
    run = compiled(model)
    for n in SIZES:
        x = torch.randn(n, 7, 12)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(run(x), model(x), rtol=1e-5, atol=1e-5)
    assert len({r.buffers[r.arguments[-1]].size for r in lowered}) <= 4  # three rungs, and 33 beyond them
    assert "is compiled on its own" not in caplog.text
    assert "buckets" not in caplog.text


ROWS: dict[str, Callable[..., Any]] = {
    "pointwise": lambda x, i: (x * 2 + i[:, None]).relu(),
    "flattened": lambda x, i: x.reshape(-1).sin().view(x.shape[0], 6),
    "reduced rows": lambda x, i: (x.amax(-1), x.softmax(-1), x.var(1), i),
    "transposed": lambda x, i: x.T.contiguous() + 1,
    "joined": lambda x, i: torch.cat([x, x[:, 2:]], 1),
    "looked up": lambda x, i: F.embedding(i, torch.arange(45.0).view(15, 3)) * 2,
    "positions": lambda x, i: x + torch.arange(x.shape[0])[:, None],
    "scores": lambda x, i: x @ x.T,
    "convolved": lambda x, i: F.conv1d(x[:, None], torch.ones(2, 1, 3)),
}
MIXED: dict[str, tuple[Callable[..., Any], str]] = {
    "sum": (lambda x, i: x.sum(0), "works along the dynamic dim"),
    "all": (lambda x, i: x.mean(), "works along the dynamic dim"),
    "softmax": (lambda x, i: x.softmax(0), "works along the dynamic dim"),
    "matmul": (lambda x, i: x.T @ x, "works along the dynamic dim"),
    "running": (lambda x, i: x.cumsum(0), "works along the dynamic dim"),
    "number": (lambda x, i: x / x.shape[0], "uses the size as a number"),
    "full": (lambda x, i: x + torch.full((x.shape[0], 1), x.shape[0]), "uses the size as a number"),
    "from": (lambda x, i: x[:, 0] + torch.arange(x.shape[0], 2 * x.shape[0]), "uses the size as a number"),
    "power": (lambda x, i: x * x.shape[0] ** 0.5, "uses the size as a number"),
    "inverse": (lambda x, i: x * (1.5 / x.shape[0]), "uses the size as a number"),
    "reversed": (lambda x, i: x.flip(0), "works along the dynamic dim"),
    "last": (lambda x, i: x[-1] * 2, "works along the dynamic dim"),
    "minor": (lambda x, i: x.T.reshape(-1) * 2, "makes "),
    "quotient": (lambda x, i: 7 // (i + 1), "is not known to keep positions apart"),
    "computed": (lambda x, i: F.embedding(14 - i, torch.arange(45.0).view(15, 3)), "has computed indices"),
    "size": (lambda x, i: (x * 2, x.shape[0]), "the size is among the results"),
    "view": (lambda x, i: (x * 2, x.view(x.shape[0], 2, 3)), "a result is a view of an input"),
}


def inputs(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, i = torch.randn(n, 6, generator=torch.Generator().manual_seed(n)), torch.arange(n) % 7
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.mark_dynamic(i, 0)
    return x, i


def check(function: Callable[..., Any]) -> None:
    run = compiled(function)
    for n in (3, 9):
        for found, expected in zip(*(r if isinstance(r, tuple) else (r,) for r in (run(*inputs(n)), function(*inputs(n)))), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_rows_are_padded(lowered: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    """All in one graph, each of operands of its own: what mixed rows would keep it from being padded."""
    run = compiled(all_rows)
    for n in (3, 5, 9, 6):
        operands = [inputs(n) for _ in ROWS]
        found, expected = run(*operands), all_rows(*operands)
        for name in ROWS:
            torch.testing.assert_close(
                found[name], expected[name], rtol=1e-5, atol=1e-5, msg=lambda text, name=name, n=n: f"{name} {n}: {text}"
            )
    assert "dynamic shapes" not in caplog.text
    assert all(
        n not in (3, 5, 9) for region in lowered for b in region.buffers.values() for n in b.size[:1] if len(b.size) == 2 and b.size[1] == 6
    )


def all_rows(*operands: tuple[torch.Tensor, torch.Tensor]) -> dict[str, Any]:
    return {name: function(*given) for (name, function), given in zip(ROWS.items(), operands, strict=True)}


@pytest.mark.parametrize("name", MIXED)
def test_what_mixes_rows_is_not_padded(name: str, lowered: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    function, reason = MIXED[name]
    check(function)
    assert "padding to a size of `buckets` could change results" in caplog.text
    assert reason in caplog.text


def test_floats_of_modules_that_are_not_known(lowered: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    """With dynamic=True the numbers of modules are symbols too."""
    options: dict[str, Any] = {"engine": "ktir", "buckets": RUNGS}
    for module in (nn.LayerNorm(6), nn.Dropout(0.3).eval()):
        run = torch.compile(module, backend="ktir", dynamic=True, options=options)
        for n in (3, 5):
            x = torch.randn(n, 6)
            torch.testing.assert_close(run(x), module(x), rtol=1e-5, atol=1e-5)
    assert "what is computed depends on a number" in caplog.text


def test_reasons_name_the_source(lowered: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    check(MIXED["sum"][0])
    assert f"{__file__}:" in caplog.text


@pytest.mark.parametrize("rungs", [(0,), (4, -1), ("a",), 4, (True,), (2**70,)])
def test_bad_rungs(rungs: Any) -> None:
    with pytest.raises(BackendCompilerFailed, match="buckets must be positive integers"):
        compiled(lambda x: x + 1, rungs)(torch.ones(3, 4))


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from ktir import config

    monkeypatch.setenv("KTIR_BUCKETS", "16,64")
    assert config.current().buckets == (16, 64)
    monkeypatch.setenv("KTIR_BUCKETS", "16,many")
    with pytest.raises(ValueError, match="KTIR_BUCKETS must be integers"):
        config.current()


@pytest.mark.long
def test_two_dims_at_the_edges(lowered: list[Any]) -> None:
    """Each size goes to its own rung; 0, 1 and what is above the ladder stay as they are."""
    run = compiled(lambda x: (x.T.exp() + 1, x.sum(0, keepdim=True) * 0 + x), (4, 8))
    for shape in ((3, 5), (5, 3), (2, 1), (1, 4), (0, 3), (3, 0), (9, 9)):
        x = torch.randn(shape)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        torch._dynamo.maybe_mark_dynamic(x, 1)
        for found, expected in zip(run(x), (x.T.exp() + 1, x.sum(0, keepdim=True) * 0 + x), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_what_is_written_is_not_padded(lowered: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    """An input that the call changes is the caller's own, whatever its size."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        return x * 2

    run = compiled(function, (4, 8))
    for n in (3, 5, 1, 0, 9):
        mine, y = torch.randn(n, 6), torch.randn(n, 6)
        theirs = mine.clone()
        for each in (mine, y):
            torch._dynamo.maybe_mark_dynamic(each, 0)
        torch.testing.assert_close(run(mine, y), function(theirs, y))
        torch.testing.assert_close(mine, theirs)
    assert "is not known to keep positions apart" in caplog.text
