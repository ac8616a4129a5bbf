"""The platform: what vLLM asks before it builds an engine."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any

import torch

from ktir.vllm import schemas, upstream

upstream.without_torchvision_kernels()  # before anything of vLLM or transformers imports it
BACKEND = "ktir.vllm.attention.PagedAttentionBackend"
ADAPTERS = "ktir.vllm.adapters.PlainAdapters"
SCHEDULER = "ktir.vllm.scheduler.SpyreScheduler"
GRAMMARS = "xgrammar"
"""What follows grammars, where nobody chooses: an engine has one, and that one refuses. vLLM's "auto" checks each request with one that
takes it, and follows it with that of the first request, which lets rules go or fails.
"""
CARD_BYTES = 128 << 30
"""Memory of the card."""
SEATS, TOKENS = 16, 512
"""Of a step, where an engine is not told `max_num_seqs` and `max_num_batched_tokens`. Larger ones are more programs to compile."""


class SpyrePlatform(upstream.Platform):
    """Tensors on the host, programs on the emulated chip."""

    _enum = upstream.PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"
    dispatch_key = "CPU"
    dist_backend = "gloo"  # one process makes a group, too
    simple_compile_backend = "eager"  # of a few helpers of vLLM that are no part of the model
    has_adapters = False
    vocabulary = 0
    """Tokens that the model has logits for."""

    @property
    def supported_dtypes(self) -> list[torch.dtype]:
        return [torch.float16, torch.float32, torch.bfloat16]  # the first one is what `dtype="auto"` makes of a float32 model

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return "ktir"

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        return CARD_BYTES

    @classmethod
    def set_device(cls, device: torch.device) -> None: ...

    @classmethod
    def manual_seed_all(cls, seed: int) -> None: ...

    @classmethod
    def inference_mode(cls) -> AbstractContextManager[Any]:
        return torch.inference_mode()

    @classmethod
    def import_kernels(cls) -> None: ...  # a vLLM that was built for no accelerator has none

    def is_sleep_mode_available(self) -> bool:
        return True

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return False

    @classmethod
    def opaque_attention_op(cls) -> bool:
        return False  # attention is traced with the model

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        return True

    @classmethod
    def get_attn_backend_cls(cls, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None) -> str:
        if attn_selector_config.use_mla or attn_selector_config.use_sparse:
            raise NotImplementedError(f"ktir has no attention with latents or sparse blocks: {attn_selector_config}")
        upstream.register_backend(upstream.AttentionBackendEnum.CUSTOM, BACKEND)
        return BACKEND

    @classmethod
    def pre_register_and_update(cls, parser: Any = None) -> None:
        upstream.set_batches(SEATS, TOKENS)

    @classmethod
    def apply_config_platform_defaults(cls, vllm_config: upstream.VllmConfig) -> None:
        compilation = vllm_config.compilation_config
        compilation.mode = upstream.CompilationMode.NONE  # the runner calls torch.compile
        compilation.ir_enable_torch_wrap = False  # norms are traced too, instead of standing in the graph as operators of vLLM
        if all(s not in compilation.custom_ops for s in ("all", "none")):
            compilation.custom_ops.append("none")

    @classmethod
    def check_and_update_config(cls, vllm_config: upstream.VllmConfig) -> None:
        parallel, scheduler = vllm_config.parallel_config, vllm_config.scheduler_config
        if parallel.world_size > 1 or parallel.data_parallel_size > 1:
            raise ValueError("vLLM on ktir runs on one card: leave tensor, pipeline and data parallel sizes at 1")
        if vllm_config.speculative_config:
            raise ValueError("vLLM on ktir has no speculative decoding")
        cls._check_adapters(vllm_config)
        cls._check_states(vllm_config.cache_config)
        if parallel.worker_cls == "auto":
            parallel.worker_cls = "ktir.vllm.worker.SpyreWorker"
        if scheduler.scheduler_cls is None:
            scheduler.scheduler_cls = SCHEDULER
        parallel.disable_custom_all_reduce = True
        scheduler.async_scheduling = False  # it needs streams and events of an accelerator
        structured = vllm_config.structured_outputs_config
        if structured.backend == "auto":
            structured.backend = GRAMMARS
        vllm_config.compilation_config.cudagraph_capture_sizes = []
        if vllm_config.model_config is not None:
            vllm_config.model_config.disable_cascade_attn = True
            cls.vocabulary = vllm_config.model_config.get_vocab_size()
            if vllm_config.model_config.is_multimodal_model:
                upstream.let_text_come_apart()
        upstream.let_requests_be_refused()
        upstream.let_servers_refuse()
        upstream.let_starts_be_stopped()
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"

    @classmethod
    def _check_adapters(cls, vllm_config: upstream.VllmConfig) -> None:
        cls.has_adapters = vllm_config.lora_config is not None
        if vllm_config.lora_config is None or vllm_config.model_config is None:
            return
        if vllm_config.model_config.get_num_experts():
            raise ValueError("vLLM on ktir has no LoRA for models with experts: merge the adapter into the model's weights")
        if vllm_config.lora_config.enable_tower_connector_lora:
            raise ValueError("vLLM on ktir has no LoRA for encoders of images: leave enable_tower_connector_lora off")

    @classmethod
    def _check_states(cls, cache: Any) -> None:
        """Where prefixes of models with states are kept, chunks of prompts end where blocks end, and so states are theirs."""
        if cache.mamba_cache_mode == "all":
            cache.mamba_cache_mode = "align"
        if cache.mamba_cache_mode == "align" and cache.prefix_match_unit is not None:
            raise ValueError("vLLM on ktir keeps states at the ends of blocks alone: leave prefix_match_unit off")

    @classmethod
    def get_punica_wrapper(cls) -> str:
        return ADAPTERS

    @classmethod
    def can_update_inplace(cls) -> bool:
        return False  # layers with adapters take the sum instead of adding to what they have

    @classmethod
    def validate_request(cls, processed_inputs: Any, params: Any) -> None:
        """Refuse what vLLM lets pass and an engine does not survive, or answers wrongly. Of adapters it tells the rows that are sampled
        alone.
        """
        if cls.has_adapters and getattr(params, "prompt_logprobs", None) is not None:
            said = "vLLM on ktir has no prompt_logprobs beside LoRA: start the server without enable_lora for them"
            raise upstream.VLLMValidationError(said, parameter="prompt_logprobs")
        cls._check_schemas(getattr(params, "structured_outputs", None))
        tokens = {"stop_token_ids": getattr(params, "stop_token_ids", None)}
        if processed_inputs.get("type") == "token":  # places of images may have numbers of their own
            tokens["prompt"] = processed_inputs["prompt_token_ids"]
        for name, numbers in tokens.items():
            if wrong := [number for number in numbers or () if not 0 <= number < cls.vocabulary]:
                said = f"{name}: tokens are numbers from 0 to {cls.vocabulary - 1}, but got {', '.join(map(str, wrong[:3]))}"
                raise upstream.VLLMValidationError(said, parameter=name)

    @classmethod
    def _check_schemas(cls, asked: Any) -> None:
        if asked is None or asked._backend != GRAMMARS:
            return
        for schema in schemas.of_structured(asked):
            if wrong := schemas.not_followed(schema):
                said = f"xgrammar does not follow {wrong}: change the schema, or start with --structured-outputs-config.backend guidance"
                raise upstream.VLLMValidationError(said, parameter="structured_outputs")

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return upstream.COMMUNICATOR
