"""scaled_dot_product_attention, in graphs and outside: PyTorch takes it apart for devices that it does not know, into scores in memory and
repeated keys. Here it is taken by the operators that are taken on the host.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

aten = torch.ops.aten
_IN_CPP = {torch.float32: "float", torch.float64: "double", torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16"}
_FLASH, _OVERRIDEABLE = 1, 4  # SDPBackend


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
    if not query.dtype == key.dtype == value.dtype:
        names = (_name_in_cpp(t.dtype) for t in (query, key, value))
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: {} key.dtype: {} and value.dtype: {} "
            "instead.".format(*names)
        )
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


def _name_in_cpp(dtype: torch.dtype) -> str:
    return _IN_CPP.get(dtype, str(dtype).removeprefix("torch."))


def _as_on_host(tensor: torch.Tensor) -> Any:
    """A tensor of the host of the same shape and type; NotImplemented where the shape is not known."""
    if any(not isinstance(n, int) for n in (*tensor.shape, *tensor.stride())):
        return NotImplemented
    with _disable_current_modes():
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu", requires_grad=tensor.requires_grad)


def fused_choice(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any) -> int:
    """Who computes attention, as a number of SDPBackend: the device itself."""
    return _OVERRIDEABLE


def fused_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Attention with what its gradients need: the logarithms of the scores' sums."""
    if dropout_p:
        raise NotImplementedError("the device 'spyre' has no fused attention with dropout; scaled_dot_product_attention has")
    result = attention(query, key, value, attn_bias, 0.0, is_causal, scale=scale)
    sums = _scores(query, key, attn_bias, is_causal, scale).logsumexp(-1)
    none = query.new_empty(0, dtype=torch.int64)
    return result, sums, none, none, query.shape[-2], key.shape[-2], none, none, query.new_empty(0)


def fused_attention_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    grad_input_mask: list[bool],
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    cum_seq_q: torch.Tensor,
    cum_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: torch.Tensor,
    philox_offset: torch.Tensor,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """The gradients of `fused_attention`, in float32 at least."""
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    bias = attn_bias if attn_bias is not None and attn_bias.numel() else None
    gradient, wide = _wide(grad_out.to(query.device)), _wide(value)
    weights = (_scores(query, key, bias, is_causal, scale) - logsumexp.unsqueeze(-1)).exp()
    of_weights = gradient @ wide.transpose(-2, -1)
    of_scores = weights * (of_weights - (gradient * _wide(out)).sum(-1, keepdim=True))
    found: list[Any] = [
        (of_scores @ _wide(key) * factor).to(query.dtype),
        (of_scores.transpose(-2, -1) @ _wide(query) * factor).to(key.dtype),
        (weights.transpose(-2, -1) @ gradient).to(value.dtype),
        None if bias is None else of_scores.sum_to_size(bias.shape).to(bias.dtype),
    ]
    return tuple(each if wanted else None for each, wanted in zip(found, grad_input_mask, strict=True))


def _scores(query: torch.Tensor, key: torch.Tensor, bias: torch.Tensor | None, is_causal: bool, scale: float | None) -> torch.Tensor:
    scores = _wide(query) @ _wide(key).transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1).to(scores.device)
        scores = scores.masked_fill(later, -math.inf)
    return scores if bias is None else scores + _wide(bias)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


FUSED = {
    "_fused_sdp_choice": fused_choice,
    "_scaled_dot_product_fused_attention_overrideable": fused_attention,
    "_scaled_dot_product_fused_attention_overrideable_backward": fused_attention_backward,
}
"""Kernels that a device may have of its own, by name."""
