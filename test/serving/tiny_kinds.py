# pyright: reportMissingImports=false
"""Tiny models with random weights, of the kinds of models of a hub that vLLM's own tests of generation name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from tiny import SIZES, WORDS, tokenizer

GPT = {"n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 512, "n_inner": 512}
GEMMA = {"head_dim": 64, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bigscience/bloom-560m": ("bloom", {"n_layer": 2, "n_head": 4}),
    "openai-community/gpt2": ("gpt2", GPT),
    "Milos/slovak-gpt-j-405M": ("gptj", {**GPT, "rotary_dim": 32}),
    "EleutherAI/pythia-70m": ("gpt_neox", {}),
    "google/gemma-1.1-2b-it": ("gemma", GEMMA),
    "google/gemma-2-2b-it": ("gemma2", {**GEMMA, "sliding_window": 32, "query_pre_attn_scalar": 64}),
    "meta-llama/Llama-3.2-1B-Instruct": ("llama", {}),
    "bigcode/tiny_starcoder_py": ("gpt_bigcode", {**GPT, "multi_query": True, "num_key_value_heads": 1}),
    "facebook/opt-125m": ("opt", {"ffn_dim": 512, "word_embed_proj_dim": 256}),
    "microsoft/phi-2": ("phi", {"intermediate_size": 1024, "num_key_value_heads": 4, "partial_rotary_factor": 0.5}),
    "Qwen/Qwen2.5-0.5B-Instruct": ("qwen2", {"tie_word_embeddings": True}),
    "Qwen/Qwen3-8B": ("qwen3", {"head_dim": 64}),
    "stabilityai/stablelm-3b-4e1t": ("stablelm", {"num_key_value_heads": 4, "partial_rotary_factor": 0.25}),
    "bigcode/starcoder2-3b": ("starcoder2", {"sliding_window": 32, "hidden_act": "gelu_pytorch_tanh"}),
    "TitanML/tiny-mixtral": ("mixtral", {"num_local_experts": 8, "num_experts_per_tok": 2}),
    "swiss-ai/Apertus-8B-Instruct-2509": ("apertus", {"head_dim": 64, "dtype": torch.bfloat16}),
    "naver-hyperclovax/HyperCLOVAX-SEED-Think-14B": ("hyperclovax", {"head_dim": 64}),
}
"""By name of the hub: `model_type` of transformers, and what its configuration has beside the sizes of ours. Float16, unless it says
otherwise: what vLLM's own layer for Apertus computes with is bfloat16."""


def make_kind(name: str, folder: Path) -> str:
    """Write the model that stands for `name` to a folder."""
    kind, others = KINDS[name]
    fast = tokenizer()
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **SIZES | {"vocab_size": WORDS, "dtype": torch.float16} | others)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(4) if p.dim() > 1 else p.add_(torch.randn_like(p) * 0.1)
    model.to(config.dtype).save_pretrained(folder)
    return str(folder)
