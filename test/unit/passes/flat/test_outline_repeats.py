"""Models of equal layers: the calls of one function have the values of the layers written out, whatever they share and leave behind."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from chip import only_on_chip
from torch import nn
from torch.nn import functional as F

import ktir
from ktir import execute
from ktir.analysis.calls import argument_attributes, calls_of, functions_of
from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.mlir import ir
from ktir.passes.flat.ktir_outline_repeats import SAVED, OutlineRepeatsPass

LAYERS, WIDTH, ROWS = 7, 64, 5


class Layer(nn.Module):
    """Weights of a layer, and a cache that it writes."""

    cache: torch.Tensor
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("cache", torch.zeros(16, WIDTH, dtype=torch.float16))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))


class Layers(nn.Module):
    """`step(layer, x, positions)` over and over."""

    def __init__(self, step: Callable[..., torch.Tensor], all_results: bool = False, tied: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        if tied:
            self.layers = nn.ModuleList([self.layers[0]] * LAYERS)
        self.step, self.all_results = step, all_results

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = []
        for layer in self.layers:
            x = self.step(layer, x, positions)
            results.append(x)
        return tuple(results) if self.all_results else (x,)


def residual(layer: Layer, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return x + layer.b(torch.relu(layer.a(F.rms_norm(x, (WIDTH,)))))


def rotated(layer: Layer, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    angle = positions[:, None].float() * torch.arange(WIDTH) * 0.1
    h = layer.a(x).view(ROWS, 4, WIDTH // 4)
    turned = h * angle.cos().half().view(ROWS, 4, -1)[:, :1] + h.flip(0) * angle.sin().half().view(ROWS, 4, -1)[:, :1]
    return x + layer.b(turned.reshape(ROWS, WIDTH))


def masked(layer: Layer, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    seen = positions[None, :] <= positions[:, None]
    scores = torch.where(seen, layer.a(x) @ x.T, torch.tensor(-torch.inf, dtype=x.dtype))
    return x + scores.softmax(-1) @ layer.b(x)


def cached(layer: Layer, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    layer.cache.index_copy_(0, positions + layer.count, layer.a(x))
    layer.count.add_(1)
    return x + layer.b((x @ layer.cache.T).softmax(-1) @ layer.cache)


def chosen(layer: Layer, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """What goes from layer to layer is chosen by integers that the layer before has made."""
    best = layer.a(x).argmax(-1)
    return torch.where((best[:, None] + positions[:, None]) % 2 == 0, x, layer.b(x))


def parts(layer: Layer, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The last rows of a weight are read first."""
    weight, half = layer.a.weight, WIDTH // 2
    return x + layer.b(torch.cat([F.linear(x, weight[half:]), torch.relu(F.linear(x.exp(), weight[:half]))], 1))


def outlined(text: str, saved: int) -> tuple[str, int]:
    """The program with calls, and how many."""
    with context(), ir.Location.unknown():
        module = parse_module(text)
        OutlineRepeatsPass(saved).run(module)
        module.operation.verify()
        return print_module(module, debuginfo=False), sum(len(calls_of(f)) for f in functions_of(module).values())


def arrays_for(text: str) -> list[np.ndarray]:
    """Random floats, and integers that count, for the arguments of a program of one function."""
    rng, arrays = np.random.default_rng(0), list[np.ndarray]()
    kinds = {"f16": np.float16, "f32": np.float32, "i64": np.int64, "i32": np.int32}
    with context(), ir.Location.unknown():
        (function,) = functions_of(parse_module(text)).values()
        for attributes in argument_attributes(function):
            type_ = ir.RankedTensorType(ir.TypeAttr(attributes["ktir.type"]).value)
            array = rng.standard_normal(tuple(type_.shape)) * 0.2
            if isinstance(type_.element_type, ir.IntegerType):
                array = np.arange(array.size).reshape(array.shape)
            arrays.append(np.atleast_1d(array).astype(kinds[str(type_.element_type)]))
    return arrays


PROGRAMS = {
    "residual": Layers(residual),
    "all results": Layers(residual, all_results=True),
    "tied": Layers(residual, tied=True),
    "rotated": Layers(rotated),
    "masked": Layers(masked),
    "cached": Layers(cached),
    "chosen": Layers(chosen),
    "parts": Layers(parts),
    "alternating": Layers(lambda layer, x, positions: residual(layer, masked(layer, x, positions), positions)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_have_the_values_of_what_they_are_made_of(name: str) -> None:
    model = PROGRAMS[name].half().eval()
    with torch.no_grad():
        text = ktir.capture(model, torch.randn(ROWS, WIDTH).half(), torch.arange(ROWS))
    called, calls = outlined(text, 15)
    assert calls > 1, "nothing was outlined"
    wanted, found = arrays_for(text), arrays_for(text)
    execute(text, args=wanted)
    execute(called, args=found)
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(np.any(a) for a in wanted)


@pytest.mark.parametrize("name", ["all results", "rotated", "cached", "alternating", "parts"])
def test_on_the_chip(name: str) -> None:
    model = PROGRAMS[name].half().eval()
    x, positions = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1)).half() * 0.5, torch.arange(ROWS)
    exact = copy.deepcopy(model).float()
    for layer in exact.modules():
        if isinstance(layer, Layer):
            layer.cache.zero_()
    with torch.no_grad(), only_on_chip():
        options: dict[str, Any] = {"logical_passes": "ktir-outline-repeats{saved=15}", "fallback": "error"}
        found = torch.compile(model, backend="ktir", options=options)(x, positions)
    with torch.no_grad():
        wanted = exact(x.float(), positions)
    for a, b in zip(wanted, found, strict=True):  # each layer rounds some ten times to f16, on values up to the largest
        torch.testing.assert_close(b.float(), a, rtol=0, atol=10 * LAYERS * 2**-11 * float(a.abs().max()))


def test_few_ops_stay_as_they_are() -> None:
    with torch.no_grad():
        text = ktir.capture(PROGRAMS["residual"].half().eval(), torch.randn(ROWS, WIDTH).half(), torch.arange(ROWS))
    assert outlined(text, SAVED)[1] == outlined(text, 0)[1] == 0
