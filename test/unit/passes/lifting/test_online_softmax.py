"""Softmax that is carried through a loop of the device is one softmax: values beside PyTorch in float64, cycles, and what is not lifted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from combinations import each_once

import ktir
from ktir import lang
from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import Unsupported
from ktir.emulator.reference import execute
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.passes.lifting.whole_program import lift
from ktir.runtime.executable import Executable

sys.path.insert(0, str(Path(__file__).parents[4] / "examples"))
from kernels import flash_attention  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]

TOLERANCE = 2.0**-9
INPUTS = [np.random.default_rng(i).standard_normal((2, 40, 64)).astype(np.float16) for i in range(3)]


def compiled(text: str, **options: Any) -> Executable:
    with context(), ir.Location.unknown():
        return Executable(read(compile_logical(parse_module(text, "kernel.mlir"), **options)))


def attended(q: Any, k: Any, v: Any) -> torch.Tensor:
    """Causal attention, as a model writes it."""
    live = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    scores = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    return torch.softmax(scores.masked_fill(~live, float("-inf")), -1).to(v.dtype) @ v


def masked(live: Any) -> np.ndarray:
    """Attention in float64 over the keys that a query sees."""
    q, k, v = (torch.from_numpy(a).double() for a in INPUTS)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=live).numpy()


def test_flash_attention() -> None:
    """On the chip, in blocks of which the last ones are short, with trips that only some tiles make."""
    wanted = masked(torch.ones(40, 40, dtype=torch.bool).tril())
    o = np.zeros_like(INPUTS[0])
    call = flash_attention[3].using(way="auto", tolerance=TOLERANCE)
    told = call.explain(*INPUTS, o)
    assert "is lifted from 3 tiles: " in told
    assert "pinned it takes" in told
    assert "sums over trips are sums at once at" in told
    executable = compiled(call.traced(*INPUTS, o).text)
    executable(*INPUTS, o)
    assert np.abs(o - wanted).max() <= TOLERANCE * np.abs(wanted).max()


@pytest.mark.turn
@pytest.mark.parametrize(("heads", "length", "rows", "keys"), [(2, 40, 16, 32), (8, 256, 32, 64)])
def test_cycles_are_those_of_attention_in_pytorch(heads: int, length: int, rows: int, keys: int) -> None:
    """At most 1.1 times as many, as a model may write it; the kernel says by itself that it may be lifted."""
    arrays = [np.zeros((heads, length, 64), np.float16) for _ in range(4)]
    lifted = flash_attention[3].cycles(*arrays, rows=rows, keys=keys)
    q = torch.zeros(heads, length, 64).half()
    for written in (attended, lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)):
        captured = compiled(str(ktir.capture(written, q, q, q))).machine.report.cycles
        assert lifted <= 1.1 * captured


def blockwise(mask: Callable[[Any, Any], Any] | None = None, *, trips: bool = False, **parts: Any) -> lang.Kernel:
    """Attention with another mask of positions of queries and keys, another begin, or another step."""
    begin = parts.get("begin", (-np.inf, 0.0))
    step = parts.get("step", lambda top, new, s: (np.exp(s - new[:, None]), np.exp(top - new)))
    scaled = parts.get("scaled", lambda acc, scale: acc * scale[:, None])
    left = parts.get("left", lambda new, _: new)

    @lang.kernel
    def attention(q, k, v, o, *, rows=64, keys=16):
        heads, length, width = q.shape
        for head, r in lang.blocks((heads, length), (1, rows)):
            h = head.start
            query = q[h, r]
            top, total, acc = lang.full(rows, begin[0]), lang.full(rows, begin[1]), lang.zeros((rows, width))
            for j in lang.range(0, np.minimum(r.start + rows, length) if trips else length, keys):
                columns = np.arange(keys) + j
                s = lang.dot(query, k.masked[h, j : j + keys].T) * width**-0.5
                if mask is not None:
                    s = np.where(mask(r.positions[:, None], columns) & (columns < length), s, -np.inf)
                greatest = s.max(-1)
                new = np.maximum(top, greatest)
                p, scale = step(top, new, s)
                total[...] = total * scale + p.sum(-1)
                acc[...] = lang.dot(p.astype(v.dtype), v.masked[h, j : j + keys], scaled(acc, scale))
                top[...] = left(new, greatest)
            o[h, r] = acc / total[:, None]

    return attention[2]


MASKS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "window": (lambda r, c: (c <= r) & (c > r - 9), lambda r, c: (c <= r) & (c > r - 9)),
    "every other": (lambda r, c: (c * 2 - r * 2 <= 6) | (c == 0), lambda r, c: (c - r <= 3) | (c == 0)),
    "all": (lambda r, c: c >= 0, lambda r, c: c >= 0),
}


@pytest.mark.parametrize(("name", "rows"), each_once(MASKS, [8, 16]))
def test_masks_are_those_of_whole_tensors(name: str, rows: int) -> None:
    """Of positions in tiles; blocks of 16 keys end behind the last of 40."""
    mask, exact = MASKS[name]
    places = torch.arange(40)
    o = np.zeros_like(INPUTS[0])
    text = blockwise(mask).traced(*INPUTS, o, rows=rows).text
    with context(), ir.Location.unknown():
        whole = parse_module(text, "kernel.mlir")
        lifted = lift(whole, ())
        execute(whole, None, [*INPUTS, o])
    assert lifted.moved
    wanted = masked(exact(places[:, None], places))
    assert np.abs(o - wanted).max() <= TOLERANCE * np.abs(wanted).max()


def test_a_row_of_a_dim_is_not_a_row_of_another() -> None:
    """What lies behind the end of a dim is 0 only until something is added that is not."""

    @lang.kernel
    def summed(x, w, y, *, times=False):
        for rows in lang.blocks(x.shape[0], 8):
            total = lang.zeros(8)
            for k in lang.range(0, x.shape[1], 16):
                part = x.masked[rows, k : k + 16]
                total[...] = total + (part * part if times else part + w[rows][:, None]).sum(-1, np.float32)
            y[rows] = total

    x, w, y = INPUTS[0][0], INPUTS[1][0, :, 0].copy(), np.zeros(40, np.float32)
    narrow = x[:, :40].copy()
    with context(), ir.Location.unknown():
        whole = parse_module(summed[2].traced(narrow, w, y, times=True).text, "kernel.mlir")
        lift(whole, ())
        execute(whole, None, [narrow, y])
        with pytest.raises(Unsupported, match="reduces positions beyond the end of memory"):
            lift(parse_module(summed[2].traced(narrow, w, y).text, "kernel.mlir"), ())
    assert np.allclose(y, np.square(narrow.astype(np.float64)).sum(-1), rtol=TOLERANCE)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "the scale is turned round": (
        {"step": lambda top, new, s: (np.exp(s - new[:, None]), np.exp(new - top))},
        "no sum, product or extreme",
    ),
    "nothing is scaled": ({"scaled": lambda acc, _: acc + 0.0}, "combines with what is the same in each trip"),
    "columns are scaled": ({"scaled": lambda acc, scale: acc * scale}, "scales other elements than those that it adds"),
    "another value goes on": ({"left": lambda _, greatest: greatest}, "carries from trip to trip what is no sum"),
    "it begins with 1": ({"begin": (0.0, 1.0)}, "scales what it begins with, which is not 0"),
    "trips are missing, but not masked": ({"trips": True}, "trips that only some tiles make"),
    "the mask sees too much": ({"trips": True, "mask": lambda r, c: c <= r + 1}, "trips that only some tiles make"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_refused(name: str) -> None:
    """What is near to an online softmax is none."""
    parts, why = REFUSED[name]
    arrays = [np.zeros((2, 128, 64), np.float16) for _ in range(4)]
    with context(), ir.Location.unknown(), pytest.raises(Unsupported, match=why):
        lift(parse_module(blockwise(**parts).traced(*arrays).text, "kernel.mlir"), ())
