"""Tiny models with random weights and a tokenizer, made here."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = 24
WORDS = 512
"""Of the tokenizer, before those that a family adds."""
PATCH = 14
VISION = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "vision_start_token": "<|vision_start|>",
    "vision_end_token": "<|vision_end|>",
}
EXPERTS = {"num_local_experts": 12, "num_experts_per_tok": 2}
"""As many that one token of each of four sequences does not choose all of them, and sixteen might."""


def _yarn(**others: Any) -> dict[str, Any]:
    return {"rope_type": "yarn", "rope_theta": 1e6, "beta_fast": 32.0, "beta_slow": 1.0, **others}


def _llama(sizes: dict[str, Any]) -> Any:
    rope = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    config = transformers.LlamaConfig(**sizes, rope_parameters={**rope, "original_max_position_embeddings": 64})
    return transformers.LlamaForCausalLM(config)


def _mistral(sizes: dict[str, Any]) -> Any:
    return transformers.MistralForCausalLM(transformers.MistralConfig(**sizes, head_dim=64, sliding_window=WINDOW))


def _ministral(sizes: dict[str, Any]) -> Any:
    """With what transformers reads and, of the same meaning, what vLLM takes from the publisher's own form of configuration."""
    trained, beta = 64, 0.1
    rope = _yarn(factor=4.0, original_max_position_embeddings=trained, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=beta)
    config = transformers.Ministral3Config(**sizes, head_dim=64, rope_parameters={**rope, "apply_yarn_scaling": False})
    config.llama_4_scaling = {"original_max_position_embeddings": trained, "beta": beta}
    return transformers.Ministral3ForCausalLM(config)


def _qwen2(sizes: dict[str, Any]) -> Any:
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes))


def _qwen2_5_vl(sizes: dict[str, Any]) -> Any:
    """One layer of the tower attends in windows, the other to all of an image."""
    vision = {
        "depth": 2,
        "hidden_size": 128,
        "intermediate_size": 192,
        "num_heads": 2,
        "fullatt_block_indexes": [1],
        "out_hidden_size": 256,
    }
    patches = {"patch_size": PATCH, "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 4 * PATCH}
    numbers = {f"{name}_id": sizes["vocab_size"] - len(VISION) + i for i, name in enumerate(VISION)}
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]}
    text = {**sizes, "rope_parameters": rope, "tie_word_embeddings": False}
    config = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision | patches, tie_word_embeddings=False, **numbers)
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def _gpt_oss(sizes: dict[str, Any]) -> Any:
    rope = _yarn(factor=4.0, original_max_position_embeddings=64, truncate=False)
    config = transformers.GptOssConfig(
        **sizes, **EXPERTS, head_dim=64, sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"], rope_parameters=rope
    )
    config._attn_implementation = "eager"
    return transformers.GptOssForCausalLM(config)


def _granite(sizes: dict[str, Any]) -> Any:
    config = transformers.GraniteMoeHybridConfig(
        **sizes,
        **EXPERTS,
        layer_types=["linear_attention", "full_attention"],
        shared_intermediate_size=192,
        mamba_n_heads=8,
        mamba_n_groups=1,
        mamba_d_state=16,
        mamba_d_head=64,
        mamba_d_conv=4,
        mamba_expand=2,
        mamba_chunk_size=16,
        embedding_multiplier=12.0,
        logits_scaling=6.0,
        residual_multiplier=0.22,
        attention_multiplier=0.125,
        position_embedding_type=None,
    )
    return transformers.GraniteMoeHybridForCausalLM(config)


FAMILIES = {
    "llama": _llama,
    "mistral": _mistral,
    "ministral": _ministral,
    "qwen2": _qwen2,
    "qwen2_5_vl": _qwen2_5_vl,
    "gpt_oss": _gpt_oss,
    "granite": _granite,
}
TEMPLATE = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"


def tokenizer() -> Any:
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    special = ["<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    text = [Path(torch.__file__).read_text(encoding="utf-8")[:20000]]
    found.train_from_iterator(text, trainers.BpeTrainer(vocab_size=WORDS, special_tokens=special, initial_alphabet=alphabet))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=found, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    fast.chat_template = TEMPLATE
    return fast


def make(family: str, folder: Path) -> str:
    """Write a family's tiny model in float16 to a folder. Its weights are large and some words louder than others, so that the best token
    stands apart from the second; no bias is zero. Of experts the first has most of the say: which comes last may be a near tie.
    """
    fast = tokenizer()
    if family == "qwen2_5_vl":
        fast.add_special_tokens({"additional_special_tokens": list(VISION.values())})
        images = transformers.Qwen2VLImageProcessor(patch_size=PATCH, merge_size=2, min_pixels=16 * PATCH**2, max_pixels=256 * PATCH**2)
        videos = transformers.Qwen2VLVideoProcessor(patch_size=PATCH, merge_size=2, max_pixels=256 * PATCH**2)
        transformers.Qwen2_5_VLProcessor(images, fast, videos, TEMPLATE).save_pretrained(folder)
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    model = FAMILIES[family]({**SIZES, "vocab_size": len(fast)})
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.add_(torch.randn_like(p) * 0.1)
            else:
                p.mul_(16 if "router" in name else 4)
        words = model.get_output_embeddings().weight
        words.mul_((torch.randn(len(words), 1) * 0.35).exp())
    model.to(torch.float16).save_pretrained(folder)
    return str(folder)


def make_encoder(folder: Path) -> str:
    """A tiny BERT whose embedding of a text is the mean over its tokens, of length one, as sentence-transformers lays such models out."""
    fast = tokenizer()
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
    model = transformers.BertModel(transformers.BertConfig(vocab_size=len(fast), **sizes))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(4) if p.dim() == 2 else p.add_(torch.randn_like(p) * 0.1)
    model.to(torch.float16).save_pretrained(folder)
    parts = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    kinds = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"} for i, (path, kind) in enumerate(parts)
    ]
    (folder / "modules.json").write_text(json.dumps(kinds))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 128, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return str(folder)
