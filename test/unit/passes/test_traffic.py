"""Bytes of global memory that compiled programs move, counted by the KTIR executor: each element of the device's tensors once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import ktir
from ktir.assembly import parse_module
from ktir.checking.levels import storage
from ktir.context import context
from ktir.emulator.reference import execute
from ktir.lowering.compile import launch_arguments
from ktir.mlir import ir
from ktir.package import LaunchArgument
from ktir.passes.ktir_to_allocated import ToAllocated
from ktir.pipeline import run_pipeline


def moved(program: Callable[..., torch.Tensor], *shapes: Sequence[int]) -> tuple[int, int, list[LaunchArgument], str]:
    """Bytes read and written by the allocated program, its arguments, and the names of the tensors along the way."""
    torch.manual_seed(0)
    inputs = [torch.randn(*shape).half() for shape in shapes]
    text = ktir.capture(program, *inputs)
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, ToAllocated().text())
        arguments = launch_arguments(module)
        hosts = [t.numpy() for t in inputs]
        count = 1 + max(a.host.arg for a in arguments if a.host is not None)
        hosts += [np.zeros(output_shape(text), np.float16)] * (count - len(hosts))
        device = [storage(a, hosts) for a in arguments]
        report = execute(module, None, device)
        kinds = set(re.findall(r"memref<[^>]*>", str(module)))
    return report.channel_bytes_read, report.bytes_written["global"], arguments, "\n".join(sorted(kinds))


def output_shape(text: str) -> tuple[int, ...]:
    """Shape of the output of a logical program."""
    found = re.search(r'ktir.role = "output", ktir.type = tensor<([0-9x]*)xf16>', text)
    assert found is not None
    return tuple(int(n) for n in found.group(1).split("x"))


def bytes_of(arguments: Sequence[LaunchArgument], role: str) -> int:
    """Bytes of the device's tensors of a role, pads of sticks included."""
    sizes = {"float16": 2, "float32": 4, "int32": 4}
    return sum(prod(a.layout.device_size) * sizes[a.dtype] for a in arguments if a.role == role)


def rope(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding as models write it."""
    half = q.shape[-1] // 2
    return q * cos + torch.cat((-q[..., half:], q[..., :half]), -1) * sin


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """RMS norm as models write it, in f32."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).half()


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Layer norm over the rows."""
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row."""
    return torch.softmax(x, -1)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """SwiGLU of what two matmuls have made."""
    return F.silu(gate) * up


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention as PyTorch has it."""
    return F.scaled_dot_product_attention(q, k, v)


ONCE = {
    "softmax": (softmax, [(512, 1024)], 2 * 512 * 1024 * 2),
    "odd softmax": (softmax, [(37, 200)], 0),
    "RMS norm": (rms_norm, [(512, 1024), (1024,)], 2 * 512 * 1024 * 2 + 2048),
    "odd RMS norm": (rms_norm, [(45, 333), (333,)], 0),
    "layer norm": (layer_norm, [(512, 1024), (1024,), (1024,)], 2 * 512 * 1024 * 2 + 4096),
    "odd layer norm": (layer_norm, [(45, 333), (333,), (333,)], 0),
    "SwiGLU": (swiglu, [(128, 1024)] * 2, 3 * 128 * 1024 * 2),
    "odd SwiGLU": (swiglu, [(33, 100)] * 2, 0),
    "RoPE": (rope, [(1, 32, 512, 128), (1, 1, 512, 128), (1, 1, 512, 128)], 2 * 32 * 512 * 128 * 2 + 2 * 512 * 128 * 2),
    "odd RoPE": (rope, [(2, 3, 50, 40), (50, 40), (50, 40)], 0),
    "attention": (attention, [(1, 4, 256, 128)] * 3, 4 * 4 * 256 * 128 * 2),
    "odd attention": (attention, [(1, 3, 200, 64)] * 3, 0),
}


@pytest.mark.parametrize("name", ONCE)
def test_each_element_once(name: str) -> None:
    """Sizes that are no whole sticks have the pads besides; `least` is what the formula says for the others."""
    program, shapes, least = ONCE[name]
    read, written, arguments, _ = moved(program, *shapes)
    assert {a.role for a in arguments} == {"input", "output"}
    assert (read, written) == (bytes_of(arguments, "input"), bytes_of(arguments, "output"))
    assert read + written == (least or read + written)


@pytest.mark.long
def test_attention_of_a_large_model() -> None:
    """32 heads of 2048 queries and keys: Q, K, V and O once, what several cores load at once counted once, and no scores in memory."""
    read, written, arguments, views = moved(attention, *[(1, 32, 2048, 128)] * 3)
    assert (read, written) == (3 * 16_777_216, 16_777_216)
    assert {a.role for a in arguments} == {"input", "output"}
    assert "2048x2048" not in views
