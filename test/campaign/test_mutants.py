"""Changed streams: each is reported by the verifier, by the emulator or by the comparison with KTIR, or computes the right values."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import pytest
from campaign.graphs import graph
from campaign.judged import REPORTED, Original, judge, original
from campaign.mutants import CHANGES, mutant
from logical_programs import gated, linear

from ktir import hints

INPUTS = Path(__file__).parents[1] / "lit" / "lowering" / "inductor"
CAPTURED = ("softmax", "layer_norm", "rms_norm", "attention", "linear_relu", "residual", "positions", "transposed")
GRAPHS = (2, 5, 11, 22, 33, 43, 49, 52)
"""Gathers, integers, masks, contractions over batches, reshapes."""
PRODUCTS = {
    "linear": linear(5, 130, 70),
    "residual product": linear(70, 100, 100, transposed=True, residual=True),
    "gated": gated(3, 65, 130),
    "sums of cores": linear(4, 400, 64),
}


@cache
def program(name: str) -> Original:
    """A compiled program by name; on 3 cores where its name ends so."""
    stem, _, cores = name.partition(" on ")
    if stem.startswith("graph"):
        return original(name, *graph_of(int(stem[5:]), int(cores or 32)))
    text = PRODUCTS[stem].text() if stem in PRODUCTS else (INPUTS / f"{stem}.mlir").read_text()
    with hints.hint(work_div={"m": 1, "n": 1, "k": 3}) if stem == "sums of cores" else nullcontext():
        return original(name, text, int(cores or 32))


def graph_of(seed: int, cores: int) -> tuple[str, int, list]:
    """Text, cores and arguments of a random program."""
    text, arguments = graph(seed)
    return text, cores, arguments


SMALL = ["softmax", "attention on 3", "linear_relu", "positions on 3", "graph2", "graph33 on 3", "gated"]
ALL = [*CAPTURED, *(f"{n} on 3" for n in CAPTURED), *PRODUCTS, *(f"graph{n}" for n in GRAPHS), *(f"graph{n} on 3" for n in GRAPHS)]


def campaign(names: list[str], count: int, seed: int) -> Counter[tuple[str, str]]:
    """So many mutants, each kind as often, of random programs: (kind, verdict) -> how many. None may be silent."""
    r = random.Random(seed)
    found: Counter[tuple[str, str]] = Counter()
    kinds = list(CHANGES)
    while found.total() < count:
        kind, name, inner = kinds[found.total() % len(kinds)], r.choice(names), r.getrandbits(32)
        changed = mutant(program(name).package, random.Random(inner), kind)
        if changed is None:
            continue
        verdict, _ = judge(program(name), changed)
        assert verdict != "silent", f"{kind} in {name}, seed {inner}: accepted, and other values"
        found[kind, verdict] += 1
    print(table(found), f"seed {seed}", sep="\n")
    return found


def table(found: Counter[tuple[str, str]]) -> str:
    """By kind of change, what has reported it."""
    verdicts = (*REPORTED, "right")
    lines = [f"{'change':<20}" + "".join(f"{v:>10}" for v in verdicts)]
    for kind in [*CHANGES, "all"]:
        counts = [sum(n for (k, verdict), n in found.items() if verdict == v and kind in (k, "all")) for v in verdicts]
        lines.append(f"{kind:<20}" + "".join(f"{n:>10}" for n in counts))
    return "\n".join(lines)


@pytest.mark.turn
def test_mutants() -> None:
    found = campaign(SMALL, 76, 1)
    assert all(any(verdict == v for _, v in found) for verdict in ("verifier", "emulator", "KTIR"))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_mutants(seed: int) -> None:
    campaign(ALL, 570, seed)
