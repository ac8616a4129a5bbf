"""The captured texts under test/lit/lowering/inductor are what the models below give today.

After a wanted change of the emitter: `KTIR_UPDATE=1 pytest test/unit/lowering/inductor/test_lit_inputs.py` writes them again.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ktir.lowering.inductor.capture import capture

FOLDER = Path(__file__).parents[3] / "lit" / "lowering" / "inductor"


def half(*shape: int) -> torch.Tensor:
    return torch.ones(*shape).half()


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(64, 100), nn.Linear(100, 100), nn.Linear(100, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(torch.relu(self.second(torch.relu(self.first(x))))) + x


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(65), nn.Linear(65, 100)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.linear(self.norm(x + positions)))


# name -> (what it is, model, inputs)
MODELS: dict[str, tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "linear_relu": ("relu(linear(x)), 57x64 -> 100", nn.Sequential(nn.Linear(64, 100), nn.ReLU()).half(), (half(57, 64),)),
    "softmax": ("softmax of 57x10", lambda x: torch.softmax(x, -1), (half(57, 10),)),
    "layer_norm": ("layer norm of 57x100", nn.LayerNorm(100).half(), (half(57, 100),)),
    "rms_norm": ("RMS norm of 57x100", nn.RMSNorm(100).half(), (half(57, 100),)),
    "residual": ("three linear layers with a residual, 57x64", Residual().half(), (half(57, 64),)),
    "attention": (
        "softmax(q @ k.t()) @ v, 10 queries, 57 keys",
        lambda q, k, v: torch.softmax(q @ k.t() * 0.125, -1) @ v,
        (half(10, 64), half(57, 64), half(57, 64)),
    ),
    "positions": ("3x10x65 plus 10x65, layer norm, linear, gelu", Positions().half(), (half(3, 10, 65), half(10, 65))),
    "transposed": ("a reshape of a transposed input, a slice, a column", lambda x: x.t().reshape(32, 114)[3:] + 1, (half(57, 64),)),
}


@pytest.mark.parametrize("name", MODELS)
def test_lit_input_is_up_to_date(name: str) -> None:
    title, model, inputs = MODELS[name]
    text = capture(model, *inputs)
    path = FOLDER / f"{name}.mlir"
    header, checks = _header(title), _checks(text)
    whole = f"{header}\n{checks}\n{text}"
    if os.environ.get("KTIR_UPDATE"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(whole)
    assert path.read_text() == whole


def _header(title: str) -> str:
    return f"""// {title}: logical KTIR as the Inductor route emits it. Written by test/unit/lowering/inductor/test_lit_inputs.py.
// RUN: ktir-opt %s --verify-roundtrip | FileCheck %s
// RUN: ktir-opt %s --ktir-to-allocated | FileCheck %s --check-prefix=ALLOCATED
// ALLOCATED: ktir.level = "allocated"
// ALLOCATED: #ktdp.memory_space<ct_local>
"""


def _checks(text: str) -> str:
    """The ops of the function and the types that they give, in order."""
    kept = ("ktdp.load", "ktdp.store", "linalg.generic", "math.", "tensor.collapse_shape", "tensor.expand_shape")
    lines = ['// CHECK: ktir.level = "logical"', "// CHECK-LABEL: func.func @forward("]
    for line in text.splitlines():
        op = line.strip().split(" = ", 1)[-1]
        if op.startswith(kept):
            ins = op[op.index(" ins(") :].partition(" : ")[2].partition(")")[0] if op.startswith("linalg.generic") else ""
            lines.append(
                "// CHECK: " + (f"linalg.generic {{{{.*}}}} : {ins})" if ins else f"{op.split(' ')[0]} {{{{.*}}}}{op[op.index(' : ') :]}")
            )
    return "\n".join(lines) + "\n"
