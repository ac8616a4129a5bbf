"""A model as vLLM builds it from a folder, fed as its runner on the chip feeds it: for what it calls in eager PyTorch."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import torch
from torch import nn

from ktir.diagnostics import KtirError

PROMPT = 16
"""Tokens of the prompt; one more follows."""


class Served(nn.Module):
    """`runner` is that of an engine which compiles nothing. What steps are fed is made beforehand: it is none of what the model calls."""

    def __init__(self, runner: Any, tokens: torch.Tensor) -> None:
        super().__init__()
        self.model = runner.model
        for module in self.model.modules():  # parameters of vLLM's own kinds cannot be moved to a device
            for name, held in module.named_parameters(recurse=False):
                setattr(module, name, nn.Parameter(held.data, requires_grad=False))
        self.fed = [runner]  # no module of this one
        self.steps = [self._step(runner, tokens, 0, len(tokens) - 1), self._step(runner, tokens, len(tokens) - 1, len(tokens))]

    def _step(self, runner: Any, tokens: torch.Tensor, before: int, seen: int) -> tuple[Any, Any, int]:
        """A program's shape, what it is fed, and its number of tokens; the sequence has the first blocks of the cache."""
        new = seen - before
        shape = runner.shapes.decode(1, seen) if new == 1 else runner.shapes.prefill(new, seen)
        inputs = runner._inputs(shape)
        where = torch.arange(before, seen).expand(runner.axes, -1)
        own = tokens[before:seen]
        inputs.put(0, own if runner.embedding is None else self.model.embed_input_ids(own), where, seen)
        for whole, pages, slots in zip(runner.whole, inputs.pages, inputs.slots, strict=True):
            pages[0] = 1 if whole else 1 + torch.arange(pages.shape[1])
            slots[0, :new] = 0 if whole else runner.shapes.page + where[0]
        return shape, inputs, new

    def forward(self) -> torch.Tensor:
        """Logits behind the last token."""
        runner, found = self.fed[0], torch.empty(0)
        for shape, inputs, new in self.steps:
            found = runner._run(shape, inputs)[new - 1 : new]
        return self.model.compute_logits(found) if runner.logits else found


def built(folder: str) -> Served:
    """The model of a folder, which takes nothing more. Raises KtirError where vLLM is not there, or does not take the model."""
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1"}
    try:
        vllm: Any = import_module("vllm")
    except ImportError as error:
        raise KtirError(f"'vllm:{folder}' needs vLLM, but {error}: make vllm, and run this with .venv-vllm/bin/ktir-models") from None
    sizes = {"max_model_len": 64, "max_num_batched_tokens": 64, "max_num_seqs": 4}
    try:
        llm = vllm.LLM(folder, dtype="float16", enforce_eager=True, **sizes)
    except (ValueError, OSError, NotImplementedError) as error:
        raise KtirError(f"vLLM does not take '{folder}': {' '.join(str(error).split())[:300]}") from None
    runner = llm.llm_engine.model_executor.driver_worker.worker.model_runner
    words = llm.llm_engine.model_config.get_vocab_size()
    return Served(runner, torch.randint(5, min(words, 500), (PROMPT + 1,), generator=torch.Generator().manual_seed(0)))
