"""Damaged packages give a clear error: no crash, no hang, no wrong launch."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from campaign.packages import Files, damaged, in_worker, misproduced, outcome, restructured, use

from ktir.assembly import parse_module
from ktir.context import context
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir

INPUTS = Path(__file__).parents[1] / "lit" / "lowering" / "inductor"


@cache
def originals() -> tuple[Files, ...]:
    """Packages of compiled programs."""
    with context(), ir.Location.unknown():
        return tuple(compile_logical(parse_module((INPUTS / f"{name}.mlir").read_text())) for name in ("softmax", "linear_relu"))


def damage(count: int, seed: int) -> int:
    """So many damaged packages, each refused; how many ways of wording that took."""
    r = random.Random(seed)
    messages = set()
    for _ in range(count):
        what, files = damaged(r.choice(originals()), r)
        message = use(files)
        assert message is not None, f"{what} goes unnoticed"
        messages.add(message)
    return len(messages)


def misproduce(count: int, seed: int) -> int:
    """So many packages of a wrong producer, each refused or run; how many are refused."""
    r = random.Random(seed)
    return sum(use(misproduced(r.choice(originals()), r)[1]) is not None for _ in range(count))


def test_originals() -> None:
    assert [use(files) for files in originals()] == [None, None]


def test_damaged_packages() -> None:
    assert damage(100, 1) > 30


def test_packages_of_a_wrong_producer() -> None:
    assert misproduce(40, 2) > 20


@cache
def results(index: int) -> list[bytes]:
    """What the program of a package gives."""
    return outcome(originals()[index])[1]


def campaign(seeds: range) -> Counter[str]:
    """What became of a damaged package per seed."""
    found: Counter[str] = Counter()
    for seed in seeds:
        r = random.Random(seed)
        index = r.randrange(len(originals()))
        what, changed = r.choice([damaged, misproduced, restructured, restructured])(originals()[index], r)
        said = in_worker(changed, results(index))
        assert said in ("refused", "reported", "same"), f"seed {seed}, {what}: {said}"
        found[said] += 1
    return found


@pytest.mark.turn
def test_packages_in_workers() -> None:
    """Each is refused, reported, or a package with the same results, within bounds of time and memory."""
    assert campaign(range(30))["refused"] > 15


@pytest.mark.long
def test_two_thousand_packages_in_workers() -> None:
    print(campaign(range(2000)))


@pytest.mark.long
def test_a_thousand_damaged_packages() -> None:
    damage(1000, 3)


@pytest.mark.long
def test_a_thousand_packages_of_a_wrong_producer() -> None:
    misproduce(1000, 4)
