"""Answers that are transformers', that part from them where a number format leaves a doubt, and wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from ktir.perf.judged import Judged, judged

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 96}
PROMPT, NEW = [5, 9, 30, 41, 8, 17], 6


def llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, intermediate_size=128))


def of_experts() -> Any:
    config = transformers.GraniteMoeHybridConfig(
        **SIZES, intermediate_size=64, shared_intermediate_size=64, num_local_experts=4, num_experts_per_tok=2,
        layer_types=["full_attention"] * 2, position_embedding_type=None,
    )  # fmt: skip
    return transformers.GraniteMoeHybridForCausalLM(config)


def saved(model: Any, folder: Path) -> tuple[Any, str]:
    """In float16, with what it was made to, and weights as large as that logits stand apart."""
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(4 if p.dim() > 1 else 1)
    model.half().save_pretrained(folder)
    return type(model).from_pretrained(folder, dtype=torch.float32).eval(), str(folder)


def greedy(model: Any, count: int) -> list[int]:
    given = torch.tensor([PROMPT])
    found = model.generate(
        given, attention_mask=torch.ones_like(given), max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    return found[0, len(PROMPT) :].tolist()


@torch.no_grad()
def least_likely(model: Any, behind: list[int]) -> int:
    return int(model(torch.tensor([behind])).logits[0, -1].argmin())


def test_answers_are_told_apart(tmp_path: Path) -> None:
    """A word that has the weights of the best one is as good as that one; the least likely word is wrong, wherever it comes."""
    torch.manual_seed(0)
    made = llama()
    best = greedy(saved(made, tmp_path / "before")[0], 1)[0]
    twin = SIZES["vocab_size"] - 1
    with torch.no_grad():
        made.lm_head.weight[twin] = made.lm_head.weight[best]
    made.half().save_pretrained(tmp_path / "model")
    model, folder = type(made).from_pretrained(tmp_path / "model", dtype=torch.float32).eval(), str(tmp_path / "model")
    right = greedy(model, NEW)
    assert right[0] == best != twin
    wrong = [least_likely(model, PROMPT), *right[1:]]
    late = [*right[:-1], least_likely(model, PROMPT + right[:-1])]
    assert judged(folder, [(PROMPT, right)], torch.float16) == Judged(1, 0, 0)
    assert judged(folder, [(PROMPT, [twin])], torch.float16) == Judged(0, 1, 0)
    assert judged(folder, [(PROMPT, wrong), (PROMPT, late)], torch.float16) == Judged(0, 0, 2)
    assert (
        judged(folder, [(PROMPT, x) for x in (right, [twin], wrong)], torch.float16)
        .line()
        .endswith("equal 33.3%, doubted 33.3%, wrong 33.3%")
    )


@pytest.mark.parametrize("alike", [True, False])
def test_experts_that_are_chosen_alike_are_a_doubt(alike: bool, tmp_path: Path) -> None:
    """Whatever token comes behind a choice among experts whose routers are equal; behind a clear choice it is wrong."""
    torch.manual_seed(1)
    made = of_experts()
    with torch.no_grad():
        for name, p in made.named_parameters():
            if "router" in name:
                p.copy_(p[:1].expand_as(p) if alike else torch.randn_like(p))
    model, folder = saved(made, tmp_path)
    assert judged(folder, [(PROMPT, greedy(model, 1))], torch.float16) == Judged(1, 0, 0)
    answer = [least_likely(model, PROMPT)]
    assert judged(folder, [(PROMPT, answer)], torch.float16) == (Judged(0, 1, 0) if alike else Judged(0, 0, 1))
