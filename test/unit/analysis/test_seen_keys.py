"""Which keys rows see under a mask of positions, against the mask itself as PyTorch computes it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import ktir
from ktir.analysis.seen_keys import keys_of_rows, open_keys, seen_keys
from ktir.assembly import parse_module
from ktir.context import context
from ktir.dialects.structured import Generic
from ktir.mlir import func, ir, is_a, linalg
from ktir.passes.ktir_to_allocated import ToAllocated
from ktir.pipeline import run_pipeline

Mask = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
LANES = 64
MASKS: dict[str, Mask] = {
    "causal": lambda i, j: j <= i,
    "later": lambda i, j: j > i + 70,
    "window": lambda i, j: (j <= i) & (i - j < 100),
    "all but a band": lambda i, j: ~((j <= i) & (j > i - 150)),
    "first keys and a window": lambda i, j: (j < 4) | ((j <= i) & (j > i - 64)),
    "none": lambda i, j: j < 10_000,
}


def program(mask: Mask, rows: int, keys: int, *, added: bool = False, heads: int = 2) -> str:
    """The largest score of each row, and more so that it is a kernel, under a mask of positions."""

    def function(x: torch.Tensor) -> torch.Tensor:
        seen = mask(torch.arange(rows)[:, None], torch.arange(keys)[None])
        hidden = torch.where(seen, 0.0, -torch.inf)
        return torch.softmax(x + hidden if added else torch.where(seen, x, -torch.inf), -1)

    return ktir.capture(function, torch.zeros(heads, rows, keys))


def wanted(mask: Mask, rows: int, keys: int, block: int) -> np.ndarray:
    """Per block of rows and stick of keys whether a row sees a key."""
    seen = mask(torch.arange(rows)[:, None], torch.arange(keys)[None]).broadcast_to(rows, keys).numpy()
    seen = np.pad(seen, ((0, -rows % block), (0, -keys % LANES)))
    return np.asarray(seen.reshape(len(seen) // block, block, -1, LANES).any((1, 3)))


def unmasked(mask: Mask, rows: int, keys: int, block: int) -> np.ndarray:
    """Per block of rows and stick of keys whether all rows see all keys."""
    seen = mask(torch.arange(rows)[:, None], torch.arange(keys)[None]).broadcast_to(rows, keys).numpy()
    seen = np.pad(seen, ((0, -rows % block), (0, -keys % LANES)), constant_values=True)
    return np.asarray(seen.reshape(len(seen) // block, block, -1, LANES).all((1, 3)))


def largest(module: ir.Module) -> list[tuple[func.FuncOp, Generic]]:
    """The reductions to a largest element."""
    generics = [(f, Generic(op.operation)) for f in module.body.operations for op in f.regions[0].blocks[0] if is_a(op, linalg.GenericOp)]
    return [(f, g) for f, g in generics if not g.is_pointwise and g.combiner == "max"]


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_against_the_mask(name: str, added: bool) -> None:
    """Nothing that is seen is hidden, and of masks that compare positions each hidden block is known, at both levels."""
    rows, keys = 300, 400
    with context(), ir.Location.unknown():
        flat, divided = (parse_module(program(MASKS[name], rows, keys, added=added)) for _ in range(2))
        run_pipeline(flat, ToAllocated(verify=False).text("ktir-split-bodies"))
        ((function, most),) = largest(flat)
        seen = seen_keys(function, most, LANES)
        true = wanted(MASKS[name], rows, keys, LANES)
        if name == "none":
            assert seen is None
            assert keys_of_rows(most) == ()
            return
        assert seen is not None
        assert (seen >= true).all()
        found, all_ = open_keys(function, most, LANES), unmasked(MASKS[name], rows, keys, LANES)
        assert (found <= all_).all()
        assert found[:, :-1].any() or not all_[:, :-1].any()  # the last stick is not whole
        run_pipeline(divided, ToAllocated(cores=3, work_div="b0=1,m=3", verify=False).text("ktir-divide-work"))
        ((function, most),) = largest(divided)
        shared = seen_keys(function, most, 50)
    parts = wanted(MASKS[name], rows, keys, 50).reshape(3, 2, -1)
    assert (shared is not None and (shared >= parts.any(0)).all()) if not parts.any(0).all() else shared is None


TERMS = st.builds(
    lambda a, b, c, swap: (lambda i, j: (i * a + c >= j * b) if swap else (i * a + c < j * b)),
    st.integers(-2, 3), st.integers(-2, 3), st.integers(-300, 300), st.booleans(),
)  # fmt: skip
ANY = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        st.builds(lambda a, b: lambda i, j: a(i, j) & b(i, j), inner, inner),
        st.builds(lambda a, b: lambda i, j: a(i, j) | b(i, j), inner, inner),
        st.builds(lambda a, b: lambda i, j: a(i, j) ^ b(i, j), inner, inner),
        st.builds(lambda a: lambda i, j: ~a(i, j), inner),
    ),
    max_leaves=4,
)


@settings(max_examples=examples(12), deadline=None, derandomize=True, database=None)
@given(ANY, st.integers(1, 200), st.integers(2, 300), st.integers(2, 150))
def test_any_mask(mask: Mask, rows: int, keys: int, block: int) -> None:
    """What is said to be hidden is hidden."""
    with context(), ir.Location.unknown():
        module = parse_module(program(mask, rows, keys))
        run_pipeline(module, ToAllocated(verify=False).text("ktir-split-bodies"))
        for function, most in largest(module):
            seen = seen_keys(function, most, block)
            if rows > 1:
                assert seen is None or (seen >= wanted(mask, rows, keys, block)).all()
                assert (open_keys(function, most, block) <= unmasked(mask, rows, keys, block)).all()
