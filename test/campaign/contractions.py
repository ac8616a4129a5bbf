"""Random sums of products over tensors whose dims come in any order, given, sliced, gathered or computed: what einsum means."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch

HALVES = (torch.float16, torch.bfloat16)
BYTES = (torch.float8_e4m3fn, torch.int8)
SIZES = {"a": (1, 2, 3), "b": (2, 3, 4), "q": (1, 4, 7, 64), "k": (5, 48, 64, 70, 130), "d": (16, 33, 64, 100, 128), "e": (2, 3)}
_ROWS = 9
"""Of what is gathered from."""


@dataclass(frozen=True)
class Product:
    """A program, its operands, and how it is told. Operands are small whole numbers, so that sums are exact in any order."""

    text: str
    function: Callable[..., torch.Tensor]
    operands: tuple[torch.Tensor, ...]

    def exact(self) -> torch.Tensor:
        """The result in float64."""
        return self.function(*(x.double() if x.dtype != torch.int64 else x for x in self.operands))


def _dims(draw: random.Random) -> tuple[str, str, str]:
    batch = "ab"[: draw.choice((0, 1, 1, 2, 2))]
    reduced = draw.choice(("d", "d", "d", "ed"))
    first, second, result = list(f"{batch}q{reduced}"), list(f"{batch}k{reduced}"), list(f"{batch}qk")
    draw.shuffle(second)
    for dims in (first, result):
        if draw.random() < 0.4:
            draw.shuffle(dims)
    return "".join(first), "".join(second), "".join(result)


def product(seed: int) -> Product:
    """Two factors of which the second one comes from somewhere."""
    draw = random.Random(seed)
    first, second, result = _dims(draw)
    sizes = {name: draw.choice(those) for name, those in SIZES.items()}
    wide, kind = draw.choice(HALVES), draw.choice(("given", "computed", "gathered", "gathered and computed", "sliced"))
    held = draw.choice((wide, wide, *BYTES))
    where, exchanged = draw.randrange(len(second)), draw.random() < 0.3
    shape = [sizes[name] for name in second]
    rows, generator = shape[where], torch.Generator().manual_seed(seed)
    shape[where] = _ROWS if kind.startswith("gathered") else rows + 3 if kind == "sliced" else rows
    at = torch.randint(_ROWS, (rows,), generator=generator)

    def function(a: torch.Tensor, b: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        if kind.startswith("gathered"):
            b = b.index_select(where, at)
        elif kind == "sliced":
            b = b.narrow(where, 2, rows)
        b = b.to(a.dtype)
        if kind.endswith("computed"):
            b = b * 2
        return torch.einsum(f"{second},{first}->{result}", b, a) if exchanged else torch.einsum(f"{first},{second}->{result}", a, b)

    a, b = (torch.randint(-3, 4, s, generator=generator) for s in ([sizes[name] for name in first], shape))
    text = f"{seed}: {first},{second}->{result}{' exchanged' if exchanged else ''}, {kind} dim {where}, {sizes}, {held} in {wide}"
    return Product(text, function, (a.to(wide), b.to(held), at))
