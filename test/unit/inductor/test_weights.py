"""Weights are arranged for the device once, and again when they have changed, however they have."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch._inductor.utils import fresh_cache

from ktir.runtime import cache
from ktir.runtime.executable import Executable


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "_loaded", {})
    torch._dynamo.reset()
    with fresh_cache(), torch.no_grad():
        yield


def compiled(model: nn.Module) -> Callable[..., torch.Tensor]:
    return torch.compile(model, backend="ktir", fullgraph=True, dynamic=False, options={"engine": "spyre", "fallback": "error", "cores": 3})


def arranged() -> int:
    """Arguments arranged so far by all programs."""
    return sum(e.arranged for e in cache._loaded.values() if isinstance(e, Executable))


def linear() -> nn.Linear:
    model = nn.Linear(70, 57).half()
    model.weight.copy_(torch.linspace(-1, 1, 70 * 57).reshape(57, 70))
    return model


X = torch.linspace(-2, 2, 3 * 70).reshape(3, 70).half()


def check(run: Callable[..., torch.Tensor], model: nn.Module, arrangements: int) -> None:
    """A call on an input of its own gives eager's values and arranges so many arguments, the input among them."""
    before = arranged()
    torch.testing.assert_close(run(X.clone()), model(X), rtol=2e-3, atol=2e-3)
    assert arranged() - before == arrangements


def test_a_weight_is_arranged_once() -> None:
    model = linear()
    run = compiled(model)
    check(run, model, 3)
    check(run, model, 1)
    x = X.clone()
    run(x)
    before = arranged()
    run(x)
    assert arranged() == before


def _step(model: nn.Linear) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()


def _load(model: nn.Linear) -> None:
    model.load_state_dict({"weight": -model.weight, "bias": model.bias})


def _through_numpy(model: nn.Linear) -> None:
    model.weight.numpy()[...] *= np.float16(-0.5)


def _another_place(model: nn.Linear) -> None:
    model.weight.data = model.weight.data * 2


def _in_a_view(model: nn.Linear) -> None:
    model.weight[7:9].mul_(-3)


MUTATIONS: list[Callable[[nn.Linear], object]] = [
    lambda model: model.weight.add_(1),
    lambda model: model.weight.data.add_(1),
    _step,
    _load,
    _through_numpy,
    _another_place,
    _in_a_view,
]


@pytest.mark.parametrize("mutate", MUTATIONS)
def test_a_changed_weight_is_arranged_again(mutate: Callable[[nn.Linear], object]) -> None:
    model = linear()
    run = compiled(model)
    check(run, model, 3)
    mutate(model)
    before = arranged()
    torch.testing.assert_close(run(X), model(X), rtol=2e-3, atol=2e-3)
    assert 2 <= arranged() - before <= 3  # load_state_dict writes the bias too
    before = arranged()
    run(X)
    assert arranged() == before


def test_another_parameter_at_the_same_address() -> None:
    model = linear()
    run = compiled(model)
    check(run, model, 3)
    places = {model.weight.data_ptr()}
    for k in range(8):
        bias = model.bias
        del model.weight
        gc.collect()
        model.weight = nn.Parameter(torch.full((57, 70), k / 8, dtype=torch.float16))
        places.add(model.weight.data_ptr())
        torch.testing.assert_close(run(X), torch.nn.functional.linear(X, model.weight, bias), rtol=2e-3, atol=2e-3)
    assert len(places) < 9  # so that the test has seen an address twice


def test_what_a_program_writes_is_read_anew() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.state: torch.Tensor
            self.register_buffer("state", torch.zeros(57, 64, dtype=torch.float16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.state.add_(x)
            return x * 2

    model = Cached()
    write = compiled(model)
    state = model.get_buffer("state")
    read: Callable[..., torch.Tensor] = torch.compile(
        lambda s: s * 2 + 1, backend="ktir", dynamic=False, options={"engine": "spyre", "cores": 3}
    )
    for k in range(1, 4):
        write(torch.ones(57, 64, dtype=torch.float16))
        torch.testing.assert_close(read(state), torch.full((57, 64), 2.0 * k + 1, dtype=torch.float16))


def test_inference_mode() -> None:
    model = linear()
    run = compiled(model)
    with torch.inference_mode():
        weight = torch.ones(57, 70, dtype=torch.float16)
        for k in range(2):
            weight.fill_(k)
            model.weight = nn.Parameter(weight, requires_grad=False)
            torch.testing.assert_close(run(X), torch.nn.functional.linear(X, weight, model.bias), rtol=2e-3, atol=2e-3)
