"""What all tests share."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from chip import only_on_chip


@pytest.fixture
def on_chip() -> None:
    """The test is of the emulated chip: it fails where no program ran there, or anything ran on the executor or in PyTorch instead."""


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Where the fixture `on_chip` is asked for: the test itself fails, not what comes behind it."""
    if "on_chip" not in pyfuncitem.fixturenames:
        return (yield)
    with only_on_chip():
        return (yield)
