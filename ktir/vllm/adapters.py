"""Adapters of low rank (LoRA) as plain operators of PyTorch, traced with the model: vLLM's own are kernels for GPUs, or loops over
sequences.

Every token passes every adapter that a program has room for, whose weights are small; what belongs to other adapters than the token's is
dropped between the two products. So a program is the same whichever adapters its sequences ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from ktir.vllm.upstream import PunicaWrapperBase, get_forward_context

NONE = -1
"""In the place of the number of an adapter."""


@dataclass
class Rows:
    """What the logits of a step find in the forward context."""

    adapters: torch.Tensor
    """[rows] i64, places of adapters among those that a program has room for, or NONE."""


class PlainAdapters(PunicaWrapperBase):
    """What all layers of a model share. vLLM tells the adapter of each token of a step; the runner, which cuts a step into programs, those
    of a program.
    """

    def __init__(self, max_num_batched_tokens: int, max_batches: int, device: Any, **options: Any) -> None:  # abstract there
        self.of_tokens = self.of_samples = torch.empty(0, dtype=torch.int64)
        self.vocabulary = 0  # until the runner knows it

    def update_metadata(self, mapping: Any, lora_index_to_id: list[int | None], max_loras: int, vocab_size: int, **options: Any) -> None:
        """Of a step: `mapping` has the number of the adapter of each token, and of each row of logits; 0 is none."""
        places = {number: place for place, number in enumerate(lora_index_to_id) if number is not None}
        self.of_tokens, self.of_samples = (
            torch.tensor([places.get(number, NONE) for number in numbers], dtype=torch.int64)
            for numbers in (mapping.index_mapping, mapping.prompt_mapping)
        )

    @staticmethod
    def _rows() -> torch.Tensor:
        """Of the program that is being traced."""
        return next(iter(get_forward_context().attn_metadata.values())).adapters

    @property
    def _embeddings_indices(self) -> torch.Tensor:
        """vLLM's table of embeddings adds the second row to its tokens: tables of adapters lie one after the other."""
        return torch.stack((self._rows(), self._rows().clamp(min=0) * self.vocabulary))

    def _chosen(self, x: torch.Tensor) -> torch.Tensor:
        """x [adapters, rows, rank] without what belongs to other adapters than each row's."""
        own = self._rows() == torch.arange(len(x))[:, None]
        return torch.where(own[..., None], x, 0)

    def _through(self, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scale: float) -> torch.Tensor:
        """x [rows, inner], a [adapters, 1, rank, inner], b [adapters, 1, outer, rank] -> [rows, outer]."""
        a, b = a.squeeze(1), b.squeeze(1)
        narrow = torch.bmm(x.to(a.dtype).expand(len(a), *x.shape), a.transpose(1, 2)) * scale
        return torch.bmm(self._chosen(narrow), b.transpose(1, 2)).sum(0)

    def add_lora_linear(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: Sequence[torch.Tensor],
        lora_b_stacked: Sequence[torch.Tensor],
        scale: float,
        output_slices: tuple[int, ...],
        **options: Any,
    ) -> torch.Tensor:
        """Some of the columns of `y` have weights of their own, one after the other; what is left has none."""
        parts = [self._through(x, a, b, scale).to(y.dtype) for a, b in zip(lora_a_stacked, lora_b_stacked, strict=True)]
        found = torch.cat(parts, -1)
        return y + functional.pad(found, (0, y.shape[-1] - found.shape[-1]))

    def add_lora_logits(
        self, y: torch.Tensor, x: torch.Tensor, lora_a_stacked: torch.Tensor, lora_b_stacked: torch.Tensor, scale: float, **options: Any
    ) -> torch.Tensor:
        found = self._through(x, lora_a_stacked, lora_b_stacked, scale).to(y.dtype)
        return y + functional.pad(found, (0, y.shape[-1] - found.shape[-1]))

    def add_lora_embedding(
        self, y: torch.Tensor, x: torch.Tensor, lora_b_stacked: torch.Tensor, *others: Any, **options: Any
    ) -> torch.Tensor:
        """x [rows, rank] was looked up in the table of each row's adapter."""
        b = lora_b_stacked.squeeze(1)
        return y + torch.bmm(self._chosen(x.expand(len(b), *x.shape)), b.transpose(1, 2)).sum(0).to(y.dtype)

    # Parts of the above, of which no layer asks.

    def add_shrink(self, *inputs: Any, **options: Any) -> Any:
        raise NotImplementedError

    def add_expand(self, *inputs: Any, **options: Any) -> Any:
        raise NotImplementedError
