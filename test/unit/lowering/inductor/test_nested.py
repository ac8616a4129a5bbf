"""Equal layers as nested regions on the chip: one plan whatever their number, values of the program without regions."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from chip import only_on_chip
from nested_programs import host_arrays, nested
from torch import nn
from torch._inductor.utils import fresh_cache

import ktir
from ktir.analysis.calls import functions_of
from ktir.assembly import parse_module
from ktir.checking import check_levels
from ktir.context import context
from ktir.lowering.compile import launch_arguments, pipeline
from ktir.mlir import ir
from ktir.passes.planning.ktir_plan import PlanPass
from ktir.pipeline import run_pipeline
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
    with only_on_chip():
        return torch.compile(model, backend="spyre", fullgraph=True, dynamic=False, options=OPTIONS)(ids)


def distance(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return ((actual - expected).abs().max() / expected.abs().max()).item()


def is_right(actual: torch.Tensor, model: nn.Module, ids: torch.Tensor) -> bool:
    """At most 1.5 times as far from the result in float64 as PyTorch's own in float16."""
    exact = copy.deepcopy(model).double()(ids)
    return distance(actual, exact) <= 1.5 * distance(model(ids), exact)


@pytest.mark.parametrize(("layers", "programs"), [(1, 1), (7, 3), pytest.param(32, 3, marks=pytest.mark.long)])
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


@pytest.mark.parametrize("cores", [3, pytest.param(32, marks=pytest.mark.long)])
def test_a_captured_layer_is_a_function_of_a_program(cores: int) -> None:
    """The same on the side of KTIR: a module whose entry calls the layer, with other weights each time, bit for bit at every level."""
    layer = ktir.capture(Layer(70, 1e-5).half().eval(), torch.zeros(1, 5, 70).half())
    text = nested(
        layer, 3, next(name for name in re.findall(r'ktir.name = "(\w+)", ktir.role = "input", ktir.type = tensor<1x5x70xf16>', layer))
    )
    results = check_levels(text, host_arrays(text), cores=cores)
    assert all(r.exact for r in results[-3:])
    with context(), ir.Location.unknown():
        few, many = (parse_module(nested(layer, n)) for n in (2, 4))
        for module in (few, many):
            run_pipeline(module, pipeline(cores))
        pools = [sum(a.role == "pool" for a in launch_arguments(module)) for module in (few, many)]
        kernels = [len(functions_of(module)) for module in (few, many)]
    assert pools[1] - pools[0] == 2  # what lies between the calls; a layer's own memory is there once
    assert kernels[0] == kernels[1]
