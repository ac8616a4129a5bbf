"""That programs ran on the emulated chip, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ktir.runtime import metrics


@contextmanager
def only_on_chip() -> Iterator[None]:
    """AssertionError at the end of a block in which no program ran on the chip, or anything on the executor or in PyTorch."""
    with metrics.counted() as launches:
        yield
    ran = launches()
    assert ran.chip, f"no program ran on the chip: {ran}"
    assert not ran.executor, f"programs ran on the executor: {ran}"
    assert not ran.torch, f"operators ran in PyTorch: {ran}"
