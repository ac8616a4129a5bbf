"""Which way to run a kernel takes the fewest cycles."""

import json

import numpy as np
import pytest

from ktir import lang
from ktir.config import patch
from ktir.diagnostics import KtirError
from ktir.runtime.executable import recorded


@lang.kernel
def doubled(x, y, *, block=None):
    for rows in lang.blocks(x.shape[0], block):
        y[rows] = x[rows] * 2


X = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)


def test_the_fastest_way_is_chosen_and_run() -> None:
    y = np.zeros_like(X)
    best = lang.autotune(doubled, X, y, grid=[1, 8], block=[64, 8])
    assert not y.any()  # nothing has run
    cycles = {}
    for way in ((1, 64), (1, 8), (8, 64), (8, 8)):
        with recorded() as launches:
            doubled.using(on="chip")[way[0]](X, y.copy(), block=way[1])
        cycles[way] = launches[0].machine.report.cycles
    assert best.cycles == min(cycles.values())
    assert cycles[best.kernel.grid[0], best.parameters["block"]] == best.cycles  # type: ignore[index]
    assert [found for _, found in best.tried] == list(cycles.values())
    assert str(best).splitlines()[0] == f"grid=(1,), block=64: {cycles[1, 64]:,} cycles"
    best(X, y)
    assert np.array_equal(y, X * 2)


def test_ways_that_do_not_reach_the_chip_are_told() -> None:
    @lang.kernel
    def gathered(x, y, *, step):
        y[0:step] = x[0:step] + step

    best = lang.autotune(gathered, X, np.zeros_like(X), step=[65, 32])
    assert best.parameters == {"step": 32}
    assert "step=65: " in str(best)
    assert [line for line in str(best).splitlines() if line.endswith(f"{best.cycles:,} cycles, the best")]
    with pytest.raises(KtirError, match=r"none of 1 ways to run 'gathered' reaches the chip"):
        lang.autotune(gathered, X, np.zeros_like(X), step=[65])
    with pytest.raises(KtirError, match=r"expects the values to try of 'step' in a list, but got int 3"):
        lang.autotune(gathered, X, np.zeros_like(X), step=3)  # pyright: ignore[reportArgumentType]


def test_a_trace_shows_the_kernel() -> None:
    events = json.loads(doubled[8].trace(X, np.zeros_like(X), block=8))["traceEvents"]
    assert {"kernel", "gpu_memcpy"} <= {e.get("cat") for e in events}
    assert all(e["args"]["cycles"] == doubled[8].cycles(X, X, block=8) for e in events if e.get("cat") == "kernel")


def test_cycles_are_those_of_the_options_in_force() -> None:
    x = np.zeros((64, 512), np.float16)
    counts = []
    for cores in (4, 32, 4):
        with patch(cores=cores):
            counts.append(doubled.cycles(x, x.copy()))
    assert counts[0] == counts[2] != counts[1]
