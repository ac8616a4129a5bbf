"""What PyTorch's modules ask for as one operator, by the operators of the device: layers of transformers where no gradients are wanted,
batch norms without weights, gradients of weight norms.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ktir.device.tensors.storage import in_turn, on_host

Optional = torch.Tensor | None
_OF_PLACES, _OF_PADDING = 0, 1


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: Optional = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, Optional]:
    """Attention of all heads and its weights, if they are wanted."""
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    q, k, v = (
        F.linear(x, w, b).unflatten(-1, (num_head, -1)).transpose(1, 2)
        for x, w, b in zip((query, key, value), weights, biases, strict=True)
    )
    masked = _masked(mask, mask_type)
    weighted: Optional = None
    if masked is None and not need_weights:
        result = F.scaled_dot_product_attention(q, k, v)
    else:  # a row that is masked completely is NaN, as PyTorch's kernel has it
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        weighted = torch.softmax(scores if masked is None else scores.masked_fill(masked, float("-inf")), -1)
        result = weighted @ v
    if weighted is not None:
        weighted = None if not need_weights else weighted.mean(1) if average_attn_weights else weighted
    return F.linear(result.transpose(1, 2).flatten(2), proj_weight, proj_bias), weighted


def _masked(mask: Optional, mask_type: int | None) -> Optional:
    """What is left out, for scores [batch, heads, places, keys]; numbers count as PyTorch's kernel counts them."""
    if mask is None:
        return None
    masked = mask.to(torch.bool)
    return masked[:, None, None] if mask_type == _OF_PADDING else masked[None, None] if mask_type == _OF_PLACES else masked


def encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: Optional = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """What `nn.TransformerEncoderLayer` computes in evaluation."""

    def attended(x: torch.Tensor) -> torch.Tensor:
        projections = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return attention(x, x, x, embed_dim, num_heads, *projections, mask, need_weights=False, mask_type=mask_type)[0]

    def fed(x: torch.Tensor) -> torch.Tensor:
        return F.linear((F.gelu if use_gelu else F.relu)(F.linear(x, ffn_weight_1, ffn_bias_1)), ffn_weight_2, ffn_bias_2)

    def first(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, [embed_dim], norm_weight_1, norm_bias_1, eps)

    def second(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, [embed_dim], norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attended(first(src))
        return x + fed(second(x))
    x = first(src + attended(src))
    return second(x + fed(x))


def stays_padded(t: torch.Tensor, mask: torch.Tensor) -> bool:
    """Whether `nn.TransformerEncoder` may leave padding out in nested tensors, of which the device has none."""
    return False


def batch_norm(
    x: torch.Tensor,
    weight: Optional,
    bias: Optional,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    momentum: float,
    eps: float,
) -> Any:
    """A batch norm in training, with the weights that those that are missing stand for: torch traces it with weights only."""
    from ktir.device.operators import fallback, known
    from ktir.diagnostics import KtirError

    weight = running_mean.new_ones(x.shape[1]) if weight is None else weight
    bias = running_mean.new_zeros(x.shape[1]) if bias is None else bias
    op, given = torch.ops.aten._batch_norm_with_update.default, (x, weight, bias, running_mean, running_var, momentum, eps)
    try:
        found = known.again(op, given, {})
    except KtirError as error:
        return fallback.refused(op, given, {}, error)
    return fallback.fallback(op, *given) if found is None else found


def packed(x: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of padded sequences that are no padding, step by step, and how many each step has: those are numbers of the host."""
    if lengths.device.type != "cpu":
        raise RuntimeError(f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D {lengths.device} tensor")
    places = torch.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1])
    chosen, sizes = torch.ops.aten._pack_padded_sequence(places, lengths, batch_first)
    return x.flatten(0, 1).index_select(0, chosen.to(x.device)), sizes


def weight_norm_backward(
    grad: torch.Tensor, v: torch.Tensor, g: torch.Tensor, norms: torch.Tensor, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of direction and magnitude of a normalized weight, in float32 at least: the host has no such kernel for half precision."""
    dtype = torch.promote_types(v.dtype, torch.float32)
    wide, direction, magnitude = grad.to(dtype), v.to(dtype), g.to(dtype)
    others = [d for d in range(v.dim()) if d != dim]
    along = (wide * direction).sum(others, keepdim=True)
    lengths = norms.to(dtype).view(along.shape)
    of_direction = magnitude.view(along.shape) / lengths * (wide - direction * (along / (lengths * lengths)))
    return of_direction.to(v.dtype), (along / lengths).view(g.shape).to(g.dtype)


def one_hot(self: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """As PyTorch takes it apart; it looks at the numbers on the host alone, where indices out of range would be refused in other words."""
    if self.dtype == torch.int64 and self.numel():
        with in_turn(self):
            least, most = (int(n) for n in on_host(self).aminmax())
        if least < 0:
            raise RuntimeError("Class values must be non-negative.")
        if num_classes != -1 and most >= num_classes:
            raise RuntimeError("Class values must be smaller than num_classes.")
    return torch.ops.aten.one_hot.default._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, self, num_classes)


KERNELS: dict[str, Any] = {
    "one_hot": one_hot,
    "_pack_padded_sequence": packed,
    "_native_multi_head_attention": attention,
    "_transformer_encoder_layer_fwd": encoder_layer,
    "_batch_norm_with_update": batch_norm,
    "_nested_tensor_from_mask_left_aligned": stays_padded,
    "_weight_norm_interface_backward": weight_norm_backward,
}
"""Kernels by name."""
