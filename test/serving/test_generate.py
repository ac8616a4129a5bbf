# pyright: reportMissingImports=false, reportOptionalMemberAccess=false
"""Greedy generation through vLLM against transformers: all of it on the chip, nothing compiled after the start."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle import ByteCache, Oracle, oracle
from safetensors.torch import load_file, save_file
from tiny import FAMILIES, make
from torch._dynamo.utils import counters
from vllm import LLM, EngineArgs, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory

from ktir import config
from ktir.vllm import upstream
from ktir.vllm.attention import PagedAttention, StepInputs
from ktir.vllm.programs import Programs, Shape

LENGTHS = [3, 8, 5, 90, 15, 4]
"""Tokens of the prompts; a step takes 64."""
TOKENS = 32
SHARED = [7 + i for i in range(32)]
"""Two pages."""
SEATS, REQUESTS = 16, 40
LOUD = 4
"""A word that no prompt has that is drawn."""
HYBRID = ("granite",)
"""Families with states, which have no prefixes in the cache."""


def engine(folder: str, **options: Any) -> LLM:
    sizes = {"max_model_len": 128, "max_num_seqs": 4, "block_size": 16, "max_num_batched_tokens": 64}
    return LLM(folder, dtype="float16", seed=0, **sizes | options)


def runner(llm: LLM) -> Any:
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner


@pytest.fixture(scope="module", params=list(FAMILIES))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, LLM]]:
    """A family, its model's folder and an engine; what vLLM keeps for one model by process goes before the next one comes."""
    folder = make(request.param, tmp_path_factory.mktemp("model"))
    yield request.param, folder, engine(folder, max_num_seqs=SEATS, enable_sleep_mode=True)
    cleanup_dist_env_and_memory()


@contextmanager
def nothing_compiled(llm: LLM) -> Iterator[None]:
    """Of each program a call is at least a launch, those of logits come on top; and no graph is new."""
    compiled, runs, launches = counters["stats"]["unique_graphs"], runner(llm).runs.total(), runner(llm).launches
    assert len(runner(llm).runs) + 1 <= 8
    yield
    assert counters["stats"]["unique_graphs"] == compiled
    assert runner(llm).launches - launches > runner(llm).runs.total() - runs > TOKENS


def greedy(count: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)


def generated(llm: LLM, prompts: list[list[int]], count: int) -> list[Any]:
    return llm.generate([{"prompt_token_ids": p} for p in prompts], greedy(count), use_tqdm=False)


def arriving(llm: LLM, prompts: list[list[int]], count: int) -> list[Any]:
    """The requests' outputs; before each step of the engine none to three of them arrive."""
    draw, waiting, done = random.Random(0), list(enumerate(prompts)), {}
    while waiting or llm.llm_engine.has_unfinished_requests():
        for _ in range(draw.randint(0, 3)):
            if waiting:
                number, prompt = waiting.pop(0)
                llm.llm_engine.add_request(str(number), {"prompt_token_ids": prompt}, greedy(count))
        done |= {int(out.request_id.split("-")[0]): out for out in llm.llm_engine.step() if out.finished}
    return [done[i] for i in range(len(prompts))]


def test_names_of_vllm_are_there() -> None:
    assert [f"{module}.{name}" for name, module in upstream.MODULE_OF.items() if not hasattr(import_module(module), name)] == []


def test_tokens_are_those_of_transformers(served: tuple[str, str, LLM]) -> None:
    """One of the prompts comes in chunks."""
    _, folder, llm = served
    cases = [oracle(folder).fair([], n, 1, TOKENS)[0] for n in LENGTHS]
    with nothing_compiled(llm):
        found = generated(llm, [prompt for prompt, _ in cases], TOKENS)
    assert oracle(folder).wrong(cases, [list(out.outputs[0].token_ids) for out in found]) == []


@pytest.mark.parametrize("prefix", [[], SHARED], ids=["apart", "shared"])
def test_requests_arrive_at_random(served: tuple[str, str, LLM], prefix: list[int]) -> None:
    """More of them than seats, chunks of prompts beside those that decode; with a prefix in common that is in the cache, or none."""
    family, folder, llm = served
    cases = [case for n in (36, 41, 65, 90) for case in oracle(folder).fair(prefix, n, REQUESTS // 4, TOKENS)]
    random.Random(1).shuffle(cases)
    llm.reset_prefix_cache()
    with nothing_compiled(llm):
        found = arriving(llm, [prompt for prompt, _ in cases], TOKENS)
    assert oracle(folder).wrong(cases, [list(out.outputs[0].token_ids) for out in found]) == []
    hits = [out.num_cached_tokens for out in found]
    cached = prefix and family not in HYBRID
    assert sum(n >= len(prefix) for n in hits) > REQUESTS // 2 if cached else not any(hits)


def test_prefixes_are_taken_from_the_cache(served: tuple[str, str, LLM]) -> None:
    family, folder, llm = served
    cases = oracle(folder).fair(SHARED, len(SHARED) + 1, 2, 4)
    llm.reset_prefix_cache()
    found = [generated(llm, [prompt], 4)[0] for prompt, _ in cases]
    assert [out.num_cached_tokens for out in found] == [0, 0 if family in HYBRID else len(SHARED)]
    assert [list(out.outputs[0].token_ids) for out in found] == [tokens for _, tokens in cases]


@pytest.mark.parametrize("served", ["llama"], indirect=True)
def test_a_seed_knows_no_chunks(served: tuple[str, str, LLM]) -> None:
    """Of a prompt that comes in two chunks, and then in one, since its prefix is in the cache; nor is anything compiled for its ranks."""
    _, folder, llm = served
    prompt, _ = oracle(folder).fair(SHARED, 90, 1, 1)[0]
    llm.reset_prefix_cache()
    asked = SamplingParams(temperature=1, seed=5, max_tokens=TOKENS, ignore_eos=True, logprobs=2)
    with nothing_compiled(llm):
        first, again = (llm.generate([{"prompt_token_ids": prompt}], asked, use_tqdm=False)[0] for _ in range(2))
    assert (first.num_cached_tokens, again.num_cached_tokens) == (0, 80)
    assert list(first.outputs[0].token_ids) == list(again.outputs[0].token_ids)
    assert len(set(first.outputs[0].token_ids)) > TOKENS // 2  # drawn at random


@pytest.mark.parametrize("served", ["llama"], indirect=True)
def test_a_prefix_that_comes_in_the_same_step_is_there(served: tuple[str, str, LLM]) -> None:
    """The second of two like prompts has a seat before that of the first one, whose second chunk comes when it starts."""
    _, folder, llm = served
    prompt, tokens = oracle(folder).fair(SHARED, 90, 1, 8)[0]
    llm.reset_prefix_cache()
    engine, found = llm.llm_engine, {}
    engine.add_request("short", {"prompt_token_ids": [5, 6]}, greedy(1))
    engine.add_request("first", {"prompt_token_ids": prompt}, greedy(8))
    while engine.has_unfinished_requests():
        found |= {out.request_id.rsplit("-", 1)[0]: out for out in engine.step()}
        if "second" not in found and "short" in found:
            engine.add_request("second", {"prompt_token_ids": prompt}, greedy(8))
            found["second"] = None
    assert found["second"].num_cached_tokens == 80
    assert [list(found[name].outputs[0].token_ids) for name in ("first", "second")] == [tokens] * 2


@pytest.mark.parametrize("served", ["llama"], indirect=True)
def test_tokens_that_are_allowed_are_those_of_a_request(served: tuple[str, str, LLM]) -> None:
    """Not of another one that comes into its seat while it goes on in another."""
    _, folder, llm = served
    prompt, tokens = oracle(folder).fair([], 20, 1, 8)[0]
    engine, found = llm.llm_engine, {}
    engine.add_request("short", {"prompt_token_ids": [5, 6]}, greedy(1))
    few = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, allowed_token_ids=[7, 8])
    engine.add_request("few", {"prompt_token_ids": [5, 6, 7]}, few)
    for _ in range(2):  # the second one moves
        engine.step()
    engine.add_request("all", {"prompt_token_ids": prompt}, greedy(8))
    while engine.has_unfinished_requests():
        found |= {out.request_id.rsplit("-", 1)[0]: list(out.outputs[0].token_ids) for out in engine.step()}
    assert set(found["few"]) <= {7, 8}
    assert found["all"] == tokens


def test_states_behind_a_prefix_are_kept(tmp_path: Path) -> None:
    """Where it is asked for: at the ends of blocks, of prompts and of what was generated; several sequences go on from one."""
    folder = make("granite", tmp_path)
    llm = engine(folder, enable_prefix_caching=True, max_model_len=512, max_num_batched_tokens=256)
    block = llm.llm_engine.vllm_config.cache_config.block_size
    shared = [7 + i % 500 for i in range(2 * block + 3)]
    cases = oracle(folder).fair(shared, 3 * block - 4, 3, 16)
    with nothing_compiled(llm):
        first = generated(llm, [cases[0][0]], 16)
        others = arriving(llm, [prompt for prompt, _ in cases[1:]], 16)
        grown = cases[0][0] + cases[0][1][:5]
        (again,) = generated(llm, [grown], 11)
        both = generated(llm, [prompt for prompt, _ in cases[:2]], 16)
    assert [out.num_cached_tokens for out in (*first, *others)] == [0, 2 * block, 2 * block]
    assert again.num_cached_tokens == 3 * block
    assert list(again.outputs[0].token_ids) == cases[0][1][5:]
    assert [list(out.outputs[0].token_ids) for out in (*first, *others, *both)] == [tokens for _, tokens in (*cases, *cases[:2])]


@pytest.mark.parametrize("served", ["llama"], indirect=True)
@pytest.mark.parametrize("level", [1, 2])
def test_what_slept_goes_on(served: tuple[str, str, LLM], level: int) -> None:
    """Without memory for the cache, at level 2 for weights either, while it sleeps; no program is compiled again."""
    _, folder, llm = served
    prompt, tokens = oracle(folder).fair(SHARED, len(SHARED) + 3, 1, 8)[0]
    generated(llm, [prompt], 1)
    compiled = counters["stats"]["unique_graphs"]
    llm.sleep(level)
    held = [tensor for layer in runner(llm).kv_caches for tensor in layer]
    weights = list(runner(llm).model.parameters())
    assert {tensor.untyped_storage().nbytes() for tensor in held} == {0}
    assert all(tensor.untyped_storage().nbytes() == 0 for tensor in weights) == (level == 2)
    llm.wake_up()
    if level == 2:
        llm.collective_rpc("reload_weights")
    found = generated(llm, [prompt], 8)[0]
    assert found.num_cached_tokens == 0
    assert list(found.outputs[0].token_ids) == tokens
    assert counters["stats"]["unique_graphs"] == compiled


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
    cases = oracle(folder).fair([], 40, 4, TOKENS)
    found = generated(llm, [prompt for prompt, _ in cases], TOKENS)
    assert preempted
    assert [list(out.outputs[0].token_ids) for out in found] == [tokens for _, tokens in cases]


def test_a_cache_has_no_more_blocks_than_an_address_reaches(tmp_path: Path) -> None:
    """Of the 33 that four sequences may need."""
    llm = engine(make("llama", tmp_path))
    assert llm.llm_engine.vllm_config.cache_config.num_gpu_blocks == 33
    (keys, _), *others = runner(llm).kv_caches
    each = keys[0].numel() * keys.element_size()
    (tmp_path / "near.toml").write_text(f"span_bytes = {21 * each - 128}\n")
    worker = llm.llm_engine.model_executor.driver_worker.worker
    layers = 1 + len(others)
    assert worker.determine_available_memory() == 33 * 2 * each * layers
    with config.patch(target=str(tmp_path / "near.toml")):
        assert worker.determine_available_memory() == 20 * 2 * each * layers


def dense(layer: Any, key: torch.Tensor, value: torch.Tensor, caches: Any, step: StepInputs, dtype: torch.dtype) -> Any:
    """What PagedAttention reads if each sequence has its keys and values in one piece."""
    found = []
    for cache, new in zip(caches, (key, value), strict=True):
        rows = cache.flatten(2).flatten(0, 1)
        rows.index_copy_(0, step.slots, new.reshape(-1, rows.shape[1]))
        found.append(rows[: step.rows.numel()].view(*step.rows.shape, *cache.shape[2:]).transpose(1, 2))
    return tuple(found)


def test_pages_take_no_longer_than_dense_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole steps of a tiny model, by the chip's cycles: 1.6 times for a prompt, 1.05 times for a step of decode are the most."""
    folder = make("llama", tmp_path)

    def cycles() -> dict[Shape, int]:
        own, found = runner(engine(folder)), {}
        for shape in own.shapes.all():
            before = own.cycles
            with torch.inference_mode():
                own._run(shape, own._inputs(shape))
            found[shape] = own.cycles - before
        return found

    of_pages = cycles()
    monkeypatch.setattr(PagedAttention, "_through_cache", lambda self, *args: dense(*args))
    torch.compiler.reset()  # Dynamo does not see that a method is another one
    of_dense = cycles()
    assert {shape.tokens == 1 for shape in of_pages} == {True, False}
    for shape, one in of_pages.items():
        assert one <= (1.05 if shape.tokens == 1 else 1.6) * of_dense[shape], (shape, one, of_dense[shape])
    assert of_dense != of_pages  # it was another program
    monkeypatch.undo()
    torch.compiler.reset()  # nor that it is the first one again


def test_a_cache_of_bytes(tmp_path: Path) -> None:
    """Keys and values in float8; a sequence grows out of the smaller number of pages."""
    folder = make("llama", tmp_path)
    llm = engine(folder, kv_cache_dtype="fp8", max_model_len=512)
    assert len(runner(llm).shapes.pages) == 2
    assert {cache.dtype for layer in runner(llm).kv_caches for cache in layer} == {torch.float8_e4m3fn}
    asked = Oracle(folder, ByteCache)
    prompts, tokens = zip(*(asked.fair([], n, 1, 8)[0] for n in (*LENGTHS, 125, 200)), strict=True)
    found = generated(llm, list(prompts), 8)
    assert len({shape.pages for shape, runs in runner(llm).runs.items() if runs > 1}) == 2
    assert [list(out.outputs[0].token_ids) for out in found] == list(tokens)
    assert tokens != tuple(oracle(folder).tokens([p], 8)[0][0] for p in prompts)  # it is another model than with float16 in the cache


def test_nothing_is_compiled_for_a_request(tmp_path: Path) -> None:
    """A step that has no program, as of three seats here, runs on the host, or is an error."""
    folder = make("llama", tmp_path)
    llm = engine(folder)
    cases = oracle(folder).fair([], 20, 3, 8)
    prompts, tokens = [prompt for prompt, _ in cases], [tokens for _, tokens in cases]
    runner(llm).shapes = Programs(3, 64, 8, 16)
    graphs, launches, runs = counters["stats"]["unique_graphs"], runner(llm).launches, runner(llm).runs.total()
    with config.patch(fallback="cpu"):
        assert [list(out.outputs[0].token_ids) for out in generated(llm, prompts, 8)] == tokens
    steps = 8
    assert runner(llm).launches - launches == 3 + steps < runner(llm).runs.total() - runs + steps  # prompts, and logits of each step
    with pytest.raises(RuntimeError, match="fail_on_recompile"):
        generated(llm, prompts, 8)
    assert counters["stats"]["unique_graphs"] == graphs


def test_sizes_of_steps_that_nobody_tells(tmp_path: Path) -> None:
    told = EngineArgs(make("llama", tmp_path), max_num_seqs=3).create_engine_config().scheduler_config
    assert (told.max_num_seqs, told.max_num_batched_tokens) == (3, 512)
    free = EngineArgs(str(tmp_path), max_model_len=20).create_engine_config().scheduler_config
    assert (free.max_num_seqs, free.max_num_batched_tokens) == (16, 320)


def test_eager_and_compiled_are_one_model(tmp_path: Path) -> None:
    """`enforce_eager` leaves the chip out."""
    llm = engine(make("llama", tmp_path), enforce_eager=True)
    generated(llm, [[5, 6]], 2)
    assert runner(llm).launches == 0


@pytest.mark.parametrize("family", ["llama", "gpt_oss", "granite"])
def test_what_overflows_stays_with_its_sequence(family: str, tmp_path: Path) -> None:
    """NaN in the cache is nothing to those who come into its blocks, or are served beside it."""
    folder = make(family, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.embed_tokens.weight"][LOUD] = torch.inf
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    cleanup_dist_env_and_memory()
    llm = engine(folder, max_model_len=64, enable_prefix_caching=False, num_gpu_blocks_override=9)
    cases = [oracle(folder).fair([], n, 1, 8)[0] for n in (4, 20, 40)]
    loud = [[LOUD] * n for n in (4, 20, 40)]
    generated(llm, loud, 8)
    assert any(tensor.isnan().any() for layer in runner(llm).kv_caches for tensor in layer)
    after = generated(llm, [prompt for prompt, _ in cases], 8)
    _, *beside = generated(llm, [loud[1], *(prompt for prompt, _ in cases)], 8)
    for found in (after, beside):
        assert oracle(folder).wrong(cases, [list(out.outputs[0].token_ids) for out in found]) == []
    cleanup_dist_env_and_memory()
