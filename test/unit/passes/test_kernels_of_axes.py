"""Programs over several row dims: kernels, their division, and the same values before and after, whatever the number of cores."""

from __future__ import annotations

from collections.abc import Callable

import laid_out_programs as programs
import numpy as np
import pytest
from laid_out_programs import LANES, NUMPY, LaidOut

from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.dialects import ktir as kt
from ktir.emulator.reference import execute
from ktir.mlir import ir
from ktir.passes._levels import kernel_rows
from ktir.pipeline import run_pipeline

PROGRAMS: dict[str, tuple[Callable[..., LaidOut], tuple[int | bool, ...]]] = {
    "attention": (programs.attention, (2, 2, 16, 16, 16)),
    "attention of odd sizes": (programs.attention, (3, 2, 7, 130, 72)),
    "attention of one head per key": (programs.attention, (4, 1, 5, 64, 64)),
    "rotation": (programs.rotation, (4, 16, 16)),
    "rotation of odd sizes": (programs.rotation, (3, 7, 130)),
    "cache update": (programs.cache_update, (2, 16, 32, 16)),
    "cache update of odd sizes": (programs.cache_update, (3, 5, 7, 70)),
    "embedding": (programs.embedding, (17, 50, 100)),
    "vectors times matrices": (programs.vectors_times_matrices, (6, 70, 200, False)),
    "vectors times transposed matrices": (programs.vectors_times_matrices, (5, 70, 200, True)),
    "projection": (programs.projection, (3, 5, 100, 130)),
    "projection with many columns": (programs.projection, (2, 3, 512, 2100)),
    "transposes": (programs.transposes, (3, 5, 70)),
    "in place": (programs.in_place, (3, 5, 70)),
}


def arrays(program: LaidOut) -> list[np.ndarray]:
    """Random contents of the buffers; indices are distinct."""
    rng = np.random.default_rng(1)
    found = []
    for _, dtype, elements in program.buffers:
        padded = -(-elements // LANES) * LANES
        if dtype == "i32":
            found.append(rng.permutation(padded).astype(np.int32) % 7 if elements > 7 else rng.permutation(7).astype(np.int32)[:padded])
            found[-1] = np.resize(np.arange(elements)[::-1] if elements > 7 else found[-1][:elements], padded).astype(np.int32)
        else:
            found.append(rng.standard_normal(padded).astype(NUMPY[dtype]))
    return found


def run(text: str, buffers: list[np.ndarray]) -> list[np.ndarray]:
    """What the program leaves in its buffers; those of the pool are made as the entry function says."""
    with context(), ir.Location.unknown():
        module = parse_module(text)
        entry = next(f for f in module.body.operations if "ktir.rows" not in f.operation.attributes)
        pools = []
        for d in list(ir.ArrayAttr(entry.attributes["arg_attrs"]))[len(buffers) :]:
            layout = kt.LayoutAttr(ir.DictAttr(d)["ktir.layout"])
            pools.append(np.full(int(np.prod(list(layout.device))), 99, NUMPY[str(layout.dtype)]))
        values = [b.copy() for b in buffers]
        execute(module, None, [*values, *pools])
    return values


def stages(name: str, cores: int) -> tuple[LaidOut, dict[str, str]]:
    """The text of a program after each pass."""
    build, sizes = PROGRAMS[name]
    with context(), ir.Location.unknown():
        program = build(*sizes)
        texts = {"laid-out": print_module(program.module)}
        for stage in (f"ktir-form-kernels{{cores={cores}}}", f"ktir-divide-work{{cores={cores}}}"):
            run_pipeline(program.module, f"builtin.module({stage})")
            if stage.startswith("ktir-divide"):
                run_pipeline(program.module, "builtin.module(ktir-verify-level)")
            texts[stage.partition("{")[0]] = print_module(program.module)
    return program, texts


def kernels(name: str, cores: int = 32) -> list[tuple[list[int], list[int]]]:
    """Rows and splits of each kernel."""
    _, texts = stages(name, cores)
    with context(), ir.Location.unknown():
        module = parse_module(texts["ktir-divide-work"])
        found = [f.operation for f in module.body.operations if "ktir.rows" in f.operation.attributes]
        return [(kernel_rows(f), list(kt.WorkAttr(f.attributes["ktir.work"]).splits)) for f in found]


@pytest.mark.parametrize("cores", [32, 3, 1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_stay(name: str, cores: int) -> None:
    program, texts = stages(name, cores)
    buffers = arrays(program)
    expected = run(texts["laid-out"], buffers)
    for level in ("ktir-form-kernels", "ktir-divide-work"):
        for i, (want, got) in enumerate(zip(expected, run(texts[level], buffers), strict=True)):
            assert want.tobytes() == got.tobytes(), f"{level} changes buffer {i}"
