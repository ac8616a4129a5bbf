"""The worker: one process with a model and its cache."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from ktir.vllm.runner import SpyreModelRunner
from ktir.vllm.upstream import CompilationTimes, Worker, current_platform, init_worker_distributed_environment, set_random_seed


class SpyreWorker(Worker):
    """vLLM's worker without CUDA."""

    def _maybe_get_memory_pool_context(self, tag: str) -> AbstractContextManager[Any]:
        return nullcontext()  # the one there asks for CUDA's allocator

    def _scoped_allocator_max_split(self, max_split_size_mb: int) -> AbstractContextManager[Any]:
        return nullcontext()

    def init_device(self) -> None:
        self.device = torch.device("cpu")
        init_worker_distributed_environment(
            self.vllm_config, self.rank, self.distributed_init_method, self.local_rank, current_platform.dist_backend
        )
        set_random_seed(self.model_config.seed)
        self.model_runner = SpyreModelRunner(self.vllm_config, self.device)

    def determine_available_memory(self) -> int:
        """Bytes for the cache: room for every sequence in full, and block 0, which belongs to none, so that nothing is preempted."""
        specs = self.model_runner.get_kv_cache_spec().values()
        seats = self.vllm_config.scheduler_config.max_num_seqs
        return sum(seats * spec.max_memory_usage_bytes(self.vllm_config) + spec.page_size_bytes for spec in specs)

    def compile_or_warm_up_model(self) -> CompilationTimes:
        start = time.perf_counter()
        self.model_runner.warm_up()
        return CompilationTimes(language_model=time.perf_counter() - start, encoder=0.0)

    def sleep(self, level: int = 1) -> None:
        raise NotImplementedError("vLLM on ktir has no sleep mode")

    def wake_up(self, tags: list[str] | None = None) -> None:
        raise NotImplementedError("vLLM on ktir has no sleep mode")
