"""Cores that read the same rows through the same indices share a read: attention on pages moves each key and value once."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

import ktir
from ktir.assembly import parse_module
from ktir.checking.levels import check_levels
from ktir.context import context
from ktir.emulator.machine import Machine
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read

HEADS, SHARED, SIZE, PAGE, PAGES, TOKENS, CORES = 4, 2, 64, 16, 8, 32, 8


def paged(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, pages: torch.Tensor) -> torch.Tensor:
    """Of [tokens, heads, size], keys and values [pages, page, shared heads, size] and the numbers of pages."""
    rows = (pages[:, None] * PAGE + torch.arange(PAGE)).view(-1)
    k, v = (c.view(-1, SHARED * SIZE).index_select(0, rows).view(-1, SHARED, SIZE).transpose(0, 1)[None] for c in (keys, values))
    return F.scaled_dot_product_attention(q.transpose(0, 1)[None], k, v, enable_gqa=True)[0]


def test_attention_on_pages() -> None:
    draw = torch.Generator().manual_seed(1)
    q = torch.randn(TOKENS, HEADS, SIZE, generator=draw).half()
    keys, values = (torch.randn(2 * PAGES, PAGE, SHARED, SIZE, generator=draw).half() for _ in range(2))
    pages = torch.randperm(2 * PAGES, generator=draw)[:PAGES]
    text, wanted = ktir.capture(paged, q, keys, values, pages), paged(q.double(), keys.double(), values.double(), pages)
    with context(), ir.Location.unknown():
        package = read(compile_logical(parse_module(text), cores=CORES))
    kernels = Machine(package.program, package.target).report.kernels
    once = q.nbytes + 2 * PAGES * PAGE * SHARED * SIZE * 2
    assert once <= sum(kernel.dram_read for kernel in kernels) < 1.2 * once
    left = [t.numpy() for t in (q, keys, values, pages)]
    hosts = package.launch_spec.hosts
    arrays = [left.pop(next(i for i, a in enumerate(left) if a.shape == host.size)) for host in hosts[:-1]]
    levels = check_levels(text, [*arrays, np.zeros(hosts[-1].size, np.float16)], cores=CORES)
    found = levels[-1].arrays[-1].astype(np.float64).reshape(TOKENS, HEADS, SIZE).transpose(1, 0, 2)
    assert np.abs(found - wanted.numpy()).max() <= 2.0**-9 * (wanted.abs().max().item() + values.abs().max().item())
