"""Tiny networks written with torch.nn, odd sizes: each builder gives a module and the inputs of a call, batch 3."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from models.zoo_transformers import BATCH, Case, noise, tokens
from torch import nn


class _ResidualBlock(nn.Module):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(3, inside), nn.GroupNorm(3, outside)])
        self.convs = nn.ModuleList([nn.Conv2d(inside, outside, 3, padding=1), nn.Conv2d(outside, outside, 3, padding=1)])
        self.skip = nn.Conv2d(inside, outside, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            y = conv(F.silu(norm(y)))
        return y + self.skip(x)


class _PixelAttention(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(3, channels), nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, c, h * w).transpose(2, 3).unbind(1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, c, h, w))


class UNet(nn.Module):
    """Down, attention in the middle, up with a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = _ResidualBlock(3, 9), nn.Conv2d(9, 9, 3, stride=2, padding=1)
        self.middle, self.attention = _ResidualBlock(9, 15), _PixelAttention(15)
        self.up, self.last = nn.ConvTranspose2d(15, 9, 2, stride=2), _ResidualBlock(18, 9)
        self.out = nn.Conv2d(9, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.first(x)
        deep = self.attention(self.middle(self.down(wide)))
        return self.out(self.last(torch.cat([self.up(deep), wide], 1)))


class Generator(nn.Module):
    """Transposed convolutions from a vector to a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(21, 18, 4, 1, 0, bias=False),
            nn.BatchNorm2d(18),
            nn.ReLU(),
            nn.ConvTranspose2d(18, 10, 4, 2, 1, bias=False),
            nn.BatchNorm2d(10),
            nn.ReLU(),
            nn.ConvTranspose2d(10, 3, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.layers(z[:, :, None, None])


class TextClassifier(nn.Module):
    """Convolutions of several widths over words, the largest value of each."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(101, 20)
        self.convs = nn.ModuleList([nn.Conv1d(20, 11, width) for width in (2, 3, 4)])
        self.out = nn.Linear(33, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids).transpose(1, 2)
        return self.out(torch.cat([F.relu(conv(x)).amax(-1) for conv in self.convs], 1))


class Recurrent(nn.Module):
    """Embedded words through two layers of LSTM or GRU, a classifier on the last state."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.words, self.cell, self.out = nn.Embedding(101, 20), kind(20, 27, num_layers=2, batch_first=True), nn.Linear(27, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.cell(self.words(ids))[0][:, -1])


class Translator(nn.Module):
    """nn.Transformer with a causal mask and a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Transformer(36, 3, 2, 2, 50, dropout=0.0, batch_first=True)

    def forward(self, source: torch.Tensor, target: torch.Tensor, causal: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return self.body(source, target, tgt_mask=causal, src_key_padding_mask=padding, memory_key_padding_mask=padding)


class Recommender(nn.Module):
    """DLRM: embedding bags and a dense part, their pairwise products, a network on top."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(size, 12, mode="sum") for size in (40, 70, 101)])
        self.dense = nn.Sequential(nn.Linear(13, 25), nn.ReLU(), nn.Linear(25, 12), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(18, 21), nn.ReLU(), nn.Linear(21, 1))

    def forward(self, dense: torch.Tensor, *bags: torch.Tensor) -> torch.Tensor:
        x = self.dense(dense)
        vectors = torch.stack([x, *(layer(ids) for layer, ids in zip(self.bags, bags, strict=True))], 1)
        products = vectors @ vectors.transpose(1, 2)
        rows, columns = torch.tril_indices(4, 4, -1)
        return torch.sigmoid(self.top(torch.cat([x, products[:, rows, columns]], 1)))


class GraphNetwork(nn.Module):
    """Two rounds of messages along edges, summed up at their targets with scatter_add, a mean over the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = nn.ModuleList([nn.Linear(2 * 19, 19) for _ in range(2)])
        self.updates = nn.ModuleList([nn.Linear(2 * 19, 19) for _ in range(2)])
        self.out = nn.Linear(19, 3)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        for message, update in zip(self.messages, self.updates, strict=True):
            sent = F.relu(message(torch.cat([nodes[source], nodes[target]], 1)))
            received = torch.zeros_like(nodes).scatter_add(0, target[:, None].expand(-1, nodes.shape[1]), sent)
            nodes = F.relu(update(torch.cat([nodes, received], 1)))
        return self.out(nodes.mean(0))


class Conformer(nn.Module):
    """Half a feed-forward, attention, a depthwise convolution with a gate, half a feed-forward, a norm."""

    def __init__(self, width: int = 33, heads: int = 3) -> None:
        super().__init__()
        self.halves = nn.ModuleList(
            [nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 50), nn.SiLU(), nn.Linear(50, width)) for _ in range(2)]
        )
        self.before, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm, self.gate = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.depth = nn.Conv1d(width, width, 5, padding=2, groups=width)
        self.batch_norm, self.point = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)
        self.last = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.halves[0](x)
        y = self.before(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = F.glu(self.gate(self.norm(x).transpose(1, 2)), 1)
        x = x + self.point(F.silu(self.batch_norm(self.depth(y)))).transpose(1, 2)
        return self.last(x + 0.5 * self.halves[1](x))


def _causal(length: int) -> torch.Tensor:
    return torch.triu(torch.ones(length, length, dtype=torch.bool), 1)


def _translator() -> Case:
    padding = torch.arange(9) >= torch.tensor([9, 7, 4])[:, None]
    return Translator(), (noise(BATCH, 9, 36), noise(BATCH, 7, 36, seed=5), _causal(7), padding)


def _recommender() -> Case:
    bags = [tokens(count, below=size, seed=size) for count, size in ((3, 40), (5, 70), (2, 101))]
    return Recommender(), (noise(BATCH, 13), *bags)


def _graph() -> Case:
    edges = torch.randint(0, 17, (2, 43), generator=torch.Generator().manual_seed(6))
    return GraphNetwork(), (noise(17, 19), edges)


MODELS: dict[str, Callable[[], Case]] = {
    "unet": lambda: (UNet(), (noise(BATCH, 3, 12, 12),)),
    "generator": lambda: (Generator(), (noise(BATCH, 21),)),
    "text_classifier": lambda: (TextClassifier(), (tokens(13),)),
    "lstm": lambda: (Recurrent(nn.LSTM), (tokens(7),)),
    "gru": lambda: (Recurrent(nn.GRU), (tokens(7),)),
    "translator": _translator,
    "recommender": _recommender,
    "graph": _graph,
    "conformer": lambda: (Conformer(), (noise(BATCH, 15, 33),)),
}
