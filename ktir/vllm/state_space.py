"""Layers with a state instead of a cache that grows (Mamba 2), as plain operators of PyTorch: vLLM's own are kernels for GPUs.

Of each sequence a block keeps two states: the last inputs of the convolution, and the sum over the past that the layer's name is for. A
program reads the states of its sequences, goes on from them, or from zero at position 0, and writes them, to the same block or to another,
where the one behind a prefix stays for others that begin so.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from ktir.vllm.attention import PagedAttentionBackend, StepInputs
from ktir.vllm.upstream import MambaMixer2, get_forward_context, replace_layer


def _before(cache: torch.Tensor, step: StepInputs) -> torch.Tensor:
    """[blocks, ..] -> those of the sequences, zero where one begins, whatever another one left there. Rows of one dim are what the chip's
    compiler gathers.
    """
    blocks = step.rows[:, 0]
    rows = torch.where(step.positions[:, :1] > 0, cache.view(len(cache), -1).index_select(0, blocks), 0.0)
    return rows.view(len(blocks), *cache.shape[1:])


def _put(cache: torch.Tensor, blocks: torch.Tensor, values: torch.Tensor) -> None:
    cache.view(len(cache), -1).index_copy_(0, blocks, values.reshape(len(blocks), -1).to(cache.dtype))


class PlainMixer(MambaMixer2):
    """vLLM's layer with its weights and projections; what happens between them is here."""

    def get_attn_backend(self) -> Any:
        return PagedAttentionBackend

    def bind_kv_cache(self, kv_cache: Any) -> None:
        self.kv_cache = kv_cache

    def forward(self, hidden_states: torch.Tensor, mup_vector: torch.Tensor | None = None) -> torch.Tensor:
        """[sequences * tokens, size] -> the same."""
        projected, _ = self.in_proj(hidden_states)
        if mup_vector is not None:
            projected = projected * mup_vector
        step: StepInputs = get_forward_context().attn_metadata[self.prefix]
        sequences = len(step.rows)
        gate, inputs, delta = projected.split([self.intermediate_size, self.conv_dim, self.num_heads], -1)
        inputs, delta = (part.view(sequences, -1, part.shape[-1]) for part in (inputs, delta))
        real = (torch.arange(delta.shape[1]) < step.lengths[:, None])[..., None]
        delta = functional.softplus(delta.float() + self.dt_bias.float()) * real  # a token of padding lets the state be
        found = self._states(self._convolved(inputs, step), delta, step)
        output, _ = self.out_proj(self.norm(found.view(-1, self.intermediate_size).to(gate.dtype), gate))
        return output

    def _convolved(self, inputs: torch.Tensor, step: StepInputs) -> torch.Tensor:
        """Of each channel the sum over the last few tokens [sequences, tokens, channels]; keeps the last inputs [few - 1, channels]."""
        cache, tokens = self.kv_cache[0], inputs.shape[1]
        before = _before(cache, step)
        window = torch.cat((before.to(inputs.dtype), inputs), 1)
        if tokens == 1:
            kept = window[:, 1:]
        else:  # of one sequence: behind its last token there may be padding
            kept = window[0].index_select(0, step.lengths + torch.arange(before.shape[1]))
        _put(cache, step.rows[:, 1], kept)
        weight = self.conv_weights.float()
        found = torch.zeros_like(weight[:, 0]) if self.conv1d.bias is None else self.conv1d.bias.float()
        for i in range(weight.shape[1]):
            found = found + window[:, i : i + tokens].float() * weight[:, i]
        return functional.silu(found)

    def _states(self, inputs: torch.Tensor, delta: torch.Tensor, step: StepInputs) -> torch.Tensor:
        """What the states give for each token [sequences, tokens, heads, size]; all in f32."""
        x, b, c = inputs.split([self.intermediate_size, self.groups_ssm_state_size, self.groups_ssm_state_size], -1)
        x = x.unflatten(-1, (self.num_heads, -1))
        b, c = (part.unflatten(-1, (self.n_groups, -1)).repeat_interleave(self.num_heads // self.n_groups, 2) for part in (b, c))
        cache = self.kv_cache[1]
        state = _before(cache, step).float()
        through, driven = delta * self.A.float(), x * delta[..., None]
        if x.shape[1] == 1:
            state = state * through.exp()[:, 0, :, None, None] + driven[:, 0, :, :, None] * b[:, 0, :, None, :]
            found = (state * c[:, 0, :, None, :]).sum(-1)[:, None]
        else:
            parts = []
            size = self.model_config.get_mamba_chunk_size() or x.shape[1]
            for i in range(0, x.shape[1], size):
                here = slice(i, i + size)
                part, after = _chunk(through[0, here], driven[0, here], b[0, here], c[0, here], state[0])
                parts.append(part)
                state = after[None]
            found = torch.cat(parts)[None]
        _put(cache, step.rows[:, 1], state)
        return found + x * self.D.float()[:, None]


def _chunk(
    through: torch.Tensor, driven: torch.Tensor, b: torch.Tensor, c: torch.Tensor, state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens of one sequence at once, as a product with a triangle of decays: [tokens, heads, size], and the state behind them.

    `through` [tokens, heads] are logarithms of decays, `driven` [tokens, heads, size], b and c [tokens, heads, states].
    """
    gone = through.cumsum(0).T  # [heads, tokens]
    between = gone[:, :, None] - gone[:, None, :]
    tokens = torch.arange(len(through))
    decay = torch.where(tokens[:, None] >= tokens, between, -torch.inf).exp()
    b, c, driven = b.transpose(0, 1), c.transpose(0, 1), driven.transpose(0, 1)
    found = ((c @ b.transpose(1, 2)) * decay) @ driven + (c * gone.exp()[..., None]) @ state.transpose(1, 2)
    left = (gone[:, -1:] - gone).exp()
    after = state * gone[:, -1, None, None].exp() + (driven * left[..., None]).transpose(1, 2) @ b
    return found.transpose(0, 1), after


def register() -> None:
    """Let models be built of these layers."""
    replace_layer(MambaMixer2, PlainMixer)
