"""Products of parameters: `make test` takes each value of each axis at least once, `make test-long` every combination."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def each_once(*axes: Iterable[Any]) -> list[ParameterSet]:
    """Parameter sets for `pytest.mark.parametrize`: all combinations, where those that only repeat values of others are long.

    A value that is long itself makes its combinations long. Neighbors of the longest axis meet other values of each shorter one, and
    every round along a shorter axis begins one value later.
    """
    values = [[p if isinstance(p, ParameterSet) else pytest.param(p) for p in axis] for axis in axes]
    quick = [[p for p in axis if not p.marks] for axis in values]
    rounds = range(max(map(len, quick)))
    chosen = {tuple(id(axis[(i + i // len(axis)) % len(axis)]) for axis in quick) for i in rounds}
    return [
        pytest.param(*(p.values[0] for p in row), marks=() if tuple(map(id, row)) in chosen else pytest.mark.long)
        for row in itertools.product(*values)
    ]
