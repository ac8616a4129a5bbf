"""Programs over several row dims: kernels, their division, and the same values before and after, whatever the number of cores."""

from __future__ import annotations

from collections.abc import Callable

import laid_out_programs as programs
import numpy as np
import pytest
from amounts import examples
from combinations import each_once
from hypothesis import given, settings
from hypothesis import strategies as st
from laid_out_programs import LANES, NUMPY, LaidOut

from ktir.analysis.attributes.kernel import KernelFunction
from ktir.analysis.memory_order import _overlap
from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.diagnostics import KtirError, remarks
from ktir.dialects import ktir as kt
from ktir.emulator.reference import execute
from ktir.hints import hint
from ktir.mlir import ir
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
    "experts": (programs.experts, (4, 5, 6, 70, 130)),
    "projection": (programs.projection, (3, 5, 100, 130)),
    "projection with many columns": (programs.projection, (2, 3, 512, 2100)),
    "transposes": (programs.transposes, (3, 5, 70)),
    "in place": (programs.in_place, (3, 5, 70)),
}


def arrays(program: LaidOut) -> list[np.ndarray]:
    """Random contents of the buffers; indices are distinct."""
    rng = np.random.default_rng(1)
    found = []
    for _, dtype, elements_ in program.buffers:
        padded = -(-elements_ // LANES) * LANES
        if dtype == "i32":
            found.append(np.resize(np.arange(elements_)[::-1], padded).astype(np.int32))
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
            run_pipeline(program.module, "builtin.module(ktir-verify-level)")
            texts[stage.partition("{")[0]] = print_module(program.module)
    return program, texts


def kernels(name: str, cores: int = 32) -> list[tuple[list[int], list[int]]]:
    """Rows and splits of each kernel."""
    _, texts = stages(name, cores)
    with context(), ir.Location.unknown():
        module = parse_module(texts["ktir-divide-work"])
        found = [f.operation for f in module.body.operations if "ktir.rows" in f.operation.attributes]
        return [(KernelFunction(f).rows, list(kt.WorkAttr(f.attributes["ktir.work"]).splits)) for f in found]


@pytest.mark.parametrize(("name", "cores"), each_once(PROGRAMS, [32, 3, 1]))
def test_values_stay(name: str, cores: int) -> None:
    program, texts = stages(name, cores)
    buffers = arrays(program)
    expected = run(texts["laid-out"], buffers)
    for level in ("ktir-form-kernels", "ktir-divide-work"):
        for i, (want, got) in enumerate(zip(expected, run(texts[level], buffers), strict=True)):
            assert want.tobytes() == got.tobytes(), f"{level} changes buffer {i}"


def test_attention_is_one_kernel() -> None:
    assert kernels("attention") == [([2, 2, 16], [1, 2, 2, 8, 1])], "the score matrix never reaches memory"
    ((rows, splits),) = kernels("attention of odd sizes", 3)
    assert rows == [3, 2, 7]
    assert splits[1:3] == [3, 1], "batch axes are cut into equal parts"


def test_matmuls_without_rows_have_a_unit_axis() -> None:
    assert kernels("vectors times matrices") == [([6, 1], [1, 6, 1, 1])]


def test_columns_of_a_matmul_with_two_row_loops() -> None:
    ((rows, splits),) = kernels("projection with many columns")
    assert rows == [2, 3]
    assert splits[0] > 1


def test_what_is_read_after_it_was_written_is_in_a_later_kernel() -> None:
    assert len(kernels("rotation")) == 2, "both halves are written in one kernel"
    assert [rows for rows, _ in kernels("cache update")] == [[2, 32], [2, 16], [2, 32]]


def test_indices_that_name_an_element_twice_have_one_order() -> None:
    _, (rows, splits), _ = kernels("cache update", 32)
    assert rows == [2, 16]
    assert splits == [1, 2, 1, 1], "heads are dealt out, positions are not"


def test_transposed_operands_stay_in_one_kernel() -> None:
    assert [rows for rows, _ in kernels("transposes")] == [[3, 5]]


def test_remarks_give_choice_and_runner_up() -> None:
    with remarks() as found:
        stages("attention", 32)
    (text,) = [r.message for r in found if "kernel 'f_kernel0'" in r.message]
    for part in ("m/8 (2), b0/2 (1), b1/2 (1) on 32 cores", "runner-up", "candidates compared"):
        assert part in text


def test_hints_name_the_batch_axes() -> None:
    with hint(work_div={"b0": 2, "b1": 1, "m": 3}):
        assert kernels("attention") == [([2, 2, 16], [1, 2, 1, 3, 1])]
    with hint(work_div={"b0": 2}), pytest.raises(KtirError, match="wants 2 parts of 'b0', which do not divide its 3 units"):
        kernels("attention of odd sizes")
    with hint(work_div={"n": 2}), pytest.raises(KtirError, match="the columns of this kernel are not dealt out"):
        kernels("attention")
    _, texts = stages("attention", 3)
    with context(), ir.Location.unknown():
        with hint(num_tiles_per_dim={"b0": 2, "b1": 1}):
            run_pipeline(parse_module(texts["ktir-divide-work"]), "builtin.module(ktir-tile)")
        with hint(num_tiles_per_dim={"b1": 7}), pytest.raises(KtirError, match="7 tiles of 'b1'") as error:
            run_pipeline(parse_module(texts["ktir-divide-work"]), "builtin.module(ktir-tile)")
        assert "a batch axis is walked one position at a time" in str(error.value)


# Memory order

DIMS = st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 5)), min_size=1, max_size=3)


def elements(offset: int, dims: list[tuple[int, int]]) -> set[int]:
    """Every element of a strided box."""
    found = {offset}
    for stride, extent in dims:
        found = {at + stride * i for at in found for i in range(extent)}
    return found


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(st.integers(-20, 20), DIMS, st.integers(-20, 20), DIMS)
def test_overlap_is_exact(offset: int, dims: list[tuple[int, int]], other_offset: int, other_dims: list[tuple[int, int]]) -> None:
    found = _overlap(offset, tuple(dims), other_offset, tuple(other_dims))
    assert found == bool(elements(offset, dims) & elements(other_offset, other_dims))
