"""What the chip's compiler refuses is a program of its own on the executor; the ops around it stay on the chip."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.utils import fresh_cache

from ktir.lowering.inductor import adapter
from ktir.runtime import metrics, notices


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    notices.forget()
    with fresh_cache(), torch.no_grad():
        yield


def between(x: torch.Tensor) -> Any:
    y = torch.relu(x) @ x.t()
    z = y.int().cumprod(1).float()
    return (z * 2 + 1).sum(-1), y.softmax(-1)


def beside(x: torch.Tensor) -> Any:
    """Two refusals at different places."""
    return (x + 1).double() * 3, x.int().cumprod(1), x * 2


def in_place(x: torch.Tensor) -> Any:
    x.mul_(0.5)
    z = x.int().cumprod(1)
    x.add_(z.sum(-1, keepdim=True).half())
    return x.relu()


@pytest.mark.parametrize(("function", "launches"), [(between, (2, 1)), (beside, (1, 2)), (in_place, (2, 1))])
def test_the_rest_stays_on_the_chip(function: Callable[..., Any], launches: tuple[int, int], caplog: pytest.LogCaptureFixture) -> None:
    mine, theirs = (torch.linspace(-1, 1, 5 * 70).reshape(5, 70).half() for _ in range(2))
    for start in range(2):  # cold, warm
        torch._dynamo.reset()
        run = torch.compile(function, backend="spyre", dynamic=False, options={"cores": 2})
        with metrics.counted() as counted:
            torch.testing.assert_close(run(mine), function(theirs), rtol=4e-3, atol=4e-3)
        assert (counted().chip, counted().executor, counted().torch) == (*launches, 0), start
        torch.testing.assert_close(mine, theirs, rtol=4e-3, atol=4e-3)
        mine.copy_(theirs)
    assert caplog.text.count("it runs on the KTIR executor instead") == (2 if function is beside else 1)


def test_one_reason_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """However many programs are refused for it; the op is that at whose line the warning is, and few nodes are named."""

    def function(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        y = x[i]
        for _ in range(3):
            y = torch.softmax(y.sin() * 3 + y.cos() * 2 - y.tanh() / 5, -1) @ x
        return y

    x = torch.rand(8, 8, dtype=torch.float64)
    with metrics.counted() as counted:
        torch.compile(function, backend="spyre", dynamic=False, options={"cores": 2})(x, torch.arange(8))
    assert counted().executor > 1
    said = [r.getMessage() for r in caplog.records if "has no form on the chip" in r.getMessage()]
    reasons = [re.sub(r" \([^()]*\)", "", text.partition("has no form on the chip: ")[2]) for text in said]
    assert len(set(reasons)) == len(reasons) < counted().executor
    for text in said:
        place = re.match(rf"{re.escape(__file__)}:(\d+):1: warning: '([\w.]+)'", text)
        assert place
        assert (int(place[1]) == function.__code__.co_firstlineno + 1) == (place[2].startswith("aten.index"))
        assert all(group.count(",") <= 3 for group in re.findall(r"\(([^()]*)\)", text))


def test_a_graph_is_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of its nests are taken out."""
    lowered: list[Any] = []
    compile_fx = adapter.compile_fx
    monkeypatch.setattr(adapter, "compile_fx", lambda gm, *args, **options: lowered.append(gm) or compile_fx(gm, *args, **options))
    torch.compile(beside, backend="spyre", dynamic=False)(torch.ones(5, 7).half())
    assert len(lowered) == 1


def test_refusals_are_errors_if_asked() -> None:
    with pytest.raises(Exception, match=r"test_apart.py:\d+:1: error: .*cumprod"):
        torch.compile(lambda x: x.cumprod(1), backend="spyre", dynamic=False, options={"fallback": "error"})(torch.ones(5, 7).int())


def test_what_is_made_of_the_heads_of_a_matmul_in_a_type_without_sticks_is_refused_by_name(caplog: pytest.LogCaptureFixture) -> None:
    """Such a type is one that a fusion must not ask for the width of."""

    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        heads = (x @ w).view(12, 4, 16).transpose(0, 1)
        return heads.double() * 2, heads

    x, w = (torch.linspace(-1, 1, n * 64).reshape(n, 64) for n in (12, 64))
    found = torch.compile(function, backend="spyre", dynamic=False, options={"cores": 2})(x, w)
    # 64 products of at most 1 are added in float32 and doubled; both may be off by 64 roundings of 64
    for one, other in zip(found, function(x, w), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=4 * 64 * 64 * 2.0**-24)
    assert "of f64" in caplog.text or "type f64" in caplog.text
    assert "failed in" not in caplog.text
