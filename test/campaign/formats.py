"""Random chains of conversions between all number formats, with moves and views of bits between them: every result has eager's bits.

A chain is text, so that one that fails is its own reproducer. What PyTorch itself does not run is not drawn.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

FLOATS = ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
FORMATS = [*FLOATS, "int8", "uint8", "int16", "int32", "bool"]
SIZES = (1, 3, 5, 16, 63, 64, 65, 100, 128, 130)
_MOST = 20000
_EDGES = [
    448,
    464,
    465,
    57344,
    61440,
    65504,
    65519,
    65520,
    3.39e38,
    1e-45,
    6e-8,
    2**-9,
    2**-10,
    2**-16,
    2**-17,
    127.5,
    128,
    255.5,
    256,
    2.0**31,
    1e10,
]
EDGES = [0.0, 0.3, 1.5, 2.5, *_EDGES, float("inf")]


@dataclass(frozen=True)
class Chain:
    """A function as text, its argument, and the names of its results."""

    text: str
    argument: torch.Tensor

    def function(self) -> object:
        """The function itself."""
        scope: dict[str, object] = {"torch": torch}
        exec(compile(self.text, "<chain>", "exec"), scope)
        return scope["f"]


def argument(draw: random.Random) -> torch.Tensor:
    """Edges of all formats, any bits, or small numbers: of any format."""
    shape = [draw.choice(SIZES) for _ in range(draw.choice((1, 2, 2, 3)))]
    while torch.Size(shape).numel() > _MOST:
        shape[draw.randrange(len(shape))] = 3
    generator, dtype = torch.Generator().manual_seed(draw.randrange(1 << 30)), getattr(torch, draw.choice(FORMATS))
    if dtype.is_floating_point and draw.random() < 0.4:
        edges = torch.tensor([*EDGES, *(-e for e in EDGES), float("nan")])
        return edges[torch.randint(len(edges), shape, generator=generator)].to(dtype)
    if dtype.itemsize <= 2 and dtype != torch.bool and draw.random() < 0.5:
        bits = torch.int16 if dtype.itemsize == 2 else torch.uint8
        limits = torch.iinfo(bits)
        return torch.randint(limits.min, limits.max + 1, shape, generator=generator).to(bits).view(dtype)
    return (torch.randn(shape, generator=generator) * 30).to(dtype)


def step(draw: random.Random, x: str, value: torch.Tensor) -> str:
    """A conversion, a move, a view of the same bits, or arithmetic that is exact."""
    kind, dim = draw.random(), draw.randrange(value.dim())
    if kind < 0.6:
        return f"{x}.to(torch.{draw.choice(FORMATS)})"
    if kind < 0.75 and x != "x" and value.dtype.is_floating_point and value.float().isnan().any():
        return f"{x}.clone()"  # which NaN a conversion gives is open, and so are its bits
    if kind < 0.75:
        same = [t for t in FORMATS if getattr(torch, t).itemsize == value.dtype.itemsize and t != "bool"]
        return f"{x}.view(torch.{draw.choice(same)})" if value.dtype != torch.bool else f"{x}.logical_not()"
    if kind < 0.9:
        first = draw.choice((0, 1, 3, 63, 64))
        moves = ("transpose({d}, -1)", "unsqueeze({d})", "clone()", "repeat_interleave(2, {d})", "roll(1, {d})", "contiguous()")
        return f"{x}[..., {first}:]" if draw.random() < 0.3 and first < value.shape[-1] else f"{x}.{draw.choice(moves).format(d=dim)}"
    others = f"torch.cat([{x}, {x}], {dim})", f"{x}.abs()", f"torch.maximum({x}, {x}[:1])", f"torch.where({x} > 1, {x}, {x}[:1])"
    other, wide = draw.choice(others), value.double()
    of_two_zeros = "maximum" in other and bool(((wide == 0) & wide.signbit()).any())  # of which eager gives either
    return f"{x}.clone()" if of_two_zeros else other


def chain(seed: int) -> Chain:
    """A chain of up to six steps, of which each may go on from any before; of its values some are results, always the last one."""
    draw = random.Random(seed)
    given = argument(draw)
    scope = {"x": given}
    lines: list[str] = []
    wanted = draw.randint(2, 6)
    while len(lines) < wanted:
        source = draw.choice([*scope, *list(scope)[-2:]])
        text = step(draw, source, scope[source])
        try:
            value = eval(text, {"torch": torch}, scope)
        except (RuntimeError, TypeError, IndexError):
            continue
        if value.numel() <= _MOST and value.numel():
            name = f"v{len(lines)}"
            lines.append(f"    {name} = {text}\n")
            scope[name] = value
    names = [n for n in scope if n != "x" and draw.random() < 0.4]
    results = ", ".join(dict.fromkeys([*names, f"v{wanted - 1}"]))
    return Chain(f"def f(x):\n{''.join(lines)}    return ({results},)\n", given)
