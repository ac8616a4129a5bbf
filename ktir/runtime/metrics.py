"""How much ran where: counts of launches in this process, for tests, reports, and whoever asks whether a model ran on the chip.

    with metrics.counted() as launches:
        model(x)
    launches()  # Launches(chip=3, executor=0, torch=1)

The counts are of the process, whatever thread launches. What Dynamo leaves in eager PyTorch on tensors of the host is not seen here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock


@dataclass(frozen=True)
class Launches:
    """Numbers of launches since the process began, or within a block."""

    chip: int = 0
    """Programs that ran on the emulated chip."""
    executor: int = 0
    """Programs that ran on the KTIR executor: by choice of the engine, or because the chip refuses them."""
    torch: int = 0
    """Operators that PyTorch ran because they have no program: within compiled graphs, and on tensors of the device anywhere."""

    def __sub__(self, other: Launches) -> Launches:
        return Launches(self.chip - other.chip, self.executor - other.executor, self.torch - other.torch)


_total = [0, 0, 0]
_lock = Lock()


def count(*, chip: int = 0, executor: int = 0, torch: int = 0) -> None:
    """Add launches that have ended without an error; generated wrappers call it for the operators that PyTorch runs."""
    with _lock:
        _total[0] += chip
        _total[1] += executor
        _total[2] += torch


def count_chip() -> None:
    """As `count(chip=1)`, in less time: each launch that repeats has it."""
    with _lock:
        _total[0] += 1


def total() -> Launches:
    """All launches of this process so far."""
    return Launches(*_total)


@contextmanager
def counted() -> Iterator[Callable[[], Launches]]:
    """Yields a function that gives the launches since the block began; behind the block, those within it."""
    before, end = total(), None
    try:
        yield lambda: (end or total()) - before
    finally:
        end = total()
