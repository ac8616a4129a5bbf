"""Operators that are programs because of a decomposition or lowering of our own, against eager."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from combinations import each_once

import ktir.lowering.inductor  # noqa: F401  registers the backends
from ktir.lowering.inductor.graph import lowerings

DTYPES = [torch.float32, torch.float16, torch.int32, torch.uint8]


def same(model: Callable[..., Any], *inputs: torch.Tensor, tolerance: float | None = None) -> None:
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(model, backend="ktir", dynamic=False, options={"engine": "ktir", "fallback": "error"})(*inputs)
        torch.testing.assert_close(found, model(*inputs), equal_nan=True, rtol=tolerance, atol=tolerance)


def all_same(*cases: tuple[Callable[..., Any], tuple[torch.Tensor, ...]], tolerance: float | None = None) -> None:
    """The same of functions side by side in one graph, each of operands of its own."""
    functions = [function for function, _ in cases]
    flat = [x.clone() for _, inputs in cases for x in inputs]
    counts = [len(inputs) for _, inputs in cases]

    def model(*given: torch.Tensor) -> list[Any]:
        rest = iter(given)
        return [function(*itertools.islice(rest, count)) for function, count in zip(functions, counts, strict=True)]

    same(model, *flat, tolerance=tolerance)


def some(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    return (torch.randn(*shape) * 4).abs().to(dtype)


@pytest.mark.parametrize(("dtype", "include_self"), each_once(DTYPES, [True, False]), ids=str)
def test_scattered_folds(dtype: torch.dtype, include_self: bool) -> None:
    """Indices that cover a part of the other dim, elements that are hit several times and never."""
    index = torch.tensor([[0, 3, 3, 1, 1, 4], [0, 3, 2, 1, 0, 0], [0, 2, 2, 1, 1, 1]])

    def model(x: torch.Tensor, src: torch.Tensor) -> tuple[torch.Tensor, ...]:
        folds = ("prod", "mean", "amax", "amin")
        return (
            *(x.scatter_reduce(0, index, src, f, include_self=include_self) for f in folds),
            *(x.index_reduce(1, index[1, :5], src.t()[:5, :3].repeat(1, 2)[:, :5], f, include_self=include_self) for f in folds),
            x.scatter(0, index, src, reduce="multiply"),
            x.scatter(0, index, 3, reduce="multiply"),
        )

    same(model, some(5, 7, dtype=dtype), some(3, 7, dtype=dtype))


def test_scattered_folds_of_nothing() -> None:
    one, none = torch.tensor(0), torch.zeros(0, 7, dtype=torch.int64)
    same(lambda x: x.scatter_reduce(0, one, x * 2, "amax"), torch.tensor(3.0))
    same(lambda x: x.scatter_reduce(0, none, x, "amin") + 1, some(5, 7))


@pytest.mark.parametrize("right", [True, False])
def test_places_among_boundaries(right: bool) -> None:
    nan = torch.tensor([0.0, float("nan"), 3, -1, 9, 2, 2, float("inf")])
    boundaries = torch.tensor([0.0, 2, 2, 3, 5])
    rows, values = some(3, 4, 9).sort(-1).values, some(3, 4, 5)

    def bucketize(x: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.bucketize(x, b, right=right), torch.bucketize(x, b, right=right, out_int32=True) * 2

    def search(s: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.searchsorted(s, x, right=right)

    all_same(
        *((bucketize, (nan, bounds)) for bounds in (boundaries, boundaries[:1], boundaries[:0])),
        (search, (rows, values)),
        (lambda s, x: torch.searchsorted(s.transpose(0, 1), x.transpose(0, 1), right=right), (rows, values)),
        (search, (torch.arange(9), torch.randint(0, 9, (4, 5)))),
        (lambda s, x, o: torch.searchsorted(s, x, right=right, sorter=o), (some(3, 9), some(3, 9)[:, 2:6], some(3, 9).argsort(-1))),
        (torch.isin, (torch.randint(0, 50, (30,)), torch.randint(0, 50, (20,)))),
    )


def test_distances() -> None:
    powers = (0.0, 1.0, 2.0, 3.5, float("inf"))
    between = [(lambda a, b, p=p: torch.cdist(a, b, p), (some(3, 5, 7), some(3, 4, 7))) for p in powers]
    within = [(lambda a, p=p: torch.pdist(a, p), (some(5, 7),)) for p in powers]
    all_same(*between, *within, tolerance=1e-5)


def test_adaptive_average_of_volumes() -> None:
    same(lambda x: F.adaptive_avg_pool3d(x, (3, 2, 5)), some(2, 3, 7, 5, 9))
    same(lambda x: F.adaptive_avg_pool3d(x, (3, 2, 5)), some(2, 3, 7, 5, 9, dtype=torch.float16), tolerance=4e-3)
    same(lambda x: F.adaptive_avg_pool3d(x, (3, 2, 5)) + 1, some(0, 3, 7, 5, 9))


def test_pooling_at_places_that_are_computed() -> None:
    """Windows of several lengths, and at random places; an image with NaN, and one of the lowest value alone."""
    x = some(2, 3, 7, 5, 9) - 5
    x[0, 0, 3, 2, 4], x[1, 2] = torch.nan, -torch.inf
    flat, volume = torch.rand(2, 3, 2), torch.rand(2, 3, 3)
    all_same(
        (lambda x: F.adaptive_max_pool3d(x, (3, 2, 4), return_indices=True), (x,)),
        (lambda x, r: torch.ops.aten.fractional_max_pool2d(x, (2, 3), (3, 4), r), (x[:, :, 0], flat)),
        (lambda x, r: torch.ops.aten.fractional_max_pool2d(x, (2, 3), (1, 4), r), (x[0, :, 0].half(), flat[:1].half())),
        (lambda x, r: torch.ops.aten.fractional_max_pool3d(x, (2, 3, 2), (4, 2, 5), r), (x, volume)),
    )


@pytest.mark.turn
def test_volumes_are_sampled() -> None:
    """At places inside and outside of them."""
    x, grid = some(2, 3, 2, 3, 4), some(2, 1, 2, 6, 3) / 3 - 2
    modes = (("bilinear", "reflection", False), ("nearest", "zeros", True))
    all_same(*((lambda x, g, m=m: F.grid_sample(x, g, m[0], m[1], align_corners=m[2]), (x, grid)) for m in modes), tolerance=2e-5)


UP_TO_EACH = (lambda x: x.cumprod(1), lambda x: x.logcumsumexp(0), lambda x: x.cummax(1), lambda x: x.cummin(0))


def test_what_comes_of_all_up_to_each() -> None:
    """With NaN, infinities, and elements that are equal."""
    x = some(5, 7) - 3
    x[1, 3:5], x[2, 2], x[3, 1:4], x[4] = torch.nan, torch.inf, -torch.inf, 2.0
    all_same(*((f, (x,)) for f in UP_TO_EACH))
    all_same(*((f, (some(5, 7).half() - 3,)) for f in UP_TO_EACH), tolerance=4e-3)


def test_medians_of_what_is_there() -> None:
    x = some(4, 6)
    x[0, 2], x[1], x[2, 1:] = torch.nan, torch.nan, torch.nan
    all_same(
        (lambda x: (x.nanmedian(), x.nanmedian(0, True), x.nanmedian(1)[0], x[0, 0].nanmedian(0)), (x,)),
        (
            lambda a, b: (torch.linspace(a, b, 7), torch.linspace(a, 3, 1), torch.logspace(0, b, 4, 2.0)),
            (torch.tensor(1.5), torch.tensor(4)),
        ),
    )


def test_rows_are_renormed_where_they_are_named() -> None:
    index = torch.tensor([[3, 1], [1, 6]])
    embeddings = [
        lambda w, i, p=p: (F.embedding(i, w.clone(), max_norm=2.0, norm_type=p), F.embedding(i, w, sparse=True)) for p in (1.0, 2.0)
    ]
    all_same(*((f, (some(7, 5), index)) for f in embeddings))


def test_functions_around_gamma() -> None:
    """Close to eager PyTorch's in float64; at their poles and infinities what it gives."""
    functions = (torch.lgamma, torch.digamma, torch.i0, lambda x: torch.polygamma(2, x))
    edges = torch.tensor([0.0, -0.0, -3.0, torch.inf, -torch.inf, torch.nan])
    x = torch.cat([edges, torch.linspace(0.01, 12, 120), torch.linspace(-6.99, -0.01, 79), torch.tensor([13.0, 80, 1e10, 4e-6])])

    def model(x: torch.Tensor, half: torch.Tensor) -> list[torch.Tensor]:
        return [f(x) for f in functions] + [torch.lgamma(half)]

    torch._dynamo.reset()
    *found, half = torch.compile(model, backend="ktir", dynamic=False, options={"fallback": "error"})(x, x.half())
    for mine, function in zip(found, functions, strict=True):
        torch.testing.assert_close(mine[:6], function(edges), rtol=1e-6, atol=0, equal_nan=True)
        torch.testing.assert_close(mine[6:], function(x[6:].double()).float(), rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(half, torch.lgamma(x.half()), rtol=2e-3, atol=2e-3, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=str)
def test_parts_of_bytes(dtype: torch.dtype) -> None:
    def model(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        b = a * 2
        joined = torch.cat([a[0, :0], b[1], a[0]])
        return torch.cat([a, b, a + 1]), torch.cat([a, b[:, :2]], -1) * 2, torch.stack([a, b], 1), joined, torch.cat([a[None, None]] * 2, 1)

    same(model, torch.arange(15).reshape(3, 5).to(dtype))


EMPTY_BAGS = [torch.tensor([0, 4, 4, 9]), torch.tensor([0, 0, 3]), torch.tensor([0])]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode: str) -> None:
    """Rows of equal bags, bags at offsets, empty ones, one that is padding alone, and a row that no bag names which is infinite."""
    weight = some(23, 5)
    weight[0] = float("inf")
    matrix = torch.randint(1, 23, (3, 7), generator=torch.Generator().manual_seed(1))
    matrix[1] = 4
    bags = matrix.reshape(-1)[:12]
    cases: list[tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = []
    for padding in (None, 4):
        cases.append((lambda i, w, p=padding: F.embedding_bag(i, w, mode=mode, padding_idx=p), (matrix, weight)))
        for offsets in EMPTY_BAGS:
            cases.append((lambda i, w, o, p=padding: F.embedding_bag(i, w, o, mode=mode, padding_idx=p), (bags, weight, offsets)))
    ends = torch.tensor([0, 4, 4, 12])
    all_same(*cases, (lambda i, w, o: F.embedding_bag(i, w, o, mode=mode, include_last_offset=True), (bags, weight, ends)))


def test_weighted_bags() -> None:
    matrix = torch.randint(0, 23, (3, 7), generator=torch.Generator().manual_seed(1))
    same(lambda i, w, s: F.embedding_bag(i, w, per_sample_weights=s, mode="sum"), matrix, some(23, 5), some(3, 7))


def test_rows_by_groups() -> None:
    """A group without rows, rows behind the last group, an infinity in a group that has no rows. Sums of small integers are exact."""
    x, weights = (torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(1)).bfloat16() for shape in ((15, 16), (4, 16, 8)))
    weights[2, 3] = float("inf")
    ends = torch.tensor([3, 11, 11, 13], dtype=torch.int32)
    same(lambda x, w, o: torch.nn.functional.grouped_mm(x, w, offs=o)[:13], x, weights, ends)


def test_histogram() -> None:
    x = torch.tensor([0.0, 4, 4.1, 3.999, -0.1, 2, 2, float("nan"), float("inf"), -float("inf"), 0.5, 1e-30, 3.2])
    same(lambda x: (torch.histc(x, 5, 0, 4), torch.histc(x, 7, -0.3, 3.2), torch.histc(x, 3, 100, 101)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_indices_of_largest_elements_lie_in_the_image(dtype: torch.dtype) -> None:
    """Windows of the lowest value alone, over padding too, and with NaN: the index is that of the first such element."""
    x = some(2, 9, 10, dtype=dtype)
    x[:, :4], x[0, 6:, 6:], x[1, 5, 5] = -torch.inf, -torch.inf, torch.nan

    def model(x: torch.Tensor) -> tuple[Any, ...]:
        return (
            F.max_pool2d(x, 3, 2, 1, return_indices=True),
            F.max_pool2d(x, 3, 2, 1, dilation=2, return_indices=True),
            F.max_pool2d(x, 6, 3, 3, ceil_mode=True, return_indices=True),
            F.max_pool1d(x[0], 3, 2, 1, return_indices=True),
            F.max_pool3d(x[None], (1, 3, 2), 2, (0, 1, 1), return_indices=True),
            F.adaptive_max_pool2d(x, (4, 3), return_indices=True),
            F.adaptive_max_pool2d(x[:, :, :7], (1, 2), return_indices=True),
        )

    same(model, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_roots_as_powers(dtype: torch.dtype) -> None:
    """Float16 alone has no kernels for them: its powers of -0 and of -infinity are those of C."""
    x = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 4.0, -4.0], dtype=dtype)
    same(lambda x: (x**0.5, 1 / x**0.5, x**-0.5, 1 / x**-0.5, torch.float_power(x, -0.5)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layers_of_an_lstm(dtype: torch.dtype, on_chip: None) -> None:
    """Which PyTorch traces as one operator of the host for these types; both ways, over steps of a batch."""
    torch.manual_seed(0)
    layer = torch.nn.LSTM(5, 4, bidirectional=True).to(dtype).eval()
    x = torch.randn(3, 2, 5).to(dtype)
    torch._dynamo.reset()
    with torch.no_grad():
        out, (hidden, cell) = torch.compile(layer, backend="spyre", dynamic=False, options={"fallback": "error"})(x)
        theirs, exact = layer(x), copy.deepcopy(layer).double()(x.double())
    for found, eager, wanted in zip((out, hidden, cell), (theirs[0], *theirs[1]), (exact[0], *exact[1]), strict=True):
        assert found.dtype == eager.dtype
        assert (found - wanted).abs().max() <= max(1.5 * (eager - wanted).abs().max(), 2 * torch.finfo(dtype).eps)


@pytest.mark.filterwarnings("ignore:.*upsample_bi")
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("how", [{"size": (13, 21)}, {"scale_factor": (0.4, 1.7)}, {"size": (5, 40), "align_corners": True}], ids=str)
def test_bytes_are_interpolated_by_torch(mode: str, how: dict[str, Any]) -> None:
    """Its kernels count in fixed point; what stands around the interpolation is a program all the same."""
    torch._dynamo.reset()
    x = torch.randint(0, 256, (2, 3, 18, 18), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))

    def model(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x // 2 + 1, mode=mode, **how) * 2

    assert torch.equal(torch.compile(model, backend="ktir", dynamic=False)(x), model(x))


def test_tables_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each graph takes time, and memory where a function of it is remembered; one that Inductor changes is another."""
    known = lowerings.decompositions()
    assert lowerings.decompositions() is known
    op = torch.ops.aten.gather.default
    changed = {**lowerings.select_decomp_table(), op: torch.gather}
    monkeypatch.setattr(lowerings, "select_decomp_table", lambda: changed)
    assert op in lowerings.decompositions()
    assert op not in known
