"""Small models of PyTorch compiled to packages, to be launched on the emulator and on the KTIR executor at the allocated level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

import ktir
from ktir.analysis.interface.parameters import parameters, roots
from ktir.arithmetic.numerics import f16_to_f32
from ktir.assembly import parse_module
from ktir.checking.inputs import generate_all
from ktir.checking.levels import storage
from ktir.context import context
from ktir.emulator.machine import Machine
from ktir.emulator.reference import execute
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read

__all__ = ["MODELS", "Compiled", "compiled"]

Tensors = tuple[torch.Tensor, ...]


def _half(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.float16)


class Layer(nn.Module):
    """A decoder layer as Llama's, without a cache: 4 heads of 64."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.RMSNorm(256) for _ in range(2))
        self.q, self.k, self.v, self.o = (nn.Linear(256, 256, bias=False) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(256, 512, bias=False), nn.Linear(256, 512, bias=False), nn.Linear(512, 256, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, 256] -> the same."""
        y = self.first(x)
        q, k, v = (w(y).reshape(-1, 4, 64).transpose(0, 1) for w in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1).reshape(-1, 256))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def _swiglu(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return (F.silu(x @ gate) * (x @ up)) @ down


MODELS: dict[str, Callable[[], tuple[Callable[..., Any], Tensors]]] = {
    "softmax 4096x1024": lambda: (lambda x: torch.softmax(x, -1), (_half(4096, 1024),)),
    "softmax 999x1000": lambda: (lambda x: torch.softmax(x, -1), (_half(999, 1000),)),
    "rms norm 1024x4096": lambda: (lambda x, w: F.rms_norm(x, (4096,), w), (_half(1024, 4096), _half(4096))),
    "layer norm 1024x1000": lambda: (lambda x, w, b: F.layer_norm(x, (1000,), w, b), (_half(1024, 1000), _half(1000), _half(1000))),
    "matmul 512x512x512": lambda: (torch.matmul, (_half(512, 512), _half(512, 512))),
    "matmul 1024x1024x1024": lambda: (torch.matmul, (_half(1024, 1024), _half(1024, 1024))),
    "matmul 1x2048x2048": lambda: (torch.matmul, (_half(1, 2048), _half(2048, 2048))),
    "matmul 100x300x500": lambda: (torch.matmul, (_half(100, 300), _half(300, 500))),
    "attention 4x256x64": lambda: (F.scaled_dot_product_attention, (_half(1, 4, 256, 64),) * 3),
    "swiglu 128x512x1024": lambda: (_swiglu, (_half(128, 512), _half(512, 1024), _half(512, 1024), _half(1024, 512))),
    "llama layer 128x256": lambda: (Layer().half(), (_half(128, 256),)),
}
"""Name -> a model and its inputs, of which only the shapes count. Each has more than a million operations."""


class Compiled:
    """A compiled model with its device memory: `storage` as the executor takes it, `carriers` as the emulator does."""

    def __init__(self, files: dict[str, bytes], arrays: list[NDArray[Any]]) -> None:
        package = read(files)
        self.machine = Machine(package.program, package.target)
        self.text = files["allocated.ktir.mlir"].decode()
        self.storage = [storage(a, arrays) for a in package.launch_spec.args]
        self.carriers = [f16_to_f32(x) if x.dtype == np.float16 else x.copy().view(np.float32) for x in self.storage]

    def execute(self) -> None:
        """A launch of the executor."""
        execute(self.text, None, self.storage)


def compiled(name: str) -> Compiled:
    """A model of `MODELS` on 32 cores, with random inputs."""
    model, inputs = MODELS[name]()
    with torch.no_grad():
        text = ktir.capture(model, *inputs)
    with context(), ir.Location.unknown():
        module = parse_module(text, name)
        arrays = generate_all(parameters(module, roots(module)[0])[0], 1, {})
        files = compile_logical(module, cores=32)
    for a in arrays:
        if a.dtype.kind == "f":
            a *= 0.1
    return Compiled(files, arrays)
