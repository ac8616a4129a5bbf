# pyright: reportMissingImports=false
"""Requests of all kinds at once: several answers, seeds, penalties, stops, chunks, prefixes in the cache, preemption, and some that go."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from judge import Judge
from test_generate import engine
from tiny import WORDS, make
from vllm import SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.sampling_params import RequestOutputKind

REQUESTS = 30
OPTIONS: dict[str, dict[str, Any]] = {
    "llama": {"num_gpu_blocks_override": 9},
    "gpt_oss": {"num_gpu_blocks_override": 17},
    "granite": {"num_gpu_blocks_override": 9, "enable_prefix_caching": True},
}
"""Blocks are fewer than all seats may need."""


def words(tokenizer: Any) -> list[int]:
    """Tokens that are whole characters: of a prompt that ends within one, vLLM has what follows begin with it."""
    return [word for word in range(5, WORDS) if "\ufffd" not in tokenizer.decode([word])]


def drawn(draw: random.Random, known: list[int], shared: list[list[int]]) -> tuple[list[int], Any]:
    """A prompt of known words and what is asked for."""
    prompt = draw.choice([[], *shared]) + draw.choices(known, k=draw.choice([1, 2, 5, 15, 16, 17, 40]))
    asked: dict[str, Any] = {"max_tokens": draw.choice([1, 2, 8, 20]), "ignore_eos": draw.random() < 0.5}
    if draw.random() < 0.6:
        asked |= {"temperature": draw.choice([0.5, 1.0, 1.5]), "seed": draw.randrange(1000), "n": draw.choice([1, 1, 2, 3])}
    else:
        asked |= {"temperature": 0.0}
    extras: list[dict[str, Any]] = [
        {"logprobs": 2},
        {"frequency_penalty": 0.7, "presence_penalty": 0.4},
        {"repetition_penalty": 1.4},
        {"logit_bias": {7: 4.0, 9: -3.0}},
        {"allowed_token_ids": [7, 8, 9, 11, 13, 17]},
        {"stop": ["e", "##"]},
        {"stop_token_ids": list(range(5, 200)), "min_tokens": draw.choice([0, 3])},
    ]
    for extra in draw.sample(extras, draw.choice([0, 1, 2])):
        asked |= extra
    asked["min_tokens"] = min(asked.get("min_tokens", 0), asked["max_tokens"])
    return prompt, SamplingParams(**asked, output_kind=RequestOutputKind.FINAL_ONLY)


def answered(llm: Any, draw: random.Random, requests: list[tuple[list[int], Any]]) -> dict[int, Any]:
    """Outputs of the requests that were not given up. They come at random; one in eight goes again, before it starts or later."""
    waiting, going, done = list(enumerate(requests)), dict[int, str](), dict[int, Any]()
    while waiting or llm.llm_engine.has_unfinished_requests():
        for _ in range(draw.randint(0, 3)):
            if waiting:
                number, (prompt, asked) = waiting.pop(0)
                name = llm.llm_engine.add_request(str(number), {"prompt_token_ids": prompt}, asked.clone())
                if draw.random() < 1 / 8:
                    going[number] = name
        for out in llm.llm_engine.step():
            if out.finished:
                done[int(out.request_id.split("-")[0])] = out
        for number in [number for number in going if draw.random() < 0.3]:
            llm.llm_engine.abort_request([going.pop(number)], internal=True)
    return done


@pytest.mark.parametrize("family", list(OPTIONS))
def test_requests_of_all_kinds(family: str, tmp_path: Path) -> None:
    cleanup_dist_env_and_memory()
    folder = make(family, tmp_path)
    llm = engine(folder, **OPTIONS[family])
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    preempted, stock = [], scheduler._preempt_request
    scheduler._preempt_request = lambda request, *args, **kwargs: (preempted.append(request), stock(request, *args, **kwargs))[1]
    draw, judge = random.Random(0), Judge(folder, llm.get_tokenizer())
    known = words(llm.get_tokenizer())
    shared = [draw.choices(known, k=n) for n in (33, 50)]
    requests = [drawn(draw, known, shared) for _ in range(REQUESTS)]
    done = answered(llm, draw, requests)
    assert len(done) > REQUESTS // 2
    assert preempted
    assert any(out.num_cached_tokens for out in done.values())
    faults = [
        (number, requests[number][1], fault)
        for number, out in done.items()
        for answer in out.outputs
        for fault in judge.faults(requests[number][0], requests[number][1], answer, answer.index)
    ]
    cleanup_dist_env_and_memory()
    assert faults == []
    prompt, asked, answer = next((*requests[i], out.outputs[0]) for i, out in done.items() if len(out.outputs[0].token_ids) > 4)
    answer.token_ids[2] += 1 if answer.token_ids[2] < WORDS - 1 else -1
    assert judge.faults(prompt, asked, answer, 0), "another token would have been a fault"
    assert all(len(out.outputs) == requests[number][1].n for number, out in done.items())
