"""Shared fixtures."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ktir.testing
from ktir.context import context
from ktir.mlir import ir


@pytest.fixture
def mlir() -> Iterator[ir.Context]:
    """A context with our dialects, entered, with an unknown location."""
    with context() as entered, ir.Location.unknown():
        yield entered


@pytest.fixture(scope="session")
def path_of_tools(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH on which the tools start at once; what else is there stays."""
    folder = tmp_path_factory.mktemp("tools")
    ktir.testing.serve_tools(folder)
    return os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
