# ruff: noqa: E402
"""What many equal layers cost the compiler against one: nested regions are compiled once, and those of a flat program nearly so.

    python bench/layers.py [--layers 32] [--length 128] [--runs 3] [--json FILE]

A tiny Llama in float16, its layers marked by `ktir.nested`, prefill without a cache. Seconds of CPU time in a warm process, the least of
several runs:

    programs  what is before the layers, the layer, what is behind them; one layer is one program with all of that
    chip      all programs from logical KTIR to the files of a package: every pass, the instructions, the binary
    module    all passes on one program of KTIR whose entry calls the layer's function that often; its stream, which comes after
              them, has every run of a kernel and is not counted
    front     the rest of `torch.compile`: Dynamo, which looks at each layer, Inductor, our recording and translation
    ours      of that, recording and translation
    flat      as `chip`, of the model without marks, which is one program; `ktir-outline-repeats` finds its layers

The ratios of `chip` and of `module` for the layers to those for one are at most 1.5, that of `flat` is at most 10; the program ends with
status 1 beyond that.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "test")]

import torch
from models.families import EVEN, build
from nested_programs import nested
from torch import nn

import ktir
from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.lowering.compile import compile_logical, pipeline
from ktir.lowering.inductor import adapter, capture
from ktir.lowering.region_to_ktir.emit import emit
from ktir.lowering.region_to_ktir.region import Region
from ktir.mlir import ir
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET

BOUND, FLAT_BOUND = 1.5, 10.0


@dataclass
class Row:
    """A line of the table: seconds of CPU time."""

    layers: int
    programs: int
    chip: float
    module: float
    front: float
    ours: float
    flat: float


class _Clock:
    """CPU time of calls that do not lie in one another."""

    def __init__(self) -> None:
        self.spent = 0.0
        self._open = False

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time noted."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._open:
                return function(*args, **kwargs)
            begin, self._open = time.process_time(), True
            try:
                return function(*args, **kwargs)
            finally:
                self._open = False
                self.spent += time.process_time() - begin

        return call


class _Prefill(nn.Module):
    def __init__(self, layers: int, flat: bool) -> None:
        super().__init__()
        model = build("llama31", replace(EVEN, layers=layers), torch.float16)
        self.model = model if flat else ktir.nested(model)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, use_cache=False).logits


def captured(layers: int, length: int, flat: bool = False) -> tuple[list[Region], float, float]:
    """The programs of a model, and the seconds that it took to find them: all of them, and ours."""
    ids = torch.arange(length)[None] % EVEN.vocabulary
    model, clock = _Prefill(layers, flat), _Clock()
    with ExitStack() as stack:
        for owner, name in ((adapter.Scheduling, "codegen_node"), (adapter.Scheduling, "flush"), (capture, "translate")):
            stack.enter_context(patch.object(owner, name, clock.timed(getattr(owner, name))))
        begin = time.process_time()
        regions = capture.capture_regions(model, ids)
    return regions, time.process_time() - begin, clock.spent


def chip_seconds(regions: list[Region]) -> float:
    """Seconds to compile the programs for the chip."""
    begin = time.process_time()
    for region in regions:
        with context(), ir.Location.unknown():
            compile_logical(emit(region))
    return time.process_time() - begin


def layer_text(length: int) -> str:
    """Logical KTIR of one layer."""
    regions, _, _ = captured(2, length)
    with context(), ir.Location.unknown():
        return print_module(emit(max(regions, key=lambda r: len(r.nests))))


def module_seconds(layer: str, layers: int, length: int) -> float:
    """Seconds of all passes on a program that calls `layer` for each of its layers on what the one before made."""
    shape = f"tensor<1x{length}x{EVEN.hidden}xf16>"
    carried = re.findall(rf'ktir.name = "(\w+)", ktir.role = "input", ktir.type = {shape}', layer)[0]
    text = nested(layer, layers, carried)
    with context(), ir.Location.unknown():
        module = parse_module(text)
        begin = time.process_time()
        run_pipeline(module, pipeline(DATASHEET.cores))
    return time.process_time() - begin


def measured(layers: int, length: int, runs: int) -> Row:
    """A line of the table."""
    regions, front, ours = captured(layers, length)
    chip = min(chip_seconds(regions) for _ in range(runs))
    layer = layer_text(length)
    module = min(module_seconds(layer, layers, length) for _ in range(runs))
    written_out = captured(layers, length, flat=True)[0]
    return Row(layers, len(regions), chip, module, front, ours, min(chip_seconds(written_out) for _ in range(runs)))


def main() -> int:
    """Print the table; 1 if the ratio is beyond the bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=32, help="how many layers are compared with one (default: 32)")
    parser.add_argument("--length", type=int, default=128, help="tokens of the prefill (default: 128)")
    parser.add_argument("--runs", type=int, default=3, help="compilations of which the fastest counts (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    arguments = parser.parse_args()
    if arguments.layers < 2:
        parser.error("--layers expects at least 2")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    measured(2, arguments.length, 1)
    rows = [measured(n, arguments.length, arguments.runs) for n in (1, arguments.layers)]
    print("".join(f"{f.name:>10}" for f in fields(Row)))
    for row in rows:
        print(f"{row.layers:>10}{row.programs:>10}" + "".join(f"{s:>10.2f}" for s in (row.chip, row.module, row.front, row.ours, row.flat)))
    one, many = rows
    ratio = max(many.chip / one.chip, many.module / one.module)
    print(f"\n{many.layers} layers to one: chip {many.chip / one.chip:.2f}, module {many.module / one.module:.2f} (bound {BOUND})")
    whole, own = (many.chip + many.front) / (one.chip + one.front), (many.chip + many.ours) / (one.chip + one.ours)
    print(f"all of torch.compile {whole:.2f}, ours of it {own:.2f}; flat {(flat := many.flat / one.flat):.2f} (bound {FLAT_BOUND})")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"rows": [asdict(row) for row in rows], "ratio": ratio}, indent=1) + "\n")
    return int(ratio > BOUND or flat > FLAT_BOUND)


if __name__ == "__main__":
    sys.exit(main())
