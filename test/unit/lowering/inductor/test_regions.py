"""What arrives as loops: regions of many constructs, run by the loop interpreter, give eager's values."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ktir import config


def ramp(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Distinct values between -2 and 2 in a fixed shuffled order."""
    generator = torch.Generator().manual_seed(sum(shape))
    count = torch.Size(shape).numel()
    return ((torch.randperm(count, generator=generator) / max(count - 1, 1)) * 4 - 2).reshape(shape).to(dtype)


LONG = torch.tensor([2, 0, 3, 1])


class Conv(nn.Module):
    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = conv

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x))


def masked_attention(q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)


def masked_scatter(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.masked_scatter(x > 0, y)


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "mm": (torch.mm, (ramp(5, 7), ramp(7, 3))),
    "mm_f16": (torch.mm, (ramp(5, 7, dtype=torch.float16), ramp(7, 3, dtype=torch.float16))),
    "mm_bf16": (torch.mm, (ramp(5, 7, dtype=torch.bfloat16), ramp(7, 3, dtype=torch.bfloat16))),
    "mm_f64": (torch.mm, (ramp(5, 7, dtype=torch.float64), ramp(7, 3, dtype=torch.float64))),
    "mm_int": (torch.mm, (torch.arange(6).reshape(2, 3), torch.arange(12).reshape(3, 4) - 5)),
    "mm_1x1": (torch.mm, (ramp(1, 7), ramp(7, 1))),
    "mm_k1": (torch.mm, (ramp(5, 1), ramp(1, 3))),
    "mm_k0": (torch.mm, (torch.ones(5, 0), torch.ones(0, 3))),
    "bmm": (torch.bmm, (ramp(3, 5, 7), ramp(3, 7, 2))),
    "addmm": (lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), (ramp(3), ramp(5, 7), ramp(7, 3))),
    "addmm_beta_0": (lambda b, x, y: torch.addmm(b, x, y, beta=0), (torch.full((5, 3), float("nan")), ramp(5, 7), ramp(7, 3))),
    "addbmm": (lambda b, x, y: torch.addbmm(b, x, y, beta=0.5, alpha=2), (ramp(5, 3), ramp(2, 5, 7), ramp(2, 7, 3))),
    "baddbmm": (lambda b, x, y: torch.baddbmm(b, x, y, alpha=3), (ramp(2, 5, 3), ramp(2, 5, 7), ramp(2, 7, 3))),
    "mv": (torch.mv, (ramp(5, 7), ramp(7))),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q), (ramp(2, 3, 5, 8),)),
    "attention_causal": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (ramp(2, 3, 5, 8),)),
    "attention_masked": (masked_attention, (ramp(2, 3, 5, 8), torch.rand(2, 1, 5, 5, generator=torch.Generator().manual_seed(0)) > 0.5)),
    "attention_f16": (lambda q: F.scaled_dot_product_attention(q, q, q), (ramp(2, 3, 5, 8, dtype=torch.float16),)),
    "attention_rank_3": (masked_attention, (ramp(3, 5, 8), torch.rand(3, 5, 5, generator=torch.Generator().manual_seed(0)) > 0.5)),
    "attention_rank_2_f16": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (ramp(5, 8, dtype=torch.float16),)),
    "attention_grouped": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        (ramp(2, 4, 5, 8), ramp(2, 2, 6, 8)),
    ),
    "conv2d": (Conv(nn.Conv2d(3, 4, 3, stride=2, padding=1)), (ramp(2, 3, 9, 8),)),
    "conv2d_groups": (Conv(nn.Conv2d(4, 6, (3, 2), dilation=2, groups=2)), (ramp(2, 4, 9, 8),)),
    "conv1d_depthwise": (Conv(nn.Conv1d(4, 4, 4, padding=3, groups=4)), (ramp(2, 4, 9),)),
    "conv_transposed": (Conv(nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1)), (ramp(2, 3, 5, 4),)),
    "embedding": (lambda t, i: F.embedding(i, t), (ramp(5, 6), LONG)),
    "negative_index": (lambda x, i: x[i - 4] + 1, (ramp(4, 6), LONG)),
    "gather": (lambda x, i: x.gather(0, i[:, None]), (ramp(5, 6), LONG)),
    "index_put": (lambda x, i, y: x.index_put((i,), y), (ramp(5, 6), LONG, ramp(4, 6))),
    "index_add": (lambda x, i, y: x.index_put((i // 2,), y, accumulate=True), (ramp(5, 6), LONG, ramp(4, 6))),
    "masked_scatter": (masked_scatter, (ramp(5, 6), ramp(30))),
    "pad": (lambda x: F.pad(x, (2, 1, 1, 0), value=3.0), (ramp(5, 6),)),
    "reflect": (lambda x: F.pad(x[None], (2, 1), mode="reflect"), (ramp(5, 6),)),
    "cat": (lambda x, y: torch.cat([x.softmax(-1), y * 2, x], -1), (ramp(5, 6), ramp(5, 3))),
    "cat_of_cat": (lambda x: torch.cat([torch.cat([x * 2, x.cos()], 0), x.relu().repeat(2, 1)], 1), (ramp(5, 6),)),
    "stack": (lambda x: torch.stack([x.sin(), x.cos()], 1), (ramp(5, 6),)),
    "flip": (lambda x: x.flip(0, 1) + 1, (ramp(5, 6),)),
    "roll": (lambda x: x.roll(2, 0), (ramp(5, 6),)),
    "unfold": (lambda x: x.unfold(1, 3, 2) * 2, (ramp(5, 7),)),
    "tril": (lambda x: x.tril(1), (ramp(5, 6),)),
    "where": (lambda x, y: torch.where(x > y, x, 0), (ramp(5, 6), ramp(5, 6).flip(0))),
    "arange": (lambda x: x + torch.arange(6) ** 2, (ramp(5, 6),)),
    "argmax": (lambda x: (x.argmax(-1), x.argmin(), x.max(0)), (ramp(5, 6),)),
    "prod": (lambda x: (x.prod(-1), x.any(), x.sum(0), x.amax()), (ramp(5, 6),)),
    "var": (lambda x: torch.var_mean(x, -1), (ramp(3, 2000),)),
    "layer_norm": (lambda x: F.layer_norm(x, (2000,)), (ramp(3, 2000),)),
    "cumsum": (lambda x: (x.cumsum(-1), x.cumprod(0), x.logcumsumexp(1)), (ramp(5, 6),)),
    "cummax": (lambda x: x.cummax(1), (ramp(5, 6),)),
    "sort": (lambda x: x.sort(0, descending=True), (ramp(5, 6),)),
    "sort_long": (lambda x: x.sort(), (ramp(2, 700),)),
    "topk": (lambda x: x.topk(3), (ramp(5, 9),)),
    "median": (lambda x: (x.median(), x.kthvalue(2)), (ramp(5, 9),)),
    "bucketize": (lambda x, b: torch.bucketize(x, b, right=True), (ramp(5, 6), ramp(7).sort().values)),
    "one_hot": (lambda i: F.one_hot(i, 5), (LONG,)),
    "casts": (lambda x: (x.int(), x.bool(), (x > 0).float(), x.to(torch.bfloat16), x.double() * 3), (ramp(5, 6),)),
    "bits": (lambda i: (i & 3, i | 4, i ^ 1, i << 2, ~i, i // 2, i % 3, -i // 2), (LONG,)),
    "functions": (lambda x: (x.sin(), x.exp().log(), x.floor(), x.abs().sqrt(), x.erf(), x.tanh(), x.sign()), (ramp(5, 6),)),
    "bitcast": (lambda x: x.view(torch.int32) + 1, (ramp(5, 6),)),
    "scalar": (lambda x: x * 2, (torch.tensor(3.0),)),
    "empty": (lambda x: (x + 1, x.sum(-1)), (torch.ones(3, 0),)),
    "pool": (lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 3, padding=1)), (ramp(1, 2, 8, 8),)),
    "upsample": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (ramp(1, 2, 4, 5),)),
    "diagonal": (lambda x: x.diagonal() * 2, (ramp(5, 6),)),
    "as_strided": (lambda x: x.as_strided((4, 3), (2, 1), 3) + 1, (ramp(5, 6),)),
    "large_int": (lambda i: i + (2**53 + 1), (LONG,)),
    "infinities": (lambda x: torch.where(x > 0, float("inf"), float("-inf")), (ramp(5, 6),)),
}


@pytest.mark.parametrize("part", range(4))
def test_eager_values(loops: Any, part: int) -> None:
    """Functions side by side in one graph, each of operands of its own: one region, no call of ATen."""
    cases = dict(list(CASES.items())[part::4])
    functions = {name: function for name, (function, _) in cases.items()}

    def model(*inputs: tuple[torch.Tensor, ...]) -> dict[str, Any]:
        return {name: function(*given) for (name, function), given in zip(functions.items(), inputs, strict=True)}

    with torch.no_grad(), config.patch(fallback="error"):
        expected = model(*(given for _, given in cases.values()))
        actual = loops.run(model, *(given for _, given in cases.values()))
    for name, (_, given) in cases.items():
        tolerance = 2e-2 if given[0].dtype in (torch.float16, torch.bfloat16) else None
        torch.testing.assert_close(
            actual[name], expected[name], rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert loops.launches == 1


def test_every_value_has_a_type(loops: Any) -> None:
    """Types are those of Inductor: half precision is computed in float32."""
    with torch.no_grad():
        loops.run(lambda x: torch.where(x > 0, x.exp(), x.int()), ramp(5, 6, dtype=torch.float16))
    (nest,) = loops.regions[0].nests
    types = [(r.op, r.dtype) for r in nest.body]
    assert ("load", "float16") in types
    assert ("exp", "float32") in types
    assert ("gt", "bool") in types
    assert all(r.dtype for r in nest.records() if r.results and r.op != "indirect")


@pytest.mark.parametrize("masked", [False, True])
def test_a_value_that_is_read_twice_is_evaluated_once(loops: Any, masked: bool) -> None:
    """Each step of a checksum reads its operand twice; what is evaluated at each reading would double with each step."""

    def checksum(data: torch.Tensor) -> torch.Tensor:
        value = torch.full(data.shape[:1], 0xFF, dtype=torch.uint8)
        for _ in range(7):
            value = value ^ data[:, 0]
            value = torch.where(value >= 128, (value << 1) ^ 0x31, value << 1)
        return F.pad(value, (1, 1), value=7) ^ F.pad(value, (1, 1), value=9) if masked else value

    data = torch.arange(70, dtype=torch.uint8)[:, None]
    assert torch.equal(loops.run(checksum, data), checksum(data))
    (nest,) = loops.regions[0].nests
    assert sum(r.op == "bitwise_left_shift" for r in nest.records()) == 14 * (1 + masked)


def test_attention_of_any_rank_is_one_computation() -> None:
    """Of half precision on [heads, rows, dim] torch writes it out in f32; it has the bits of that on [1, heads, rows, dim]."""
    q, k, v = (torch.randn(3, 70, 40, generator=torch.Generator().manual_seed(n)).half() for n in range(3))

    def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    with torch.no_grad():
        found = [torch.compile(causal, backend="ktir", dynamic=False)(*t) for t in ((q, k, v), (q[None], k[None], v[None]))]
    assert torch.equal(found[0], found[1][0])
