"""Modelled time of one step of a language model of transformers, and the least time that any program could take.

Layers of a kind are equal, so the whole is found from two smaller models: one with one round of the kinds of layers, and one with two. What
the second takes more is a round; the first is a round and what lies before and behind the layers. Logits are a program of their own. The
row of each token in the table of embeddings, which is nothing beside the weights, is left out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.lowering.compile import compile_logical
from ktir.lowering.inductor.capture import capture
from ktir.mlir import ir
from ktir.package import read
from ktir.perf.plan import Case
from ktir.runtime.executable import Executable
from ktir.target import DATASHEET

LARGEST = 1 << 27
"""Bytes of an argument of which any part can be addressed: half of what the emulated machine's descriptors span."""


@dataclass(frozen=True)
class Row:
    """A line of the table. Times in ms of the modelled chip, `host` in CPU seconds that compiling took here."""

    name: str
    metric: str
    ms: float
    bound: float
    tokens_per_second: float
    host: float

    @property
    def share(self) -> float:
        """Of its time that the bound is."""
        return self.bound / self.ms


def kinds_of(config: Any) -> int:
    """After how many layers their kinds repeat, all the way to the last one."""
    kinds = getattr(config, "layer_types", None) or [None] * config.num_hidden_layers
    count = config.num_hidden_layers
    return next(n for n in range(1, count + 1) if count % n == 0 and kinds == kinds[:n] * (count // n))


def _configured(case: Case, layers: int | None) -> Any:
    import transformers

    given = {key: value for key, value in case.config.items() if key != "family"}
    try:
        whole = transformers.AutoConfig.for_model(case.config["family"], **given)
    except (ValueError, TypeError) as error:
        raise KtirError(f"the configuration of '{case.model}': {str(error).splitlines()[0]}") from None
    if layers is not None:
        if getattr(whole, "layer_types", None):
            given["layer_types"] = whole.layer_types[:layers]
        whole = transformers.AutoConfig.for_model(case.config["family"], **given | {"num_hidden_layers": layers})
    return whole


class _Step(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, embedded: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        """What the last token [batch, size] comes to behind all layers."""
        found = self.model(inputs_embeds=embedded, position_ids=positions, past_key_values=cache, use_cache=True)
        return found.last_hidden_state[:, -1]


def _model(config: Any, dtype: torch.dtype) -> Any:
    """With weights that have no values."""
    import transformers

    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    if hasattr(config, "num_local_experts"):
        model.set_experts_implementation("batched_mm")  # reads the weights of what is chosen; the others hide in an operator
    return model


def _compiled(name: str, model: torch.nn.Module, *inputs: Any) -> int:
    """Cycles of a launch. Values are not looked at, so nothing touches the memory of weights."""
    text = capture(model.to_empty(device="cpu"), *inputs)
    with context(), ir.Location.unknown():
        files = compile_logical(parse_module(text, name))
    return Executable(read(files)).machine.report.cycles


def _layers(case: Case, layers: int) -> int:
    import transformers

    config, dtype = _configured(case, layers), getattr(torch, case.dtype)
    cache = transformers.StaticCache(config=config, max_cache_len=case.context)
    cache.early_initialization(case.batch, config.num_key_value_heads, _head_size(config), dtype, torch.device("cpu"))
    embedded = torch.zeros(case.batch, case.tokens, config.hidden_size, dtype=dtype)
    positions = torch.arange(case.context - case.tokens, case.context).expand(case.batch, -1).contiguous()
    return _compiled(case.model, _Step(_model(config, dtype).model), embedded, positions, cache)


def _logits(case: Case) -> int:
    """Of the last token of each sequence; in as many parts as it takes for each to be addressed by one descriptor."""
    config, dtype = _configured(case, None), getattr(torch, case.dtype)
    parts = -(-config.vocab_size * config.hidden_size * dtype.itemsize // LARGEST)
    with torch.device("meta"):
        part = torch.nn.Linear(config.hidden_size, -(-config.vocab_size // parts), bias=False, dtype=dtype)
    return parts * _compiled(case.model, part, torch.zeros(case.batch, config.hidden_size, dtype=dtype))


def _head_size(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def bound(case: Case) -> float:
    """Milliseconds that no program on the data sheet's chip is below: of memory, which reads each weight and what attention looks back on
    once, and of the matrix units, which multiply each token with each weight.
    """
    config = _configured(case, None)
    model = _model(config, getattr(torch, case.dtype))
    words = model.get_output_embeddings().weight.numel()
    inner = sum(p.numel() for p in model.parameters()) - model.get_input_embeddings().weight.numel()
    inner -= 0 if model.config.tie_word_embeddings else words  # the logits are apart: of one token alone
    experts = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
    if experts:  # all tokens may choose the same ones
        inner -= round(experts * (1 - config.num_experts_per_tok / config.num_local_experts))
    kept = 2 * config.num_hidden_layers * config.num_key_value_heads * _head_size(config) * case.batch * (case.context - case.tokens)
    read_bytes = (inner + words + kept) * getattr(torch, case.dtype).itemsize
    products = (inner * case.tokens + words) * case.batch
    chip = DATASHEET
    return max(read_bytes / chip.dram_gb_per_second / 1e6, chip.microseconds(products / (chip.pt_macs * chip.cores * chip.corelets)) / 1e3)


def measure(case: Case) -> Row:
    """Compile a case and read its modelled time. Raises KtirError where it does not compile."""
    start = time.process_time()
    config = _configured(case, None)
    each = kinds_of(config)
    rounds = config.num_hidden_layers // each
    cycles = _layers(case, each)
    if rounds > 1:
        cycles += (rounds - 1) * (_layers(case, 2 * each) - cycles)
    cycles += _logits(case)
    ms = DATASHEET.microseconds(cycles) / 1e3
    new = case.batch * (case.tokens if case.tokens > 1 else 1)
    return Row(case.name, case.metric, ms, bound(case), new / ms * 1e3, time.process_time() - start)
