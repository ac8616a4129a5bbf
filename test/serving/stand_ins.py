# pyright: reportMissingImports=false
"""What stands where vLLM's own tests name models of a hub: configurations where they read the dimensions alone, else tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiny_kinds import make_kind

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "meta-llama/Meta-Llama-3-8B": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
        "vocab_size": 128256,
        "dtype": "bfloat16",
    },
    "microsoft/Phi-tiny-MoE-instruct": {
        "architectures": ["PhiMoEForCausalLM"],
        "model_type": "phimoe",
        "hidden_size": 4096,
        "intermediate_size": 448,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "sliding_window": 2047,
        "max_position_embeddings": 4096,
        "vocab_size": 32064,
        "dtype": "bfloat16",
    },
    "google/embeddinggemma-300m": {
        "architectures": ["Gemma3TextModel"],
        "model_type": "gemma3_text",
        "hidden_size": 768,
        "intermediate_size": 1152,
        "num_hidden_layers": 24,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "sliding_window": 512,
        "use_bidirectional_attention": True,
        "max_position_embeddings": 2048,
        "vocab_size": 262144,
        "dtype": "float32",
    },
}


def redirections(folder: Path, names: set[str]) -> Path:
    """Make what stands for these names, and the file by which vLLM finds it (VLLM_MODEL_REDIRECT_PATH)."""
    found = {}
    for name in sorted(names):
        place = folder / name.replace("/", "--")
        place.mkdir(parents=True, exist_ok=True)
        if name in CONFIGURATIONS:
            (place / "config.json").write_text(json.dumps(CONFIGURATIONS[name]))
        elif not (place / "model.safetensors").exists():
            make_kind(name, place)
        found[name] = str(place)
    (folder / "models.json").write_text(json.dumps(found))
    return folder / "models.json"
