# pyright: reportMissingImports=false
"""Adapters of low rank beside the model that they belong to: the tokens are those of the model with the adapter merged into its weights."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
import transformers
from loopback import serve
from oracle import oracle
from safetensors.torch import save_file
from test_generate import engine, greedy, nothing_compiled
from tiny import make
from torch import nn
from vllm import LLM
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.lora.request import LoRARequest

RANK, ALPHA = 4, 12
TOKENS = 32
LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
KINDS: dict[str, tuple[str, ...]] = {"all": LAYERS, "few": ("v_proj", "down_proj"), "ends": ("q_proj", "embed_tokens", "lm_head")}
"""Which layers an adapter has weights for."""


def adapter(kind: str, base: str, folder: Path) -> tuple[str, str]:
    """Write one as the library peft does, and the model into whose weights it is merged in float64."""
    draw = torch.Generator().manual_seed(len(kind))
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64)
    held = {}
    for name, module in model.named_modules():
        if name.rpartition(".")[2] not in KINDS[kind]:
            continue
        outer, inner = module.weight.shape
        a, b = ((torch.randn(*shape, generator=draw) / shape[1] ** 0.5).half() for shape in ((RANK, inner), (outer, RANK)))
        is_table = isinstance(module, nn.Embedding)  # [words, size]: the first factor belongs to words
        if is_table:
            a, b = (torch.randn(*shape, generator=draw).half() / 4 for shape in ((RANK, outer), (inner, RANK)))
        change = (a.double().T @ b.double().T) if is_table else (b.double() @ a.double())
        module.weight.data += ALPHA / RANK * change
        first, second = ("lora_embedding_A", "lora_embedding_B") if is_table else ("lora_A.weight", "lora_B.weight")
        held |= {f"base_model.model.{name}.{first}": a.contiguous(), f"base_model.model.{name}.{second}": b.contiguous()}
    place, merged = folder / kind, folder / f"{kind}-merged"
    place.mkdir()
    save_file(held, str(place / "adapter_model.safetensors"))
    said = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": list(KINDS[kind]), "bias": "none"}
    (place / "adapter_config.json").write_text(json.dumps(said))
    model.to(torch.float32).save_pretrained(merged)
    return str(place), str(merged)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, tuple[str, str]], LLM]]:
    """Folders of adapters and merged models by kind, of which "" is the model without one, and an engine with room for two of them."""
    folder = tmp_path_factory.mktemp("model")
    base = make("llama", folder / "base")
    folders = {"": ("", base)} | {kind: adapter(kind, base, folder) for kind in KINDS}
    yield folders, engine(base, enable_lora=True, max_loras=2, max_lora_rank=8)
    cleanup_dist_env_and_memory()


def asked(kind: str, folders: dict[str, tuple[str, str]]) -> LoRARequest | None:
    return LoRARequest(kind, 1 + list(KINDS).index(kind), folders[kind][0]) if kind else None


@pytest.mark.parametrize("kinds", [("", "all", "few"), ("few", "ends"), ("ends", "all", "")], ids=" ".join)
def test_tokens_are_those_of_merged_models(served: tuple[dict[str, tuple[str, str]], LLM], kinds: tuple[str, ...]) -> None:
    """Side by side in steps, some of them in chunks. Of three adapters two have room: one takes another's place. Nothing is compiled."""
    folders, llm = served
    cases = [(*case, kind) for kind in kinds for n in (5, 8, 90) for case in oracle(folders[kind][1]).fair([], n, 1, TOKENS)]
    random.Random(0).shuffle(cases)
    prompts = [{"prompt_token_ids": prompt} for prompt, _, _ in cases]
    with nothing_compiled(llm):
        found = llm.generate(prompts, greedy(TOKENS), use_tqdm=False, lora_request=[asked(kind, folders) for *_, kind in cases])
    assert [list(out.outputs[0].token_ids) for out in found] == [tokens for _, tokens, _ in cases]


def test_adapters_matter(served: tuple[dict[str, tuple[str, str]], LLM]) -> None:
    """Of one prompt, each makes other tokens; prefixes in the cache are of an adapter."""
    folders, llm = served
    prompt = {"prompt_token_ids": list(range(7, 60))}
    found = {}
    for kind in ("", "all", "few", ""):
        (out,) = llm.generate([prompt], greedy(8), use_tqdm=False, lora_request=asked(kind, folders))
        assert (out.num_cached_tokens > 0) == (kind in found)
        found.setdefault(kind, list(out.outputs[0].token_ids))
    assert len(set(map(tuple, found.values()))) == 3


def test_the_server_has_adapters(served: tuple[dict[str, tuple[str, str]], LLM], tmp_path: Path) -> None:
    """By name, as models; what it does not know is refused, and so are logarithms of prompts."""
    folders, _ = served
    options = (
        "--dtype float16 --max-model-len 128 --max-num-seqs 4 --block-size 16 --max-num-batched-tokens 64 --enable-lora --max-lora-rank 8"
    )
    prompt, tokens = oracle(folders["all"][1]).fair([], 5, 1, 8)[0]
    given: dict[str, Any] = {
        "prompt": prompt,
        "max_tokens": 8,
        "temperature": 0,
        "extra_body": {"return_token_ids": True, "ignore_eos": True},
    }
    with serve(folders[""][1], *options.split(), "--lora-modules", f"all={folders['all'][0]}", log=tmp_path / "log") as server:
        found = server.client.completions.create(model="all", **given)
        base = server.client.completions.create(model="tiny", **given)
        with pytest.raises(openai.NotFoundError):
            server.client.completions.create(model="few", **given)
        with pytest.raises(openai.BadRequestError, match="no prompt_logprobs beside LoRA"):
            server.client.completions.create(model="all", **given | {"extra_body": {"prompt_logprobs": 1}})
        again = server.client.completions.create(model="all", **given)
    assert found.choices[0].model_extra["token_ids"] == again.choices[0].model_extra["token_ids"] == tokens
    assert base.choices[0].model_extra["token_ids"] != tokens


def test_experts_have_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no LoRA for models with experts: merge the adapter"):
        engine(make("gpt_oss", tmp_path), enable_lora=True)
