"""Mixtures of experts as plain operators of PyTorch, traced with the model: vLLM's own are kernels for GPUs.

Which experts a token goes to is decided by vLLM's routers; of the weights, a program reads what the tokens chose, in place.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import functional

from ktir.vllm.upstream import MoEActivation, MoERunner, UnquantizedFusedMoEMethod, replace_layer, route_by

LIMIT, SLOPE = 7.0, 1.702
"""Of the gate of GPT-OSS, as its model card gives them."""


def _chosen(scores: torch.Tensor, weights: torch.Tensor, renormalize: bool) -> tuple[torch.Tensor, torch.Tensor]:
    best, ids = scores.topk(weights.shape[1])
    return (best / best.sum(-1, keepdim=True) if renormalize else best), ids


def _by_softmax(weights: torch.Tensor, ids: torch.Tensor, pairs: torch.Tensor, logits: torch.Tensor, renormalize: bool = False) -> Any:
    """Weights f32 and numbers i64 of the experts of each token, [tokens, experts of a token] as `weights` is; logits [tokens, experts]."""
    return _chosen(logits.softmax(-1, dtype=torch.float32), weights, renormalize)


def _by_sigmoid(weights: torch.Tensor, ids: torch.Tensor, pairs: torch.Tensor, logits: torch.Tensor, renormalize: bool = False) -> Any:
    return _chosen(logits.float().sigmoid(), weights, renormalize)


def _gated(kind: Any, x: torch.Tensor) -> torch.Tensor:
    """[rows, 2 * inner], gates before the others -> [rows, inner]."""
    gate, up = x.chunk(2, -1)
    if kind == MoEActivation.SWIGLUOAI:
        gate, up = gate.clamp(max=LIMIT), up.clamp(-LIMIT, LIMIT)
        return (up + 1) * gate * torch.sigmoid(gate * SLOPE)
    return functional.silu(gate) * up


class PlainExperts(UnquantizedFusedMoEMethod):
    """Experts of one layer: `layer` holds w13 [experts, 2 * inner, size] and w2 [experts, size, inner], with biases or without."""

    is_monolithic = False  # routing stays apart
    supports_internal_mk = False

    def __init__(self, moe: Any) -> None:
        torch.nn.Module.__init__(self)
        self.moe, self.moe_quant_config, self.moe_kernel = moe, None, None
        if moe.activation not in (MoEActivation.SILU, MoEActivation.SWIGLUOAI):
            raise NotImplementedError(f"ktir has no experts with the activation {moe.activation.value}; use a model with silu")

    def process_weights_after_loading(self, layer: Any) -> None:
        """GPT-OSS has gates and others by turns: they are put one after the other."""
        if layer.activation == MoEActivation.SWIGLUOAI:
            for name in ("w13_weight", "w13_bias"):
                held = getattr(layer, name)
                held.data = torch.cat((held[:, ::2], held[:, 1::2]), 1)

    def apply(self, layer: Any, x: torch.Tensor, topk_weights: torch.Tensor, topk_ids: torch.Tensor, *shared: Any, **others: Any) -> Any:
        """x [tokens, size] -> the same, summed over each token's experts in f32."""
        experts = len(layer.w13_weight)
        every = topk_ids.numel() >= experts  # so many choices read as much as all experts are
        found = self._of_every(layer, x, topk_weights, topk_ids) if every else self._of_chosen(layer, x, topk_weights, topk_ids)
        return found.to(x.dtype)

    def _of_chosen(self, layer: Any, x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Each choice is a row; of the weights it reads its expert's in place."""
        chosen = ids.reshape(-1).long()

        def product(rows: torch.Tensor, name: str) -> torch.Tensor:
            found = torch.bmm(getattr(layer, f"{name}_weight")[chosen], rows.unsqueeze(-1)).squeeze(-1)
            return found + getattr(layer, f"{name}_bias")[chosen] if self.moe.has_bias else found

        inner = _gated(layer.activation, product(x.repeat_interleave(ids.shape[1], 0), "w13"))
        return (product(inner, "w2") * weights.reshape(-1, 1)).view(*ids.shape, -1).sum(1)

    def _of_every(self, layer: Any, x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """All tokens pass all experts, whose weights are read once; what a token did not choose is dropped."""
        experts = len(layer.w13_weight)

        def product(rows: torch.Tensor, name: str) -> torch.Tensor:
            found = torch.bmm(rows, getattr(layer, f"{name}_weight").transpose(1, 2))
            return found + getattr(layer, f"{name}_bias")[:, None] if self.moe.has_bias else found

        found = product(_gated(layer.activation, product(x.expand(experts, *x.shape), "w13")), "w2")
        share = torch.where(ids == torch.arange(experts)[:, None, None], weights, 0.0).sum(-1)[..., None]  # [experts, tokens, 1]
        return torch.where(share > 0, found * share, 0.0).sum(0)


def _traced(runner: Any, hidden: torch.Tensor, logits: torch.Tensor, shared: Any, ids: Any, name: Any, width: int) -> Any:
    return runner._forward_impl(hidden, logits, shared, ids)


def open_up(model: torch.nn.Module) -> None:
    """Let layers of experts be traced, which otherwise hide behind an operator of vLLM."""
    for layer in model.modules():
        layer: Any
        if isinstance(layer, MoERunner):
            layer._forward_entry = partial(_traced, layer)
            layer.routed_experts._ensure_moe_quant_config_init()  # else in the first call, which would be traced apart


def register() -> None:
    """Let models be built of these layers."""
    route_by(_by_softmax, _by_sigmoid)
    replace_layer(UnquantizedFusedMoEMethod, PlainExperts)
