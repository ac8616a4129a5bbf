"""Tiny models of transformers with random weights, odd sizes: each builder gives a module and the inputs of a call, batch 3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn

Case = tuple[nn.Module, tuple[Any, ...]]
"""A module and the inputs of a call."""

BATCH = 3
VOCABULARY = 101
_LANGUAGE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 36,
    "intermediate_size": 50,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": 64,
}


def noise(*shape: int, seed: int = 2) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def tokens(length: int, *, rows: int = BATCH, below: int = VOCABULARY, seed: int = 3) -> torch.Tensor:
    return torch.randint(3, below, (rows, length), generator=torch.Generator().manual_seed(seed))


class Field(nn.Module):
    """One tensor of what a model returns: the first of `names` that it has."""

    def __init__(self, model: nn.Module, *names: str, **always: Any) -> None:
        super().__init__()
        self.model, self.names, self.always = model, names, always

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(*inputs, **self.always), self.names[0])


class Masked(Field):
    """With a mask of ones and zeros as second input."""

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        ids, mask = inputs
        return getattr(self.model(input_ids=ids, attention_mask=mask, **self.always), self.names[0])


def _padding(length: int) -> torch.Tensor:
    """Rows of different lengths, filled up on the right."""
    return (torch.arange(length) < torch.tensor([length, length - 2, length - 5])[:, None]).long()


def _gpt2() -> Case:
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=36, n_layer=2, n_head=3, n_positions=64)
    return Field(transformers.GPT2LMHeadModel(config), "logits", use_cache=False), (tokens(9),)


def _bert() -> Case:
    model = transformers.BertModel(transformers.BertConfig(**_LANGUAGE))
    return Masked(model, "last_hidden_state"), (tokens(11), _padding(11))


class _Sequences(Field):
    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        ids, decoder_ids = inputs
        return self.model(input_ids=ids, decoder_input_ids=decoder_ids, use_cache=False).logits


def _t5() -> Case:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=36, d_kv=12, d_ff=50, num_layers=2, num_decoder_layers=2, num_heads=3, decoder_start_token_id=0
    )
    return _Sequences(transformers.T5ForConditionalGeneration(config), "logits"), (tokens(11), tokens(5, seed=4))


def _opt() -> Case:
    config = transformers.OPTConfig(
        vocab_size=VOCABULARY,
        hidden_size=36,
        ffn_dim=50,
        num_hidden_layers=2,
        num_attention_heads=3,
        max_position_embeddings=64,
        word_embed_proj_dim=36,
    )
    return Masked(transformers.OPTForCausalLM(config), "logits", use_cache=False), (tokens(9), torch.ones(BATCH, 9, dtype=torch.long))


def _phi() -> Case:
    return Field(transformers.PhiForCausalLM(transformers.PhiConfig(**_LANGUAGE)), "logits", use_cache=False), (tokens(9),)


def _gemma2() -> Case:
    config = transformers.Gemma2Config(**_LANGUAGE, num_key_value_heads=1, head_dim=12, sliding_window=5, query_pre_attn_scalar=12)
    return Field(transformers.Gemma2ForCausalLM(config), "logits", use_cache=False), (tokens(9),)


def _llama() -> Case:
    config = transformers.LlamaConfig(**_LANGUAGE, num_key_value_heads=1)
    return Field(transformers.LlamaForCausalLM(config), "logits", use_cache=False), (tokens(13),)


# The experts of eager transformers are grouped matmuls of PyTorch, which want rows of whole 16 bytes.
_EXPERTS = {**_LANGUAGE, "hidden_size": 48, "intermediate_size": 56}


def _mixtral() -> Case:
    config = transformers.MixtralConfig(**_EXPERTS, num_key_value_heads=1, num_local_experts=5, num_experts_per_tok=2)
    return Field(transformers.MixtralForCausalLM(config), "logits", use_cache=False), (tokens(7),)


def _qwen2_moe() -> Case:
    config = transformers.Qwen2MoeConfig(
        **_EXPERTS,
        num_key_value_heads=1,
        num_experts=5,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        shared_expert_intermediate_size=56,
        decoder_sparse_step=1,
    )
    return Field(transformers.Qwen2MoeForCausalLM(config), "logits", use_cache=False), (tokens(7),)


def _mamba() -> Case:
    config = transformers.MambaConfig(vocab_size=VOCABULARY, hidden_size=36, state_size=8, num_hidden_layers=2, time_step_rank=3)
    return Field(transformers.MambaForCausalLM(config), "logits", use_cache=False), (tokens(9),)


def _whisper_encoder() -> Case:
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=36,
        encoder_layers=2,
        encoder_attention_heads=3,
        encoder_ffn_dim=50,
        decoder_layers=1,
        decoder_attention_heads=3,
        num_mel_bins=20,
        max_source_positions=15,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return Field(transformers.WhisperModel(config).get_encoder(), "last_hidden_state"), (noise(BATCH, 20, 30),)


def _vit() -> Case:
    config = transformers.ViTConfig(
        hidden_size=36, intermediate_size=50, num_hidden_layers=2, num_attention_heads=3, image_size=20, patch_size=4
    )
    return Field(transformers.ViTModel(config, add_pooling_layer=False), "last_hidden_state"), (noise(BATCH, 3, 20, 20),)


class _TwoTowers(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, pixels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, pixel_values=pixels, attention_mask=mask).logits_per_image


def _clip() -> Case:
    shared = {"hidden_size": 36, "intermediate_size": 50, "num_hidden_layers": 2, "num_attention_heads": 3}
    text = {**shared, "vocab_size": VOCABULARY, "max_position_embeddings": 16, "eos_token_id": VOCABULARY - 1}
    config = transformers.CLIPConfig(text_config=text, vision_config={**shared, "image_size": 20, "patch_size": 4}, projection_dim=28)
    pairs = 9  # 81 results: how far eager is off is measured, and of 9 results it is a matter of luck, that is, of the host's processor
    ids = tokens(7, rows=pairs, below=VOCABULARY - 1)
    ids[:, -1] = VOCABULARY - 1
    return _TwoTowers(transformers.CLIPModel(config)), (ids, noise(pairs, 3, 20, 20), torch.ones(pairs, 7, dtype=torch.long))


def _swin() -> Case:
    config = transformers.SwinConfig(
        image_size=32, patch_size=2, embed_dim=12, depths=[2, 2], num_heads=[2, 3], window_size=4, mlp_ratio=2.0
    )
    return Field(transformers.SwinModel(config), "last_hidden_state"), (noise(BATCH, 3, 32, 32),)


def _convnext() -> Case:
    config = transformers.ConvNextConfig(num_channels=3, hidden_sizes=[12, 20], depths=[1, 2], num_stages=2, image_size=32)
    return Field(transformers.ConvNextModel(config), "last_hidden_state"), (noise(BATCH, 3, 32, 32),)


def _resnet18() -> Case:
    config = transformers.ResNetConfig(
        embedding_size=9, hidden_sizes=[9, 14, 20, 28], depths=[2, 2, 2, 2], layer_type="basic", num_labels=11
    )
    return Field(transformers.ResNetForImageClassification(config), "logits"), (noise(BATCH, 3, 33, 33),)


MODELS: dict[str, Callable[[], Case]] = {
    "gpt2": _gpt2,
    "bert": _bert,
    "t5": _t5,
    "opt": _opt,
    "phi": _phi,
    "gemma2": _gemma2,
    "llama": _llama,
    "mixtral": _mixtral,
    "qwen2_moe": _qwen2_moe,
    "mamba": _mamba,
    "whisper_encoder": _whisper_encoder,
    "vit": _vit,
    "clip": _clip,
    "swin": _swin,
    "convnext": _convnext,
    "resnet18": _resnet18,
}
