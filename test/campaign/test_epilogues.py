"""Products of matrices in expressions of more tensors than one op of the vector unit reads, against PyTorch in float64.

Numbers are small integers, of which every sum and every result is exact. Rows that are one, batches of vectors, matrices for each of them,
several results and results that are read again are all in it. Left out: numbers that are rounded (`functions` has them), divisions, and
matrices that the program itself computes, whose products are judged by `graphs`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from chip import only_on_chip

ROWS, INNER, COLUMNS = (1, 2, 5, 31, 64, 65, 130, 300, 700), (1, 3, 64, 65, 128, 200, 640), (1, 7, 63, 64, 65, 128, 191, 320)
BATCHES = (), (), (), (2,), (3,)
OPS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "max": torch.maximum,
    "min": torch.minimum,
    "relu": torch.relu,
    "neg": torch.neg,
}
LARGEST = 2000
"""Up to which float16 has all integers."""


class Program:
    """A drawn function, and its arguments: the rows, and what expressions read."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.batch = self.r.choice(BATCHES)
        self.rows, self.inner, self.columns = (self.r.choice(sizes) for sizes in (ROWS, INNER, COLUMNS))
        self.arguments = [self._sparse(*self.batch, self.rows, self.inner)]
        self.trees = [self._tree(self.r.randint(2, 6), product=True)]
        if self.r.random() < 0.4:
            self.trees.append(self._tree(2, product=True))
        self.sums = self.r.random() < 0.3
        self.shared = self.r.random() < 0.3

    def __call__(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = [self._value(tree, arguments) for tree in self.trees]
        if self.shared:
            found = [torch.maximum(each, found[0]) for each in found]
        return (*found, found[0].sum(-1)) if self.sums else tuple(found)

    def _sparse(self, *shape: int) -> torch.Tensor:
        """A dozen of numbers in each sum."""
        signs = torch.randint(-1, 2, shape, generator=self.generator)
        return (signs * (torch.rand(shape, generator=self.generator) < min(1.0, 12 / self.inner))).half()

    def _new(self, argument: torch.Tensor) -> int:
        self.arguments.append(argument)
        return len(self.arguments) - 1

    def _leaf(self, *, product: bool) -> tuple[Any, ...]:
        if product:
            batch = self.batch if self.r.random() < 0.3 else ()
            return "product", self._new(self._sparse(*batch, self.inner, self.columns))
        rows, columns = self.rows, self.columns
        shape = self.r.choice([(*self.batch, rows, 1), (columns,), (*self.batch, rows, columns), (1,)])
        return "read", self._new(torch.randint(-2, 3, shape, generator=self.generator).half())

    def _tree(self, depth: int, *, product: bool) -> tuple[Any, ...]:
        if not depth:
            return self._leaf(product=product)
        op = self.r.choice(["add", "sub", *OPS])
        first = self._tree(depth - 1, product=product)
        if op in ("relu", "neg"):
            return op, first
        second = self._tree(self.r.randint(0, depth - 1), product=self.r.random() < 0.35)
        return (op, first, second) if self.r.random() < 0.5 else (op, second, first)

    def _value(self, tree: tuple[Any, ...], arguments: tuple[torch.Tensor, ...]) -> torch.Tensor:
        kind, *of = tree
        if kind in OPS:
            return OPS[kind](*(self._value(each, arguments) for each in of))
        return arguments[0] @ arguments[of[0]] if kind == "product" else arguments[of[0]]


@pytest.mark.parametrize("seed", range(40))
def test_values(seed: int) -> None:
    program = Program(seed)
    with torch.no_grad():
        exact = program(*(a.double() for a in program.arguments))
        torch._dynamo.reset()
        with only_on_chip():
            found = torch.compile(program.__call__, backend="ktir", options={"engine": "spyre"})(*program.arguments)
    for here, there in zip(found, exact, strict=True):
        assert there.abs().max() <= LARGEST
        assert torch.equal(here.double(), there)
