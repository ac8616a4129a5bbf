# pyright: reportMissingImports=false
"""Attention and experts by themselves, compiled, against what they mean in float64, token by token."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from ktir.runtime.executable import recorded
from ktir.vllm.attention import PagedAttention, StepInputs
from ktir.vllm.experts import LIMIT, SLOPE, PlainExperts
from ktir.vllm.upstream import MoEActivation

HEADS, KV_HEADS, SIZE, PAGE = 4, 2, 64, 16
OPTIONS: dict[str, dict[str, Any]] = {
    "window": {"sliding_window": 5},
    "sinks": {"sinks": torch.tensor([0.5, -1.0, 2.0, 0.0]).half()},
    "soft cap": {"logits_soft_cap": 3.0},
    "slopes": {"alibi_slopes": [0.5, 0.25, 0.125, 0.0625]},
    "bytes": {"kv_cache_dtype": "fp8"},
    "window, sinks, soft cap": {"sliding_window": 9, "sinks": torch.tensor([0.5, -1.0, 2.0, 0.0]).half(), "logits_soft_cap": 3.0},
}


def compiled(function: Any, *inputs: Any) -> torch.Tensor:
    """What one launch of the chip gives."""
    with torch.inference_mode(), recorded() as launches:
        found = torch.compile(function, backend="spyre", fullgraph=True, dynamic=False)(*inputs)
    assert len(launches) == 1
    return found


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, place: int, head: int, options: dict[str, Any]) -> torch.Tensor:
    """One token at a place of its sequence, one head; keys and values [places, size], in float64."""
    first = max(0, place + 1 - options.get("sliding_window", place + 1))
    scores = k[first : place + 1] @ q / math.sqrt(SIZE)
    if cap := options.get("logits_soft_cap"):
        scores = cap * torch.tanh(scores / cap)
    if slopes := options.get("alibi_slopes"):
        scores = scores + slopes[head] * (torch.arange(first, place + 1) - place)
    sinks = options.get("sinks")
    weights = scores.exp() / (scores.exp().sum() + (0 if sinks is None else sinks[head].double().exp()))
    return weights @ v[first : place + 1]


@pytest.mark.parametrize("tokens", [16, 1])
@pytest.mark.parametrize("options", list(OPTIONS.values()), ids=list(OPTIONS))
def test_attention_is_what_its_options_say(options: dict[str, Any], tokens: int) -> None:
    """Two sequences of 19 and 25 tokens on two pages each, of which the last ones are new; error as much as PyTorch's own in float16."""
    torch.manual_seed(0)
    seen = [25] if tokens > 1 else [19, 25]
    pages = torch.tensor([[3, 1], [4, 2]])[: len(seen)]
    kind, scales = (torch.float8_e4m3fn, (0.25, 2.0)) if "kv_cache_dtype" in options else (torch.float16, (1.0, 1.0))
    keys, values = (torch.randn(5, PAGE, KV_HEADS, SIZE).to(kind) for _ in range(2))
    q = torch.randn(len(seen) * tokens, HEADS, SIZE).half()
    k, v = (torch.randn(len(seen) * tokens, KV_HEADS, SIZE).half() for _ in range(2))
    positions = torch.stack([torch.arange(n - tokens, n) for n in seen])
    slots = (pages.gather(1, positions // PAGE) * PAGE + positions % PAGE).view(-1)
    rows = (pages[:, :, None] * PAGE + torch.arange(PAGE)).flatten(1)
    step = StepInputs(positions, rows, slots, torch.full((len(seen),), tokens))
    layer = PagedAttention(HEADS, SIZE, SIZE**-0.5, KV_HEADS, **options)
    held = (keys.clone(), values.clone())
    scaled = SimpleNamespace(_k_scale_float=scales[0], _v_scale_float=scales[1])
    found = compiled(lambda q, k, v, o: layer.forward(scaled, q, k, v, held, step, o), q, k, v, torch.empty_like(q)).double()
    for cache, new, scale, ours in zip((keys, values), (k, v), scales, held, strict=True):
        cache.view(-1, KV_HEADS, SIZE)[slots] = (new / scale).to(kind)
        assert torch.equal(ours.view(torch.uint8), cache.view(torch.uint8))
    for row, (place, sequence) in enumerate((p, s) for s in range(len(seen)) for p in positions[s].tolist()):
        for head in range(HEADS):
            own = [
                c[pages[sequence]].flatten(0, 1)[:, head * KV_HEADS // HEADS].double() * s
                for c, s in zip((keys, values), scales, strict=True)
            ]
            expected = attended(q[row, head].double(), own[0], own[1], place, head, options)
            # Weights sum to one: each is off by the rounding of its score (below 16) and its own, the values' largest is about 4.
            assert (found[row, head] - expected).abs().max() < 4 * (2**-11 * 16 + 2**-11)


@pytest.mark.parametrize("window", [None, 5])
def test_an_encoder_sees_both_ways(window: int | None) -> None:
    """As far behind a token as before it, where it has a window; the last of 16 are padding."""
    torch.manual_seed(0)
    tokens, real = 16, 13
    q, k, v = (torch.randn(tokens, heads, SIZE).half() for heads in (HEADS, KV_HEADS, KV_HEADS))
    step = StepInputs(torch.arange(tokens)[None], torch.zeros(1, 2).long(), torch.zeros(tokens).long(), torch.tensor([real]))
    layer = PagedAttention(HEADS, SIZE, SIZE**-0.5, KV_HEADS, sliding_window=window, attn_type="encoder_only")
    found = compiled(lambda q, k, v, out: layer.forward(None, q, k, v, (k, v), step, out), q, k, v, torch.empty_like(q)).double()
    apart = torch.arange(real)[:, None] - torch.arange(real)
    seen = torch.ones(real, real).bool() if window is None else apart.abs() < window
    for head in range(HEADS):
        own = [x[:real, head * KV_HEADS // HEADS].double() for x in (k, v)]
        scores = (q[:real, head].double() @ own[0].T / math.sqrt(SIZE)).masked_fill(~seen, -math.inf)
        # Weights sum to one: each is off by the rounding of its score (below 16) and its own, the values' largest is about 4.
        assert (found[:real, head] - scores.softmax(-1) @ own[1]).abs().max() < 4 * (2**-11 * 16 + 2**-11)


@pytest.mark.parametrize("kind", ["silu", "swigluoai"])
@pytest.mark.parametrize("tokens", [3, 16])
def test_experts_are_those_that_were_chosen(kind: str, tokens: int) -> None:
    """Three tokens choose fewer than there are, sixteen more."""
    torch.manual_seed(0)
    experts, each, size, inner = 12, 2, 128, 64
    layer = SimpleNamespace(
        w13_weight=nn.Parameter(torch.randn(experts, 2 * inner, size).half() / 8, requires_grad=False),
        w2_weight=nn.Parameter(torch.randn(experts, size, inner).half() / 8, requires_grad=False),
        w13_bias=nn.Parameter(torch.randn(experts, 2 * inner).half(), requires_grad=False),
        w2_bias=nn.Parameter(torch.randn(experts, size).half(), requires_grad=False),
        activation=MoEActivation.from_str(kind),
    )
    rows = [slice(0, inner), slice(inner, None)] if kind == "silu" else [slice(0, None, 2), slice(1, None, 2)]
    (gate, gate_bias), (other, other_bias) = [(layer.w13_weight[:, r].double(), layer.w13_bias[:, r].double()) for r in rows]
    method = PlainExperts(SimpleNamespace(activation=layer.activation, has_bias=True))
    method.process_weights_after_loading(layer)
    x, ids = torch.randn(tokens, size).half(), torch.rand(tokens, experts).argsort(1)[:, :each]
    shares = torch.rand(tokens, each)
    found = compiled(lambda x, shares, ids: method.apply(layer, x, shares, ids), x, shares, ids).double()
    for token in range(tokens):
        expected, slack = torch.zeros(2, size, dtype=torch.float64)
        for share, e in zip(shares[token].double(), ids[token].tolist(), strict=True):
            g, u = gate[e] @ x[token].double() + gate_bias[e], other[e] @ x[token].double() + other_bias[e]
            unit = 2**-11 * (g.abs() + 8), 2**-11 * (u.abs() + 8)  # of the products, below 8, and with the bias
            if kind == "silu":
                h = g / (1 + (-g).exp()) * u
            else:
                g, u = g.clamp(max=LIMIT), u.clamp(-LIMIT, LIMIT) + 1
                h = u * g / (1 + (-SLOPE * g).exp())
            w, out = layer.w2_weight[e].double(), layer.w2_weight[e].double() @ h + layer.w2_bias[e].double()
            expected += share * out
            # The slope of the gate is below 1.2; four roundings of what lies between, two of what comes out.
            off = 1.2 * unit[0] * u.abs() + unit[1] * g.abs() + 2**-9 * h.abs()
            slack += share * (w.abs() @ off + 2**-10 * (out.abs() + 8))
        assert ((found[token] - expected).abs() < slack + 2**-11 * expected.abs()).all()
