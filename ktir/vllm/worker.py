"""The worker: one process with a model and its cache."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from ktir import config
from ktir.vllm.runner import SpyreModelRunner, block_bytes
from ktir.vllm.upstream import (
    CompilationTimes,
    EncoderOnlyAttentionSpec,
    Worker,
    current_platform,
    init_worker_distributed_environment,
    set_random_seed,
)


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
        self.asleep: dict[str, list[tuple[torch.Tensor, torch.Size, tuple[int, ...]]]] = {}

    def determine_available_memory(self) -> int:
        """Bytes for the cache: room for every sequence in full, and block 0, which belongs to none, so that nothing is preempted. Pages are
        looked up: there are no more blocks than an address reaches, and where that is less, sequences wait for them."""
        specs = self.model_runner.get_kv_cache_spec().values()
        seats = self.vllm_config.scheduler_config.max_num_seqs
        span = config.current().machine().span_bytes
        kept = [spec for spec in specs if not isinstance(spec, EncoderOnlyAttentionSpec)]
        most = min((span // block_bytes(spec) for spec in kept), default=sys.maxsize)
        wanted = ((spec, seats * spec.max_memory_usage_bytes(self.vllm_config) + spec.page_size_bytes) for spec in specs)
        return sum(min(whole, most * spec.page_size_bytes) for spec, whole in wanted)

    def compile_or_warm_up_model(self) -> CompilationTimes:
        start = time.perf_counter()
        self.model_runner.warm_up()
        return CompilationTimes(language_model=time.perf_counter() - start, encoder=0.0)

    def _tensors(self, tag: str) -> list[torch.Tensor]:
        """Each once, of what vLLM calls by this name."""
        if tag == "weights":
            return list(self.model_runner.model.parameters())
        return list({id(tensor): tensor for layer in self.model_runner.kv_caches for tensor in layer}.values())

    def sleep(self, level: int = 1) -> None:
        """Give back the memory of the cache, at level 2 that of the weights too, which `reload_weights` fills again. At level 1 vLLM brings
        weights to the host, where they are.
        """
        for tag in ("kv_cache", "weights")[:level]:
            self.asleep[tag] = [(tensor, tensor.shape, tensor.stride()) for tensor in self._tensors(tag)]
            for tensor, *_ in self.asleep[tag]:
                tensor.data = tensor.new_empty(0)

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Memory again, all zero, of what sleeps, or of the parts that `tags` names."""
        for tag in tags or list(self.asleep):
            for tensor, shape, stride in self.asleep.pop(tag, ()):
                tensor.data = torch.empty_strided(shape, stride, dtype=tensor.dtype).zero_()
