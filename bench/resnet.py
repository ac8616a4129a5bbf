"""ResNet-18 without its classifier, batch 1 of 224x224 in float16 with random weights: cycles against what bounds them, and values.

    python bench/resnet.py

The bound is every weight, the image and the result once over the memory channel, or all products at the peak of the PT arrays. Values are
judged layer by layer, of a program that has them all as results: what the chip makes of a layer's input, which it made itself, against
PyTorch in float64, per element within what roundings and sums in float32 may cost. The network's result may be no further from float64 than
that of eager PyTorch in float16, in the mean square. The exit code is 1 where the bound is missed, a value is wrong, or anything ran
elsewhere.
"""

from __future__ import annotations

import copy
import sys
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

import ktir.lowering.inductor  # noqa: F401  registers the backend
from ktir import config
from ktir.runtime import metrics
from ktir.runtime.executable import recorded
from ktir.target import DATASHEET, LANES

LEAST = 0.35
_HALF, _SINGLE = 2.0**-11, 2.0**-24
"""Half the distance of neighbouring numbers near 1."""


class Convolved(nn.Module):
    """A convolution with its norm; `residual` is added, and what is negative becomes 0."""

    def __init__(self, inputs: int, filters: int, window: int, stride: int, *, relu: bool = True) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, filters, window, stride, window // 2, bias=False)
        self.norm = nn.BatchNorm2d(filters)
        self.relu = relu
        nn.init.kaiming_normal_(self.convolution.weight, nonlinearity="relu")
        mean, variance = self.norm.running_mean, self.norm.running_var
        assert mean is not None
        assert variance is not None
        for values, middle in ((mean, 0.0), (self.norm.bias, 0.0), (self.norm.weight, 0.8)):
            nn.init.normal_(values, middle, 0.1)
        nn.init.uniform_(variance, 0.5, 2.0)

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """x: [batch, channels, height, width]."""
        y = self.norm(self.convolution(x))
        y = y if residual is None else y + residual
        return torch.relu(y) if self.relu else y

    def judge(self, x: torch.Tensor, found: torch.Tensor, residual: torch.Tensor | None = None) -> int:
        """How many elements of `found` are further from the layer's in float64 than roundings explain: of the sums, of their result to
        float16, of the norm in float32 and again, of the addition."""
        wide, c, norm = x.double(), self.convolution, self.norm
        weight = c.weight.double()
        sums = F.conv2d(wide, weight, None, c.stride, c.padding)
        terms = F.conv2d(wide.abs(), weight.abs(), None, c.stride, c.padding)
        mean, variance, scale, shift = (
            v.double()[:, None, None] for v in (norm.running_mean, norm.running_var, norm.weight, norm.bias) if v is not None
        )
        scale = scale / (variance + norm.eps).sqrt()
        wanted = (sums - mean) * scale + shift
        error = weight[0].numel() * _SINGLE * terms + _HALF * sums.abs()
        error = error * scale.abs() + 8 * _SINGLE * ((sums.abs() + mean.abs()) * scale.abs() + shift.abs()) + _HALF * wanted.abs()
        if residual is not None:
            wanted = wanted + residual.double()
            error = error + _HALF * wanted.abs()
        error = error * (1 + 2**-8) + 2.0**-24  # bounds of second order, and numbers below the normal ones
        wanted = wanted.relu() if self.relu else wanted
        return int(((found.double() - wanted).abs() > error).sum())


class Block(nn.Module):
    """Two convolutions and what goes past them."""

    def __init__(self, inputs: int, filters: int, stride: int) -> None:
        super().__init__()
        self.first = Convolved(inputs, filters, 3, stride)
        self.second = Convolved(filters, filters, 3, 1)
        self.past = Convolved(inputs, filters, 1, stride, relu=False) if stride > 1 else None

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """What goes past, what is between the convolutions, and the result."""
        past = x if self.past is None else self.past(x)
        between = self.first(x)
        return [past, between, self.second(between, past)]


class Body(nn.Module):
    """The network; with `every` its result is what each layer makes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Convolved(3, 64, 7, 2)
        shapes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
        self.blocks = nn.ModuleList(Block(*shape) for shape in shapes)
        self.every = False

    @property
    def each(self) -> list[Block]:
        """The blocks."""
        return [block for block in self.blocks if isinstance(block, Block)]

    def forward(self, x: torch.Tensor) -> torch.Tensor | list[torch.Tensor]:
        """[batch, 3, 224, 224] -> [batch, 512, 7, 7]."""
        found = [self.stem(x)]
        found.append(F.max_pool2d(found[-1], 3, 2, 1))
        for block in self.each:
            found += block(found[-1])
        return found if self.every else found[-1]


class Found(NamedTuple):
    """What a run has shown."""

    cycles: int
    bound: float
    wrong: int
    elements: int
    elsewhere: int
    """Launches of the executor and operators that PyTorch ran."""
    error: float
    """Of the result, root mean square; `of_eager`: of PyTorch's in float16."""
    of_eager: float


def bound(model: Body, image: torch.Tensor, result: torch.Tensor) -> float:
    """Cycles that no plan undercuts."""
    products: list[int] = []

    def count(layer: nn.Module, _: Any, result: torch.Tensor) -> None:
        assert isinstance(layer, nn.Conv2d)
        products.append(result[0, 0].numel() * layer.weight.numel())

    hooks = [layer.register_forward_hook(count) for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    model(image)
    for hook in hooks:
        hook.remove()
    moved = 2 * (sum(v.numel() for v in model.parameters()) + image.numel() + result.numel())
    peak = DATASHEET.cores * DATASHEET.corelets * LANES * LANES / DATASHEET.pt_row_cycles
    return max(sum(products) / peak, moved / DATASHEET.dram_bytes_per_cycle)


def run() -> Found:
    """Cycles of the network, and its values."""
    torch.manual_seed(0)
    model = Body().half().eval()
    image = torch.randn(1, 3, 224, 224).half()
    with torch.no_grad(), config.patch(fallback="error"), metrics.counted() as counted:
        with recorded() as launches:
            result = torch.compile(model, backend="spyre", dynamic=False)(image)
        cycles = sum(launch.machine.report.cycles for launch in launches)
        model.every = True
        torch._dynamo.reset()
        found = torch.compile(model, backend="spyre", dynamic=False)(image)
        ran = counted()
        wrong = judged(model, image, found)
        model.every = False
        exact = copy.deepcopy(model).double().forward(image.double())
        assert isinstance(exact, torch.Tensor)
        error, of_eager = (float((t.double() - exact).square().mean().sqrt()) for t in (result, model(image)))
        elements = sum(t.numel() for t in found)
        return Found(cycles, bound(model, image, result), wrong, elements, ran.executor + ran.torch, error, of_eager)


def judged(model: Body, image: torch.Tensor, found: list[torch.Tensor]) -> int:
    """Elements that are wrong."""
    stem, x, *others = found
    wrong = model.stem.judge(image, stem) + int((x != F.max_pool2d(stem.double(), 3, 2, 1)).sum())
    for block in model.each:
        (past, between, result), others = others[:3], others[3:]
        wrong += int((past != x).sum()) if block.past is None else block.past.judge(x, past)
        wrong += block.first.judge(x, between) + block.second.judge(between, result, past)
        x = result
    return wrong


def main() -> int:
    """Print what was found; 1 where something is missed."""
    found = run()
    reached = found.bound / found.cycles
    print(f"ResNet-18 body, batch 1: {found.cycles:,} cycles, bound {found.bound:,.0f}, {reached:.1%} of it reached, {LEAST:.0%} wanted")
    print(f"{found.wrong} of {found.elements:,} values of all layers are wrong; {found.elsewhere} calls ran elsewhere")
    print(f"the result is off by {found.error:.2e} in the mean square, that of eager PyTorch in float16 by {found.of_eager:.2e}")
    return int(reached < LEAST or found.wrong > 0 or found.elsewhere > 0 or found.error > found.of_eager)


if __name__ == "__main__":
    sys.exit(main())
