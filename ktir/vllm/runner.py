"""The model runner: vLLM's own, with a forward of few programs, all compiled before the first request."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from ktir import config
from ktir.runtime import metrics
from ktir.runtime.executable import recorded
from ktir.vllm import encoders, experts, state_space
from ktir.vllm.adapters import NONE, Rows
from ktir.vllm.attention import StepInputs
from ktir.vllm.programs import Programs, Shape, groups
from ktir.vllm.scheduler import StrictSampler
from ktir.vllm.upstream import (
    EncoderOnlyAttentionSpec,
    GPUModelRunner,
    MambaSpec,
    UniformTypeKVCacheSpecs,
    VllmConfig,
    _set_torch_accelerator_to_noop,
    _torch_cuda_wrapper,
    bind_kv_cache,
    get_forward_context,
    get_model,
    init_logger,
    let_text_come_apart,
    set_forward_context,
    without_compiled_ranks,
    without_stale_masks,
    without_triton,
)

logger = init_logger("vllm.ktir")
WHERE = 2
"""Blocks of a state."""


def _extents(spec: Any, block: int) -> tuple[tuple[tuple[int, ...], torch.dtype], ...]:
    """Of what a layer keeps in the tokens of one block: keys and values, or states."""
    if isinstance(spec, MambaSpec):
        return tuple(zip(spec.shapes, spec.dtypes, strict=True))
    dtype = torch.float8_e4m3fn if spec.dtype == torch.uint8 else spec.dtype  # vLLM leaves to kernels what its bytes are
    return (((block, spec.num_kv_heads, spec.head_size), dtype),) * 2


def block_bytes(spec: Any) -> int:
    """Of a block of the scheduler, in the largest tensor that a layer keeps."""
    return max(prod(shape) * dtype.itemsize for shape, dtype in _extents(spec, spec.block_size))


def _clear(kept: Sequence[torch.Tensor], page: int, begin: int) -> None:
    """Of the last page of a sequence, where it is new, what lies behind its tokens: attention gives that a weight of zero, which leaves
    nothing of numbers, but NaN of what another sequence left there.
    """
    for tensor in kept:
        tensor[page, begin:] = 0


def _tensors(kv_cache_config: Any, kept: dict[str, Any]) -> dict[str, tuple[torch.Tensor, ...]]:
    """By layer, all zero; `kept` has of each its spec, pages of a block, and extents of a page."""
    caches: dict[str, tuple[torch.Tensor, ...]] = {}
    for tensor in kv_cache_config.kv_cache_tensors:
        shared: dict[Any, tuple[torch.Tensor, ...]] = {}
        for name in tensor.shared_by:
            spec, each, extents = kept[name]
            blocks = tensor.size // spec.page_size_bytes * each
            if extents not in shared:
                shared[extents] = tuple(torch.zeros(blocks, *shape, dtype=dtype) for shape, dtype in extents)
            caches[name] = shared[extents]
    return caches


class Inputs:
    """Of one program, all of it padding at first: block 0, position 0.

    `tokens` [sequences, tokens] or embeddings [sequences, tokens, size]; `where` [axes, sequences, tokens] are positions as the model
    counts them, `positions` those in the cache; `lengths` [sequences]; of each group of layers `pages` and `slots`, where pages of a
    `whole` one are where a state is read and where it is written; `adapters` as in StepInputs.
    """

    def __init__(self, shape: Shape, page: int, whole: Sequence[bool], axes: int, embedding: torch.Tensor | None) -> None:
        """`page` is the number of tokens of a page."""

        def zeros(*extents: int) -> torch.Tensor:
            return torch.zeros(extents, dtype=torch.int64)

        extents = (shape.sequences, shape.tokens)
        self.page, self.whole = page, whole
        self.tokens = zeros(*extents) if embedding is None else embedding.new_zeros(*extents, *embedding.shape)
        self.where, self.positions, self.lengths = zeros(axes, *extents), zeros(*extents), zeros(shape.sequences)
        self.pages = [zeros(shape.sequences, WHERE if is_whole else shape.pages) for is_whole in whole]
        self.slots = [zeros(shape.sequences, shape.tokens) for _ in whole]
        self.adapters = zeros(*extents) + NONE

    def put(self, row: int, tokens: torch.Tensor, where: torch.Tensor, seen: int) -> None:
        """The sequence of a row: its new tokens, and how many it has with them."""
        new = len(tokens)
        self.tokens[row, :new], self.where[:, row, :new], self.lengths[row] = tokens, where, new
        self.positions[row, :new] = torch.arange(seen - new, seen)

    def of_group(self, group: int) -> StepInputs:
        rows = self.pages[group]
        if not self.whole[group]:
            rows = (rows[:, :, None] * self.page + torch.arange(self.page)).flatten(1)
        return StepInputs(self.positions, rows, self.slots[group].view(-1), self.lengths, self.adapters.view(-1))


class SpyreModelRunner(GPUModelRunner):
    """`runs` counts the calls of each program, `launches` those of the chip, and `cycles` what they take there. Once it `is_warm`, all
    programs are there, and none is compiled.
    """

    shapes: Programs
    layers: list[list[str]]
    """Names of those that share a table of blocks."""
    whole: list[bool]
    """Whether a sequence has a state in the group, or nothing."""
    blocks: list[int]
    """Tokens of a block of each group."""
    kept: list[list[torch.Tensor]]
    """What the layers of each group keep."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device) -> None:
        if vllm_config.model_config.is_multimodal_model:
            let_text_come_apart()  # the platform did in the process that started this one
        _set_torch_accelerator_to_noop()
        with _torch_cuda_wrapper():  # events and streams are made there
            super().__init__(vllm_config, device)
        without_triton()
        without_compiled_ranks()
        without_stale_masks()
        self.sampler = StrictSampler(self.sampler.logprobs_mode, self.sampler.use_fp64_gumbel)
        self.use_cuda_graph = False
        self.cascade_attn_enabled = False
        self.axes = 3 if self.uses_mrope else 1
        self.embedding = torch.zeros(self.inputs_embeds_size, dtype=self.dtype) if self._takes_embeddings() else None
        self.runs: Counter[Shape] = Counter()
        self.launches = self.cycles = 0
        self.is_warm = False

    def _takes_embeddings(self) -> bool:
        """Whether vLLM looks tokens up, and puts what it was given for them in between: images, or embeddings of prompts."""
        return self.supports_mm_inputs or self.enable_prompt_embeds

    def load_model(self, load_dummy_weights: bool = False) -> None:
        if load_dummy_weights:
            self.load_config.load_format = "dummy"
        encoders.register()
        experts.register()
        state_space.register()
        self.model = get_model(vllm_config=self.vllm_config).eval()
        if self.lora_config:
            self.model = self.load_lora_model(self.model, self.vllm_config, self.device)
            self._adapters().vocabulary = self.lora_manager.vocab_size
        experts.open_up(self.model)
        self.model_memory_usage = 0
        compute_logits = getattr(self.model, "compute_logits", None)  # a model that embeds has none

        def forward(tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            return self.model(tokens, positions) if self.embedding is None else self.model(None, positions, inputs_embeds=tokens)

        functions: list[Callable[..., torch.Tensor]] = [forward]
        if compute_logits is not None:
            functions.append(lambda hidden: compute_logits(hidden))
            self.model.compute_logits = self._padded_logits
        if not self.model_config.enforce_eager:
            torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 10_000  # one for each shape
            functions = [torch.compile(f, backend="spyre", fullgraph=True, dynamic=False) for f in functions]
        self.forward, *self.logits = functions

    def _padded_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """One program for any number of sequences that are sampled."""
        rows = -len(hidden) % self.max_num_reqs  # more rows than seats are the logits of prompts
        parts = nn.functional.pad(hidden, (0, 0, 0, rows)).split(self.max_num_reqs)
        if self.lora_config is None:
            return torch.cat([self._counted(self.logits[0], part) for part in parts])[: len(hidden)]
        adapters = torch.full((len(hidden) + rows,), NONE)
        of_samples = self._adapters().of_samples  # none yet while programs are compiled
        adapters[: len(of_samples)] = of_samples
        found = []
        for part, chosen in zip(parts, adapters.split(self.max_num_reqs), strict=True):
            with set_forward_context({"logits": Rows(chosen)}, self.vllm_config, num_tokens=len(part), slot_mapping={}):
                found.append(self._counted(self.logits[0], part))
        return torch.cat(found)[: len(hidden)]

    def _adapters(self) -> Any:
        """What the layers of the language model share."""
        return next(iter(self.lora_manager._adapter_manager.punica_wrapper_mapping.values()))

    def _counted(self, function: Callable[..., torch.Tensor], *inputs: Any) -> torch.Tensor:
        """What a compiled function gives. While requests are served, what has no program runs on the host, or is an error."""
        with self._stance(), recorded() as launches, metrics.counted() as ran:
            found = function(*inputs)
        if self.is_warm and ran() == metrics.Launches():
            logger.warning_once("a step has no program of those that were compiled at the start, and runs on the host")
        self.launches += len(launches)
        self.cycles += sum(launch.machine.report.cycles for launch in launches)
        return found

    def _stance(self) -> AbstractContextManager[Any]:
        if not self.is_warm:
            return nullcontext()
        return torch.compiler.set_stance("fail_on_recompile" if config.current().fallback == "error" else "eager_on_recompile")

    def get_model(self) -> nn.Module:
        return self.model

    def initialize_kv_cache_tensors(self, kv_cache_config: Any, kernel_block_sizes: list[int]) -> dict[str, Any]:
        """What each layer keeps, as tensors that programs write in place: keys and values apart [blocks, block size, heads, size], or
        states [blocks, ..]. Layers of several groups that keep alike share tensors, as blocks have one numbering.
        """
        groups = kv_cache_config.kv_cache_groups
        self.layers = [group.layer_names for group in groups]
        self.whole = [isinstance(group.kv_cache_spec, (MambaSpec, EncoderOnlyAttentionSpec)) for group in groups]
        block_sizes, sizes = [], iter(kernel_block_sizes)
        for group in groups:  # vLLM tells none where nothing is kept
            block_sizes.append(self.max_model_len if isinstance(group.kv_cache_spec, EncoderOnlyAttentionSpec) else next(sizes))
        (page,) = {n for n, whole in zip(block_sizes, self.whole, strict=True) if not whole} or {self.max_model_len}
        self.blocks = [getattr(group.kv_cache_spec, "block_size", page) for group in groups]
        self.shapes = Programs(self.max_num_reqs, self.max_num_tokens, -(-self.max_model_len // page), page)
        kept = {}
        for group, block in zip(groups, block_sizes, strict=True):
            spec = group.kv_cache_spec
            for name in group.layer_names:
                own = spec.kv_cache_specs[name] if isinstance(spec, UniformTypeKVCacheSpecs) else spec
                kept[name] = (own, 1 if isinstance(own, MambaSpec) else own.block_size // block, _extents(own, block))
        caches = _tensors(kv_cache_config, kept)
        for name, target in self.shared_kv_cache_layers.items():
            caches[name] = caches[target]
        self.kept = [list({id(t): t for name in names for t in caches.get(name, ())}.values()) for names in self.layers]
        bind_kv_cache(caches, self.compilation_config.static_forward_context, self.kv_caches)
        return caches

    def _zero_block_ids(self, block_ids: list[int]) -> None: ...  # a step clears what it reads and nobody wrote

    def _model_forward(
        self, input_ids: Any = None, positions: Any = None, intermediate_tensors: Any = None, inputs_embeds: Any = None, **kwargs: Any
    ) -> torch.Tensor:
        """Hidden states [tokens, size] of a step, whose sequences lie one after the other."""
        tokens = input_ids if inputs_embeds is None else inputs_embeds
        hidden = torch.zeros(len(tokens), self.model_config.get_hidden_size(), dtype=self.dtype)
        metadata = get_forward_context().attn_metadata
        if not metadata:
            return hidden  # vLLM measures memory
        tables = [metadata[names[0]].common for names in self.layers]
        starts, seen = tables[0].query_start_loc_cpu.tolist(), tables[0].seq_lens.tolist()
        lengths = [b - a for a, b in itertools.pairwise(starts)]
        for group in groups(lengths, *self._touched(tables, seen, lengths)):
            new, longest = lengths[group[0]], max(seen[i] for i in group)
            shape = self.shapes.decode(len(group), longest) if new == 1 else self.shapes.prefill(new, longest)
            inputs = self._inputs(shape)
            for row, i in enumerate(group):
                own = slice(starts[i], starts[i + 1])
                inputs.put(row, tokens[own], positions[..., own], seen[i])
                if self.lora_config:
                    inputs.adapters[row] = self._adapters().of_tokens[starts[i]]
                for number, table in enumerate(tables):
                    if self.whole[number]:
                        inputs.pages[number][row] = self._states(number, table.block_table_tensor[i], seen[i] - new, seen[i])
                        continue
                    used = -(-seen[i] // self.shapes.page)
                    inputs.pages[number][row, :used] = table.block_table_tensor[i, :used]
                    if seen[i] - new <= self.shapes.page * (used - 1):
                        _clear(self.kept[number], int(table.block_table_tensor[i, used - 1]), seen[i] - self.shapes.page * (used - 1))
                    inputs.slots[number][row, :new] = table.slot_mapping[own]
            result = self._run(shape, inputs)
            for row, i in enumerate(group):
                hidden[starts[i] : starts[i + 1]] = result[row * shape.tokens : row * shape.tokens + new]
        return hidden

    def _touched(self, tables: Sequence[Any], seen: Sequence[int], lengths: Sequence[int]) -> tuple[list[set[int]], list[set[int]]]:
        """Blocks that each sequence reads, of those that others may have written, and that it writes; block 0 belongs to none."""
        reads, writes = [], []
        for i, (whole, new) in enumerate(zip(seen, lengths, strict=True)):
            read, written, page = {0}, {0}, self.shapes.page
            for number, table in enumerate(tables):
                row, before = table.block_table_tensor[i], whole - new
                if self.whole[number]:
                    source, target = self._states(number, row, before, whole).tolist()
                    read.add(source)
                    written.add(target)
                else:
                    read.update(row[: -(-before // page)].tolist())
                    written.update(row[before // page : -(-whole // page)].tolist())
            reads.append(read - {0})
            writes.append(written - {0})
        return reads, writes

    def _states(self, group: int, table: torch.Tensor, before: int, seen: int) -> torch.Tensor:
        """Of a sequence the blocks where its state is, `before` tokens behind its start, and where it goes. Where prefixes are kept, a
        state lies in the block of its last token, and so stays at the end of each block; else a sequence has one block.
        """
        if self.cache_config.mamba_cache_mode == "none":
            return table[:1].expand(WHERE)
        return table[torch.tensor([max(before - 1, 0), seen - 1]) // self.blocks[group]]

    def sample_tokens(self, grammar_output: Any) -> Any:
        """A prompt of which a chunk is still to come is sampled in vain. vLLM takes back what that took of a generator with a seed, which
        those of CUDA can do; here it takes nothing.
        """
        generators = self.input_batch.generators
        in_vain = self.discard_request_mask.np[: self.input_batch.num_reqs].nonzero()[0].tolist()
        held = {row: generators.pop(row) for row in in_vain if row in generators}
        try:
            return super().sample_tokens(grammar_output)
        finally:
            generators.update(held)

    def _inputs(self, shape: Shape) -> Inputs:
        return Inputs(shape, self.shapes.page, self.whole, self.axes, self.embedding)

    def _run(self, shape: Shape, inputs: Inputs) -> torch.Tensor:
        """One program: Dynamo finds the inputs of attention where vLLM's layers do, and the graph takes them as inputs."""
        steps = [inputs.of_group(i) for i in range(len(self.layers))]
        context = {name: step for names, step in zip(self.layers, steps, strict=True) for name in names}
        start, launches, cycles = time.process_time(), self.launches, self.cycles
        with set_forward_context(context, self.vllm_config, num_tokens=inputs.positions.numel(), slot_mapping={}):
            result = self._counted(self.forward, inputs.tokens.flatten(0, 1), inputs.where.flatten(1).squeeze(0))
        if shape not in self.runs:
            taken = time.process_time() - start, self.launches - launches, self.cycles - cycles
            logger.info("first run of %s: %.1f s of CPU time, %d launches, %d cycles", shape, *taken)
        self.runs[shape] += 1
        return result

    @torch.inference_mode()  # as steps are: for another mode Dynamo compiles all of it again
    def warm_up(self) -> None:
        """Compile every program that a request can ask for."""
        for shape in self.shapes.all():
            self._run(shape, self._inputs(shape))
        if self.mm_budget is not None and not self.model_config.enforce_eager:
            most = min(self.mm_budget.get_encoder_budget(), self.max_model_len)
            self.encoder_cudagraph_manager = encoders.encoder_of(self.vllm_config, self.dtype, self.model, most, self._counted)
            if self.encoder_cudagraph_manager is None:
                logger.warning("the encoder of images runs on the host: the model does not say how it takes them in fixed sizes")
            else:
                self.encoder_cudagraph_manager.capture(None)
        if self.logits:
            self._padded_logits(torch.zeros(1, self.model_config.get_hidden_size(), dtype=self.dtype))
        self.is_warm = not self.model_config.enforce_eager

    def _get_mamba_bufs(self) -> Any:
        return SimpleNamespace(preprocess=None, postprocess_align=None)  # for copies of states, which programs read where they are

    # What vLLM's runner asks of CUDA.

    def _init_device_properties(self) -> None: ...

    def _sync_device(self) -> None: ...

    def _to_list(self, sampled_token_ids: torch.Tensor) -> list[list[int]]:
        return sampled_token_ids.tolist()
