"""How much is drawn at random: `make test` takes a fifth of the examples that a test names, `make test-long` all of them."""

from __future__ import annotations

share = 1
"""One in so many; `conftest.py` sets it before tests are collected."""


def examples(full: int) -> int:
    """How many examples of `full` this run takes, for `hypothesis.settings` and for ranges of seeds."""
    return -(-full // share)
