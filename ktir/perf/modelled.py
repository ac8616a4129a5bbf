"""Modelled time of one step of a language model of transformers, and the least time that any program could take.

Layers of a kind are equal, so the whole is found from models of two and three layers: one of the first two, and for each kind the same
with a layer of it behind, which tells what such a layer takes more: the loads of a layer come in part under the layer before. Logits are
a program of their own. The row of each token in the table of embeddings, which is nothing beside the weights, is left out.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch

from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.lowering.compile import compile_logical
from ktir.lowering.inductor.capture import capture
from ktir.mlir import ir
from ktir.perf import memory
from ktir.perf.models import Kinds, Step, cache_of, configured, dtype_of, kept_bytes, kinds_of, model_of, on_host
from ktir.perf.plan import Case
from ktir.runtime.executable import Executable
from ktir.target import DATASHEET

LARGEST = 1 << 27
"""Bytes of an argument of which any part can be addressed: half of what the emulated machine's descriptors span."""


@dataclass(frozen=True)
class Row:
    """A line of the table. Times in ms of the modelled chip; `host` in CPU seconds that all of it took here, `generation` those from graphs
    to packages, of each program that it comes from; `gigabytes` is the most memory that the process had meanwhile.
    """

    name: str
    metric: str
    ms: float
    bound: float
    tokens_per_second: float
    host: float
    generation: float = 0.0
    gigabytes: float = 0.0

    @property
    def share(self) -> float:
        """Of its time that the bound is."""
        return self.bound / self.ms


class Program(NamedTuple):
    """Cycles of a launch, and CPU seconds from the graph to the package."""

    cycles: int
    seconds: float


def _compiled(name: str, model: torch.nn.Module, *inputs: Any) -> Program:
    """Values are not looked at, so nothing touches the memory of weights."""
    text = capture(model.to_empty(device="cpu"), *inputs, constants={})
    start = time.process_time()
    with context(), ir.Location.unknown():
        files = compile_logical(parse_module(text, name))
    seconds = time.process_time() - start
    return Program(Executable.load(files).machine.report.cycles, seconds)


def _layers(case: Case, kinds: Kinds) -> Program:
    decoder, _ = model_of(case, kinds)
    before = case.context - case.tokens
    kept = on_host(cache_of(case, decoder), before)
    embedded = torch.zeros(case.batch, case.tokens, decoder.config.hidden_size, dtype=dtype_of(case))
    positions = torch.arange(before, case.context).expand(case.batch, -1).contiguous()
    return _compiled(case.model, Step(decoder), embedded, positions, kept)


@cache
def _logits(words: int, size: int, dtype: torch.dtype, batch: int) -> Program:
    """Of the last token of each sequence; in as many parts as it takes for each to be addressed by one descriptor."""
    parts = -(-words * size * dtype.itemsize // LARGEST)
    with torch.device("meta"):
        part = torch.nn.Linear(size, -(-words // parts), bias=False, dtype=dtype)
    found = _compiled("logits", part, torch.zeros(batch, size, dtype=dtype))
    return found._replace(cycles=parts * found.cycles)


def bound(case: Case) -> float:
    """Milliseconds that no program on the data sheet's chip is below: of memory, which reads each weight and what attention looks back on
    once, and of the matrix units, which multiply each token with each weight, of one byte twice as fast.
    """
    decoder, logits = model_of(case)
    config, words = decoder.config, logits.weight
    read_bytes, products = float(words.numel() * words.itemsize), float(words.numel())  # of one token alone
    table = decoder.get_input_embeddings().weight
    for name, weight in decoder.named_parameters():
        if weight is table:
            continue
        # all tokens may choose the same experts
        chosen = config.num_experts_per_tok / config.num_local_experts if ".experts." in name else 1.0
        read_bytes += chosen * weight.numel() * weight.itemsize
        products += chosen * weight.numel() * case.tokens * (0.5 if weight.itemsize == 1 else 1.0)
    before = case.context - case.tokens
    read_bytes += kept_bytes(cache_of(case, decoder), before) if before else 0
    chip = DATASHEET
    rate = chip.pt_macs * chip.cores * chip.corelets
    return max(read_bytes / chip.dram_gb_per_second / 1e6, chip.microseconds(products * case.batch / rate) / 1e3)


def measure(case: Case) -> Row:
    """Compile a case and read its modelled time. Raises KtirError where it does not compile."""
    start = time.process_time()
    memory.forget()
    config = configured(case).get_text_config(decoder=True)
    kinds = kinds_of(config)
    # where there are two kinds both, in their order: a cache of states alone has no length
    ahead = tuple(dict.fromkeys(kinds))[:2] if len(set(kinds)) > 1 else kinds[:2]
    counts = Counter(kinds)
    counts.subtract(ahead)
    start_of_model = _layers(case, ahead)
    behind = {kind: _layers(case, (*ahead, kind)) for kind, count in counts.items() if count}
    if small := [kind for kind, program in behind.items() if program.cycles <= start_of_model.cycles]:
        cycles = behind[small[0]].cycles
        said = f"{len(ahead)} layers take {start_of_model.cycles:,} cycles, and with one of '{small[0]}' more {cycles:,}"
        raise KtirError(f"small models tell no time: {said}")
    logits = _logits(config.vocab_size, config.hidden_size, dtype_of(case), case.batch)
    programs = start_of_model, *behind.values(), logits
    cycles = start_of_model.cycles + sum(counts[kind] * (program.cycles - start_of_model.cycles) for kind, program in behind.items())
    cycles += logits.cycles
    generation = sum(program.seconds for program in programs)
    ms = DATASHEET.microseconds(cycles) / 1e3
    new = case.batch * (case.tokens if case.tokens > 1 else 1)
    host = time.process_time() - start
    return Row(case.name, case.metric, ms, bound(case), new / ms * 1e3, host, generation, memory.most() / 1e9)
