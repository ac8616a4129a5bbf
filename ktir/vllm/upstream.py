"""All names of vLLM 0.27.1 that are not its public interface, and what stands in for parts of it that need CUDA or Triton.

Each is imported at its first use, since vLLM asks for the platform while it is being imported itself. Another version of vLLM shows here
first: `test/serving` looks all of them up.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from inspect import unwrap
from pathlib import Path
from typing import Any

import torch

NAMES = {
    "vllm.config": ("CompilationMode", "VllmConfig"),
    "vllm.engine.arg_utils": ("EngineArgs",),
    "vllm.entrypoints.anthropic.serving": ("AnthropicServingMessages",),
    "vllm.entrypoints.openai.responses.serving": ("OpenAIServingResponses",),
    "vllm.entrypoints.serve.utils.error_response": ("create_error_response",),
    "vllm.exceptions": ("VLLMClientError", "VLLMValidationError"),
    "vllm.forward_context": ("get_forward_context", "set_forward_context"),
    "vllm.logger": ("init_logger",),
    "vllm.lora.punica_wrapper.punica_base": ("PunicaWrapperBase",),
    "vllm.model_executor.custom_op": ("op_registry_oot",),
    "vllm.model_executor.layers.attention.mm_encoder_attention": ("MMEncoderAttention",),
    "vllm.model_executor.layers.fused_moe.activation": ("MoEActivation",),
    "vllm.model_executor.layers.fused_moe.runner.moe_runner": ("MoERunner",),
    "vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method": ("UnquantizedFusedMoEMethod",),
    "vllm.model_executor.layers.mamba.mamba_mixer2": ("MambaMixer2",),
    "vllm.model_executor.model_loader": ("get_model",),
    "vllm.model_executor.models.interfaces": ("supports_encoder_cudagraph",),
    "vllm.platforms": ("Platform", "PlatformEnum", "current_platform"),
    "vllm.usage.usage_lib": ("UsageContext",),
    "vllm.utils.network_utils": ("zmq_socket_ctx",),
    "vllm.utils.torch_utils": ("set_random_seed",),
    "vllm.v1.attention.backend": (
        "AttentionBackend",
        "AttentionImpl",
        "AttentionMetadata",
        "AttentionMetadataBuilder",
        "AttentionType",
        "MultipleOf",
    ),
    "vllm.v1.attention.backends.registry": ("AttentionBackendEnum", "register_backend"),
    "vllm.v1.core.sched.scheduler": ("Scheduler",),
    "vllm.v1.kv_cache_interface": ("EncoderOnlyAttentionSpec", "MambaSpec", "UniformTypeKVCacheSpecs"),
    "vllm.v1.request": ("RequestStatus",),
    "vllm.v1.sample.sampler": ("Sampler",),
    "vllm.v1.worker.cpu_model_runner": ("_set_torch_accelerator_to_noop", "_torch_cuda_wrapper"),
    "vllm.v1.worker.encoder_cudagraph": ("BudgetGraphMetadata", "EncoderCudaGraphManager"),
    "vllm.v1.worker.gpu_model_runner": ("GPUModelRunner",),
    "vllm.v1.worker.gpu_worker": ("Worker", "init_worker_distributed_environment"),
    "vllm.v1.worker.utils": ("bind_kv_cache",),
    "vllm.v1.worker.worker_base": ("CompilationTimes",),
}
"""By module."""
MODULE_OF = {name: module for module, names in NAMES.items() for name in names}
COMMUNICATOR = "vllm.distributed.device_communicators.base_device_communicator.DeviceCommunicatorBase"


def __getattr__(name: str) -> Any:
    if name not in MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(MODULE_OF[name]), name)


def slot_mapping(
    num_tokens: int,
    max_num_tokens: int,
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    block_table: torch.Tensor,
    block_table_stride: int,
    block_size: int,
    slot_mapping: torch.Tensor,
    **options: Any,
) -> None:
    """What vLLM's Triton kernel does: the slot of every token of a step, from its position and the blocks of its sequence."""
    lengths = (query_start_loc[1:] - query_start_loc[:-1]).long()
    request = torch.repeat_interleave(torch.arange(len(lengths)), lengths)[:num_tokens]
    position = positions[:num_tokens].long()
    slot_mapping[:num_tokens] = block_table[request, position // block_size].long() * block_size + position % block_size
    slot_mapping[num_tokens:max_num_tokens] = options["PAD_ID"]


class _Launchable:
    """Triton's `kernel[grid](...)`."""

    def __getitem__(self, grid: Any) -> Any:
        return slot_mapping


def without_triton() -> None:
    """Put PyTorch in the place of the Triton kernel that every step needs, and nothing in that of copies that no step needs here."""
    block_table: Any = import_module("vllm.v1.worker.block_table")
    block_table._compute_slot_mapping_kernel = _Launchable()
    states: Any = import_module("vllm.v1.worker.mamba_utils")
    states.preprocess_mamba = lambda *inputs, **options: None  # it copies states from block to block


def without_compiled_ranks() -> None:
    """Count ranks of log probabilities as they stand: Dynamo compiles nothing for a request."""
    sampler: Any = import_module("vllm.v1.sample.sampler")
    sampler.batched_count_greater_than = unwrap(sampler.batched_count_greater_than)


def without_stale_masks() -> None:
    """Let a request that names no `allowed_token_ids` have all tokens: the pinned one leaves it those of the request that was in its row
    until that one moved.
    """
    batch: Any = import_module("vllm.v1.worker.gpu_input_batch").InputBatch
    if hasattr(batch.add_request, "__wrapped__"):
        return

    @wraps(batch.add_request)
    def add_request(self: Any, request: Any) -> int:
        row = add_request.__wrapped__(self, request)
        if self.allowed_token_ids_mask_cpu_tensor is not None and request.req_id not in self.has_allowed_token_ids:
            self.allowed_token_ids_mask_cpu_tensor[row] = False
        return row

    batch.add_request = add_request


TORCHVISION = torch.library.Library("torchvision", "FRAGMENT")
SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
"""Of operators that torchvision 0.28 looks up when it is imported."""


def without_torchvision_kernels() -> None:
    """Let a torchvision that was built for CUDA be imported beside a torch without it. Models want its transforms of images, which need
    none of its operators.
    """
    found = find_spec("torchvision")
    if found is None or found.origin is None:
        return
    try:
        torch.ops.load_library(str(Path(found.origin).with_name("_C.so")))
    except OSError:
        for schema in SCHEMAS:
            TORCHVISION.define(schema)


def let_text_come_apart() -> None:
    """Let processors of transformers take text with places for images but no images, which the pinned one refuses: vLLM hands over text and
    images one after the other.
    """
    mixin: Any = import_module("transformers.processing_utils").ProcessorMixin
    if hasattr(mixin.validate_inputs, "__wrapped__"):
        return

    @wraps(mixin.validate_inputs)
    def validate(processor: Any, images: Any = None, text: Any = None, videos: Any = None, audio: Any = None, **options: Any) -> None:
        if text is None or not (images is None and videos is None and audio is None):
            validate.__wrapped__(processor, images=images, text=text, videos=videos, audio=audio, **options)

    mixin.validate_inputs = validate


def set_batches(seats: int, tokens: int) -> None:
    """What an engine has of both where nobody says it: vLLM's numbers are those of large GPUs."""
    contexts = None, *__getattr__("UsageContext")

    def defaults(arguments: Any, world_size: int) -> tuple[dict[Any, int], dict[Any, int]]:
        return dict.fromkeys(contexts, tokens), dict.fromkeys(contexts, seats)

    __getattr__("EngineArgs").get_batch_defaults = classmethod(defaults)


def _said(error: BaseException) -> str:
    """With what it comes from, where it does not say that itself; xgrammar's own files and times say nothing."""
    cause = error.__cause__
    said = str(error) if cause is None or str(cause) in str(error) else f"{error} {cause}"
    return re.sub(r"\[[\d:]+\] \S+:\d+: ", "", said)


def let_requests_be_refused() -> None:
    """Let the server answer what is wrong with a request, which the pinned one partly takes for failures of its own and keeps to itself:
    whatever its checks stumble over, as over a word without tokens, and what stops an engine that follows it. Numbers that have no bytes on
    the way to the engine are wrong too.
    """
    processor: Any = import_module("vllm.v1.engine.input_processor").InputProcessor
    if hasattr(processor.process_inputs, "__wrapped__"):
        return
    encode = import_module("msgspec").msgpack.encode
    refused: Any = type("RequestError", (__getattr__("VLLMValidationError"), ValueError), {})
    _let_answers_be_refusals(refused)

    @wraps(processor.process_inputs)
    def process_inputs(self: Any, request_id: str, prompt: Any, params: Any, *others: Any, **options: Any) -> Any:
        try:
            encode(params, enc_hook=lambda unknown: None)
            return process_inputs.__wrapped__(self, request_id, prompt, params, *others, **options)
        except (ValueError, TypeError, OverflowError) as error:
            raise refused(_said(error)) from error
        except (AssertionError, AttributeError, LookupError) as error:
            raise refused(f"the request is not what is expected here: {str(error) or type(error).__name__}") from error

    processor.process_inputs = process_inputs


def _let_answers_be_refusals(refused: Any) -> None:
    """Let the server refuse a request that the engine ended with a reason, with all else that it asked for."""
    processor: Any = import_module("vllm.v1.engine.output_processor").OutputProcessor

    @wraps(processor.process_outputs)
    def process_outputs(self: Any, outputs: Any, *others: Any, **options: Any) -> Any:
        failed = [output for output in outputs if str(output.finish_reason) == "error" and output.stop_reason is not None]
        ended = [(self.request_states.get(output.request_id), output.stop_reason) for output in failed]
        found = process_outputs.__wrapped__(self, outputs, *others, **options)
        for state, said in ended:
            if state is None or state.queue is None:
                continue  # what calls an engine itself has the reason in what it gives
            state.queue.put(refused(said))
            if state.parent_req is not None:
                found.reqs_to_abort.extend(self.abort_requests([state.parent_req.request_id], internal=True))
        return found

    processor.process_outputs = process_outputs


def let_starts_be_stopped() -> None:
    """Let SIGTERM and Ctrl+C end an engine that starts: the pinned one leaves them out while it waits for the engine, and waits on."""
    engine: Any = import_module("vllm.v1.engine.utils")
    stock = __getattr__("zmq_socket_ctx")
    if engine.zmq_socket_ctx is not stock:
        return

    @contextmanager
    def opened(*inputs: Any, **options: Any) -> Iterator[Any]:
        stopped = None
        with stock(*inputs, **options) as socket:
            try:
                yield socket
            except KeyboardInterrupt as error:
                stopped = error
        if stopped is not None:
            raise stopped

    engine.zmq_socket_ctx = opened


def let_servers_refuse() -> None:
    """Let the server answer what is wrong with a body of JSON, of which the pinned one partly takes for granted what it is about to check:
    that it is an object, and what its fields are. Whatever fails before a request is made of it is the client's, and so is what is refused
    at `/v1/messages`, where it calls everything a failure of its own.
    """
    if "vllm.entrypoints.openai.api_server" not in sys.modules:
        return
    routing: Any = import_module("fastapi.routing")
    requests: Any = import_module("starlette.requests")
    if hasattr(routing.solve_dependencies, "__wrapped__"):
        return
    refused, answer, client = routing.RequestValidationError, __getattr__("create_error_response"), __getattr__("VLLMClientError")

    @wraps(routing.solve_dependencies)
    async def solve(**options: Any) -> Any:
        try:
            return await solve.__wrapped__(**options)
        except refused:
            raise
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            said = f"the body is not what is expected here: {error}"
            raise refused([{"type": "value_error", "loc": ("body",), "msg": said, "input": None}]) from error

    @wraps(requests.Request.json)
    async def json(request: Any) -> Any:
        try:
            return await json.__wrapped__(request)
        except RecursionError as error:
            raise ValueError("the body has too many brackets within each other") from error

    def answered(stock: Any) -> Any:
        @wraps(stock)
        async def answer_of(*inputs: Any, **options: Any) -> Any:
            try:
                return await stock(*inputs, **options)
            except (client, ValueError, TypeError, OverflowError) as error:
                return answer(error)

        return answer_of

    routing.solve_dependencies, requests.Request.json = solve, json
    messages = __getattr__("AnthropicServingMessages")
    messages.create_messages, messages.count_tokens = answered(messages.create_messages), answered(messages.count_tokens)
    _let_events_be_errors((client, ValueError, TypeError, OverflowError), answer)


def _let_events_be_errors(refused: tuple[type[Exception], ...], answer: Any) -> None:
    """Let a stream of `/v1/responses` end with an error, as the others do; the pinned one drops the connection."""
    served: Any = __getattr__("OpenAIServingResponses")
    stock, error_event = served.responses_stream_generator, import_module("openai.types.responses").ResponseErrorEvent

    @wraps(stock)
    async def events(*inputs: Any, **options: Any) -> Any:
        sent = 0
        try:
            async for event in stock(*inputs, **options):
                yield event
                sent += 1
        except refused as error:
            said = answer(error).error
            yield error_event(type="error", code=str(said.code), message=said.message, param=said.param, sequence_number=sent)

    served.responses_stream_generator = events


def route_by(softmax: Any, sigmoid: Any) -> None:
    """Put functions of PyTorch in the place of the kernels with which routers choose experts."""
    router: Any = import_module("vllm.model_executor.layers.fused_moe.router.fused_topk_router")
    router.vllm_topk_softmax, router.vllm_topk_sigmoid = softmax, sigmoid


def replace_layer(stock: Any, ours: type) -> None:
    """Let models be built of another class wherever they ask for a layer of vLLM."""
    if stock.__name__ not in __getattr__("op_registry_oot"):
        stock.register_oot(ours)
