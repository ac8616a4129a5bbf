"""The bounds of integer arguments are found in a time that grows with the program, not with its square."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch

import ktir
from ktir.assembly import parse_module
from ktir.context import context
from ktir.mlir import ir
from ktir.passes.flat.integers.integer_proof import RANGES, prove_integers
from ktir.passes.flat.integers.ranges import Walk


def proved(count: int) -> tuple[int, list[int]]:
    """How many bodies are walked over for so many arguments, each a factor of its own, and the largest number of each."""

    def product(*factors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(f * (k + 3) for k, f in enumerate(factors))

    text = ktir.capture(product, *(torch.ones(4 + k, dtype=torch.int64) for k in range(count)))
    with context(), ir.Location.unknown(), patch.object(Walk, "_body", autospec=True, side_effect=Walk._body) as walked:
        module = parse_module(text)
        prove_integers(module)
        (ranges,) = (a.attr for a in ir.DictAttr(module.operation.attributes[RANGES]))
        given = [ir.DictAttr(r) for r in ir.ArrayAttr(ranges)][:count]
        return walked.call_count, [ir.IntegerAttr(r["high"]).value for r in given]


def test_bodies_are_walked_over_where_their_operands_change() -> None:
    few, many = proved(4), proved(32)
    assert many[0] <= 10 * few[0]


@pytest.mark.parametrize("count", [1, 5])
def test_each_argument_has_a_bound_of_its_own(count: int) -> None:
    """The largest power of two whose negative times the factor 32 bits hold."""
    _, highest = proved(count)
    assert highest == [max(2**e for e in range(31) if (k + 3) * 2**e <= 2**31) - 1 for k in range(count)]
