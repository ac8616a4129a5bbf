"""A program while it is drawn: its inputs, its nodes with what eager PyTorch gives, and how operands are chosen among them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from campaign.function_call import Call
from torch import Tensor

SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 33, 60, 63, 64, 65, 66, 100, 127, 128, 129, 191, 192, 193, 255, 256, 257, 320, 448, 513, 600)
HALF = (torch.float16, torch.bfloat16)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
ALL = (*FLOATS, *INTEGERS, torch.bool)
MOST = 20_000
"""Elements of a tensor."""


class NoFit(Exception):
    """There are no operands for the operator that was drawn."""


@dataclass
class Node:
    """An input (`call` is None) or a call's result. `roots`: inputs whose memory it may share."""

    eager: Tensor
    call: Call | None = None
    roots: frozenset[int] = frozenset()
    gone: bool = False
    """Whether its memory has been changed since: the node stands for nothing any more."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.eager.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.eager.dtype

    @property
    def is_float(self) -> bool:
        return self.eager.is_floating_point()


@dataclass
class Draw:
    """The state of drawing a program of random numbers `r`; `style` says of which kind its data are."""

    r: random.Random
    style: str
    main: torch.dtype
    sizes: tuple[int, ...]
    nodes: list[Node] = field(default_factory=list)

    # ------------------------------------------------------------------------------------------------------------------ data

    def values(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Random data of a type, by the program's style."""
        g = torch.Generator().manual_seed(self.r.getrandbits(32))
        if dtype == torch.bool:
            return torch.rand(shape, generator=g) < self.r.choice((0.1, 0.5, 0.9))
        if not dtype.is_floating_point:
            return self._integers(shape, dtype, g)
        if self.style == "exact":
            return torch.randint(-6, 7, shape, generator=g).to(dtype)
        x = torch.randn(shape, generator=g, dtype=torch.float64)
        if self.style == "wide":
            x = x * 2.0 ** torch.randint(-8, 5, shape, generator=g).double()
        x = x.to(dtype)
        if self.style == "special":
            tiny, most = torch.finfo(dtype).smallest_normal, torch.finfo(dtype).max
            table = torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0, 0.0, tiny / 4, -tiny / 2, most, -most], dtype=dtype)
            at = torch.rand(shape, generator=g) < self.r.choice((0.02, 0.2))
            x = torch.where(at, table[torch.randint(0, len(table), shape, generator=g)], x)
        return x

    def _integers(self, shape: tuple[int, ...], dtype: torch.dtype, g: torch.Generator) -> Tensor:
        info = torch.iinfo(dtype)
        spread = self.r.choice(("small", "small", "all", "edges"))
        if spread == "small":
            return torch.randint(max(info.min, -20), 21, shape, generator=g).to(dtype)
        low, high = (info.min, info.max) if dtype != torch.int64 or self.r.random() < 0.4 else (-(2**31), 2**31 - 1)
        x = torch.randint(max(low, -(2**62)), min(high, 2**62), shape, generator=g)
        if spread == "edges":
            edges = torch.tensor([low, high, 0, -1 if low else 1, 1, low + 1])
            x = torch.where(torch.rand(shape, generator=g) < 0.3, edges[torch.randint(0, 6, shape, generator=g)], x)
        return x.to(dtype)

    def new(self, value: Tensor) -> int:
        """An input of its own."""
        self.nodes.append(Node(value, None, frozenset({len(self.nodes)})))
        return len(self.nodes) - 1

    def index(self, shape: tuple[int, ...], below: int) -> int:
        """An input of indices from 0 to `below`, exclusive."""
        if below < 1:
            raise NoFit
        g = torch.Generator().manual_seed(self.r.getrandbits(32))
        return self.new(torch.randint(0, below, shape, generator=g))

    # -------------------------------------------------------------------------------------------------------------- operands

    def pick(self, fits: Callable[[Node], bool] = lambda _: True) -> int:
        """A node that fits; late ones more often."""
        found = [k for k, n in enumerate(self.nodes) if not n.gone and fits(n)]
        if not found:
            raise NoFit
        return found[-1] if self.r.random() < 0.4 else self.r.choice(found)

    def floats(self, rank: int = 0) -> int:
        return self.pick(lambda n: n.is_float and len(n.shape) >= rank)

    def integers(self, rank: int = 0) -> int:
        return self.pick(lambda n: not n.is_float and n.dtype != torch.bool and len(n.shape) >= rank)

    def other(self, k: int, fits: Callable[[Node], bool] = lambda _: True) -> int:
        """A node that can be broadcast with node `k`; a new input where there is none."""
        here = self.nodes[k]
        try:
            return self.pick(lambda n: fits(n) and broadcasts(n.shape, here.shape))
        except NoFit:
            shape = self.r.choice([here.shape, here.shape[-1:], (*here.shape[:-1], 1)[: len(here.shape)], ()])
            found = self.new(self.values(shape, here.dtype))
            if not fits(self.nodes[found]):
                self.nodes.pop()
                raise NoFit from None
            return found

    def condition(self, k: int) -> int:
        """A bool that can be broadcast to node `k`; a new input where there is none."""
        shape = self.nodes[k].shape
        try:
            return self.pick(
                lambda n: n.dtype == torch.bool and broadcasts(n.shape, shape) and torch.broadcast_shapes(n.shape, shape) == shape
            )
        except NoFit:
            return self.new(self.values(self.r.choice([shape, shape[-1:], (*shape[:-1], 1)[: len(shape)]]), torch.bool))

    def operand(self, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        """A node of just this shape and type; a new input where there is none."""
        try:
            return self.pick(lambda n: n.shape == shape and n.dtype == dtype)
        except NoFit:
            return self.new(self.values(shape, dtype))

    def dim(self, k: int) -> int:
        """A dim of node `k`."""
        rank = len(self.nodes[k].shape)
        if not rank:
            raise NoFit
        return self.r.randrange(-rank, rank)

    def dims(self, k: int) -> tuple[int, ...]:
        """Some dims of node `k`, in any order."""
        rank = len(self.nodes[k].shape)
        if not rank:
            raise NoFit
        return tuple(self.r.sample(range(rank), self.r.randint(1, rank)))

    def size(self) -> int:
        return self.r.choice(self.sizes)


def broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two shapes go together, to no more elements than a tensor may have."""
    try:
        return torch.broadcast_shapes(a, b).numel() <= MOST
    except RuntimeError:
        return False
