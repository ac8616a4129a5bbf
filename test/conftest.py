"""What all tests share: one core per process, a collector that leaves things alone, `--every` and `--first`, the fixture `on_chip`."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from typing import Any

import pytest
from quiet import quiet

# As many processes as cores test at a time: a second thread in one of them would wait for its turn, spinning. Libraries read this when
# they are loaded, so nothing that loads one is imported above.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

from every import pytest_addoption, pytest_collection_modifyitems, pytest_report_header  # noqa: E402

from ktir.runtime import store  # noqa: E402

os.environ.setdefault("TORCH_DYNAMO_RUN_GC_AFTER_COMPILE", "0")  # below it is said when the collector runs
# What torch keeps of a graph names a package in our cache: both go together, or the next run warns of packages that are gone.
if (_kept := store.folder()) is not None:
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(_kept / "inductor"))
gc.disable()  # until the tests are collected: all that is made so far stays


__all__ = ["pytest_addoption", "pytest_collection_modifyitems", "pytest_report_header"]


def pytest_configure(config: pytest.Config) -> None:
    import amounts
    import hypothesis

    amounts.share = 5 if config.option.markexpr == "not long" else 1
    hypothesis.settings.register_profile("share", max_examples=amounts.examples(100))
    hypothesis.settings.load_profile("share")


FEW = 20_000
"""Objects whose collection is not worth its time."""


def keep() -> None:
    """What there is by now stays: the collector need not look through all of it each time that a test makes some objects."""
    youngest, *older = gc.get_count()
    if youngest < FEW and not any(older):
        return
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    keep()
    gc.enable()
    gc.set_threshold(100_000, 50, 1_000)  # what outlives this many new objects mostly lasts until the end of the file
    quiet()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Torch keeps more than a thousand objects of each graph that it compiles."""
    if nextitem is not None and nextitem.path != item.path:
        keep()


@pytest.fixture
def on_chip() -> None:
    """The test is of the emulated chip: it fails where no program ran there, or anything ran on the executor or in PyTorch instead."""


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Where the fixture `on_chip` is asked for: the test itself fails, not what comes behind it."""
    if "on_chip" not in pyfuncitem.fixturenames:
        return (yield)
    from chip import only_on_chip

    with only_on_chip():
        return (yield)
