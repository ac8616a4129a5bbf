# ruff: noqa: E402
"""Seven families of language models through `torch.compile` on the KTIR executor: whose time a compilation is, and a warm decode step.

    python bench/families.py [--only WORD ...] [--runs 9] [--json FILE]

Tiny models of two layers in float32, prompt 16, static cache. One thread, CPU time of it, caches off; a first model of other sizes, which
is not counted, warms the process. Seconds of the prefill's and the decode step's compilation together:

    torch      all of `torch.compile` that is neither of the others: Dynamo, AOTAutograd and what they call
    inductor   Inductor's own passes after that, its lowering, its scheduler and the wrapper that it writes
    record     ours: loop nests to regions
    translate  ours: regions to verified logical KTIR, stored as a package
    load       ours: the first launch of each program beyond what a warm one takes
    ours       the last three; `ratio`: to Inductor's own, at most 1

`decode`: milliseconds of a warm step, compiled, of which `launch` are inside of the program; at most 40. `eager`: the same step in PyTorch.
The program ends with status 1 where a bound is exceeded.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "test")]

import torch
import torch._inductor.compile_fx
import torch._inductor.config
from models.families import EVEN, FAMILIES, ODD, Sizes, build
from models.runs import Prompt, Step, generate, make_cache, step_of
from torch._inductor.graph import GraphLowering

from ktir.lowering.inductor import adapter, wrapper
from ktir.runtime.logical import LogicalExecutable

RATIO, DECODE = 1.0, 40.0
PROMPT = Prompt(16, steps=1)


@dataclass
class Row:
    """A line of the table: seconds of a compilation, milliseconds of a decode step."""

    model: str
    torch: float
    inductor: float
    record: float
    translate: float
    load: float
    ours: float
    ratio: float
    decode: float
    launch: float
    eager: float


class Clock:
    """CPU time of this thread by part; of a part inside another, only the inner one counts."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self.launches: list[float] = []
        self._parts: list[str] = []
        self._since = 0.0

    def _turn(self) -> None:
        now = time.thread_time()
        if self._parts:
            self.spent[self._parts[-1]] += now - self._since
        self._since = now

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time in the block is this part's."""
        self._turn()
        self._parts.append(name)
        try:
            yield
        finally:
            self._turn()
            self._parts.pop()

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time this part's."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with self.part(name):
                return function(*args, **kwargs)

        return call

    def launching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, each call of it noted as a launch."""

        def call(*args: Any, **kwargs: Any) -> Any:
            begin = time.thread_time()
            with self.part("launch"):
                function(*args, **kwargs)
            self.launches.append(time.thread_time() - begin)

        return call

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside the block, the parts of Inductor and ours are timed."""
        places: list[tuple[Any, str, str]] = [
            (torch._inductor.compile_fx, "_recursive_post_grad_passes", "inductor"),
            (GraphLowering, "run", "inductor"),
            (GraphLowering, "compile_to_module", "inductor"),
            (adapter.Scheduling, "codegen_node", "record"),
            (adapter.Scheduling, "flush", "record"),
            (wrapper, "compile_region", "translate"),
        ]
        with ExitStack() as stack:
            for owner, name, part in places:
                stack.enter_context(patch.object(owner, name, self.timed(part, getattr(owner, name))))
            stack.enter_context(patch.object(LogicalExecutable, "__call__", self.launching(LogicalExecutable.__call__)))
            yield


def measured(family: str, runs: int, sizes: Sizes = EVEN) -> Row:
    """Compile a family anew and run it."""
    torch._dynamo.reset()
    model, clock = build(family, sizes), Clock()
    step = step_of(model)
    options: dict[str, Any] = {"engine": "ktir", "fallback": "error"}
    compiled = torch.compile(step, backend="ktir", fullgraph=True, dynamic=False, options=options)
    with clock.watching():
        with clock.part("torch"):
            generate(model, compiled, PROMPT)
        first, clock.launches = clock.launches, []
        spent = dict(clock.spent)
        begin = time.thread_time()
        generate(model, compiled, PROMPT)
        warm = time.thread_time() - begin
        load = sum(first) - sum(clock.launches)
        clock.launches = []
        decode = _decode(model, compiled, runs)
        launch = median(clock.launches[1::2])  # the others are prefills
    eager = _decode(model, step, runs)
    ours = spent["record"] + spent["translate"] + load
    return Row(
        family,
        spent["torch"] - (warm - sum(first) + load),
        spent["inductor"],
        spent["record"],
        spent["translate"],
        load,
        ours,
        ours / spent["inductor"],
        decode,
        1e3 * launch,
        eager,
    )


def _decode(model: Any, step: Step, runs: int) -> float:
    """Milliseconds of a warm decode step after a prefill: the median of several."""
    ids, positions = torch.arange(PROMPT.length + 1)[None] + 3, torch.arange(PROMPT.length + 1)[None]
    times = []
    with torch.no_grad():
        for _ in range(runs):
            cache = make_cache(model, PROMPT)
            step(ids[:, :-1].clone(), positions[:, :-1].clone(), cache)
            now, where = (t[:, -1:].clone(memory_format=torch.contiguous_format) for t in (ids, positions))
            begin = time.thread_time()
            step(now, where, cache)
            times.append(1e3 * (time.thread_time() - begin))
    return median(times)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="WORD", default=[""], help="models whose name holds one of the words")
    parser.add_argument("--runs", type=int, default=9, metavar="N", help="decode steps of a median")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table to FILE, too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = [n for n in FAMILIES if any(word in n for word in arguments.only)]
    if not names:
        parser.error(f"no model holds {' or '.join(arguments.only)}; the models are {', '.join(FAMILIES)}")
    rows: list[Row] = []
    titles = [f.name for f in fields(Row)]
    print(f"{titles[0]:14}" + "".join(f"{t:>10}" for t in titles[1:]) + "  fails")
    with torch._inductor.config.patch(force_disable_caches=True), tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ["KTIR_CACHE_DIR"] = folder
        measured(names[0], 1, ODD)
        for name in names:
            rows.append(measured(name, arguments.runs))
            values = list(asdict(rows[-1]).values())
            print(f"{name:14}" + "".join(f"{v:10.2f}" for v in values[1:]) + "  " + ", ".join(_fails(rows[-1])), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")
    return int(any(_fails(r) for r in rows))


def _fails(row: Row) -> list[str]:
    return [name for name, value, bound in (("ratio", row.ratio, RATIO), ("decode", row.decode, DECODE)) if value > bound]


if __name__ == "__main__":
    sys.exit(main())
