"""Attention under masks of positions: what no row sees is neither loaded nor computed, and no bit depends on that."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import ktir
from ktir.assembly import parse_module
from ktir.checking.levels import check_levels
from ktir.context import context
from ktir.diagnostics import remarks
from ktir.emulator.machine.control.control import control
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.passes.ktir_to_allocated import ToAllocated
from ktir.passes.tiling import online_plan
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
ROWS, KEYS, DEPTH = 200, 330, 64
"""Four blocks of rows and three of keys: of these, under each mask, some are hidden, some cut and some seen whole."""


def positions() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(ROWS)[:, None], torch.arange(KEYS)[None]


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def window(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    i, j = positions()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(j <= i + 100) & (j > i - 50))


def ahead(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Most blocks are seen by all rows, also some behind others: they are computed without the mask."""
    i, j = positions()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=j <= i + 200)


def added(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """As models add it; the first rows see no key at all, and are NaN."""
    i, j = positions()
    mask = torch.where(j + 130 <= i, 0.0, -torch.inf)
    return torch.softmax(torch.einsum("bhid,bhjd->bhij", q, k).float() / 8 + mask, -1).to(q.dtype) @ v


def guarded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """PyTorch's own: rows that see no key are zeros."""
    i, j = positions()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=j + 130 <= i)


def capped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Bounded scores, and a score for each head that no value belongs to."""
    i, j = positions()
    scores = torch.tanh(torch.einsum("bhid,bhjd->bhij", q, k).float() / 16) * 2
    scores = torch.where(j <= i, scores, -torch.inf)
    most = scores.amax(-1, keepdim=True).clamp(min=0.5)
    weights = torch.exp(scores - most)
    return (weights / (weights.sum(-1, keepdim=True) + torch.exp(0.5 - most))).to(q.dtype) @ v


def tensors(heads: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(5)
    return [torch.randn(1, heads, n, DEPTH, generator=draw).half() for n in (ROWS, KEYS, KEYS)]


@pytest.mark.turn
@pytest.mark.parametrize("function", [causal, window, ahead, added, guarded, capped])
def test_levels_agree_and_no_bit_changes(function: Attention, monkeypatch: pytest.MonkeyPatch) -> None:
    """All levels and both modes of the machine; against float64; and what all blocks of keys give, in blocks of the same sizes."""
    given_ = tensors(2)
    text = ktir.capture(function, *given_)
    arrays = [*(t.numpy() for t in given_), np.zeros((2, ROWS, DEPTH), np.float16)]
    monkeypatch.setattr(online_plan, "KEY_STICKS", (2,))
    monkeypatch.setattr(online_plan._Search, "_rows", lambda *_: (64,))
    results = check_levels(text, arrays, cores=2, online_softmax="always")
    assert not next(r for r in results if r.name == "ktir-tile").exact
    found = results[-1].arrays[-1].astype(np.float64)
    wanted = function(*(t.double() for t in given_)).numpy().reshape(found.shape)
    assert (np.isnan(found) == np.isnan(wanted)).all()
    assert np.nanmax(np.abs(found - wanted)) <= 2.0**-9 * np.nanmax(np.abs(wanted))
    monkeypatch.setattr(online_plan, "seen_keys", lambda *_: None)
    every = check_levels(text, arrays, cores=2, online_softmax="always")[-1].arrays[-1]
    assert every.tobytes() == results[-1].arrays[-1].tobytes()


def cost(function: Attention, keys: int) -> tuple[int, int, float]:
    """Cycles, bytes that are read, and how many times as many cycles the plan has foreseen."""
    text = ktir.capture(function, *(torch.zeros(1, 32, n, 128, dtype=torch.float16) for n in (keys, keys, keys)))
    with context(), ir.Location.unknown(), remarks() as found:
        module = parse_module(text)
        run_pipeline(module, ToAllocated(verify=False).text())
        (kernel,) = control(lower_program(module), DATASHEET).statistics
    (planned,) = (m[1] for r in found if (m := re.match(r"1 kernels, (\d+) cycles", r.message)))
    return kernel.cycles, kernel.dram_read, int(planned) / kernel.cycles


@pytest.mark.turn
def test_a_window_reads_each_key_once_and_takes_less() -> None:
    """32 heads of 1024 positions, of which a row sees 128."""

    def narrow(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        i, j = torch.arange(1024)[:, None], torch.arange(1024)[None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=(j <= i) & (j > i - 128))

    found = [cost(f, 1024) for f in (F.scaled_dot_product_attention, causal, narrow)]
    (full, *_), (half, *_), (few, read, _) = found
    assert all(0.8 < foreseen < 1.25 for *_, foreseen in found)
    tensor = 32 * 1024 * 128 * 2
    assert read < 1.01 * 3 * tensor
    once, products = 4 * tensor / DATASHEET.dram_bytes_per_cycle, 2 * 32 * 1024 * 1024 * 128 / (32 * 2 * DATASHEET.pt_macs)
    # one block of rows follows the other without a wait: the first keys and the last results are what memory and PT wait for
    assert few < once / 0.93
    assert half < once / 0.84
    assert full < products / 0.70
