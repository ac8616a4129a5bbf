"""How an engine serves: times on the modelled chip beside those of this host, request by request, and what of its answers is transformers'.

Requests are random prompts that come at random, with a time between them that is theirs to wait for on the modelled chip. A step of the
engine takes as long there as its programs, one after the other; what the host does between them is told apart.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ktir.perf import memory
from ktir.perf.judged import Judged, judged
from ktir.perf.modelled import Row
from ktir.target import DATASHEET

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Load:
    """`apart` is the mean of the milliseconds, modelled, between two requests, which come as a Poisson process does."""

    requests: int = 40
    prompt: int = 32
    new: int = 32
    apart: float = 0.0
    seed: int = 0


@dataclass
class Answer:
    """Modelled milliseconds: when a request came, and when each of its tokens was there."""

    came: float
    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    at: list[float] = field(default_factory=list)

    @property
    def first(self) -> float:
        return self.at[0] - self.came

    @property
    def between(self) -> list[float]:
        return [b - a for a, b in zip(self.at, self.at[1:], strict=False)]


@dataclass(frozen=True)
class Served:
    """Of one load on one engine: `first` and `between` are times to the first token and from token to token, each [percentiles]."""

    first: tuple[float, ...]
    between: tuple[float, ...]
    least: tuple[float, float]
    """Of both."""
    modelled: float
    """Milliseconds from the first request to the last answer."""
    tokens: int
    host: float
    """CPU seconds of all steps here."""
    start: float
    """CPU seconds until the engine was there."""
    programs: int
    gigabytes: float
    judged: Judged | None
    """None where that was not asked for."""

    def lines(self) -> list[str]:
        """As a table."""

        def times(values: Sequence[float]) -> str:
            return "  ".join(f"p{p} {value:9.3f}" for p, value in zip(PERCENTILES, values, strict=True))

        rate = self.tokens / self.modelled * 1e3
        return [
            f"time to first token, ms       {times(self.first)}",
            f"time between tokens, ms       {times(self.between)}",
            f"tokens per second             {rate:,.0f}",
            f"modelled, ms                  {self.modelled:,.3f}",
            f"steps on this host, CPU s     {self.host:.2f}",
            f"start of the engine, CPU s    {self.start:.1f}, {self.programs} programs",
            f"memory, GB                    {self.gigabytes:.2f}",
            *([] if self.judged is None else [self.judged.line()]),
        ]

    def rows(self, name: str) -> list[Row]:
        """Lines of a table, for `compare` and `plot`; in the place of a bound stands the least of all requests."""
        rate = self.tokens / self.modelled * 1e3
        return [
            Row(f"{name} {metric} p{p}", metric, ms, least, rate, self.host, 0.0, self.gigabytes)
            for metric, values, least in (("TTFT", self.first, self.least[0]), ("ITL", self.between, self.least[1]))
            for p, ms in zip(PERCENTILES, values, strict=True)
        ]


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that `share` percent of all are not above."""
    return sorted(values)[max(0, math.ceil(len(values) * share / 100) - 1)]


def drive(llm: Any, load: Load) -> tuple[list[Answer], float]:
    """Each request's answer, and CPU seconds of the steps; no prefix is known before. `llm` runs in this process."""
    llm.reset_prefix_cache()
    engine = llm.llm_engine
    runner = engine.model_executor.driver_worker.worker.model_runner
    draw = random.Random(load.seed)
    words = engine.model_config.get_vocab_size()
    waiting, came = [], 0.0
    for _ in range(load.requests):
        waiting.append(Answer(came, [draw.randrange(5, words) for _ in range(load.prompt)]))
        came += draw.expovariate(1 / load.apart) if load.apart else 0.0
    vllm: Any = import_module("vllm")
    greedy = vllm.SamplingParams(temperature=0, max_tokens=load.new, ignore_eos=True)
    now, seconds, sent = 0.0, 0.0, list[Answer]()
    while waiting or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            now = max(now, waiting[0].came)
        while waiting and waiting[0].came <= now:
            engine.add_request(str(len(sent)), {"prompt_token_ids": waiting[0].prompt}, greedy)
            sent.append(waiting.pop(0))
        cycles, start = runner.cycles, time.process_time()
        outputs = engine.step()
        seconds += time.process_time() - start
        now += DATASHEET.microseconds(runner.cycles - cycles) / 1e3
        for out in outputs:
            answer = sent[int(out.request_id.split("-")[0])]
            new = list(out.outputs[0].token_ids)[len(answer.tokens) :]
            answer.tokens += new
            answer.at += [now] * len(new)
    return sent, seconds


def measure(folder: str, loads: Sequence[Load], check: bool = False, **options: Any) -> list[Served]:
    """Start an engine on a model's folder, with vLLM's `options`, and serve the loads one after the other."""
    memory.forget()
    start = time.process_time()
    vllm: Any = import_module("vllm")
    llm = vllm.LLM(folder, **options)
    started = time.process_time() - start
    runner = llm.llm_engine.model_executor.driver_worker.worker.model_runner
    found = []
    for load in loads:
        answers, seconds = drive(llm, load)
        first, between = [a.first for a in answers], [ms for a in answers for ms in a.between] or [0.0]
        found.append(
            Served(
                first=tuple(percentile(first, p) for p in PERCENTILES),
                between=tuple(percentile(between, p) for p in PERCENTILES),
                least=(min(first), min(between)),
                modelled=max(a.at[-1] for a in answers),
                tokens=sum(len(a.tokens) for a in answers),
                host=seconds,
                start=started,
                programs=len(runner.runs) + 1,
                gigabytes=memory.most() / 1e9,
                judged=judged(folder, [(a.prompt, a.tokens) for a in answers], llm.llm_engine.model_config.dtype) if check else None,
            )
        )
    del llm, runner
    vllm.distributed.cleanup_dist_env_and_memory()  # so that another engine can be started
    return found
