"""Forms that once went wrong or were refused: each compiles, and the values are those of eager."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import ktir.lowering.inductor  # noqa: F401  registers the backend

pytestmark = pytest.mark.usefixtures("on_chip")


def half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).half()


def horner(x: torch.Tensor) -> torch.Tensor:
    y = x * 0 + 1.0
    for i in range(15):
        y = y * x + 0.1 * (i + 1)
    return y


def gram(x: torch.Tensor) -> torch.Tensor:
    y = x.relu()
    return y @ y.t()


FORMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "sum of a product": (lambda x, y: (x * y).sum(-1), (half(2, 64), half(2, 64))),
    "sum of a product with a column": (lambda x, c: (x * c).sum(-1), (half(40, 30), half(40, 1))),
    "sum of a product with a row": (lambda x, r: (x * r).sum(-1), (half(40, 30), half(30))),
    "norm of a product": (lambda x, y: F.layer_norm(x * y, (65,)), (half(5, 65), half(7, 65)[:5])),
    "shared operands": (
        lambda a, b, c, d: a * b + b * c + c * d + d * a + a * c + b * d,
        (half(5, 65), half(6, 65)[:5], half(7, 65)[:5], half(8, 65)[:5]),
    ),
    "many constants": (lambda x: sum(torch.tanh(x * (0.1 * i)) for i in range(1, 18)), (half(5, 65),)),
    "polynomial": (horner, (half(5, 65) * 0.5,)),
    "a tensor times its transpose": (gram, (half(57, 10),)),
    "attention of a tensor to itself": (lambda x: torch.softmax(x @ x.t() * 0.1, -1) @ x, (half(57, 64),)),
    "signed zeros": (lambda x: (x.abs() / 0.0) + (x.abs() / -0.0), (half(1, 3),)),
}


@pytest.mark.parametrize("name", FORMS)
def test_form(name: str) -> None:
    function, inputs = FORMS[name]
    torch._dynamo.reset()
    with torch.no_grad():
        got = torch.compile(function, backend="spyre", dynamic=False)(*inputs).float()
        exact, eager = function(*(x.float() for x in inputs)), function(*inputs).float()
    if not torch.isfinite(exact).all():
        torch.testing.assert_close(got, eager, equal_nan=True)
        return
    bound = max(1.5 * (eager - exact).abs().max().item(), exact.abs().max().item() * 2.0**-11)
    assert (got - exact).abs().max().item() <= bound


def test_launches_from_several_threads() -> None:
    """A compiled function may be called from any thread; launches of one program take turns."""
    x, w = half(30, 128), half(20, 128)
    torch._dynamo.reset()

    def attention(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        keys = w.relu()
        return torch.softmax(x @ keys.t(), -1) @ keys

    with torch.no_grad():
        compiled = torch.compile(attention, backend="spyre", dynamic=False)
        expected = compiled(x, w)
    wrong: list[object] = []

    def call() -> None:
        with torch.no_grad():
            wrong.extend(1 for _ in range(5) if not torch.equal(compiled(x, w), expected))

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
