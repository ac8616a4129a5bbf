"""A language model on the device: the bits of the host, weights and cache that stay where they are."""

import copy
from collections import Counter
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

from ktir import config
from ktir.runtime import metrics
from ktir.runtime.memory.card import card

PROMPT, STEPS = 8, 4


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 256}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, max_position_embeddings=128)).half().eval()


def decode(llama: LlamaForCausalLM, device: str, **options: Any) -> tuple[list[torch.Tensor], list[list[Any]]]:
    """Logits of a prompt and of some greedy steps, and what was moved in each."""
    cache = StaticCache(config=llama.config, max_cache_len=32)
    compiled = torch.compile(llama, dynamic=False, **options)
    tokens = torch.arange(PROMPT)[None].to(device)
    logits, moved = [], []
    for k in range(STEPS + 1):
        first = PROMPT + k - 1 if k else 0
        places = torch.arange(first, first + tokens.shape[1], device=device)
        steps: list[Any] = []
        card(0).observers.append(steps.append)
        found = compiled(input_ids=tokens, past_key_values=cache, cache_position=places).logits
        card(0).observers.remove(steps.append)
        moved.append(steps)
        logits.append(found.cpu())
        tokens = logits[-1][:, -1:].argmax(-1).to(device)
    return logits, moved


def test_decoding_stays_on_the_card() -> None:
    llama = model()
    with torch.no_grad(), config.patch(fallback="error"):
        expected, _ = decode(llama, "cpu", backend="spyre")
        ours = copy.deepcopy(llama).to("spyre")
        with metrics.counted() as launches:
            got, moved = decode(ours, "spyre")
    assert launches().chip == STEPS + 1
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    for steps in moved[2:]:
        kinds = Counter(step.kind for step in steps)
        assert kinds["Compute"] == kinds["Relayout"] == 1, "the token alone is arranged for the program"
        assert set(kinds) <= {"Compute", "Relayout", "H2D", "HostCompute"}, "nothing comes back"
        assert all(step.nbytes <= 2048 for step in steps if step.kind != "Compute"), "a few sticks, and the addresses"
