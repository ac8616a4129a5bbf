"""A decoder layer of Llama 3.1 8B on the emulated chip: prefill of 128 tokens, and a decode step at a context of 2048.

The layer (hidden 4096, 32 heads on 8 key heads of 128, inner 14336, rotary embedding, static cache) is captured from PyTorch with random
float16 weights and goes through the whole pipeline. Columns: seconds to capture and to compile; to load the package, which runs its control
plane; to build the tape; of the first launch, which arranges 220 million weights for the device; of a launch after it, which looks whether
they have changed (median of five); and the peak memory of the process in GB. CPU time, one thread. Then the bounds of a first launch and of
memory; exit 1 where one is exceeded.

    python bench/real_sizes.py [prefill | decode] [--values]
    python bench/real_sizes.py --device

--values compares with the KTIR executor on the allocated level, bit for bit; it takes 4 GB more for the step, and 16 GB for the prefill.
--device compiles both cases in one process, on one set of weights on the device. Columns: seconds of the first call, which compiles, and of
the second, of a warm one, peak memory in GB so far, and the bytes that the weights take on the card by their own. Then the step by turns
with the step on tensors of the host, of whose time it is a part. Then the bounds.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import ktir
from ktir.analysis.interface.parameters import parameters, roots
from ktir.assembly import parse_module
from ktir.checking.inputs import generate_all
from ktir.checking.levels import run_device_level
from ktir.context import context
from ktir.device.autoload import register
from ktir.device.tensors.storage import allocation_of
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.runtime.executable import Executable

COLUMNS = ("capture", "compile", "load", "tape", "first", "warm", "GB")


@dataclass(frozen=True)
class Case:
    """`tokens` are fed at once behind `before` others; the cache has `context` places. A first launch takes at most `seconds`."""

    tokens: int
    before: int
    context: int
    seconds: float


CASES = {"prefill": Case(128, 0, 128, 60), "decode": Case(1, 2047, 2048, 10)}
MEMORY = 10.0
"""Gigabytes that the process may take at most."""
MEMORY_ON_DEVICE, ONCE, BY_HOST = 2.2, 1.02, 1.0
"""Gigabytes of a process that runs both cases on the device, bytes of weights on the card by those that they have, and the time of a warm
step by that of one on tensors of the host.
"""


class Layer(torch.nn.Module):
    """One decoder layer with its rotary embedding."""

    def __init__(self, config: transformers.LlamaConfig) -> None:
        super().__init__()
        self.model = transformers.LlamaModel(config)
        self.model.norm = torch.nn.Identity()

    def forward(self, hidden: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        """Hidden states [1, tokens, 4096] -> the same."""
        return self.model(inputs_embeds=hidden, position_ids=positions, past_key_values=cache, use_cache=True).last_hidden_state


def config_of_layer() -> transformers.LlamaConfig:
    """Of one layer of Llama 3.1 8B."""
    rope = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return transformers.LlamaConfig(
        vocab_size=8,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=1,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        rms_norm_eps=1e-5,
        max_position_embeddings=131072,
        pad_token_id=0,
        rope_parameters={**rope, "original_max_position_embeddings": 8192},
    )


def cache_of(config: transformers.LlamaConfig, case: Case, device: torch.device) -> transformers.StaticCache:
    """An empty cache with the case's places, on a device."""
    cache = transformers.StaticCache(config=config, max_cache_len=case.context)
    cache.early_initialization(1, 8, 128, torch.float16, device)
    for layer in cache.layers:
        layer.cumulative_length = layer.cumulative_length.to(device)  # made on the host, whatever it is asked for
    return cache


def capture(case: Case) -> str:
    """Logical KTIR of the layer."""
    config = config_of_layer()
    with torch.device("meta"):
        layer = Layer(config).half()
    layer.to_empty(device="cpu")  # a capture does not look at values
    cache = cache_of(config, case, torch.device("cpu"))
    positions = torch.arange(case.before, case.before + case.tokens)[None]
    return ktir.capture(layer, torch.zeros(1, case.tokens, 4096, dtype=torch.float16), positions, cache)


def arguments_of(text: str, case: Case) -> list[np.ndarray]:
    """Random weights and activations; the integers are positions in the cache."""
    with context(), ir.Location.unknown():
        module = parse_module(text, "layer")
        arrays = generate_all(parameters(module, roots(module)[0])[0], 1, {})
    for a in arrays:
        if a.dtype.kind == "f":
            a *= 0.1
        else:
            a[...] = case.before + np.arange(a.size).reshape(a.shape)
    return arrays


class Clock:
    """CPU seconds of one stage after the other."""

    def __init__(self) -> None:
        self.last = time.process_time()

    def lap(self) -> float:
        """Seconds since the lap before."""
        before, self.last = self.last, time.process_time()
        return self.last - before


def measure(case: Case, values: bool) -> list[float]:
    """A row of the table. Raises AssertionError where the executor has other values."""
    clock = Clock()
    text = capture(case)
    row = [clock.lap()]
    with context(), ir.Location.unknown():
        files = compile_logical(parse_module(text, "layer"))
    row.append(clock.lap())
    arrays = arguments_of(text, case)
    clock.lap()
    executable = Executable(read(files))
    row.append(clock.lap())
    mine = [a.copy().reshape(host.size) for a, host in zip(arrays, executable.spec.hosts, strict=True)]
    clock.lap()
    _ = executable.machine.tape
    row.append(clock.lap())
    times = []
    for _ in range(6):
        for a, b in zip(mine, arrays, strict=True):
            if a.nbytes < 1 << 26:  # not the weights, which no launch writes
                a[...] = b
        clock.lap()
        executable(*mine)
        times.append(clock.lap())
    row += [times[0], median(times[1:])]
    row.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
    if values:
        del executable
        with context(), ir.Location.unknown():
            expected = run_device_level(parse_module(files["allocated.ktir.mlir"].decode(), "layer"), arrays)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(mine, expected, strict=True)), "the KTIR executor gives other values"
    return row


# -------------------------------------------------------------------------------------------------------------------- on the device


def layer_with_weights() -> Layer:
    """The layer with random weights, on the host."""
    with torch.device("meta"):
        layer = Layer(config_of_layer()).half()
    layer.to_empty(device="cpu")
    layer.model.rotary_emb = LlamaRotaryEmbedding(config_of_layer())
    for parameter in layer.parameters():
        parameter.requires_grad_(False).normal_(0, 0.02)
    return layer.eval()


def bytes_on_card(layer: Layer) -> float:
    """What the weights take on the card in all forms, by their own bytes."""
    held = [allocation_of(p) for p in layer.parameters()]
    taken = sum(a.is_linear * a.nbytes + sum(form.size for form in a.forms.values()) for a in held)
    return taken / sum(a.nbytes for a in held)


def gigabytes() -> float:
    """The most memory that the process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


class Calls:
    """A layer compiled for one case on a device, called with the same tokens each time."""

    def __init__(self, layer: Layer, case: Case, device: str) -> None:
        backend = "inductor" if device == "spyre" else "ktir"  # a graph on the device is ours whatever the name
        self.compiled = torch.compile(layer, fullgraph=True, dynamic=False, backend=backend)
        self.case, self.device = case, device
        self.cache = cache_of(config_of_layer(), case, torch.device(device))
        self.hidden = torch.randn(1, case.tokens, 4096).half() * 0.1

    def __call__(self) -> float:
        """CPU seconds of a call."""
        for own in self.cache.layers:
            own.cumulative_length.copy_(torch.tensor(self.case.before))
        positions = torch.arange(self.case.before, self.case.before + self.case.tokens)[None].to(self.device)
        x = self.hidden.to(self.device)
        clock = Clock()
        with torch.no_grad():
            self.compiled(x, positions, self.cache)
        return clock.lap()


def measure_on_device() -> bool:
    """Both cases in one process, on one set of weights; whether all bounds are kept."""
    register()
    layer = layer_with_weights().to("spyre")
    print(" " * 10 + "".join(f"{c:>9}" for c in ("first", "second", "warm", "GB", "once", "by host")), flush=True)
    for name in CASES:
        calls = Calls(layer, CASES[name], "spyre")
        times = [calls() for _ in range(8)]
        print(f"{name:10}{times[0]:9.2f}{times[1]:9.2f}{median(times[2:]):9.3f}{gigabytes():9.2f}{bytes_on_card(layer):9.3f}", flush=True)
    kept = gigabytes() <= MEMORY_ON_DEVICE and bytes_on_card(layer) <= ONCE
    own, host = Calls(layer, CASES["decode"], "spyre"), Calls(layer_with_weights(), CASES["decode"], "cpu")
    ours, theirs = (median(column[2:]) for column in zip(*((own(), host()) for _ in range(14)), strict=True))
    print(f"decode    {ours:27.3f}{ours / theirs:27.3f}")
    print(f"bounds{MEMORY_ON_DEVICE:40}{ONCE:9}{BY_HOST:9}")
    return kept and ours <= BY_HOST * theirs


def main() -> int:
    """Print the table, each row by a process of its own; 1 where a bound is exceeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", nargs="?", choices=CASES)
    parser.add_argument("--values", action="store_true", help="compare with the KTIR executor")
    parser.add_argument("--device", action="store_true", help="both cases compiled on one set of weights on the device")
    options = parser.parse_args()
    if options.device:
        torch.set_num_threads(1)
        return int(not measure_on_device())
    if options.case is None:
        print(" " * 10 + "".join(f"{c:>9}" for c in COLUMNS) + "   bounds", flush=True)
        command = [sys.executable, __file__, *(["--values"] if options.values else [])]
        return max(subprocess.run([*command, name], check=False).returncode for name in CASES)
    case = CASES[options.case]
    torch.set_num_threads(1)
    row = measure(case, options.values)
    print(f"{options.case:10}" + "".join(f"{x:9.2f}" for x in row) + f"   first {case.seconds:g}, GB {MEMORY:g}", flush=True)
    return int(row[4] > case.seconds or row[6] > MEMORY)


if __name__ == "__main__":
    sys.exit(main())
