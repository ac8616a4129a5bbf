"""ktir-tile on kernels with several row axes: the executor gives the same bits before and after."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from amounts import examples
from divided_kernels import attention, batched, cache_update, embedding, experts, rotation
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ktir
from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.cost.program import kernel_work
from ktir.diagnostics import Unsupported, remarks
from ktir.lowering.compile import pipeline
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET

RNG = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    """Random f16 numbers in a buffer of whole sticks."""
    flat = np.zeros(-(-int(np.prod(shape)) // 64) * 64, np.float16)
    flat[: int(np.prod(shape))] = RNG.standard_normal(int(np.prod(shape)))
    return flat


def places(count: int, below: int) -> np.ndarray:
    """Different indices, as i32."""
    flat = np.zeros(-(-count // 64) * 64, np.int32)
    flat[:count] = RNG.permutation(max(below, count))[:count] % below
    return flat


def tiled(make: Callable[[], ir.Module], arrays: list[np.ndarray], options: str = "") -> tuple[str, list[np.ndarray]]:
    """The text after tiling, and what both levels compute, which must be the same bits."""
    with context(), ir.Location.unknown():
        module = make()
        run_pipeline(module, "ktir-verify-level")
        before = [a.copy() for a in arrays]
        ktir.execute(module, "kernel", before)
        run_pipeline(module, f"ktir-tile{options},ktir-verify-level")
        text = print_module(module)
        after = [a.copy() for a in arrays]
        ktir.execute(module, "kernel", after)
    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        assert a.tobytes() == b.tobytes(), f"argument {i} differs"
    return text, after


@pytest.mark.parametrize("options", ["{online-softmax=never}", "{rows=4 online-softmax=never}"])
@pytest.mark.parametrize(
    ("kv", "rep", "s", "t", "d", "splits"),
    [(2, 2, 16, 16, 16, (2, 2, 4)), (3, 2, 17, 70, 16, (1, 1, 3)), (2, 1, 5, 130, 80, (2, 1, 1)), (1, 4, 1, 64, 64, (1, 2, 1))],
)
def test_attention(kv: int, rep: int, s: int, t: int, d: int, splits: tuple[int, int, int], options: str) -> None:
    q, k, v, mask = normal(kv, rep, s, d), normal(kv, t, d), normal(kv, t, d), normal(s, t)
    _, after = tiled(lambda: attention(kv, rep, s, t, d, splits), [q, k, v, mask, normal(kv, rep, s, d)], options)
    q, k, v, mask, out = (a.astype(np.float64) for a in after)
    q, out = (a[: kv * rep * s * d].reshape(kv, rep, s, d) for a in (q, out))
    k, v = (a[: kv * t * d].reshape(kv, t, d) for a in (k, v))
    scores = np.einsum("grsd,gtd->grst", q, k) * d**-0.5 + mask[: s * t].reshape(s, t)
    parts = np.exp(scores - scores.max(-1, keepdims=True))
    parts /= parts.sum(-1, keepdims=True)
    assert np.abs(np.einsum("grst,gtd->grsd", parts, v) - out).max() < 1e-2


def test_scores_that_do_not_fit() -> None:
    with context(), ir.Location.unknown():
        module = attention(1, 1, 4, 1000, 64, (1, 1, 1))
        with pytest.raises(
            Unsupported,
            match=r"'linalg.generic' op of tensor<16x1x1x4x64x.* is in a kernel that needs \d+ bytes of scratchpad for two rows",
        ) as error:
            run_pipeline(module, "ktir-tile{lx-bytes=150000 online-softmax=never}")
        assert "150000 are available" in error.value.message
        assert "fewer keys" in error.value.message


@pytest.mark.parametrize(("budget", "rows", "stay"), [(1_600_000, 64, 2), (400_000, 32, 0), (250_000, 16, 0)])
def test_blocks_fit_the_scratchpad(budget: int, rows: int, stay: int) -> None:
    """Keys and values of a group of heads stay in LX where there is room; blocks get smaller with the budget."""
    with context(), ir.Location.unknown(), remarks() as found:
        module = attention(2, 3, 64, 500, 64, (1, 1, 1))
        run_pipeline(module, f"ktir-tile{{lx-bytes={budget} online-softmax=never}}")
        text = print_module(module)
        run_pipeline(module, f"ktir-allocate-scratchpad{{lx-bytes={budget}}}")
    assert f"tensor<8x{rows}x64xf32>" in text
    assert len([r for r in found if "stays in LX" in r.message]) == stay


@pytest.mark.parametrize(("heads", "s", "d", "splits"), [(4, 16, 16, (4, 8)), (3, 17, 70, (1, 3)), (2, 1, 64, (1, 1))])
def test_rotation(heads: int, s: int, d: int, splits: tuple[int, int]) -> None:
    arrays = [normal(s, heads, d), normal(s, d), normal(s, d), normal(heads, s, d)]
    tiled(lambda: rotation(heads, s, d, splits), arrays)
    tiled(lambda: rotation(heads, s, d, splits), arrays, "{rows=2}")


@pytest.mark.parametrize(("s", "vocabulary", "d", "cores"), [(16, 128, 64, 4), (19, 40, 70, 3), (1, 3, 16, 1)])
def test_embedding(s: int, vocabulary: int, d: int, cores: int) -> None:
    for options in ("", "{rows=2}"):
        _, after = tiled(lambda: embedding(s, vocabulary, d, cores), [normal(vocabulary, d), places(s, vocabulary), normal(s, d)], options)
        table, rows, out = after[0][: vocabulary * d].reshape(vocabulary, d), after[1][:s], after[2][: s * d].reshape(s, d)
        assert (out == table[rows] * 2).all()


@pytest.mark.parametrize(("heads", "s", "length", "d", "splits"), [(2, 16, 32, 16, (2, 4)), (3, 7, 9, 70, (1, 3)), (2, 1, 40, 64, (2, 1))])
def test_cache_update(heads: int, s: int, length: int, d: int, splits: tuple[int, int]) -> None:
    for options in ("", "{rows=2}"):
        x, at, cache = normal(heads, s, d), places(s, length), normal(heads, length, d)
        _, after = tiled(lambda: cache_update(heads, s, length, d, splits), [x, at, cache], options)
        wanted = cache[: heads * length * d].reshape(heads, length, d).copy()
        wanted[:, at[:s]] = -x[: heads * s * d].reshape(heads, s, d)
        assert (after[2][: heads * length * d].reshape(heads, length, d) == wanted).all()


SIZES = st.sampled_from((1, 2, 3, 5, 16, 33, 64, 65, 70, 130))


@st.composite
def splits(draw: st.DrawFn, extents: tuple[int, ...]) -> tuple[int, ...]:
    """Parts of each axis: equal ones of batch axes, any of the rows."""
    batches = [draw(st.sampled_from([n for n in range(1, e + 1) if e % n == 0])) for e in extents[:-1]]
    parts = draw(st.integers(1, max(1, min(8, 32 // math.prod(batches)))))
    share = -(-extents[-1] // parts)
    return (*batches, -(-extents[-1] // share))


@settings(
    max_examples=examples(12),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data())
def test_any_sizes(data: st.DataObject) -> None:
    """Attention, a transposing op or a scatter of any size, tiled to any block: the same bits, within the scratchpad."""
    draw = data.draw
    kind = draw(st.sampled_from(("attention", "rotation", "cache")))
    few, many, s, d = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(SIZES), draw(SIZES)
    options = draw(st.sampled_from(("", "{rows=2}", "{rows=6}", "{lx-bytes=400000}")))
    if kind == "attention":
        t, parts = draw(SIZES), draw(splits((few, many, s)))
        arrays = [normal(few, many, s, d), normal(few, t, d), normal(few, t, d), normal(s, t), normal(few, many, s, d)]
        tiled(lambda: attention(few, many, s, t, d, parts), arrays, options)
        return
    parts = draw(splits((few, s)))
    if kind == "rotation":
        tiled(lambda: rotation(few, s, d, parts), [normal(s, few, d), normal(s, d), normal(s, d), normal(few, s, d)], options)
    else:
        length = s + draw(st.integers(0, 9))
        arrays = [normal(few, s, d), places(s, length), normal(few, length, d)]
        tiled(lambda: cache_update(few, s, length, d, parts), arrays, options)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("batch", "k", "n", "cores"), [(4, 16, 32, 4), (6, 70, 130, 3), (1, 64, 64, 1)])
def test_vector_times_matrix(batch: int, k: int, n: int, cores: int, transposed: bool) -> None:
    a, b = normal(batch, k), normal(batch, k, n)
    _, after = tiled(lambda: batched(batch, k, n, cores, transposed), [a, b, normal(batch, n)])
    matrix = b[: batch * k * n].astype(np.float64).reshape(batch, n, k) if transposed else b[: batch * k * n].reshape(batch, k, n)
    matrix = matrix.astype(np.float64).swapaxes(1, 2) if transposed else matrix.astype(np.float64)
    wanted = np.einsum("bk,bkn->bn", a[: batch * k].reshape(batch, k).astype(np.float64), matrix)
    assert np.abs(after[2][: batch * n].reshape(batch, n) - wanted).max() < 5e-2


@pytest.mark.parametrize(("tokens", "s", "number", "k", "n", "splits"), [(4, 2, 8, 16, 32, (4, 1)), (3, 5, 4, 70, 130, (1, 2))])
def test_experts(tokens: int, s: int, number: int, k: int, n: int, splits: tuple[int, int]) -> None:
    x, w, which = normal(tokens, s, k), normal(number, k, n), places(tokens, number)
    _, after = tiled(lambda: experts(tokens, s, number, k, n, splits), [x, w, which, normal(tokens, s, n)])
    chosen = w[: number * k * n].reshape(number, k, n)[which[:tokens]].astype(np.float64)
    wanted = np.einsum("tsk,tkn->tsn", x[: tokens * s * k].reshape(tokens, s, k).astype(np.float64), chosen)
    assert np.abs(after[3][: tokens * s * n].reshape(tokens, s, n) - wanted).max() < 5e-2


def test_a_block_that_is_all_there_is_needs_one_buffer() -> None:
    """64 rows of 4096 elements on each core do not fit twice: they are loaded once, and not for each stick of columns."""
    text = ktir.capture(torch.matmul, torch.zeros(512, 4096).half(), torch.zeros(4096, 2048).half())
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, pipeline(DATASHEET.cores))
        (kernel,) = lower_program(module).kernels
    moved = kernel_work(kernel, DATASHEET).cost.dram_bytes
    assert moved < 1.01 * 2 * (512 * 4096 + 4096 * 2048 + 512 * 2048)


def test_a_block_that_is_all_loads_what_it_reads_last_behind_its_rows() -> None:
    """Squares of a row are summed before its weights are there; where there are several blocks, these are loaded in front of all."""

    def loads(rows: int) -> list[str]:
        text = ktir.capture(lambda x, w: torch.rms_norm(x, (256,), w), *(torch.zeros(*n).half() for n in ((rows, 256), (256,))))
        with context(), ir.Location.unknown():
            module = parse_module(text)
            run_pipeline(module, pipeline(DATASHEET.cores))
            (kernel,) = lower_program(module).kernels
        moved = (kernel.descriptors[w["src"]] for words in kernel.units.values() for w in words if w.op == "move")
        return [f"argument {d.arg}" for d in moved if d.arg is not None]

    first, second = loads(64)
    assert loads(64_000) == [second, first]
