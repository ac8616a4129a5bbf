"""Hints: made, parsed, nested, refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktir import hints
from ktir.diagnostics import KtirError
from ktir.hints import Hint, hint, make, parse

WISHES = st.dictionaries(st.sampled_from(["m", "n", "head", "K_0"]), st.integers(1, 40), max_size=3)


@given(WISHES, WISHES)
def test_text_round_trip(division: dict[str, int], tiles: dict[str, int]) -> None:
    made = make(work_div=division, num_tiles_per_dim=tiles)
    assert parse(str(made)) == made


def test_blocks_nest() -> None:
    with hint(work_div={"m": 4}), hint(num_tiles_per_dim={"k": 2}) as inner:
        assert hints.current() == inner == Hint((("m", 4),), (("k", 2),))
        with hint(work_div={"n": 8}):
            assert hints.current() == Hint((("n", 8),), (("k", 2),))
    assert hints.current() == Hint()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("work_div", "hint:1:1: error: expected a hint"),
        ("work_div = {m = x}", "hint:1:13: error: expected 'name = number', but got 'm = x'"),
        ("cores = {m = 2}", "unknown hint 'cores'; the hints are work_div, num_tiles_per_dim"),
        ("tiles = {m = 2}", "unknown hint 'tiles'; it is spelled 'num_tiles_per_dim'"),
        ("work_div = {m = 0}", "hint 'work_div' wants 0 parts of 'm'"),
        ("work_div = {m = 2}, work_div = {n = 2}", "given twice"),
    ],
)
def test_bad_text(text: str, message: str) -> None:
    with pytest.raises(KtirError) as error:
        parse(text)
    assert message in str(error.value)


def test_bad_names() -> None:
    with pytest.raises(KtirError, match="is no identifier"):
        make(work_div={"a b": 2})
