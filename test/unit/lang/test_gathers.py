"""Numbers that address are those that were loaded, whatever is written to their memory afterwards."""

from typing import Any

import numpy as np
import pytest

from ktir import lang


@lang.kernel
def changed(x, ids, y):
    i = ids[0:4]
    ids[0:4] = i + 1
    y[...] = x[i]


@lang.kernel
def changed_in_a_loop(x, ids, y):
    i = ids[0:4]
    for n in lang.range(2):
        y[...] = x[i]
        ids[n] = 3


@lang.kernel
def changed_by_numbers(x, ids, y):
    i = ids[0:4]
    ids[i] = i * 0
    y[...] = x[i]


@lang.kernel
def loaded_again(x, ids, y):
    i = ids[0:4]
    ids[0:4] = i + 1
    y[...] = x[ids[0:4]]


@lang.kernel
def loaded_in_each_trip(x, ids, y):
    for n in lang.range(2):
        i = ids[0:4]
        y[...] = x[i]
        ids[n] = 3


@lang.kernel
def scattered_into_itself(x, ids, y):
    i = ids[0:4]
    ids[i] = i * 2
    y[...] = x[ids[0:4]]


def run(kernel: Any, on: str) -> list[np.ndarray]:
    x, ids, y = np.arange(40, dtype=np.float32).reshape(8, 5), np.array([3, 1, 2, 0], np.int32), np.zeros((4, 5), np.float32)
    kernel[1].using(on=on)(x, ids, y)
    return [ids, y]


@pytest.mark.parametrize(
    ("kernel", "said"), [(changed, "load them again"), (changed_by_numbers, "load them again"), (changed_in_a_loop, "as it was loaded")]
)
@pytest.mark.parametrize("on", ["executor", "chip"])
def test_numbers_of_memory_that_was_written_are_refused(kernel: Any, said: str, on: str) -> None:
    run(kernel, "numpy")  # which has copies
    with pytest.raises(lang.Mistake, match=said):
        run(kernel, on)


@pytest.mark.parametrize("kernel", [loaded_again, loaded_in_each_trip, scattered_into_itself])
def test_numbers_that_are_loaded_again_are_the_new_ones(kernel: Any) -> None:
    for found, wanted in zip(run(kernel, "executor"), run(kernel, "numpy"), strict=True):
        assert np.array_equal(found, wanted)
