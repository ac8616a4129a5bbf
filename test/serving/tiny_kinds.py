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
}
"""By name of the hub: `model_type` of transformers, and what its configuration has beside the sizes of ours."""


def make_kind(name: str, folder: Path) -> str:
    """Write the model that stands for `name` to a folder."""
    kind, others = KINDS[name]
    fast = tokenizer()
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **SIZES | {"vocab_size": WORDS} | others)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(4) if p.dim() > 1 else p.add_(torch.randn_like(p) * 0.1)
    model.to(torch.float16).save_pretrained(folder)
    return str(folder)
