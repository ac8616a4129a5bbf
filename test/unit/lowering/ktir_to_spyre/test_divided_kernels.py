"""Kernels over several row axes, from the divided level to the machine: the same bits at each level."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from divided_kernels import attention, batched, rotation

import ktir
from ktir.context import context
from ktir.lowering.compile import launch_spec
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.package import Package, read
from ktir.pipeline import run_pipeline
from ktir.runtime.executable import Executable

RNG = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    """Random f16 numbers, flat."""
    return RNG.standard_normal(int(np.prod(shape))).astype(np.float16)


def check(make: Callable[[], ir.Module], arrays: list[np.ndarray], tile: str = "ktir-tile") -> None:
    """Run a program at each level below the divided one, and on the machine."""

    def compare(name: str, run: Callable[[list[np.ndarray]], object]) -> None:
        found = [a.copy() for a in arrays]
        run(found)
        results.append(found)
        for i, (a, b) in enumerate(zip(results[0], found, strict=True)):
            assert a.tobytes() == b.tobytes(), f"{name}: argument {i} differs"

    results: list[list[np.ndarray]] = []
    with context(), ir.Location.unknown():
        module = make()
        for step in ("ktir-verify-level", tile, "ktir-verify-level", "ktir-allocate-scratchpad", "ktir-verify-level"):
            run_pipeline(module, step)
            compare(step, lambda found: ktir.execute(module, "kernel", found))
        program = lower_program(module)
        executable = Executable(read(Package(program, launch_spec(module, program), {}).to_files()))
    for mode in ("tape", "step"):
        compare(mode, lambda found, mode=mode: executable(*found, mode=mode))


@pytest.mark.parametrize("tile", ["ktir-tile{online-softmax=never}", "ktir-tile{rows=4 online-softmax=never}"])
@pytest.mark.parametrize(
    ("kv", "rep", "s", "t", "d", "splits"), [(2, 2, 16, 16, 16, (2, 2, 4)), (3, 2, 17, 70, 16, (1, 1, 3)), (2, 1, 5, 130, 80, (2, 1, 1))]
)
def test_attention(kv: int, rep: int, s: int, t: int, d: int, splits: tuple[int, int, int], tile: str) -> None:
    arrays = [normal(kv, rep, s, d), normal(kv, t, d), normal(kv, t, d), normal(s, t), normal(kv, rep, s, d)]
    check(lambda: attention(kv, rep, s, t, d, splits), arrays, tile)


@pytest.mark.parametrize(("heads", "s", "d", "splits"), [(4, 16, 16, (4, 8)), (3, 17, 70, (1, 3)), (2, 1, 64, (1, 1))])
def test_rotation(heads: int, s: int, d: int, splits: tuple[int, int]) -> None:
    check(lambda: rotation(heads, s, d, splits), [normal(s, heads, d), normal(s, d), normal(s, d), normal(heads, s, d)])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("batch", "k", "n", "cores"), [(4, 16, 32, 4), (6, 70, 130, 3)])
def test_vector_times_matrix(batch: int, k: int, n: int, cores: int, transposed: bool) -> None:
    check(lambda: batched(batch, k, n, cores, transposed), [normal(batch, k), normal(batch, k, n), normal(batch, n)])
