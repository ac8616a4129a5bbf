"""Whole kernels against float64, within bounds that follow from their roundings; and through ktir-opt."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from combinations import each_once
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_attention import cache_write, embedding, online_attention, paged_attention
from kernel_case import Kernel
from kernel_products import matmul, split_k, swiglu
from kernel_rows import layer_norm, rms_norm, rope, softmax, vector_add
from kernel_texts import same

import ktir
from ktir.emulator.policy import Policy
from ktir.tools import ktir_opt

TILES = (1, 3, 32)
_GRIDS = {1: (1, 1), 3: (1, 3), 32: (4, 8)}
_GROUPS = {1: (1, 1), 3: (1, 3), 32: (2, 16)}

# Sizes: all ones; odd and small, with less work than tiles; odd and beyond one stick, with a block that does not divide them.
KERNELS: dict[str, tuple[Callable[..., Kernel], ...]] = {
    "vector_add": (lambda t: vector_add(1, t, 1), lambda t: vector_add(29, t, 50), lambda t: vector_add(4099, t, 129)),
    "softmax": (lambda t: softmax(1, 1, t, 1), lambda t: softmax(7, 65, t, 2), lambda t: softmax(67, 301, t, 3)),
    "layer_norm": (lambda t: layer_norm(1, 1, t, 1), lambda t: layer_norm(7, 65, t, 2), lambda t: layer_norm(67, 301, t, 3)),
    "rms_norm": (lambda t: rms_norm(1, 1, t, 1), lambda t: rms_norm(7, 65, t, 64), lambda t: rms_norm(37, 301, t, 100)),
    "matmul": (
        lambda t: matmul(1, 1, 1, _GRIDS[t], 1),
        lambda t: matmul(5, 130, 67, _GRIDS[t], 64),
        lambda t: matmul(67, 301, 129, _GRIDS[t], 100),
    ),
    "split_k": (
        lambda t: split_k(1, 1, 1, *_GROUPS[t]),
        lambda t: split_k(5, 130, 67, *_GROUPS[t]),
        lambda t: split_k(33, 301, 129, *_GROUPS[t]),
    ),
    "rope": (lambda t: rope(1, 1, 1, t), lambda t: rope(3, 37, 5, t), lambda t: rope(5, 65, 33, t)),
    "swiglu": (lambda t: swiglu(1, 1, 1, t), lambda t: swiglu(3, 65, 130, t), lambda t: swiglu(7, 70, 201, t)),
    "embedding": (
        lambda t: embedding(1, 1, 1, t, 1),
        lambda t: embedding(50, 65, 37, t, 4),
        lambda t: embedding(301, 33, 129, t, 7),
    ),
    "cache_write": (lambda t: cache_write(1, 1, 1, t), lambda t: cache_write(50, 65, 37, t), lambda t: cache_write(301, 33, 65, t)),
    "online_attention": (
        lambda t: online_attention(1, 1, 1, t, 1, 1),
        lambda t: online_attention(3, 37, 33, t, 8, 5),
        lambda t: online_attention(2, 131, 65, t, 33, 16),
    ),
    "paged_attention": (
        lambda t: paged_attention(1, 1, 1, 1, 1, 1, t),
        lambda t: paged_attention(3, 2, 3, 33, 5, 4, t),
        lambda t: paged_attention(5, 3, 1, 65, 16, 3, t),
    ),
}


@functools.cache
def made(name: str, size: int, tiles: int) -> Kernel:
    """A kernel of the table; its text, which numbers its values, is the same for every policy."""
    return KERNELS[name][size](tiles)


def run(kernel: Kernel, numerics: Literal["machine", "fast", "peer"] = "machine", text: str | None = None) -> Mapping[str, Any]:
    """The arguments after an execution; what is no output has not changed."""
    arguments = {name: v.copy() for name, v in kernel.arguments.items()}
    ktir.execute(text or kernel.text, None, list(arguments.values()), policy=Policy(numerics=numerics))
    for name, before in kernel.arguments.items():
        if name not in kernel.expected:
            same(arguments[name], before)
    return arguments


def check(kernel: Kernel, numerics: Literal["machine", "fast", "peer"]) -> None:
    found = run(kernel, numerics)
    for output, (want, bound) in kernel.expected.items():
        error = np.abs(found[output].astype(np.float64) - want)
        assert (error <= bound).all(), f"{output}: off by up to {np.nanmax(error)}, {np.isnan(error).sum()} without value"


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("sizes", "numerics"), each_once(itertools.product(range(3), TILES), ["machine", "fast", "peer"]))
def test_values(name: str, sizes: tuple[int, int], numerics: Literal["machine", "fast", "peer"]) -> None:
    size, tiles = sizes
    check(made(name, size, tiles), numerics)


@pytest.mark.parametrize("name", ["vector_add", "softmax", "layer_norm", "rope", "embedding", "cache_write", "swiglu", "online_attention"])
def test_bits_do_not_depend_on_the_division(name: str) -> None:
    """A row is computed on one tile, so every division gives the same bits."""
    first, *others = (run(made(name, 2, tiles)) for tiles in TILES)
    for other in others:
        for output in made(name, 2, 1).expected:
            same(first[output], other[output])


@pytest.mark.parametrize("name", KERNELS)
def test_round_trip(name: str, tmp_path: Path) -> None:
    """ktir-opt prints what it reads: the second time the same text, and a program of the same bits."""
    kernel = made(name, 1, 3)
    source, once, twice = (tmp_path / file for file in ("k.mlir", "once.mlir", "twice.mlir"))
    source.write_text(kernel.text)
    assert ktir_opt.main([str(source), "-o", str(once)]) == 0
    assert ktir_opt.main([str(once), "-o", str(twice)]) == 0
    assert once.read_text() == twice.read_text()
    entry = "swiglu" if name == "swiglu" else "kernel"
    assert f"@{entry}(" in once.read_text()
    first, second = run(kernel), run(kernel, text=once.read_text())
    for output in kernel.expected:
        same(first[output], second[output])


@pytest.mark.parametrize("name", KERNELS)
def test_passes_that_keep_the_meaning_keep_the_bits(name: str, tmp_path: Path) -> None:
    kernel = made(name, 2, 3)
    source, result = tmp_path / "k.mlir", tmp_path / "result.mlir"
    source.write_text(kernel.text)
    flags = ["--ktir-inline", "--ktir-canonicalize", "--canonicalize", "--cse", "--loop-invariant-code-motion", "--sccp"]
    assert ktir_opt.main([str(source), *flags, "-o", str(result)]) == 0
    first, second = run(kernel), run(kernel, text=result.read_text())
    for output in kernel.expected:
        same(first[output], second[output])


_tiles, _grid = st.sampled_from([1, 2, 3, 5, 7, 31, 32]), st.sampled_from([(1, 1), (1, 3), (2, 2), (3, 5), (4, 8), (8, 4)])


def _to(most: int) -> st.SearchStrategy[int]:
    return st.integers(1, most)


ANY_SIZE: dict[str, st.SearchStrategy[Kernel]] = {
    "vector_add": st.builds(vector_add, _to(900), _tiles, _to(200)),
    "softmax": st.builds(softmax, _to(70), _to(300), _tiles, _to(9)),
    "layer_norm": st.builds(layer_norm, _to(70), _to(300), _tiles, _to(9)),
    "rms_norm": st.builds(rms_norm, _to(30), _to(300), _tiles, _to(200)),
    "matmul": st.builds(matmul, _to(70), _to(200), _to(140), _grid, _to(130)),
    "split_k": st.builds(lambda m, k, n, grid: split_k(m, k, n, *grid), _to(40), _to(300), _to(140), _grid),
    "rope": st.builds(rope, _to(5), _to(70), _to(70), _tiles),
    "swiglu": st.builds(swiglu, _to(9), _to(130), _to(200), _tiles),
    "embedding": st.builds(embedding, _to(80), _to(140), _to(90), _tiles, _to(20)),
    "cache_write": st.builds(
        lambda free, width, tokens, tiles: cache_write(tokens + free, width, tokens, tiles), _to(50), _to(140), _to(60), _tiles
    ),
    "online_attention": st.builds(online_attention, _to(3), _to(90), _to(80), _tiles, _to(20), _to(20)),
    "paged_attention": st.builds(paged_attention, _to(4), _to(3), _to(4), _to(90), _to(9), _to(5), _tiles),
}


@pytest.mark.long
@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=40, deadline=None)
@given(data=st.data(), numerics=st.sampled_from(["machine", "fast", "peer"]))
def test_values_at_any_size(name: str, data: st.DataObject, numerics: Literal["machine", "fast", "peer"]) -> None:
    check(data.draw(ANY_SIZE[name]), numerics)
