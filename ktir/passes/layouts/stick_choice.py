"""The cheapest choice of one alternative per variable, where costs are sums of tables over few variables each: bucket elimination.

Eliminating a variable adds the tables that name it and keeps, for each choice of its neighbours, the least cost. That is exact; its time
and memory are those of the largest table. Where a table would have more than `limit` entries the tables of a bucket are minimised in
groups instead, which bounds the least cost from below: the result says how far from it the choice can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from math import prod

import numpy as np
from numpy.typing import NDArray

IMPOSSIBLE = 1 << 60
"""Cost of what must not be chosen; sums are cut off there."""


@dataclass(frozen=True, eq=False)
class Table:
    """Costs of the variables `scope`: one axis each, in the order of `scope`, which is ascending."""

    scope: tuple[int, ...]
    costs: NDArray[np.int64]


@dataclass(frozen=True)
class Choice:
    """An alternative per variable, what they cost, and a cost that no choice undercuts; equal if the choice is a cheapest one."""

    values: tuple[int, ...]
    cost: int
    bound: int


def choose(domains: Sequence[int], tables: Sequence[Table], limit: int = 1 << 20) -> Choice:
    """The cheapest choice, variable v having `domains[v]` alternatives; among equals always the same one."""
    tables = [_open(table) for table in tables]
    naming: list[list[Table]] = [[] for _ in domains]
    for table in tables:
        for v in table.scope:
            naming[v].append(table)
    buckets: list[tuple[int, list[Table]]] = []
    eliminated: set[int] = set()
    bound = sum(int(t.costs) for t in tables if not t.scope)
    for variable in _order(tuple(domains), tuple(t.scope for t in tables)):
        bucket = [t for t in naming[variable] if eliminated.isdisjoint(t.scope)]
        eliminated.add(variable)
        buckets.append((variable, bucket))
        for group in _groups(bucket, domains, limit):
            joined = _joined(group)
            axis = joined.scope.index(variable)
            rest = Table(joined.scope[:axis] + joined.scope[axis + 1 :], joined.costs.min(axis=axis))
            if not rest.scope:
                bound += int(rest.costs)
            for v in rest.scope:
                naming[v].append(rest)
    values = [0] * len(domains)
    for variable, bucket in reversed(buckets):
        costs = np.zeros(domains[variable], np.int64)
        for table in bucket:
            part = table.costs[tuple(slice(None) if v == variable else values[v] for v in table.scope)]
            costs = np.minimum(costs + part, IMPOSSIBLE)
        values[variable] = int(costs.argmin())
    return Choice(tuple(values), sum(int(t.costs[tuple(values[v] for v in t.scope)]) for t in tables), bound)


def _open(table: Table) -> Table:
    """A table without the variables that have one alternative: no axis tells anything about them, and an array has at most 64."""
    return Table(tuple(v for v, n in zip(table.scope, table.costs.shape, strict=True) if n > 1), table.costs.squeeze())


@lru_cache(maxsize=16)
def _order(domains: tuple[int, ...], scopes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """The order of elimination: always the variable whose joint table with its neighbours is the smallest."""
    neighbours: list[set[int]] = [{v} for v in range(len(domains))]
    for scope in scopes:
        for v in scope:
            neighbours[v].update(scope)

    def size(v: int) -> int:
        return prod([domains[n] for n in neighbours[v]])

    queue = [(size(v), v) for v in range(len(domains))]
    heapify(queue)
    order: list[int] = []
    left = set(range(len(domains)))
    while queue:
        entries, variable = heappop(queue)
        if variable not in left or entries != size(variable):
            continue  # eliminated, or in the queue again with what its table has become
        left.remove(variable)
        order.append(variable)
        around = neighbours[variable] - {variable}
        for v in around:
            neighbours[v] = (neighbours[v] | around) - {variable}
            heappush(queue, (size(v), v))
    return tuple(order)


def _groups(bucket: Sequence[Table], domains: Sequence[int], limit: int) -> list[list[Table]]:
    """The tables of a bucket, together if their sum is small enough, else in as few groups as first fit makes."""
    groups: list[tuple[set[int], list[Table]]] = []
    for table in sorted(bucket, key=lambda t: -t.costs.size):
        for scope, members in groups:
            if prod(domains[v] for v in scope.union(table.scope)) <= limit:
                scope.update(table.scope)
                members.append(table)
                break
        else:
            groups.append((set(table.scope), [table]))
    return [members for _, members in groups]


def _joined(tables: Sequence[Table]) -> Table:
    """The sum of tables over all their variables."""
    scope = tuple(sorted({v for t in tables for v in t.scope}))
    total = np.zeros((1,) * len(scope), np.int64)
    for table in tables:
        part = table.costs.reshape([table.costs.shape[table.scope.index(v)] if v in table.scope else 1 for v in scope])
        total = np.minimum(total + part, IMPOSSIBLE)
    return Table(scope, total)
