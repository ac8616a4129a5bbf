"""Prefill and decode of a language model, compiled and eager, with everything that can differ: logits of each step and the caches."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import transformers

Step = Callable[[torch.Tensor, torch.Tensor, Any], torch.Tensor]
"""(ids [batch, n], positions [batch, n], cache) -> logits [batch, n, vocabulary]."""


@dataclass(frozen=True)
class Prompt:
    """Tokens fed: `length` at once, then `steps` times one, in each of `batch` rows. `static`: a cache of full size from the start."""

    length: int = 16
    batch: int = 1
    steps: int = 2
    static: bool = True


def step_of(model: Any) -> Step:
    """One forward pass, as it is compiled."""

    def forward(ids: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        return model(input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True).logits

    return forward


def make_cache(model: Any, prompt: Prompt) -> Any:
    """An empty cache for a prompt."""
    config = model.config.get_text_config(decoder=True)
    if not prompt.static:
        return transformers.DynamicCache(config=config)
    cache = transformers.StaticCache(config=config, max_cache_len=2 * prompt.length)
    for layer in cache.layers:
        if isinstance(length := getattr(layer, "cumulative_length", None), torch.Tensor):  # made on the host, whatever the model's device
            layer.cumulative_length = length.to(model.device)
    return cache


def generate(model: Any, step: Step, prompt: Prompt) -> dict[str, torch.Tensor]:
    """The logits of the prefill and of each step, and the tensors of the cache after the last one, by name. Tokens are random, and on the
    device of the model.
    """
    device = next(model.parameters()).device
    vocabulary = model.config.get_text_config().vocab_size
    ids = torch.randint(3, vocabulary - 8, (prompt.batch, prompt.length + prompt.steps), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(prompt.length + prompt.steps).expand(prompt.batch, -1)
    cache = make_cache(model, prompt)
    results: dict[str, torch.Tensor] = {}
    bounds = [0, *range(prompt.length, prompt.length + prompt.steps + 1)]
    with torch.no_grad():
        for k, (low, high) in enumerate(pairwise(bounds)):
            name = f"decode {k}" if k else "prefill"
            # a copy: a slice of one row is contiguous as it is, whatever its strides, and each of them would be compiled for
            now, where = (t[:, low:high].clone(memory_format=torch.contiguous_format).to(device) for t in (ids, positions))
            results[name] = step(now, where, cache)
    return results | cache_tensors(cache)


def cache_tensors(cache: Any) -> dict[str, torch.Tensor]:
    """Every tensor that a cache holds, whatever its layers call it."""
    found: dict[str, torch.Tensor] = {}
    for k, layer in enumerate(cache.layers):
        for name, value in vars(layer).items():
            values = value.items() if isinstance(value, dict) else [("", value)]
            found |= {f"cache {k} {name}{key}": v.clone() for key, v in values if isinstance(v, torch.Tensor) and v.numel()}
    return found


def reference(model: Any) -> Any:
    """The same model with the same weights, computed in float64 as far as its own casts allow."""
    exact = copy.deepcopy(model)
    for parameter in exact.parameters():
        parameter.data = parameter.data.double()
    return exact


def difference(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """Largest and root mean square difference, not a number if either holds one."""
    d = (a.double() - b.double()).abs()
    return d.max().item(), d.square().mean().sqrt().item()
