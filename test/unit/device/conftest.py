"""Every test here is of tensors on the device; the folder has helpers."""

import gc
import sys
from pathlib import Path

import pytest

from ktir.device.autoload import register

sys.path.insert(0, str(Path(__file__).parent))
register()


@pytest.fixture
def settled() -> None:
    """For a test that counts the card's memory: what earlier ones left in cycles is freed before it, not while it runs."""
    gc.collect()
