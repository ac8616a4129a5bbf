"""Each kind of the vector unit on any bits: what the executors compute is what one lane in Python's numbers gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from amounts import examples
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from ktir.arithmetic import numerics
from ktir.checking.literal import arithmetic
from ktir.checking.stream import scalars
from ktir.dialects import spyreop
from ktir.isa.cycles import op_cycles
from ktir.isa.functions import FUNCTIONS, integer_lane, is_integer_reduction, reduce_integers, reduction_identity
from ktir.isa.instructions import OPCODES
from ktir.isa.kinds import BINARY, KINDS, REDUCTIONS, TERNARY, UNARY
from ktir.isa.program import word
from ktir.isa.wellformed.vector_body import faults
from ktir.target import DATASHEET

FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    -2.5,
    3.7,
    1e-40,
    -1e-40,
    65504.0,
    65520.0,
    2.0**31,
    -(2.0**31),
    3e9,
    1e20,
    3.4e38,
    np.inf,
    -np.inf,
    np.nan,
]
INTEGERS = [0, 1, -1, 2, 7, 31, 32, 33, 65520, 2**24 + 1, 2**31 - 1, -(2**31)]
SPECIAL = {"f": np.array(FLOATS, np.float32).view(np.int32), "i": np.array(INTEGERS), "m": np.array([0, 1]), "x": np.array(INTEGERS)}
INTEGER = st.sampled_from(INTEGERS) | st.integers(-(2**31), 2**31 - 1)


def rows(takes: str, count: int = 800) -> np.ndarray:
    """Operands: every second one is special, but for those of masks, which have two values."""
    draw = np.random.default_rng(7)
    drawn = [np.where(draw.random(count) < 0.5, draw.choice(SPECIAL[t], count), draw.integers(-(2**31), 2**31, count)) for t in takes]
    return np.stack([column % 2 if t == "m" else column for t, column in zip(takes, drawn, strict=True)], -1)


def lanes(bits: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.array(bits, np.int64).astype(np.int32).view(np.float32)


@pytest.mark.parametrize("name", KINDS)
def test_against_one_lane(name: str) -> None:
    kind = KINDS[name]
    given = rows(kind.takes)
    operands = [lanes(column) for column in given.T]
    with numerics.quiet():
        found = FUNCTIONS[name](*operands)
        wanted = lanes([arithmetic.signed(arithmetic.compute(name, *(b % 2**32 for b in bits))) for bits in given.tolist()])
        into = np.empty(len(given), np.float32)
        assert FUNCTIONS[name](*operands, into) is into
    assert found.view(np.int32).tolist() == into.view(np.int32).tolist()
    same = found.view(np.int32) == wanted.view(np.int32)
    if kind.gives == "f":
        same |= np.isnan(found) & np.isnan(wanted)
    assert same.all(), [(r, f, w) for r, f, w, s in zip(given, found, wanted, same, strict=True) if not s]


@pytest.mark.parametrize("kind", [k for k in REDUCTIONS if is_integer_reduction(k)])
def test_integer_reductions(kind: str) -> None:
    @seed(3)
    @settings(max_examples=examples(40), deadline=None, database=None)
    @given(st.lists(INTEGER, min_size=1, max_size=70))
    def agrees(values: list[int]) -> None:
        total = arithmetic.START[kind]
        for v in values:
            total = arithmetic.compute(kind, total, v % 2**32)
        assert reduce_integers(kind, lanes(values)[None], -1).view(np.uint32).item() == total

    agrees()


def test_identities() -> None:
    for kind in REDUCTIONS:
        assert int(np.array(reduction_identity(kind)).view(np.uint32)) == arithmetic.START[kind]


@pytest.mark.parametrize("value", INTEGERS)
def test_integer_lanes_keep_all_bits(value: int) -> None:
    """Some of them are NaNs that a conversion would change."""
    assert int(np.full(3, integer_lane(value), np.float32).view(np.int32)[1]) == value


def test_every_kind_computes_a_scalar_op() -> None:
    """A kind that no op of KTIR needs has no place in the table."""
    comparisons = {f"cmpf_{p}" for p in scalars._CMPF if p} | {f"cmpi_{p}" for p in scalars._CMPI}
    declared = {getattr(op, "vector_kind", None) for op in vars(spyreop).values()} - {None, ""}
    rounding = {"addh", "addb", "addl"}  # a reduction by `addf` whose accumulator has 16 bits
    bytes_ = {*scalars.OPENED.values(), *scalars.ROUNDED.values(), *scalars.PAIRED.values()}
    assert KINDS.keys() == set(scalars._TABLE.values()) | comparisons | declared | rounding | bytes_


def test_codes_of_kinds() -> None:
    """Codes are places."""
    assert max(map(len, (UNARY, BINARY, TERNARY))) <= 256
    assert sum(map(len, (UNARY, BINARY, TERNARY))) == len(KINDS) == len(FUNCTIONS)


def test_cycles() -> None:
    cost = {"simple": 1, "transcendental": DATASHEET.sfp_transcendental_cycles, "long": DATASHEET.sfp_long_cycles}
    for name, kind in KINDS.items():
        assert op_cycles(word(f"v{len(kind.takes)}", kind=name), DATASHEET) == cost[kind.cost]
    assert op_cycles(word("vconst", value=-5), DATASHEET) == 0
    assert op_cycles(word("vlive", lanes=5), DATASHEET) == 1


def test_integers_do_not_round() -> None:
    rep = word("rep", groups=1, sticks=1, start=1, each=1)
    body = [word("vconst", dst=0, value=3), word("v2", kind="addi", dst=1, src=0, src2=0, round=True)]
    assert faults(rep, body) == [(1, "'v2' rounds to f16, but 'addi' gives integers")]
    assert OPCODES["v2"].body_only
