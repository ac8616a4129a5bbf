"""Equal layers as nested regions on the chip: one plan whatever their number, values of the program without regions."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor.utils import fresh_cache

import ktir
from ktir.passes.ktir_plan import PlanPass
from ktir.runtime.executable import recorded

OPTIONS = {"engine": "spyre", "fallback": "error", "cores": 3}
ROUNDING = 2.0**-9
"""Of a few layers: where a region ends, a value is rounded to f16 that a chain of ops would hand on as f32."""


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path / "packages"))
    torch._dynamo.reset()
    with fresh_cache(), torch.no_grad():
        yield


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A line per run of `ktir-plan`."""
    runs: list[str] = []
    plan = PlanPass.run

    def run(self: PlanPass, module: Any) -> None:
        runs.append(str(module.operation.location))
        plan(self, module)

    monkeypatch.setattr(PlanPass, "run", run)
    return runs


class Layer(nn.Module):
    """Norm, two matmuls, a residual; sizes that are no multiple of a stick."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width, eps)
        self.up, self.down = nn.Linear(width, 2 * width + 1, bias=False), nn.Linear(2 * width + 1, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))


class Stack(nn.Module):
    """Layers that differ in their weights alone, with something else before the first and behind the last one."""

    def __init__(self, layers: int, width: int = 70, other: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(11, width)
        self.layers = nn.ModuleList(Layer(width, 0.5 if i == other else 1e-5) for i in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, 11)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) * 0.5
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def run(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    return torch.compile(model, backend="spyre", fullgraph=True, dynamic=False, options=OPTIONS)(ids)


def distance(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return ((actual - expected).abs().max() / expected.abs().max()).item()


def is_right(actual: torch.Tensor, model: nn.Module, ids: torch.Tensor) -> bool:
    """At most 1.5 times as far from the result in float64 as PyTorch's own in float16."""
    exact = copy.deepcopy(model).double()(ids)
    return distance(actual, exact) <= 1.5 * distance(model(ids), exact)


@pytest.mark.parametrize(("layers", "programs"), [(1, 1), (4, 3), (32, 3)])
def test_equal_layers_are_planned_once(layers: int, programs: int, planned: list[str]) -> None:
    """One layer is one program; more are what is before the layers, a layer, and what is behind them."""
    model, ids = ktir.nested(Stack(layers).half().eval()), torch.arange(5)[None]
    with recorded() as launches:
        actual = run(model, ids)
    assert len(planned) == programs
    assert len(launches) == (1 if layers == 1 else layers + 2)
    assert len({id(launch.machine) for launch in launches}) == programs  # and control runs
    assert is_right(actual, model, ids)


def test_values_are_those_without_regions(planned: list[str]) -> None:
    """One plan against three, from the same weights."""
    model, ids = Stack(2).half().eval(), torch.arange(5)[None]
    whole = run(model, ids)
    torch._dynamo.reset()
    nested = run(ktir.nested(model), ids)
    assert len(planned) == 1 + 3
    assert distance(nested, whole) <= ROUNDING


def test_a_layer_that_differs_is_planned_by_itself(planned: list[str]) -> None:
    model, ids = ktir.nested(Stack(4, other=2).half().eval()), torch.arange(5)[None]
    actual = run(model, ids)
    assert len(planned) == 4
    assert is_right(actual, model, ids)
