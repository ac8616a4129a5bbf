"""Hand-written tiled kernels: the same bits tiled, allocated and as a stream, on few and many cores, where nothing is aligned."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from combinations import each_once
from tiled_programs import CASES, Case

from ktir.assembly import parse_module
from ktir.context import context
from ktir.emulator.machine import Machine
from ktir.emulator.reference import execute
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET

CORES = (1, 3, 32)
VERIFIED = "ktir-verify-level"


@functools.cache
def case_of(name: str, cores: int) -> Case:
    """A kernel, whose text and inputs are only read."""
    return CASES[name](cores)


def run(case: Case, pipeline: str) -> list[np.ndarray]:
    """The arrays after the program on the executor, lowered by `pipeline`."""
    arrays = case.program.arrays(case.inputs)
    with context(), ir.Location.unknown():
        module = parse_module(case.program.text, "kernel.mlir")
        run_pipeline(module, pipeline)
        execute(module, None, arrays)
    return arrays


@functools.cache
def computed(name: str, cores: int, pipeline: str = VERIFIED) -> list[np.ndarray]:
    """What a kernel computes, which is only read."""
    return run(case_of(name, cores), pipeline)


@pytest.mark.parametrize(("name", "cores"), each_once(CASES, CORES))
def test_values(name: str, cores: int) -> None:
    """The kernels compute what they are meant to."""
    case = case_of(name, cores)
    results = dict(zip([a.name for a in case.program.arguments], computed(name, cores), strict=True))
    for argument, expected in case.expected.items():
        found = results[argument].ravel()[: expected.size].reshape(expected.shape)
        assert np.allclose(found.astype(np.float64), expected.astype(np.float64), rtol=case.tolerance, atol=case.tolerance), argument


@pytest.mark.parametrize(
    ("name", "how"), each_once(CASES, [*((cores, "") for cores in CORES), (3, "{reuse=true}"), (3, "{lx-bytes=200000}")])
)
def test_allocated(name: str, how: tuple[int, str]) -> None:
    """Tiled and allocated KTIR have the same bits, wherever buffers lie."""
    cores, options = how
    allocated = computed(name, cores, f"ktir-allocate-scratchpad{options},{VERIFIED}")
    for a, b, argument in zip(computed(name, cores), allocated, case_of(name, cores).program.arguments, strict=True):
        assert a.tobytes() == b.tobytes(), argument.name


def _carrier(array: np.ndarray) -> np.ndarray:
    """A device array as the machine takes it: values of floats, the bits of integers."""
    return array.view(np.float32).copy() if array.dtype == np.int32 else array.astype(np.float32)


def _device(carrier: np.ndarray, like: np.ndarray) -> np.ndarray:
    return carrier.view(np.int32) if like.dtype == np.int32 else carrier.astype(like.dtype)


@pytest.mark.parametrize(("name", "how"), each_once(CASES, [*((cores, "") for cores in CORES), (3, "{reuse=true}")]))
def test_stream(name: str, how: tuple[int, str]) -> None:
    """The stream passes every check and has the bits of allocated KTIR, word by word and on the tape."""
    cores, options = how
    case = case_of(name, cores)
    expected = computed(name, cores, f"ktir-allocate-scratchpad{options},{VERIFIED}")
    with context(), ir.Location.unknown():
        module = parse_module(case.program.text, "kernel.mlir")
        run_pipeline(module, f"ktir-allocate-scratchpad{options}")
        machine = Machine(lower_program(module), DATASHEET)
    for mode in ("step", "tape"):
        carriers = [_carrier(a) for a in case.program.arrays(case.inputs)]
        machine.launch(carriers, mode=mode)
        for argument, carrier, array in zip(case.program.arguments, carriers, expected, strict=True):
            assert _device(carrier, array).tobytes() == array.tobytes(), (mode, argument.name)
