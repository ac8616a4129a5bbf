"""Vision parts, tiny, from transformers' configurations with random weights: what runs before a language model, and a convolutional net."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn
from transformers.models.pixtral.modeling_pixtral import PixtralAttentionLayer
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionPatchEmbed, Qwen2_5_VLVisionBlock
from transformers.models.resnet.modeling_resnet import ResNetBasicLayer, ResNetBottleNeckLayer

Part = tuple[nn.Module, tuple[Any, ...]]
"""A module and the inputs of a call."""


def _noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def _angles(patches: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [patches, width] of a rotary embedding."""
    angles = torch.arange(patches)[:, None] / torch.arange(1, width + 1)
    return angles.cos(), angles.sin()


def _pixtral_config() -> transformers.PixtralVisionConfig:
    return transformers.PixtralVisionConfig(
        hidden_size=36, intermediate_size=50, num_hidden_layers=2, num_attention_heads=3, patch_size=4, image_size=32
    )


def _pixtral_block() -> Part:
    config = _pixtral_config()
    config._attn_implementation = "sdpa"
    block = PixtralAttentionLayer(config)
    mask = torch.zeros(1, 1, 13, 13).masked_fill(torch.arange(13)[:, None] < torch.arange(13) // 5 * 5, float("-inf"))
    return block, (_noise(1, 13, 36), mask, _angles(13, 12))


class _Hidden(nn.Module):
    """The tower's last hidden state, of one image."""

    def __init__(self, tower: nn.Module) -> None:
        super().__init__()
        self.tower = tower

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.tower(pixels).last_hidden_state


def _pixtral_tower() -> Part:
    return _Hidden(transformers.PixtralVisionModel(_pixtral_config())), (_noise(1, 3, 20, 28),)


def _qwen_config() -> Qwen2_5_VLVisionConfig:
    config = Qwen2_5_VLVisionConfig(
        depth=1, hidden_size=36, intermediate_size=50, num_heads=3, patch_size=4, temporal_patch_size=2, hidden_act="silu"
    )
    config._attn_implementation = "sdpa"
    return config


class _Bounds:
    """Where windows begin and end, known to the host: the block takes differences of them and a list of those."""

    def __init__(self, *values: int) -> None:
        self.values = values

    def __getitem__(self, part: slice) -> _Bounds:
        return _Bounds(*self.values[part])

    def __sub__(self, other: _Bounds) -> _Bounds:
        return _Bounds(*(a - b for a, b in zip(self.values, other.values, strict=True)))

    def tolist(self) -> list[int]:
        return list(self.values)


class _QwenBlock(nn.Module):
    """Patches to hidden states: the embedding, which is a convolution in three dims, and a block whose attention has two windows."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = Qwen2_5_VisionPatchEmbed(patch_size=4, temporal_patch_size=2, in_channels=3, embed_dim=36)
        self.block = Qwen2_5_VLVisionBlock(_qwen_config())

    def forward(self, patches: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        bounds: Any = _Bounds(0, 8, 13)
        return self.block(self.embed(patches), cu_seqlens=bounds, position_embeddings=(cos, sin))


def _resnet_basic() -> Part:
    return ResNetBasicLayer(5, 7, stride=2), (_noise(2, 5, 13, 10),)


def _resnet_bottleneck() -> Part:
    return ResNetBottleNeckLayer(8, 12, stride=2), (_noise(1, 8, 9, 9),)


class _Pooled(nn.Module):
    """A whole net, with its pooling."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.net(pixels).pooler_output


def _resnet() -> Part:
    config = transformers.ResNetConfig(embedding_size=6, hidden_sizes=[6, 10], depths=[1, 1], layer_type="basic")
    return _Pooled(transformers.ResNetModel(config)), (_noise(2, 3, 21, 17),)


def _randomized(module: nn.Module) -> nn.Module:
    """Weights, biases and the statistics of norms are random; variances are positive."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if tensor.is_floating_point() and "inv_freq" not in name:
                around = 1.0 if tensor.dim() == 1 else 0.0
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.1 + around)
    return module.eval()


PARTS: dict[str, Callable[[], Part]] = {
    "pixtral_block": _pixtral_block,
    "pixtral_tower": _pixtral_tower,
    "qwen_block": lambda: (_QwenBlock(), (_noise(13, 96), *_angles(13, 12))),
    "resnet_basic": _resnet_basic,
    "resnet_bottleneck": _resnet_bottleneck,
    "resnet": _resnet,
}


def build(part: str) -> Part:
    """A part for inference, in float32, and inputs for it."""
    module, inputs = PARTS[part]()
    return _randomized(module), inputs
