"""Models of real sizes in small: what they compute is what transformers' models do, and what their caches hold."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import nn

from ktir.diagnostics import KtirError
from ktir.perf.modelled import _layers, _logits, bound, measure
from ktir.perf.models import E4M3, NarrowLinear, _experts, _in_parts, cache_of, configured, kept_bytes, model_of, on_host
from ktir.perf.plan import Case
from ktir.target import DATASHEET

SIZES = {
    "hidden_size": 256,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "tie_word_embeddings": False,
}
EXPERTS = {"num_local_experts": 6, "num_experts_per_tok": 2}
HYBRID = {
    **SIZES,
    **EXPERTS,
    "family": "granitemoehybrid",
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "shared_intermediate_size": 64,
    "mamba_n_heads": 8,
    "mamba_n_groups": 1,
    "mamba_d_state": 64,
    "mamba_d_head": 64,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 16,
}
WINDOWS = {**SIZES, **EXPERTS, "family": "gpt_oss", "head_dim": 64, "sliding_window": 16}
SEEING = {
    "family": "qwen2_5_vl",
    "text_config": {**SIZES, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]}},
    "vision_config": {"depth": 1, "hidden_size": 64, "num_heads": 2, "out_hidden_size": 256},
}


def test_a_linear_layer_of_bytes() -> None:
    """Each operand is off by a sixteenth of itself at most, and no product by more than both: three bits of fraction, and a scale."""
    torch.manual_seed(0)
    layer, exact, x = NarrowLinear(64, 128, torch.randn(128).half()), torch.randn(128, 64).double(), torch.randn(2, 3, 64).half()
    scale = exact.abs().amax(1) / 448
    layer.weight = nn.Parameter((exact / scale[:, None]).to(E4M3), requires_grad=False)
    layer.scale = nn.Parameter(scale.float()[None], requires_grad=False)
    assert isinstance(layer.bias, nn.Parameter)
    expected = nn.functional.linear(x.double(), exact, layer.bias.double())
    most = nn.functional.linear(x.double().abs(), exact.abs()) * (17 / 16 * 17 / 16 - 1) + expected.abs() * 2**-10 + 2**-9
    assert ((layer(x).double() - expected).abs() <= most).all()


@pytest.mark.parametrize("family", ["gpt_oss", "granitemoehybrid"])
@pytest.mark.parametrize("tokens", [2, 5])
def test_experts_are_those_of_transformers(family: str, tokens: int) -> None:
    """Two tokens choose fewer than there are, five more; weights lie in several parts."""
    torch.manual_seed(0)
    config = {"gpt_oss": WINDOWS, "granitemoehybrid": HYBRID}[family]
    made = transformers.AutoConfig.for_model(family, **{k: v for k, v in config.items() if k != "family"})
    model: Any = transformers.AutoModelForCausalLM.from_config(made, dtype=torch.float64)
    layer = next(m for m in model.modules() if hasattr(m, "gate_up_proj") and hasattr(m, "down_proj"))
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.1)
    model.set_experts_implementation("eager")
    x, ids = torch.randn(tokens, 256).double(), torch.rand(tokens, 6).argsort(1)[:, :2]
    weights = torch.rand(tokens, 2).double()
    with torch.no_grad():
        expected = layer(x, ids, weights)
        _in_parts(model, layer.down_proj.numel() * 4)
        assert len(layer.gate_up_proj) > 1
        assert len(layer.down_proj) > 1
        torch.testing.assert_close(_experts(layer, x, ids, weights), expected)


@torch.no_grad()
@pytest.mark.parametrize("config", [HYBRID, WINDOWS, SEEING], ids=lambda config: config["family"])
def test_a_cache_has_what_a_step_looks_back_on(config: dict[str, Any]) -> None:
    """A decoder with values goes on from it; bytes of it are counted."""
    case = Case("tiny", config, "float16", 2, 1, 32)
    decoder, _ = model_of(case)
    cache = cache_of(case, decoder)
    attention = 2 * 2 * 2 * 64 * 2  # keys and values, of two sequences, heads of keys, size, bytes
    wide = {t.itemsize for layer in cache.layers for t in getattr(layer, "recurrent_states", {}).values()}
    expected = {
        "granitemoehybrid": 31 * attention + 2 * (8 * 64 * 64 * max(wide, default=0) + (512 + 128) * 4 * 2),
        "gpt_oss": 2 * (31 + 16) * attention,
        "qwen2_5_vl": 4 * 31 * attention,
    }
    assert kept_bytes(cache, 31) == expected[config["family"]]
    assert kept_bytes(cache, 0) == 0
    decoder.to_empty(device="cpu")
    for parameter in decoder.parameters():
        nn.init.normal_(parameter, std=0.02)
    held = on_host(cache, 31)
    assert {getattr(layer, "cumulative_length_int", 31) for layer in held.layers} == {31}
    found = decoder(
        inputs_embeds=torch.randn(2, 1, 256).half(), position_ids=torch.full((2, 1), 31), past_key_values=held, use_cache=True
    ).last_hidden_state
    assert found.shape == (2, 1, 256)
    assert {t.device.type for layer in held.layers for t in vars(layer).values() if isinstance(t, torch.Tensor)} <= {"cpu"}


@pytest.mark.turn
@pytest.mark.parametrize("tokens", [1, pytest.param(20, marks=pytest.mark.long)])
@pytest.mark.parametrize("config", [HYBRID, pytest.param(SEEING, marks=pytest.mark.long)], ids=lambda config: config["family"])
def test_families_are_measured(config: dict[str, Any], tokens: int) -> None:
    row = measure(Case("tiny", config, "float16", 1, tokens, 32 if tokens == 1 else tokens))
    assert 0 < row.bound < row.ms


@pytest.mark.turn
@pytest.mark.parametrize("tokens", [1, pytest.param(64, marks=pytest.mark.long)])
def test_a_window_that_holds_all_takes_what_attention_without_one_takes(tokens: int) -> None:
    """Its cache says with a number of Python's how far it is filled, by which keys that nobody has written are not loaded."""
    config = {**SIZES, "num_hidden_layers": 2, "num_key_value_heads": 4, "head_dim": 64, "sliding_window": 4096}
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6}
    context = 1024 if tokens == 1 else tokens
    windowed, plain = (
        measure(Case("tiny", {**config, **more}, "float16", 1, tokens, context))
        for more in ({"family": "ministral"}, {"family": "mistral", "sliding_window": None})
    )
    assert windowed.bound == plain.bound < windowed.ms
    assert windowed.ms == pytest.approx(plain.ms, rel=0.1)


@pytest.mark.long
@pytest.mark.parametrize("tokens", [1, 16])
def test_layers_of_several_kinds_tell_a_large_model(tokens: int) -> None:
    """Against all five layers compiled as one program."""
    kinds = ("linear_attention", "full_attention", "linear_attention", "linear_attention", "full_attention")
    case = Case("tiny", {**HYBRID, "num_hidden_layers": 5, "layer_types": list(kinds)}, "float16", 1, tokens, 32)
    whole = _layers(case, kinds).cycles + _logits(512, 256, torch.float16, 1).cycles
    assert measure(case).ms == pytest.approx(DATASHEET.microseconds(whole) / 1e3, rel=0.02)


@pytest.mark.long
def test_bytes_halve_what_bounds_a_step() -> None:
    config = {**SIZES, "family": "llama", "intermediate_size": 1024}
    one, two = (Case("tiny", config, dtype, 1, 1, 32) for dtype in ("float8", "float16"))
    products, scales = 4 * (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 1024), 4 * (2 * 256 + 2 * 128 + 2 * 1024 + 256)
    assert bound(two) - bound(one) == pytest.approx((products - 4 * scales) / 204.8e6)
    assert bound(one) < measure(one).ms < measure(two).ms


def test_what_is_no_language_model() -> None:
    with pytest.raises(KtirError, match="transformers has no language model of the family 'clip_vision_model'"):
        model_of(Case("tiny", {"family": "clip_vision_model"}, "float16", 1, 1, 32))
    with pytest.raises(KtirError, match="the configuration of 'tiny'"):
        configured(Case("tiny", {"family": "nonesuch"}, "float16", 1, 1, 32))
