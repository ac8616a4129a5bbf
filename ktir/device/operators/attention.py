"""scaled_dot_product_attention, in graphs and outside: PyTorch takes it apart for devices that it does not know, into scores in memory and
repeated keys. Here it is taken by the operators that are taken on the host.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

aten = torch.ops.aten
_FLASH = 1  # SDPBackend


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """scaled_dot_product_attention by the operators that PyTorch takes for the same tensors on the host."""
    given = [None if t is None else _as_on_host(t) for t in (query, key, value, attn_mask)]
    chosen = 0
    if not any(g is NotImplemented for g in given):
        with _disable_current_modes():
            chosen = aten._fused_sdp_choice.default(*given, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(attn_mask.logical_not(), -math.inf)
    if chosen == _FLASH:
        fused = aten._scaled_dot_product_flash_attention_for_cpu.default
        return fused(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]
    taken_apart = aten._scaled_dot_product_attention_math.default
    return taken_apart(query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa)[0]


def _as_on_host(tensor: torch.Tensor) -> Any:
    """A tensor of the host of the same shape and type; NotImplemented where the shape is not known."""
    if any(not isinstance(n, int) for n in (*tensor.shape, *tensor.stride())):
        return NotImplemented
    with _disable_current_modes():
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu", requires_grad=tensor.requires_grad)
