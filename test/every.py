"""`--every` and `--first`: a part of the parameter sets of every test, for tests of each environment."""

from __future__ import annotations

from collections import defaultdict

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every", type=int, default=1, metavar="N", help="run every N-th parameter set of a test, at least one")
    parser.addoption("--first", type=int, default=0, metavar="K", help="which of N such parts: K modulo N; any number")


def pytest_report_header(config: pytest.Config) -> str | None:
    every, first = config.option.every, config.option.first
    return f"parameter sets: part {first % every} of {every} (--every {every} --first {first})" if every > 1 else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What `-m` leaves out has gone by now: `make test-quick` runs each test, whichever of its parameters are long. What is marked with
    `turn`, tests or whole files, is chosen from as if it were the parameter sets of one test."""
    sets: dict[str, dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        turn = next((node.nodeid for node, _ in item.iter_markers_with_node("turn")), None)
        sets["" if turn else item.nodeid.split("[")[0]][turn or item.nodeid].append(item)
    every, first = config.option.every, config.option.first
    chosen = {item for same in sets.values() for part in [*same.values()][first % min(every, len(same)) :: every] for item in part}
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]
