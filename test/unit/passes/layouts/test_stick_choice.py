"""The choice by elimination against trying everything."""

from __future__ import annotations

from itertools import product

import numpy as np
from amounts import examples
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from ktir.passes.layouts.stick_choice import IMPOSSIBLE, Table, choose


def _problem(data: st.DataObject) -> tuple[list[int], list[Table]]:
    domains = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=7), "domains")
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6), "seed"))
    tables = []
    for _ in range(data.draw(st.integers(0, 12), "tables")):
        scope = tuple(sorted(rng.choice(len(domains), size=min(len(domains), int(rng.integers(1, 4))), replace=False).tolist()))
        costs = rng.integers(0, 9, [domains[v] for v in scope]).astype(np.int64)
        tables.append(Table(scope, np.where(rng.random(costs.shape) < 0.1, IMPOSSIBLE, costs)))
    return domains, tables


def _cost(tables: list[Table], values: tuple[int, ...]) -> int:
    return sum(int(t.costs[tuple(values[v] for v in t.scope)]) for t in tables)


def _same(a: int, b: int) -> bool:
    return a == b or min(a, b) >= IMPOSSIBLE


@seed(1)
@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_exact(data: st.DataObject) -> None:
    domains, tables = _problem(data)
    found = choose(domains, tables)
    least = min(_cost(tables, values) for values in product(*map(range, domains)))
    assert found.cost == _cost(tables, found.values)
    assert _same(found.cost, found.bound)
    assert _same(found.cost, least)


@seed(2)
@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_bounded_where_tables_are_too_large(data: st.DataObject) -> None:
    domains, tables = _problem(data)
    found = choose(domains, tables, limit=8)
    least = min(_cost(tables, values) for values in product(*map(range, domains)))
    assert found.bound <= least <= found.cost == _cost(tables, found.values)


def test_the_same_problem_has_the_same_answer() -> None:
    tables = [Table((0, 1), np.zeros((3, 3), np.int64)), Table((1, 2), np.zeros((3, 2), np.int64))]
    assert choose([3, 3, 2], tables) == choose([3, 3, 2], tables)
    assert choose([3, 3, 2], tables).values == (0, 0, 0)


def test_variables_of_one_alternative_take_no_part() -> None:
    shared, count = np.arange(3, dtype=np.int64), 100
    tables = [Table((0,), shared), *(Table((0, v), np.array([[5], [1], [3]], np.int64)) for v in range(1, count))]
    found = choose([3, *[1] * (count - 1)], tables)
    assert found.values == (1, *[0] * (count - 1))
    assert found.cost == found.bound == 1 + (count - 1)
