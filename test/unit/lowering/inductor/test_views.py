"""Views, copies, gathers and scatters of every kind through the whole ladder of accesses, against eager.

Several functions are compiled as one model, so that the tests are quick; each function has inputs of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ktir.lowering.region_to_ktir.translate import translate

Case = tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]


def x(*shape: int) -> torch.Tensor:
    """Distinct values that are no small whole numbers."""
    return (torch.arange(torch.Size(shape).numel(), dtype=torch.float32) * 0.37 - 3).sin().reshape(shape)


def i(*values: Any) -> torch.Tensor:
    return torch.tensor(values)


def t(a: torch.Tensor) -> torch.Tensor:
    """A value that is made inside of the region."""
    return a.exp()


RESHAPES: dict[str, Case] = {
    "flatten": (lambda a: a.flatten() + 1, (x(3, 5),)),
    "transposed_flatten": (lambda a: a.t().flatten() + 1, (x(3, 5),)),
    "transposed_ragged": (lambda a: a.t().reshape(3, 5) * 2, (x(3, 5),)),
    "made_transposed_ragged": (lambda a: t(a).t().reshape(3, 5) * 2, (x(3, 5),)),
    "transposed_6x6": (lambda a: a.t().reshape(6, 6) * 2, (x(4, 9),)),
    "permuted_ragged": (lambda a: a.permute(2, 0, 1).reshape(5, 12) + 1, (x(3, 4, 5),)),
    "permuted_split": (lambda a: t(a).permute(1, 0, 2).reshape(4, 15) + 1, (x(3, 4, 5),)),
    "two_radices": (lambda a: a.reshape(6, 2).t().reshape(12) + a.reshape(4, 3).t().reshape(12), (x(12),)),
    "two_radices_made": (lambda a: t(a).reshape(6, 2).t().reshape(12) + t(a).reshape(4, 3).t().reshape(12), (x(12),)),
    "heads": (lambda a: t(a).view(5, 3, 24).transpose(0, 1).contiguous() * 2, (x(5, 72),)),
    "heads_merged": (lambda a, w: t(a).transpose(0, 1).reshape(5, 72) @ w, (x(3, 5, 24), x(72, 4))),
    "ones": (lambda a: a.reshape(1, 3, 1, 5).permute(3, 2, 1, 0).reshape(5, 3) + a.t(), (x(3, 5),)),
    "window": (lambda a: t(a).view(1, 2, 3, 3, 2, 4).permute(0, 1, 3, 2, 4, 5).reshape(-1, 6, 4) + 1, (x(1, 6, 6, 4),)),
    "pixel_shuffle": (lambda a: F.pixel_shuffle(t(a), 2) + 1, (x(1, 8, 2, 3),)),
    "pixel_unshuffle": (lambda a: F.pixel_unshuffle(t(a), 2) + 1, (x(1, 2, 4, 6),)),
    "channel_shuffle": (lambda a: F.channel_shuffle(t(a), 3) + 1, (x(1, 6, 5, 1),)),
    "expanded": (lambda a: t(a)[:, None].expand(3, 4, 5).reshape(12, 5) + 1, (x(3, 5),)),
    "expanded_and_split": (lambda a: t(a)[:, None].expand(4, 3, 6).reshape(4, 9, 2) + 1, (x(4, 6),)),
    "repeat": (lambda a: a.repeat(2, 3) + 1, (x(3, 5),)),
    "repeat_interleave": (lambda a: t(a).repeat_interleave(3, 1) + 1, (x(3, 5),)),
    "strange_input": (lambda a: a.reshape(-1) + 1, (x(4, 6).t(),)),
    "channels_last": (lambda a: (t(a) + 1).reshape(2, 3, 20)[:, 1], (x(2, 3, 4, 5).to(memory_format=torch.channels_last),)),
    "scalar": (lambda a, b: a * b.sum(), (x(3, 5), x(4))),
    "rank_0": (lambda a: a.exp() + 1, (torch.tensor(0.5),)),
}

SLICES: dict[str, Case] = {
    "rows": (lambda a: a[1:4] * 2, (x(7, 5),)),
    "step": (lambda a: a[::2] + 1, (x(7, 5),)),
    "made_step": (lambda a: t(a)[:, 1::3] + 1, (x(7, 11),)),
    "column": (lambda a: t(a)[:, 3] * 2, (x(7, 5),)),
    "flat": (lambda a: t(a).flatten()[3:13] * 2, (x(4, 5),)),
    "flat_and_back": (lambda a: t(a).flatten()[3:15].reshape(3, 4) * 2, (x(4, 5),)),
    "transposed_flat": (lambda a: t(a).t().flatten()[3:13] * 2, (x(4, 5),)),
    "transposed_flat_back": (lambda a: a.t().flatten()[3:15].reshape(3, 4).t() * 2, (x(4, 5),)),
    "split_after_slice": (lambda a: t(a)[:, 3:147].reshape(5, 9, 16).transpose(0, 1) * 2, (x(5, 168),)),
    "roll": (lambda a: torch.roll(a, 2, 0) + 1, (x(7),)),
    "made_roll": (lambda a: torch.roll(t(a), (1, -2), (0, 1)) + 1, (x(5, 7),)),
    "flip": (lambda a: a.flip(0) * 2, (x(5, 3),)),
    "made_flip": (lambda a: t(a).flip((0, 1)) * 2, (x(5, 3),)),
    "flip_flat": (lambda a: a.flip(1).reshape(-1) + 1, (x(3, 5),)),
    "unfold": (lambda a: a.unfold(0, 3, 1) * 2, (x(9),)),
    "made_unfold": (lambda a: t(a).unfold(1, 4, 2).sum(-1), (x(3, 11),)),
    "as_strided": (lambda a: torch.as_strided(a, (3, 4), (2, 1), 1) + 1, (x(12),)),
    "diagonal": (lambda a: a.diagonal() * 2, (x(5, 7),)),
    "made_diagonal": (lambda a: t(a).diagonal() * 2, (x(5, 7),)),
    "strided_input": (lambda a: a[:, ::2].t().reshape(-1) * 2, (x(4, 6),)),
    "chunks": (lambda a: torch.cat(t(a).chunk(3, 1)[::-1], 1) + 1, (x(4, 9),)),
    "split": (lambda a: t(a).split([2, 5, 1], 1)[1] * 2, (x(3, 8),)),
}

JOINS: dict[str, Case] = {
    "cat": (lambda a, b: torch.cat([a, b]) * 2, (x(3, 5), x(4, 5))),
    "cat_columns": (lambda a, b: torch.cat([a * 2, b.sin()], 1), (x(3, 5), x(3, 2))),
    "cat_and_sum": (lambda a, b: torch.cat([t(a), b], 1).sum(1), (x(3, 5), x(3, 2))),
    "cat_reshaped": (lambda a: torch.cat([a, a + 1, t(a)], 1).reshape(-1, 5) + 1, (x(5, 3),)),
    "cat_of_splits": (lambda a: torch.cat([t(a).view(3, 2, 4)[:, 0], a.view(3, 2, 4)[:, 1]], 1), (x(3, 8),)),
    "stack": (lambda a, b: torch.stack([t(a), b], 1).reshape(6, 5), (x(3, 5), x(3, 5))),
    "rotate_half": (lambda a: torch.cat([-a[..., 3:], a[..., :3]], -1) * a, (x(4, 6),)),
    "pad": (lambda a: F.pad(a, (1, 2)) + 1, (x(3, 5),)),
    "pad_value": (lambda a: F.pad(t(a), (1, 0, 7, 2), value=3.0) + 1, (x(3, 5),)),
    "pad_negative": (lambda a: F.pad(t(a), (-1, 2)) * 2, (x(3, 5),)),
    "pad_reshaped": (lambda a: F.pad(a, (0, 3)).reshape(4, 4) + 1, (x(13),)),
    "pad_transposed": (lambda a: F.pad(a.t(), (0, 1)).reshape(-1) + 1, (x(3, 5),)),
    "pad_both_reshaped": (lambda a: F.pad(t(a), (3, 3)).reshape(3, 7).t() + 1, (x(15),)),
    "pad_all": (lambda a: F.pad(a[:, :0], (2, 1), value=2.0) + 1, (x(3, 5),)),
    "reflect": (lambda a: F.pad(t(a), (2, 2), mode="reflect") + 1, (x(1, 3, 5),)),
    "replicate": (lambda a: F.pad(t(a), (2, 2), mode="replicate") + 1, (x(1, 3, 5),)),
    "circular": (lambda a: F.pad(t(a), (2, 2), mode="circular") + 1, (x(1, 3, 5),)),
    "tril": (lambda a: a.tril(-1), (x(5, 7),)),
    "diag_embed": (lambda a: torch.diag_embed(a) + 1, (x(5),)),
    "slice_scatter": (lambda a, b: t(a).slice_scatter(b, 1, 1, 5, 2), (x(3, 6), x(3, 2))),
    "select_scatter": (lambda a, b: t(a).select_scatter(b, 1, 2), (x(3, 6), x(3))),
    "meshgrid": (lambda a, b: (a[:, None] * b[None]).flatten()[2:9], (x(3), x(4))),
    "im2col": (lambda a: F.unfold(t(a), 2, padding=1) + 1, (x(1, 2, 4, 5),)),
    "upsample": (lambda a: F.interpolate(t(a), scale_factor=2) + 1, (x(1, 2, 3, 5),)),
    "bilinear": (lambda a: F.interpolate(a, size=(5, 4), mode="bilinear") + 1, (x(1, 2, 3, 5),)),
    "avg_pool": (lambda a: F.avg_pool1d(t(a), 3, 2, 1), (x(1, 2, 9),)),
    "max_pool": (lambda a: F.max_pool2d(t(a), 2), (x(1, 2, 4, 6),)),
    "adaptive_pool": (lambda a: F.adaptive_avg_pool2d(a, (3, 2)), (x(1, 2, 6, 5),)),
    "conv": (lambda a, w: F.conv2d(t(a), w, padding=1), (x(2, 3, 5, 4), x(4, 3, 3, 3))),
}

GATHERS: dict[str, Case] = {
    "gather": (lambda a, k: a.gather(1, k) + 1, (x(3, 5), i([0, 4], [1, 1], [3, 2]))),
    "columns": (lambda a, k: t(a)[:, k] * 2, (x(3, 5), i(4, 0, 2, 2))),
    "negative": (lambda a, k: a[k] * 2, (x(6, 5), i(-1, 0, 2))),
    "two_indices": (lambda a, k: t(a)[k, k + 1] * 2, (x(6, 7), i(5, 0, 2))),
    "computed": (lambda a, k: t(a)[k.flip(0) + 1] * 2, (x(6, 5), i(1, 0, 2))),
    "take": (lambda a, k: t(a).take(k) * 2, (x(6, 5), i(11, 0, 29))),
    "take_input": (lambda a, k: a.take(k) * 2, (x(6, 5), i(11, 0, 29))),
    "embedding": (lambda a, k: F.embedding(k, a) * 2, (x(11, 6), i([1, 10], [0, 3]))),
    "transposed_table": (lambda a, k: t(a).t()[k].reshape(-1), (x(4, 6), i(5, 0, 2))),
    "where_on_index": (lambda a, k: torch.where(k > 2, a[k], -1.0), (x(6), i(1, 4, 5))),
    "index_put": (lambda a, k, v: a.index_put((k,), v), (x(6, 5), i(4, 1), x(2, 5))),
    "index_put_made": (lambda a, k, v: t(a).index_put((k, k), v) * 2, (x(6, 5), i(4, 1), x(2))),
    "index_put_same": (lambda a, k, v: a.index_put((k,), v), (x(6, 5), i(4, 1, 4), x(3, 5))),
    "index_put_twice": (lambda a, k, v: a.index_put((k,), v, accumulate=True), (x(6, 5), i(4, 4), x(2, 5))),
    "diagonal_scatter": (lambda a, v: torch.diagonal_scatter(t(a) + 1, v, -2, 0, 1), (x(5, 5, 4), x(4, 3))),
    "index_add": (lambda a, k, v: t(a).index_add(1, k, v), (x(6, 5), i(4, 4, 0), x(6, 3))),
    "scatter": (lambda a, k, v: a.scatter(1, k, v), (x(3, 5), i([4, 1], [0, 2], [2, 3]), x(3, 2))),
    "scatter_add": (lambda a, k, v: a.scatter_add(1, k, v), (x(3, 5), i([4, 4], [0, 2], [2, 2]), x(3, 2))),
    "index_copy": (lambda a, k, v: a.index_copy(0, k, v), (x(6, 5), i(4, 1), x(2, 5))),
    "one_hot": (lambda k: F.one_hot(k, 5) + 1, (i(4, 0, 2),)),
    "masked_fill": (lambda a, k: a.masked_fill(k > 1, 0.5), (x(3), i(0, 1, 2))),
    "bucketize": (lambda a, b: torch.bucketize(a, b.exp()), (x(3, 5), x(1, 4).sort()[0][0])),
}

ALONG: dict[str, Case] = {
    "softmax": (lambda a: a.softmax(-1), (x(3, 13),)),
    "softmax_first": (lambda a: a.softmax(0), (x(3, 13),)),
    "argmax": (lambda a: a.sin().argmax(-1), (x(3, 13),)),
    "argmin_ties": (lambda a: a.round().argmin(0), (x(9, 4),)),
    "argmax_all": (lambda a: a.argmax(), (x(3, 5),)),
    "argmax_nan": (lambda a: torch.where(a > 0.9, torch.nan, a).argmax(1), (x(3, 13),)),
    "max": (lambda a: a.max(1)[0] + a.max(1)[1], (x(3, 13),)),
    "min_all": (lambda a: a.min() + 1, (x(3, 13),)),
    "any": (lambda a: (a > 0.9).any(1), (x(3, 13),)),
    "all": (lambda a: (a > -0.9).all(0), (x(3, 13),)),
    "prod": (lambda a: a.prod(1), (x(3, 5),)),
    "sum_of_two": (lambda a: a.sum((0, 2)), (x(3, 4, 5),)),
    "mean_of_all": (lambda a: a.mean(), (x(3, 4, 5),)),
    "mean_of_ragged": (lambda a: a.t().reshape(3, 5).mean(1), (x(3, 5),)),
    "var": (lambda a: a.var(1), (x(3, 13),)),
    "std": (lambda a: a.std((0, 1)), (x(3, 13),)),
    "count": (lambda a: (a > 0).sum(0), (x(3, 5),)),
    "norm": (lambda a: a.norm(dim=1), (x(3, 5),)),
    "logsumexp": (lambda a: a.logsumexp(1), (x(3, 5),)),
    "cumsum": (lambda a: a.cumsum(0).t().reshape(-1) + 1, (x(3, 5),)),
    "cumsum_of_split": (lambda a: t(a).reshape(4, 6).cumsum(1), (x(3, 8),)),
    "cumprod": (lambda a: a.cumprod(1), (x(3, 5),)),
    "cummax": (lambda a: a.cummax(1)[0] + a.cummax(1)[1], (x(3, 5),)),
    "logcumsumexp": (lambda a: a.logcumsumexp(1), (x(3, 5),)),
    "sort": (lambda a: a.sort(1)[0].t().reshape(3, 5) * 2, (x(3, 5),)),
    "sort_descending": (lambda a: a.sort(0, descending=True)[1], (x(7, 2),)),
    "argsort_stable": (lambda a: a.round().argsort(stable=True, dim=1), (x(3, 9),)),
    "topk": (lambda a: a.topk(2, 1)[0] + a.topk(2, 1)[1], (x(3, 5),)),
    "median": (lambda a: a.sort(1)[0][:, 3], (x(3, 7),)),
    "matvec": (lambda a, b: a @ b, (x(3, 5), x(5))),
    "batched": (lambda a, b: a @ b, (x(2, 3, 5), x(2, 5, 4))),
    "batched_transposed": (lambda a, b: t(a).transpose(0, 1) @ t(b).transpose(1, 2), (x(3, 2, 5), x(2, 4, 5))),
    "bias": (lambda a, w, b: F.linear(a, w, b).relu(), (x(3, 5), x(4, 5), x(4))),
    "mm_of_ragged": (lambda a, w: (a.t().reshape(3, 5) @ w.t()).view(3, 2, 2).transpose(0, 1).reshape(3, 4), (x(3, 5), x(4, 5))),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (x(1, 2, 5, 4), x(1, 2, 5, 4), x(1, 2, 5, 4))),
}

GROUPS = {"reshapes": RESHAPES, "slices": SLICES, "joins": JOINS, "gathers": GATHERS, "along": ALONG}


def together(cases: dict[str, Case]) -> tuple[Callable[..., tuple[torch.Tensor, ...]], list[torch.Tensor]]:
    """One model with the results of all cases, and its inputs."""
    inputs = [a for _, arguments in cases.values() for a in arguments]

    def model(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rest, results = list(given), []
        for function, arguments in cases.values():
            results.append(function(*rest[: len(arguments)]))
            rest = rest[len(arguments) :]
        return tuple(results)

    return model, inputs


@pytest.mark.parametrize("group", GROUPS)
def test_views(compiled: Any, group: str) -> None:
    model, inputs = together(GROUPS[group])
    expected = model(*inputs)
    before = [a.clone() for a in inputs]
    actual = compiled.run(model, *inputs)
    for name, e, a in zip(GROUPS[group], expected, actual, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-5, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}")
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))


def rungs(compiled: Any) -> set[str]:
    """The rungs of the ladder that the last region took."""
    return {r.name for r in translate(compiled.regions[-1]).rungs}


@pytest.mark.parametrize(
    ("rung", "function", "arguments"),
    [
        ("view", lambda a: a.t().reshape(-1) + 1, (x(3, 5),)),
        ("gather", lambda a, k: a[k] + 1, (x(3, 5), i(2, 0))),
        ("value", lambda a: a.softmax(1), (x(3, 5),)),
        ("slice", lambda a: a.cumsum(1)[:, 1:3] + 1, (x(3, 5),)),
        ("transpose", lambda a: a.cumsum(1).t().reshape(-1) + 1, (x(3, 5),)),
        ("affine map", lambda a: a.cumsum(0).unfold(0, 3, 1) * 2, (x(9),)),
        ("quasi-affine map", lambda a: a.cumsum(1).t().reshape(3, 5) * 2, (x(3, 5),)),
        ("quasi-affine tile", lambda a: a.t().reshape(3, 5) * 2, (x(3, 5),)),
        ("index table", lambda a: F.pad(a.cumsum(2), (2, 2), mode="reflect") + 1, (x(1, 3, 5),)),
        ("pad", lambda a: F.pad(a, (1, 2)) + 1, (x(3, 5),)),
        ("insert", lambda a, b: torch.cat([a, b * 2]) + 1, (x(3, 5), x(1, 5))),
        ("scatter", lambda a, k: a.index_put((k,), a.new_ones(2, 5)), (x(3, 5), i(2, 0))),
    ],
)
def test_rungs(compiled: Any, rung: str, function: Callable[..., torch.Tensor], arguments: tuple[torch.Tensor, ...]) -> None:
    torch.testing.assert_close(compiled.run(function, *arguments), function(*arguments), rtol=1e-5, atol=1e-5)
    assert rung in rungs(compiled)


def test_inputs_written_in_place(compiled: Any) -> None:
    def model(cache: torch.Tensor, k: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(1, k, new)
        cache[:, 0].mul_(2)
        return cache.sum(1)

    def inputs() -> tuple[torch.Tensor, ...]:
        return x(2, 6, 3), i(4, 1), x(2, 2, 3) + 5

    expected, ours = inputs(), inputs()
    torch.testing.assert_close(compiled.run(model, *ours), model(*expected))
    torch.testing.assert_close(ours[0], expected[0])


def _every_third(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[319:365:3] += y
    return x


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_what_is_moved_and_computed_with(dtype: torch.dtype) -> None:
    """Several moves of one memory before arithmetic on what they bring: none of them may stay the caller's bits. Zeros keep their sign."""
    x, y = (torch.randn(n, generator=torch.Generator().manual_seed(n)).to(dtype) for n in (448, 16))
    for f in (_every_third, lambda x, y: torch.nn.functional.pad(x.flip(0), (3, 4), value=-0.0)):
        torch._dynamo.reset()
        got = torch.compile(f, backend="spyre", dynamic=False, options={"engine": "ktir", "fallback": "error"})(x, y)
        assert torch.equal(got, f(x, y))
        assert torch.equal(torch.signbit(got), torch.signbit(f(x, y)))


def test_windows_of_which_a_later_load_is_that_of_all(on_chip: None) -> None:
    def differences(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([b, a, b], 1)
        return joined[:, 1:] - joined[:, :-1]

    inputs = x(3, 3, 3).half(), x(3, 1, 3).half()
    actual = torch.compile(differences, backend="spyre", dynamic=False)(*inputs)
    assert torch.equal(actual, differences(*inputs))
