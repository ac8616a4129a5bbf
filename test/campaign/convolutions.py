"""Random convolutions and poolings: every level and both modes of the emulator, held against PyTorch in float64.

    python test/campaign/convolutions.py --programs 200 --seed 0

Drawn are dims 1 to 3, batch, channels, filters and sizes around those of sticks, windows, strides, dilations, groups, padding and modes,
transposed forms, a bias, what follows element by element, and the type. A finding is a line; the status is 1 if there was one.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "test"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

Tensors = list[torch.Tensor]

_CHANNELS = (1, 2, 3, 5, 8, 16, 24, 32, 40, 63, 64, 65, 96, 128, 130)
_SIZES = {1: (1, 3, 17, 40, 63, 64, 65, 130), 2: (1, 3, 5, 8, 9, 13, 17), 3: (1, 2, 3, 5, 6)}
_CORES = (32, 7, 1)
_MOST = 3_000_000
"""Products of a drawn program."""


class Drawn(NamedTuple):
    """A program: a module, and shape and type of what it gets."""

    module: nn.Module
    shape: tuple[int, ...]
    dtype: torch.dtype
    text: str
    follows: str
    sums: int
    """Terms of an element."""


class Model(nn.Module):
    """A drawn layer and what follows it."""

    def __init__(self, layer: nn.Module, follows: str) -> None:
        super().__init__()
        self.layer, self.follows = layer, follows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The result."""
        y = self.layer(x)
        match self.follows:
            case "relu":
                return torch.relu(y)
            case "residual":
                return y + y.abs()
            case "scale":
                return torch.relu(y * 0.5 + 0.25)
        return y


def drawn(seed: int) -> Drawn:
    """The program of a seed."""
    r = random.Random(seed)
    while True:
        found = (_convolution if r.random() < 0.8 else _pooling)(r)
        if found is not None:
            return found


def _each(r: random.Random, dims: int, values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(r.choice(values) for _ in range(dims))


def _convolution(r: random.Random) -> Drawn | None:
    dims = r.choice((1, 2, 2, 2, 3))
    dtype = r.choice((torch.float16, torch.float16, torch.float16, torch.float32))
    inputs, filters = r.choice(_CHANNELS), r.choice(_CHANNELS)
    groups = 1
    match r.randrange(6):
        case 0:
            groups = inputs
            filters = inputs * r.choice((1, 1, 2))
        case 1:
            groups = r.choice((2, 3, 4))
            inputs, filters = inputs * groups, filters * groups
    window, stride, dilation = _each(r, dims, (1, 2, 3, 3, 5)), _each(r, dims, (1, 1, 2, 3)), _each(r, dims, (1, 1, 2))
    padding = tuple(r.randrange(d * (w - 1) + 1) for w, d in zip(window, dilation, strict=True))
    sizes, batch = _each(r, dims, _SIZES[dims]), r.choice((1, 1, 2, 3))
    transposed = r.random() < 0.15
    options: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "bias": r.random() < 0.5}
    if transposed:
        kind: Any = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 1]
        options["output_padding"] = tuple(r.randrange(max(s, d)) for s, d in zip(stride, dilation, strict=True))
    else:
        kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
        options["padding_mode"] = r.choice(("zeros", "zeros", "zeros", "replicate"))
    sums = inputs // groups * int(np.prod(window))
    try:
        layer: Any = kind(inputs, filters, window, **options)
        shape = (batch, inputs, *sizes)
        result = layer(torch.zeros(shape))
    except (ValueError, RuntimeError):
        return None
    if result.numel() * sums > _MOST or result.numel() == 0 or layer.weight.shape == shape:
        return None
    follows = r.choice(("", "relu", "residual", "scale"))
    text = f"{kind.__name__}({inputs}, {filters}, {window}, {options}) of {shape}, {dtype}, then '{follows}'"
    return Drawn(Model(layer, follows), shape, dtype, text, follows, sums)


def _pooling(r: random.Random) -> Drawn | None:
    dims, dtype = r.choice((1, 2, 2, 3)), r.choice((torch.float16, torch.float16, torch.float32))
    channels, sizes, batch = r.choice(_CHANNELS), _each(r, dims, _SIZES[dims]), r.choice((1, 2))
    window, stride = _each(r, dims, (2, 3, 3, 4)), _each(r, dims, (1, 2, 2, 3))
    padding = tuple(r.randrange(w // 2 + 1) for w in window)
    options: dict[str, Any] = {"stride": stride, "padding": padding, "ceil_mode": r.random() < 0.3}
    most = r.random() < 0.6
    if most:
        options["dilation"] = _each(r, dims, (1, 1, 2))
    kinds: Any = ((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d))
    kind = kinds[not most][dims - 1]
    shape = (batch, channels, *sizes)
    try:
        layer: Any = kind(window, **options)
        result = layer(torch.zeros(shape))
    except (ValueError, RuntimeError):
        return None
    if result.numel() == 0:
        return None
    follows = r.choice(("", "relu"))
    return Drawn(
        Model(layer, follows), shape, dtype, f"{kind.__name__}({window}, {options}) of {shape}, {dtype}", follows, int(np.prod(window))
    )


def bounds(program: Drawn, wanted: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
    """How far an element may be from its float64 value; `terms` is the sum of what is added up, without signs.

    A sum of n products in f32, in any order, is off by (n + 3) u of `terms` at most, with u = 2**-24: n - 1 additions, a product, the bias
    and the division of an average round once each, and the terms of second order are below another one. The result is rounded once to its
    type. What follows doubles that (y + |y|, which itself is exact), or halves it and rounds twice more.
    """
    half_ulp = torch.finfo(program.dtype).eps / 2
    layer = {"residual": wanted.abs() / 2, "scale": 2 * wanted.abs() + 0.5}.get(program.follows, wanted.abs())
    sums = (program.sums + 4) * 2.0**-24 * terms
    error = sums + half_ulp * (layer + sums)
    match program.follows:
        case "residual":
            error = 2 * error
        case "scale":
            error = error / 2 + half_ulp * (layer / 2 + wanted.abs()) * (1 + 4 * half_ulp)
    return error * (1 + 4 * half_ulp) + 2 * torch.finfo(program.dtype).smallest_normal * torch.finfo(program.dtype).eps


def check(seed: int) -> None:
    """Raises AssertionError where values are not those of PyTorch, Mismatch where a level changes them, KtirError where one refuses it."""
    import ktir
    from ktir import config
    from ktir.checking import check_levels

    program = drawn(seed)
    torch.manual_seed(seed)
    module = program.module.to(program.dtype).eval().requires_grad_(False)
    x = torch.randn(program.shape, dtype=torch.float32).to(program.dtype)
    parameters = dict(module.named_parameters())

    def function(x: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, dict(zip(parameters, values, strict=True)), (x,))

    inputs: Tensors = [x, *(v.detach().clone() for v in parameters.values())]
    with config.patch(verify_each=True, fallback="error"):
        text = ktir.capture(function, *inputs)
        wanted = function(*(t.double() for t in inputs))
        arrays = [t.numpy() for t in (*inputs, *counted(program))]
        result = np.zeros(tuple(wanted.shape), arrays[0].dtype)
        levels = check_levels(text, _arguments(text, arrays, result), cores=_CORES[seed % len(_CORES)], source=f"convolution-{seed}.mlir")
    found = torch.from_numpy(_result(levels[-1].arrays, text)).double().reshape(wanted.shape)
    absolute = {name: v.double().abs() for name, v in parameters.items()}
    terms = torch.func.functional_call(module.double(), absolute, (x.double().abs(),)).abs()
    beyond = (found - wanted).abs() > bounds(program, wanted, terms)
    assert not beyond.any(), f"{int(beyond.sum())} of {beyond.numel()} elements, the worst by {float((found - wanted).abs().max()):g}"


def counted(program: Drawn) -> Tensors:
    """Constants of the program of an average pooling: per dim the elements that count in each window, of dims where they differ if any
    dim's do. PyTorch's own kernel tells them, as the quotient of a window's sum and its average over ones."""
    layer: Any = program.module.layer
    if not isinstance(layer, (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)):
        return []
    options: Any = (layer.kernel_size, layer.stride, layer.padding)
    counts = []
    for n, w, s, p in zip(program.shape[2:], *options, strict=True):
        ones, given = torch.ones(1, 1, n, dtype=torch.float64), (w, s, p, layer.ceil_mode, layer.count_include_pad)
        inside = nn.functional.avg_pool2d(ones, (1, w), (1, s), (0, p), given[3], given[4], 1)
        counts.append((inside / nn.functional.avg_pool1d(ones, *given)).flatten().round().float())
    return [] if all(len(set(c.tolist())) == 1 for c in counts) else counts


_ARGUMENT = re.compile(r'ktir\.role = "(\w+)"[^}]*ktir\.type = tensor<((?:\d+x)*)\w+>')


def _places(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """Role and shape of the arguments, in order."""
    head = next(line for line in text.splitlines() if "func.func" in line)
    return [(role, tuple(map(int, sizes.split("x")[:-1]))) for role, sizes in _ARGUMENT.findall(head)]


def _arguments(text: str, inputs: list[np.ndarray], result: np.ndarray) -> list[np.ndarray]:
    """The arguments in the module's order, which shapes tell."""
    left = list(inputs)
    found = []
    for role, shape in _places(text):
        if role == "output":
            found.append(result.reshape(shape))
        else:
            at = next(i for i, array in enumerate(left) if array.shape == shape)
            found.append(left.pop(at))
    return found


def _result(arrays: tuple[np.ndarray, ...], text: str) -> np.ndarray:
    return next(a for a, (role, _) in zip(arrays, _places(text), strict=True) if role == "output")


def main(arguments: list[str] | None = None, check: Callable[[int], None] = check) -> int:
    """The command; 1 where a program was refused or had other values."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--programs", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first program; the others follow")
    options = parser.parse_args(arguments)
    findings = 0
    for seed in range(options.seed, options.seed + options.programs):
        try:
            check(seed)
        except Exception as error:
            findings += 1
            first = f"{type(error).__name__}: {error}".partition("\n")[0]
            print(f"{seed}: {drawn(seed).text}: {first}", flush=True)
    print(f"{options.programs} programs, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
