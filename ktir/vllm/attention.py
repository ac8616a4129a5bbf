"""Paged attention as plain operators of PyTorch, traced with the model.

A program works on sequences with equally many padded tokens. A token sees what lies before it in the pages of its sequence: the mask
follows from positions alone. Padding reads and writes block 0, which vLLM never gives to a sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ktir.vllm.upstream import AttentionBackend, AttentionImpl, AttentionMetadata, AttentionMetadataBuilder, AttentionType, MultipleOf

CACHES = ("auto", "fp8", "fp8_e4m3")
"""Types of keys and values in the cache; those of one byte are divided by the layer's scale and held within what the type has."""


def _kept(values: torch.Tensor, scale: float, dtype: torch.dtype) -> torch.Tensor:
    if dtype.itemsize > 1:
        return values.to(dtype)
    most = torch.finfo(dtype).max
    return (values / scale).clamp(-most, most).to(dtype)


@dataclass
class StepInputs(AttentionMetadata):
    """What the attention of one program reads, the same for all layers; i64."""

    positions: torch.Tensor
    """[sequences, tokens], of each token in its sequence."""
    rows: torch.Tensor
    """[sequences, positions], block * block size + place in it: where the keys and values of each position are, counted by the host once
    for all layers; of layers with states the block that is read and the one that is written."""
    slots: torch.Tensor
    """[sequences * tokens], the same of where the keys and values of each token go."""
    lengths: torch.Tensor
    """[sequences], of their tokens in the program; the others are padding behind them."""
    adapters: torch.Tensor | None = None
    """[sequences * tokens], places of the adapters of each token's sequence, or NONE; only where a model has adapters."""


@dataclass
class BatchMetadata(AttentionMetadata):
    """vLLM's description of a whole step, for the runner, which cuts it into programs."""

    common: Any


class Builder(AttentionMetadataBuilder[BatchMetadata]):
    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:  # abstract there
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> BatchMetadata:
        return BatchMetadata(common_attn_metadata)


class PagedAttention(AttentionImpl[StepInputs]):
    """Attention of one layer.

    `sliding_window` is the number of positions that a token sees, itself among them, and in an encoder as many behind it;
    `logits_soft_cap` bounds scores by its tanh; `alibi_slopes` [heads] bends them by distance; `sinks` [heads] are scores of a key whose
    value is zero.
    """

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        kinds = (AttentionType.DECODER, AttentionType.ENCODER_ONLY)
        refused = {attn_type: attn_type not in kinds, f"cache of {kv_cache_dtype}": kv_cache_dtype not in CACHES}
        if named := [name for name, asked in refused.items() if asked]:
            raise NotImplementedError(f"the paged attention of ktir has no {', '.join(named)}; use a model without it")
        self.num_heads, self.head_size, self.scale, self.num_kv_heads = num_heads, head_size, float(scale), num_kv_heads
        self.encodes = attn_type == AttentionType.ENCODER_ONLY
        self.window, self.soft_cap, self.sinks = sliding_window, logits_soft_cap or None, sinks
        self.slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes, dtype=torch.float32)

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: tuple[torch.Tensor, torch.Tensor],
        attn_metadata: StepInputs,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write `output` [sequences * tokens, heads, size]; `kv_cache` is keys and values [blocks, block size, heads of them, size]."""
        step, size = attn_metadata, self.head_size
        q, k, v = (x.view(len(step.positions), -1, x.numel() // (len(query) * size), size).transpose(1, 2) for x in (query, key, value))
        if not self.encodes:
            k, v = self._through_cache(layer, key, value, kv_cache, step, query.dtype)
        here, there = step.positions[:, None, :, None], torch.arange(k.shape[2])[None, None, None, :]
        seen = there < step.lengths.clamp(min=1)[:, None, None, None] if self.encodes else there <= here
        if self.window is not None:
            seen = seen & (there > here - self.window)
            if self.encodes:
                seen = seen & (there < here + self.window)
        if self.soft_cap is None and self.sinks is None and self.slopes is None:
            found = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=self.scale, enable_gqa=True)
        else:
            found = self._written_out(q, k, v, seen, there - here)
        return output.copy_(found.transpose(1, 2).reshape(output.shape))

    def _through_cache(
        self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: Any, step: StepInputs, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write what is new, and read all of each sequence's rows [sequences, heads, positions, size]."""
        keys, values = kv_cache
        heads, size = keys.shape[2:]
        # The chip's compiler scatters and gathers rows of two dims, by a number for each.
        keys, values = keys.view(-1, heads * size), values.view(-1, heads * size)
        scales = (1.0, 1.0) if keys.dtype.itemsize > 1 else (layer._k_scale_float, layer._v_scale_float)
        is_real = step.slots[:, None] >= kv_cache[0].shape[1]  # what padding leaves in block 0 is read by others, with a weight of zero
        for cache, new, scale in zip((keys, values), (key, value), scales, strict=True):
            new = torch.where(is_real, new.reshape(-1, heads * size), 0.0)
            cache.index_copy_(0, step.slots, _kept(new, scale, cache.dtype))
        rows = step.rows.view(-1)
        k, v = (c.index_select(0, rows).view(len(step.rows), -1, heads, size).transpose(1, 2).to(dtype) for c in (keys, values))
        return (k, v) if scales == (1.0, 1.0) else (k * scales[0], v * scales[1])

    def _written_out(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor, ahead: torch.Tensor) -> torch.Tensor:
        """Attention whose scores PyTorch's own does not know; operands [sequences, heads, tokens, size], scores in f32."""
        each = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(each, 1), v.repeat_interleave(each, 1)
        scores = (q * self.scale) @ k.transpose(-1, -2)
        scores = scores.float()
        if self.soft_cap is not None:
            scores = self.soft_cap * torch.tanh(scores / self.soft_cap)
        if self.slopes is not None:
            scores = scores + self.slopes[:, None, None] * ahead
        scores = scores.masked_fill(~seen, -torch.inf)
        most = scores.amax(-1, keepdim=True)
        if self.sinks is None:
            weights = torch.exp(scores - most)
            whole = weights.sum(-1, keepdim=True)
        else:
            sinks = self.sinks.float()[:, None, None]
            most = torch.maximum(most, sinks)
            weights = torch.exp(scores - most)
            whole = weights.sum(-1, keepdim=True) + torch.exp(sinks - most)
        return (weights / whole).to(v.dtype) @ v


class PagedAttentionBackend(AttentionBackend):
    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16, torch.float32]
    supported_kv_cache_dtypes: ClassVar[list[str]] = list(CACHES)

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"  # vLLM looks the name up among those that it knows

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[int | MultipleOf]:
        return [MultipleOf(16)]

    @staticmethod
    def get_impl_cls() -> type[PagedAttention]:
        return PagedAttention

    @staticmethod
    def get_builder_cls() -> type[Builder]:
        return Builder

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int, block_size: int, num_kv_heads: int, head_size: int, cache_dtype_str: str = "auto"
    ) -> tuple[int, ...]:
        return (num_blocks, block_size, num_kv_heads, head_size)
