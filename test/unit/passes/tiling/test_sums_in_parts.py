"""A product along one part of its reduced loop after the other: the sums of all columns stay, and rows are loaded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch
from chip import only_on_chip
from chip_cycles import cycles_of
from torch.nn import functional as F

import ktir
from ktir import config
from ktir.assembly import parse_module
from ktir.checking import check_levels
from ktir.context import context
from ktir.cost import tiles
from ktir.lowering.compile import pipeline
from ktir.mlir import ir
from ktir.passes.scratchpad import spans
from ktir.passes.tiling import contractions
from ktir.pipeline import run_pipeline
from ktir.target import Target

Function = Callable[..., torch.Tensor]


def product(x: torch.Tensor, w: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return x @ w


def transposed(x: torch.Tensor, w: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """The reduced loop lies in the sticks of the second operand."""
    return F.linear(x, w.t().contiguous()) - r


def layer(x: torch.Tensor, w: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return F.relu(x @ w + r)


def wide(x: torch.Tensor, w: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return (x @ w).float() + r


FUNCTIONS = [product, transposed, layer, wide]


@contextmanager
def in_parts(expected: bool = True) -> Iterator[None]:
    """Whether parts fit or not, they are the fastest; something is tiled so."""
    honest, write, built = tiles.tile_cycles, contractions._build_in_parts, list[int]()

    def cycles(share: tiles.Share, rows: int, trips: int, streamed: bool, kept: bool, target: Target, k_parts: int = 1) -> float:
        return honest(share, rows, trips, streamed, kept, target, k_parts) / (1e6 if k_parts > 1 else 1)

    def spied(blocks: contractions.Blocks, m: contractions.Matmul) -> None:
        built.append(blocks.plan.k_parts)
        write(blocks, m)

    tiles.matmul_tiles.cache_clear()
    with patch.object(tiles, "tile_cycles", cycles), patch.object(contractions, "_build_in_parts", spied):
        yield
    tiles.matmul_tiles.cache_clear()
    assert bool(built) == expected


def arguments(rows: tuple[int, ...], inner: int, columns: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Small integers, whose sums and products are exact."""
    torch.manual_seed(inner + columns)
    shapes = (*rows, inner), (inner, columns), (*rows, columns)
    return [(torch.randint(-1, 2, shape) * (torch.rand(shape) < 0.2)).to(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [((96,), 512, 192), ((1,), 2048, 320), ((700,), 1000, 70), ((3, 50), 1024, 128), ((2100,), 512, 64)]
)
@pytest.mark.parametrize("f", FUNCTIONS)
def test_values(
    f: Function, rows: tuple[int, ...], inner: int, columns: int, dtype: torch.dtype, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against PyTorch in float64: last sticks that are not full, rows that cores do not share equally, several blocks of rows."""
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    given = arguments(rows, inner, columns, dtype)
    torch._dynamo.reset()
    with torch.no_grad(), only_on_chip(), in_parts():
        found = torch.compile(f, backend="ktir", options={"engine": "spyre"})(*given)
    assert torch.equal(found.double(), f(*(a.double() for a in given)))


def widened(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The vector unit makes f16 of weights of one byte, on their way to the matrix array."""
    return x @ w.to(torch.float16)


def test_weights_of_one_byte(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    x, w = (torch.randint(-2, 2, shape) for shape in ((70, 2048), (2048, 192)))
    torch._dynamo.reset()
    with torch.no_grad(), only_on_chip(), in_parts():
        found = torch.compile(widened, backend="ktir", options={"engine": "spyre", "cores": 2})(x.half(), w.to(torch.int8))
    assert torch.equal(found.double(), (x.double() @ w.double()))


@pytest.mark.parametrize("f", [product, transposed, layer, wide])
def test_levels_agree(f: Function) -> None:
    """All levels and both modes of the machine, on numbers whose sums depend on their order."""
    torch.manual_seed(1)
    given = [torch.randn(shape).half() for shape in ((70, 1000), (1000, 192), (70, 192))]
    text = ktir.capture(f, *given)
    used = {product: (0, 1), transposed: (1, 0, 2)}.get(f, (0, 1, 2))
    arrays = [given[i].numpy() for i in used]
    with in_parts():
        check_levels(text, [*arrays, np.zeros((70, 192), np.float32 if f is wide else np.float16)], cores=2)


@pytest.mark.parametrize(("span", "cuts"), [(1_433_600, 0), (700_000, 1), (400_000, 1)])
def test_loops_reach_as_far_as_an_address(span: int, cuts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix of 16 sticks of 700 rows: all trips together reach over 1,433,600 bytes, one over a quarter of it."""
    (tmp_path / "near.toml").write_text(f"span_bytes = {span}\n")
    torch.manual_seed(2)
    given = [torch.randn(shape).half() for shape in ((700, 1000), (1000, 64))]
    cut = Mock(wraps=spans._FarLoop.cut)
    monkeypatch.setattr(tiles, "part_count", lambda *_: 4)
    with in_parts(), config.patch(target=str(tmp_path / "near.toml")), patch.object(spans._FarLoop, "cut", lambda loop: cut(loop)):
        *_, tape, step = check_levels(
            ktir.capture(torch.matmul, *given), [*(x.numpy() for x in given), np.zeros((700, 64), np.float16)], cores=8
        )
    assert cut.call_count == cuts
    assert (tape.arrays[-1] == step.arrays[-1]).all()
    wanted = (given[0].double() @ given[1].double()).numpy()
    np.testing.assert_allclose(tape.arrays[-1].astype(np.float64), wanted, rtol=2**-10, atol=2**-10)


@pytest.mark.parametrize("behind", [lambda y: F.rms_norm(y, y.shape[-1:]), lambda y: y.sum(-1)])
def test_not_where_more_is_computed_of_the_result(behind: Function) -> None:
    with context(), ir.Location.unknown(), in_parts(expected=False):
        run_pipeline(
            parse_module(ktir.capture(lambda x, w: behind(x @ w), torch.zeros(64, 1024).half(), torch.zeros(1024, 64).half())), pipeline(1)
        )


def test_long_rows_are_loaded_once() -> None:
    """The down projection of a large model: a core's rows do not fit the scratchpad, and came again for each of four sticks of columns."""
    shapes = (512, 14336), (14336, 4096)
    parts = cycles_of(torch.matmul, *shapes)
    tiles.matmul_tiles.cache_clear()
    with patch.object(tiles, "part_count", lambda *_: 0):
        streamed = cycles_of(torch.matmul, *shapes)
    tiles.matmul_tiles.cache_clear()
    assert parts < 0.82 * streamed
