# pyright: reportMissingImports=false, reportOptionalMemberAccess=false
"""Greedy generation through vLLM against transformers: all of it on the chip, nothing compiled after the start."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tiny import FAMILIES, expected, make
from torch._dynamo.utils import counters
from vllm import LLM, SamplingParams

from ktir.vllm import upstream

PROMPTS = [
    "import torch",
    "def forward(self, x):\n    return",
    "class",
    "for name, value in items: print(name, value) and so on " * 2 + "x y z w",  # more tokens than a step takes
    "a b c d e f g",
    "x",
]
TOKENS = 32
SHARED = [7 + i for i in range(48)]  # three pages


def engine(folder: str, **options: Any) -> LLM:
    return LLM(folder, dtype="float16", max_model_len=128, max_num_seqs=4, block_size=16, max_num_batched_tokens=64, seed=0, **options)


def runner(llm: LLM) -> Any:
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner


@pytest.fixture(scope="module", params=list(FAMILIES))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, LLM]:
    folder = make(request.param, tmp_path_factory.mktemp("model"))
    return folder, engine(folder)


def generated(llm: LLM, prompts: list[Any], count: int) -> list[Any]:
    return llm.generate(prompts, SamplingParams(temperature=0, max_tokens=count, ignore_eos=True), use_tqdm=False)


def test_names_of_vllm_are_there() -> None:
    assert [f"{module}.{name}" for name, module in upstream.MODULE_OF.items() if not hasattr(import_module(module), name)] == []


def test_tokens_are_those_of_transformers(served: tuple[str, LLM]) -> None:
    """Six requests on four seats, one of them a prompt that comes in chunks."""
    folder, llm = served
    compiled, runs, launches = counters["stats"]["unique_graphs"], runner(llm).runs.total(), runner(llm).launches
    assert len(runner(llm).runs) + 1 <= 8
    found = generated(llm, PROMPTS, TOKENS)
    assert counters["stats"]["unique_graphs"] == compiled
    assert runner(llm).launches - launches > runner(llm).runs.total() - runs > TOKENS  # those of the logits, too
    assert max(len(out.prompt_token_ids) for out in found) > 64
    for out in found:
        tokens, margin = expected(folder, out.prompt_token_ids, TOKENS)
        assert list(out.outputs[0].token_ids) == tokens, margin


def test_prefixes_are_taken_from_the_cache(served: tuple[str, LLM]) -> None:
    folder, llm = served
    prompts = [{"prompt_token_ids": [*SHARED, 100 + i]} for i in range(2)]
    first, second = (generated(llm, [prompt], 4)[0] for prompt in prompts)
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 48)
    for out in (first, second):
        assert list(out.outputs[0].token_ids) == expected(folder, out.prompt_token_ids, 4)[0]


def test_a_preempted_sequence_goes_on_where_it_was(tmp_path: Path) -> None:
    """Four sequences of five pages on a cache of eleven."""
    folder = make("llama", tmp_path)
    llm = engine(folder, num_gpu_blocks_override=12, enable_prefix_caching=False)
    stats = llm.llm_engine.engine_core.engine_core.scheduler
    preempted = 0
    stock = stats._preempt_request

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal preempted
        preempted += 1
        return stock(*args, **kwargs)

    stats._preempt_request = counted
    found = generated(llm, [{"prompt_token_ids": [20 + i] * 40} for i in range(4)], TOKENS)
    assert preempted
    for out in found:
        assert list(out.outputs[0].token_ids) == expected(folder, out.prompt_token_ids, TOKENS)[0]


def test_eager_and_compiled_are_one_model(tmp_path: Path) -> None:
    """`enforce_eager` leaves the chip out."""
    llm = engine(make("llama", tmp_path), enforce_eager=True)
    generated(llm, ["x"], 2)
    assert runner(llm).launches == 0
