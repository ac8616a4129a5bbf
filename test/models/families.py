"""Seven families of language models, tiny, from transformers' configurations with random weights: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn


@dataclass(frozen=True)
class Sizes:
    """What the families share. `window` is that of sliding attention, `experts` and `chosen` those of a mixture, `state` that of Mamba."""

    layers: int = 2
    """Of the families whose layers are all of one kind."""
    hidden: int = 64
    intermediate: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    wide_head_dim: int = 32
    """Of the families whose heads are not hidden / heads wide."""
    vocabulary: int = 128
    window: int = 8
    experts: int = 4
    chosen: int = 2
    shared: int = 96
    """Width of the expert that every token passes."""
    state_heads: int = 8
    state: int = 16
    sections: tuple[int, int, int] = (2, 3, 3)
    """Of Qwen's rotary embedding: temporal, height and width; half of `head_dim` together."""


EVEN = Sizes()
ODD = Sizes(
    hidden=72,
    intermediate=100,
    heads=3,
    kv_heads=1,
    head_dim=24,
    wide_head_dim=20,
    vocabulary=101,
    window=7,
    experts=5,
    chosen=3,
    shared=52,
    state_heads=9,
    state=12,
    sections=(2, 5, 5),
)


def _common(sizes: Sizes) -> dict[str, Any]:
    return {
        "vocab_size": sizes.vocabulary,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "max_position_embeddings": 256,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _rope(kind: str, theta: float, **others: Any) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": theta, **others}


def _llama31(sizes: Sizes) -> nn.Module:
    rope = _rope("llama3", 5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
    config = transformers.LlamaConfig(**_common(sizes), head_dim=sizes.head_dim, rms_norm_eps=1e-5, rope_parameters=rope)
    return transformers.LlamaForCausalLM(config)


def _mistral_small(sizes: Sizes) -> nn.Module:
    config = transformers.MistralConfig(
        **_common(sizes), head_dim=sizes.wide_head_dim, sliding_window=None, rope_parameters=_rope("default", 1e9)
    )
    return transformers.MistralForCausalLM(config)


def _ministral8b(sizes: Sizes) -> nn.Module:
    config = transformers.MinistralConfig(
        **_common(sizes),
        head_dim=sizes.head_dim,
        sliding_window=sizes.window,
        layer_types=["full_attention", "sliding_attention"],
        rope_parameters=_rope("default", 1e8),
    )
    return transformers.MinistralForCausalLM(config)


def _ministral14b(sizes: Sizes) -> nn.Module:
    rope = _rope(
        "yarn",
        1e6,
        factor=16.0,
        original_max_position_embeddings=64,
        max_position_embeddings=256,
        beta_fast=32.0,
        beta_slow=1.0,
        mscale=1.0,
        mscale_all_dim=1.0,
        llama_4_scaling_beta=0.1,
    )
    return transformers.Ministral3ForCausalLM(
        transformers.Ministral3Config(**_common(sizes), head_dim=sizes.wide_head_dim, rope_parameters=rope)
    )


def _qwen25vl(sizes: Sizes) -> nn.Module:
    """With a vision tower that text alone does not pass."""
    rope = _rope("default", 1e6, mrope_section=list(sizes.sections))
    tower = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "in_channels": 3,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 16,
        "out_hidden_size": sizes.hidden,
        "fullatt_block_indexes": [0],
    }
    special = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    tokens: dict[str, Any] = {name: sizes.vocabulary - 1 - k for k, name in enumerate(special)}
    config = transformers.Qwen2_5_VLConfig(text_config={**_common(sizes), "rope_parameters": rope}, vision_config=tower, **tokens)
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def _gpt_oss(sizes: Sizes) -> nn.Module:
    """Attention has sinks, which only transformers' own implementation knows."""
    rope = _rope("yarn", 1.5e5, factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=64)
    config = transformers.GptOssConfig(
        **_common(sizes),
        head_dim=sizes.head_dim,
        num_local_experts=sizes.experts,
        num_experts_per_tok=sizes.chosen,
        sliding_window=sizes.window,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters=rope,
    )
    config._attn_implementation = "eager"
    return transformers.GptOssForCausalLM(config)


def _granite4(sizes: Sizes) -> nn.Module:
    config = transformers.GraniteMoeHybridConfig(
        **_common(sizes),
        layer_types=["linear_attention", "full_attention"],
        num_local_experts=sizes.experts,
        num_experts_per_tok=sizes.chosen,
        shared_intermediate_size=sizes.shared,
        mamba_n_heads=sizes.state_heads,
        mamba_n_groups=1,
        mamba_d_state=sizes.state,
        mamba_d_head=2 * sizes.hidden // sizes.state_heads,
        mamba_d_conv=4,
        mamba_expand=2,
        mamba_chunk_size=8,
        embedding_multiplier=12.0,
        logits_scaling=6.0,
        residual_multiplier=0.22,
        attention_multiplier=0.0625,
        position_embedding_type=None,
    )
    return transformers.GraniteMoeHybridForCausalLM(config)


FAMILIES: dict[str, Callable[[Sizes], nn.Module]] = {
    "llama31": _llama31,
    "mistral_small": _mistral_small,
    "ministral8b": _ministral8b,
    "ministral14b": _ministral14b,
    "qwen25vl": _qwen25vl,
    "gpt_oss": _gpt_oss,
    "granite4": _granite4,
}


def build(family: str, sizes: Sizes = EVEN, dtype: torch.dtype = torch.float32, seed: int = 0) -> Any:
    """A model for inference with random weights of `dtype`. Buffers such as rotary frequencies stay float32, as in a checkpoint."""
    model: Any = FAMILIES[family](sizes)
    if hasattr(model.config.get_text_config(), "num_local_experts"):
        model.set_experts_implementation("batched_mm")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            mean, deviation = (1.0, 0.05) if parameter.dim() == 1 else (0.0, 0.05)
            values = torch.randn(parameter.shape, generator=generator) * deviation + mean
            parameter.data = values.to(dtype)
    return model.eval()
