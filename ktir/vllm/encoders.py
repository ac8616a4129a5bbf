"""Encoders of images and videos as programs: vLLM packs items into few sizes, for which it otherwise records graphs of CUDA.

A model that knows that protocol (`SupportsEncoderCudaGraph`) says which tensors its encoder takes at a size; the encoder of another one
runs on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from ktir.vllm.programs import sizes
from ktir.vllm.upstream import BudgetGraphMetadata, EncoderCudaGraphManager, MMEncoderAttention, replace_layer, supports_encoder_cudagraph

LEAST_ITEM = 16
"""Tokens of the smallest size, which is also the most items of one call."""


class PlainEncoderAttention(MMEncoderAttention):
    """Attention among the patches of one image, or of a window of it."""

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cu_seqlens: torch.Tensor | None = None, *others: Any, **more: Any
    ) -> torch.Tensor:
        """[batch, patches, heads, size] or with the last two as one -> the same; `cu_seqlens` are the ends of images, or windows, from 0.
        What lies behind the last one is padding.
        """
        q, k, v = (x.view(*x.shape[:2], -1, self.head_size).transpose(1, 2) for x in (query, key, value))
        seen = None
        if cu_seqlens is not None:
            image = (torch.arange(q.shape[2])[:, None] >= cu_seqlens[None, 1:]).sum(-1)
            seen = image[:, None] == image[None, :]
        grouped = self.num_heads > self.num_kv_heads
        found = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=self.scale, enable_gqa=grouped)
        return found.transpose(1, 2).reshape(query.shape)


@dataclass
class _Program:
    """What stands for a recorded graph."""

    run: Callable[[], torch.Tensor]
    output: torch.Tensor

    def replay(self) -> None:
        self.output.copy_(self.run())


class Encoder(EncoderCudaGraphManager):
    """`run(function, *inputs)` calls a compiled function and counts its launches."""

    def __init__(self, vllm_config: Any, dtype: torch.dtype, model: Any, most: int, run: Callable[..., torch.Tensor]) -> None:
        """`most` is the number of tokens that the items of one call come to."""
        compilation = vllm_config.compilation_config
        if not compilation.encoder_cudagraph_token_budgets:
            compilation.encoder_cudagraph_token_budgets = sizes(most, LEAST_ITEM)
            compilation.encoder_cudagraph_max_vision_items_per_batch = min(LEAST_ITEM, most)
        super().__init__(vllm_config, torch.device("cpu"), dtype, model)
        self.run = run
        self.encode = torch.compile(self._encode, backend="spyre", fullgraph=True, dynamic=False)

    def _encode(self, path: str, values: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.model.encoder_cudagraph_forward(dict(values), path=path)

    def _capture_budget_graph(self, token_budget: int, path: str = "default") -> None:
        items, frames = self.max_batch_size, self.max_frames_per_batch
        values = self.model.prepare_encoder_cudagraph_capture_inputs(token_budget, items, frames, self.device, self.dtype, path).values

        def run() -> torch.Tensor:
            return self.run(self.encode, path, values)

        output = run()
        graph: Any = _Program(run, output)
        self._get_graph_set(path)[token_budget] = BudgetGraphMetadata(token_budget, items, frames, graph, values, output)


def encoder_of(vllm_config: Any, dtype: torch.dtype, model: Any, most: int, run: Callable[..., torch.Tensor]) -> Encoder | None:
    """None where a model's encoder has no sizes."""
    return Encoder(vllm_config, dtype, model, most, run) if supports_encoder_cudagraph(model) else None


def register() -> None:
    """Let models be built of this attention."""
    replace_layer(MMEncoderAttention, PlainEncoderAttention)
