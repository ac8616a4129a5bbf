"""The model runner: vLLM's own, with a forward of few programs, all compiled before the first request."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ktir.runtime.executable import recorded
from ktir.vllm.attention import StepInputs
from ktir.vllm.programs import Programs, Shape, groups
from ktir.vllm.upstream import (
    GPUModelRunner,
    VllmConfig,
    _set_torch_accelerator_to_noop,
    _torch_cuda_wrapper,
    bind_kv_cache,
    get_forward_context,
    get_model,
    init_logger,
    set_forward_context,
    without_triton,
)

logger = init_logger("vllm.ktir")


class SpyreModelRunner(GPUModelRunner):
    """`runs` counts the calls of each program, `launches` those of the chip."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device) -> None:
        _set_torch_accelerator_to_noop()
        with _torch_cuda_wrapper():  # events and streams are made there
            super().__init__(vllm_config, device)
        without_triton()
        self.use_cuda_graph = False
        self.cascade_attn_enabled = False
        page = self.cache_config.block_size
        self.shapes = Programs(self.max_num_reqs, self.max_num_tokens, -(-self.model_config.max_model_len // page), page)
        self.runs: Counter[Shape] = Counter()
        self.launches = 0

    def load_model(self, load_dummy_weights: bool = False) -> None:
        if load_dummy_weights:
            self.load_config.load_format = "dummy"
        self.model = get_model(vllm_config=self.vllm_config).eval()
        self.model_memory_usage = 0
        compute_logits = self.model.compute_logits

        def forward(ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            return self.model(ids, positions)

        def logits(hidden: torch.Tensor) -> torch.Tensor:
            return compute_logits(hidden)

        functions: list[Callable[..., torch.Tensor]] = [forward, logits]
        if not self.model_config.enforce_eager:
            torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 10_000  # one for each shape
            functions = [torch.compile(f, backend="spyre", fullgraph=True, dynamic=False) for f in functions]
        self.forward, self.logits = functions
        self.model.compute_logits = self._padded_logits

    def _padded_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """One program for any number of sequences that are sampled."""
        rows = -len(hidden) % self.max_num_reqs  # more rows than seats are the logits of prompts
        parts = nn.functional.pad(hidden, (0, 0, 0, rows)).split(self.max_num_reqs)
        with recorded() as launches:
            found = [self.logits(part) for part in parts]
        self.launches += len(launches)
        return torch.cat(found)[: len(hidden)]

    def get_model(self) -> nn.Module:
        return self.model

    def initialize_kv_cache_tensors(self, kv_cache_config: Any, kernel_block_sizes: list[int]) -> dict[str, Any]:
        """Keys and values apart [blocks, block size, heads, size], each a tensor that programs write in place, by layer."""
        specs = {name: group.kv_cache_spec for group in kv_cache_config.kv_cache_groups for name in group.layer_names}
        caches: dict[str, Any] = {}
        for tensor in kv_cache_config.kv_cache_tensors:
            spec = specs[tensor.shared_by[0]]
            extents = (tensor.size // spec.page_size_bytes, spec.block_size, spec.num_kv_heads, spec.head_size)
            caches.update(dict.fromkeys(tensor.shared_by, tuple(torch.zeros(extents, dtype=spec.dtype) for _ in range(2))))
        for name, target in self.shared_kv_cache_layers.items():
            caches[name] = caches[target]
        bind_kv_cache(caches, self.compilation_config.static_forward_context, self.kv_caches)
        return caches

    def _zero_block_ids(self, block_ids: list[int]) -> None: ...  # what lies behind a sequence's last position is masked

    def _model_forward(
        self, input_ids: Any = None, positions: Any = None, intermediate_tensors: Any = None, inputs_embeds: Any = None, **kwargs: Any
    ) -> torch.Tensor:
        """Hidden states [tokens, size] of a step, whose sequences lie one after the other."""
        hidden = torch.zeros(len(input_ids), self.model_config.get_hidden_size(), dtype=self.dtype)
        metadata = get_forward_context().attn_metadata
        if not metadata:
            return hidden  # vLLM measures memory
        common = next(iter(metadata.values())).common
        starts, seen = common.query_start_loc_cpu.tolist(), common.seq_lens.tolist()
        lengths = [b - a for a, b in itertools.pairwise(starts)]
        for group in groups(lengths):
            new, longest = lengths[group[0]], max(seen[i] for i in group)
            shape = self.shapes.decode(len(group), longest) if new == 1 else self.shapes.prefill(new, longest)
            ids, where, slots, pages = self._inputs(shape)
            for row, i in enumerate(group):
                tokens, used = slice(starts[i], starts[i + 1]), -(-seen[i] // self.shapes.page)
                ids[row, :new], where[row, :new] = input_ids[tokens], positions[tokens]
                slots[row, :new], pages[row, :used] = common.slot_mapping[tokens], common.block_table_tensor[i, :used]
            result = self._run(shape, ids, where, slots, pages)
            for row, i in enumerate(group):
                hidden[starts[i] : starts[i + 1]] = result[row * shape.tokens : row * shape.tokens + new]
        return hidden

    def _inputs(self, shape: Shape) -> list[torch.Tensor]:
        """Tokens, positions, slots and pages of a program that has only padding."""
        return [torch.zeros(shape.sequences, n, dtype=torch.int64) for n in (*[shape.tokens] * 3, shape.pages)]

    def _run(self, shape: Shape, ids: torch.Tensor, where: torch.Tensor, slots: torch.Tensor, pages: torch.Tensor) -> torch.Tensor:
        """One program: Dynamo finds the inputs of attention where vLLM's layers do, and the graph takes them as inputs."""
        context = dict.fromkeys(self.compilation_config.static_forward_context, StepInputs(where, pages, slots.view(-1)))
        start = time.process_time()
        with recorded() as launches, set_forward_context(context, self.vllm_config, num_tokens=ids.numel(), slot_mapping={}):
            result = self.forward(ids.view(-1), where.view(-1))
        if shape not in self.runs:
            cycles, seconds = sum(launch.machine.report.cycles for launch in launches), time.process_time() - start
            logger.info("first run of %s: %.1f s of CPU time, %d launches, %d cycles", shape, seconds, len(launches), cycles)
        self.runs[shape] += 1
        self.launches += len(launches)
        return result

    @torch.inference_mode()  # as steps are: for another mode Dynamo compiles all of it again
    def warm_up(self) -> None:
        """Compile every program that a request can ask for."""
        for shape in self.shapes.all():
            self._run(shape, *self._inputs(shape))
        self._padded_logits(torch.zeros(1, self.model_config.get_hidden_size(), dtype=self.dtype))

    # What vLLM's runner asks of CUDA.

    def _init_device_properties(self) -> None: ...

    def _sync_device(self) -> None: ...

    def _to_list(self, sampled_token_ids: torch.Tensor) -> list[list[int]]:
        return sampled_token_ids.tolist()
