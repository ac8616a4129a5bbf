"""Which dependences become tokens: those that no other one makes redundant, however many there are."""

from __future__ import annotations

import random
import time

from ktir.isa.units import Unit
from ktir.lowering.ktir_to_spyre.sync import _Dependence, _needed

UNITS = (Unit.MNIL, Unit.LXLU, Unit.LXSU)


def redundant(d: _Dependence, e: _Dependence) -> bool:
    """By what tokens are: who waits for a later post at an earlier place, of the same trip or of a nearer one, waits for this one too."""
    pair = (e.sender, e.receiver) == (d.sender, d.receiver)
    trips = e.distance == d.distance or 0 < e.distance < d.distance
    return d != e and pair and trips and e.relayed >= d.relayed and e.source >= d.source and e.target <= d.target


def test_those_that_others_make_redundant_go() -> None:
    rng = random.Random(7)
    for _ in range(400):
        amount = rng.randrange(1, 50)
        found = {
            _Dependence(rng.choice(UNITS), rng.choice(UNITS), rng.randrange(6), rng.randrange(6), rng.randrange(4), rng.random() < 0.5)
            for _ in range(amount)
        }
        assert set(_needed(found)) == {d for d in found if not any(redundant(d, e) for e in found)}


def test_many_are_no_wait() -> None:
    """A kernel by hand whose loops are unrolled has thousands."""
    found = {_Dependence(Unit.LXSU, Unit.LXLU, i, i + j, 0, relayed=False) for i in range(2_000) for j in range(1, 11)}
    begin = time.process_time()
    assert len(set(_needed(found))) == 2_000
    assert time.process_time() - begin < 5
