"""Generated small networks over the supported ops, at odd sizes; each is a function of its seed alone."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

SIZES = (1, 2, 3, 5, 10, 17, 31, 57, 63, 64, 65, 100, 128, 130, 200)
Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(current value, an earlier value of the same shape) -> next value."""


class Network(nn.Module):
    """A chain of random steps; `steps` lists them by name for messages."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.choose = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        choose = self.choose
        width = choose.choice(SIZES)
        rank = choose.choice((1, 2, 2, 2, 3))
        rows = tuple(choose.choice(SIZES[:10] if rank == 3 else SIZES) for _ in range(rank - 1))
        self.shape: tuple[int, ...] = (*rows, width)
        self.steps: list[tuple[str, Step]] = []
        shape: tuple[int, ...] = self._opening(self.shape)
        for _ in range(choose.randint(1, 6)):
            shape = self._step(shape)

    def parameter(self, *shape: int, scale: float = 1.0, offset: float = 0.0) -> nn.Parameter:
        """A registered parameter with values on the f16 grid."""
        value = (torch.randn(shape, generator=self.generator) * scale + offset).half().float()
        parameter = nn.Parameter(value, requires_grad=False)
        self.register_parameter(f"p{len(list(self.parameters()))}", parameter)
        return parameter

    def _add(self, name: str, step: Step) -> None:
        self.steps.append((name, step))

    def _named(self, parameter: nn.Parameter) -> Callable[[], torch.Tensor]:
        """Parameters are looked up when they are used: `half()` replaces them."""
        name = next(n for n, p in self.named_parameters() if p is parameter)
        return lambda: getattr(self, name)

    def _opening(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Sometimes a view of the input first: transpose, reshape or slice."""
        kind = self.choose.choice(("plain", "plain", "plain", "transpose", "flatten", "slice", "split"))
        if kind == "transpose" and len(shape) >= 2:
            self._add("transpose", lambda x, _: x.transpose(-1, -2))
            return (*shape[: len(shape) - 2], shape[len(shape) - 1], shape[len(shape) - 2])
        if kind == "flatten" and len(shape) == 3:
            self._add("flatten", lambda x, _: x.flatten(0, 1))
            return (shape[0] * shape[1], shape[2])
        width = list(shape)[-1]
        if kind == "slice" and width > 4:
            end = width - 1
            self._add("slice", lambda x, _: x[..., 1:end])
            return (*shape[:-1], end - 1)
        if kind == "split" and len(shape) == 2 and shape[0] % 2 == 0:
            half = shape[0] // 2
            self._add("split", lambda x, _: x.reshape(2, half, x.shape[-1]))
            return (2, half, shape[1])
        return shape

    def _step(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        kinds = ("linear", "linear", "matmul", "relu", "gelu", "gelu_tanh", "silu", "exp", "layer_norm", "rms_norm", "softmax",
                 "residual", "row", "column", "scale", "positions", "product", "attention")  # fmt: skip
        return getattr(self, "_" + self.choose.choice(kinds))(shape)

    def _linear(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        out = self.choose.choice(SIZES)
        weight = self._named(self.parameter(out, shape[-1], scale=shape[-1] ** -0.5))
        bias = self._named(self.parameter(out, scale=0.1)) if self.choose.random() < 0.7 else None
        self._add(f"linear {out}", lambda x, _: F.linear(x, weight(), bias() if bias else None))
        return (*shape[:-1], out)

    def _matmul(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        out = self.choose.choice(SIZES)
        weight = self._named(self.parameter(shape[-1], out, scale=shape[-1] ** -0.5))
        self._add(f"matmul {out}", lambda x, _: x @ weight())
        return (*shape[:-1], out)

    def _relu(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        self._add("relu", lambda x, _: F.relu(x))
        return shape

    def _gelu(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        self._add("gelu", lambda x, _: F.gelu(x))
        return shape

    def _gelu_tanh(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        self._add("gelu_tanh", lambda x, _: F.gelu(x, approximate="tanh"))
        return shape

    def _silu(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        self._add("silu", lambda x, _: F.silu(x))
        return shape

    def _exp(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        self._add("exp", lambda x, _: torch.exp(-F.relu(x)))
        return shape

    def _layer_norm(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        weight = self._named(self.parameter(shape[-1], scale=0.1, offset=1.0))
        bias = self._named(self.parameter(shape[-1], scale=0.1))
        self._add("layer_norm", lambda x, _: F.layer_norm(x, (x.shape[-1],), weight(), bias()))
        return shape

    def _rms_norm(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        weight = self._named(self.parameter(shape[-1], scale=0.1, offset=1.0))
        self._add("rms_norm", lambda x, _: F.rms_norm(x, (x.shape[-1],), weight(), 1e-5))
        return shape

    def _softmax(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        self._add("softmax", lambda x, _: torch.softmax(x, -1))
        return shape

    def _residual(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        self._add("residual", lambda x, earlier: x + earlier)
        return shape

    def _row(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        row = self._named(self.parameter(shape[-1]))
        self._add("row", lambda x, _: x * row() + row())
        return shape

    def _column(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        self._add("column", lambda x, _: x - x.mean(-1, keepdim=True))
        return shape

    def _scale(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        factor = self.choose.choice((0.5, -1.25, 3.0))
        self._add(f"scale {factor}", lambda x, _: x * factor + 0.25)
        return shape

    def _positions(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Added over some dimensions only, as positional embeddings are."""
        if len(shape) < 2:
            return self._scale(shape)
        table = self._named(self.parameter(*shape[-2:]))
        self._add("positions", lambda x, _: x + table())
        return shape

    def _product(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        self._add("product", lambda x, earlier: x * earlier)
        return shape

    def _attention(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Two matmuls of intermediates, one of them with a transposed second operand."""
        if len(shape) != 2:
            return self._silu(shape)
        query, key, value = (self._named(self.parameter(shape[-1], shape[-1], scale=shape[-1] ** -0.5)) for _ in range(3))

        def step(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
            scores = (x @ query()) @ (x @ key()).t() * x.shape[-1] ** -0.5
            return torch.softmax(scores, -1) @ (x @ value())

        self._add("attention", step)
        return shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the steps; `residual` and `product` see the last value of the same shape, else the current one."""
        earlier: dict[torch.Size, torch.Tensor] = {}
        for _, step in self.steps:
            y = step(x, earlier.get(x.shape, x))
            earlier[x.shape] = x
            x = y
        return x

    def describe(self) -> str:
        """One line for failure messages."""
        return f"input {tuple(self.shape)}: " + ", ".join(name for name, _ in self.steps)

    def example(self) -> torch.Tensor:
        """An input on the f16 grid."""
        return torch.randn(self.shape, generator=self.generator).half().float()
