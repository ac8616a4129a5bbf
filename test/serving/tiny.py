"""Tiny models with random weights and a tokenizer, made here."""

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
    "bos_token_id": 1,
    "eos_token_id": 2,
}
FAMILIES = {
    "llama": lambda **sizes: transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)),
    "mistral": lambda **sizes: transformers.MistralForCausalLM(transformers.MistralConfig(head_dim=64, sliding_window=24, **sizes)),
}
TEMPLATE = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"


def tokenizer() -> Any:
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    special = ["<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    text = [Path(torch.__file__).read_text(encoding="utf-8")[:20000]]
    found.train_from_iterator(text, trainers.BpeTrainer(vocab_size=512, special_tokens=special, initial_alphabet=alphabet))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=found, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    fast.chat_template = TEMPLATE
    return fast


def make(family: str, folder: Path) -> str:
    """Write a family's tiny model in float16 to a folder; its weights are large, so that the best token stands apart from the second."""
    fast = tokenizer()
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    model = FAMILIES[family](vocab_size=len(fast), **SIZES)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 2:
                p.mul_(4)
    model.to(torch.float16).save_pretrained(folder)
    return str(folder)
