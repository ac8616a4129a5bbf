"""Shared fixtures."""

from collections.abc import Iterator

import pytest

from ktir.context import context
from ktir.mlir import ir


@pytest.fixture
def mlir() -> Iterator[ir.Context]:
    """A context with our dialects, entered, with an unknown location."""
    with context() as entered, ir.Location.unknown():
        yield entered
