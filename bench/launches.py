# ruff: noqa: E402
"""What a launch of a compiled model, or of an operator by itself, takes on the device beyond the emulator's own run of its program.

    python bench/launches.py [--only WORD ...] [--runs 200] [--profile]

One thread, CPU time of it, warm, in milliseconds, medians. Each call is followed by a run of the machine alone, on what the call gave it.
A program of some milliseconds leaves nothing else in the host's caches, so what stands around it takes several times as long:

    call      the model or operator on tensors of the device, and the end of its results
    machine   the machine alone
    beyond    the call less what the machine takes inside of it; at most 5 % of `machine` where that is 10 ms and more
    guards    of this, Dynamo: its guards and what it calls the graph with
    ours      of this, the rest: at most 0.2 ms
    floor     the same model on the host with a backend that does nothing but hand over results: what `guards` cannot be less than; an
              operator as the host runs it

--profile prints who takes the time beyond the machine. The program ends with status 1 where a bound is exceeded.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import os
import pstats
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "test")]

import torch
from models.families import EVEN, build
from models.runs import Prompt, make_cache, step_of
from torch import nn

from ktir.device.autoload import register
from ktir.emulator.machine import Machine
from ktir.lowering.inductor.running.guarded import Guarded
from ktir.runtime.executable import recorded

MOST, SHARE, LONG = 0.2, 0.05, 10.0


class Case(NamedTuple):
    """A compiled model on its inputs, or an operator, and what puts these back before each call."""

    call: Callable[[], Any]
    before: Callable[[], None] = lambda: None


class Row(NamedTuple):
    """A line of the table, in milliseconds."""

    call: float
    machine: float
    beyond: float
    guards: float
    ours: float
    floor: float


def compiled_for(model: Any, device: str) -> Any:
    """A compiled model; for the host, by a backend that computes once and hands over the same results from then on."""
    compiled = partial(torch.compile, model, fullgraph=True, dynamic=False)
    return compiled() if device == "spyre" else compiled(backend=nothing)


def nothing(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """A backend that hands over the results of the first call."""
    results: list[Any] = []

    def call(*inputs: Any) -> Any:
        if not results:
            results.append(graph(*inputs))
        return results[0]

    return call


def chain(device: str) -> Case:
    """Two large products: few arguments, a long program."""
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).half().eval().to(device)
    x = torch.randn(128, 512).half().to(device)
    compiled = compiled_for(model, device)
    return Case(lambda: compiled(x))


def block(device: str) -> Case:
    """An encoder layer: a dozen weights."""
    model = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True).half().eval().to(device)
    x = torch.randn(1, 64, 256).half().to(device)
    compiled = compiled_for(model, device)
    return Case(lambda: compiled(x))


def decode(device: str) -> Case:
    """A step of a tiny Llama, whose caches are written in place, and to which the host gives a token and its position."""
    model = build("llama31", EVEN, torch.float16).to(device)
    prompt = Prompt(16, steps=1)
    cache = make_cache(model, prompt)
    inputs = torch.tensor([[5]]), torch.tensor([[16]])
    ids, positions = (t.to(device, copy=True) for t in inputs)
    compiled = compiled_for(step_of(model), device)
    before, room = torch.full_like(cache.layers[0].cumulative_length, 16, device="cpu"), itertools.count()

    def again() -> None:
        for there, own in zip((ids, positions), inputs, strict=True):
            there.copy_(own)
        if next(room) % 7 == 0:  # the machine alone takes a place, too
            for layer in cache.layers:
                layer.cumulative_length.copy_(before)

    return Case(lambda: compiled(ids, positions, cache), again)


def operator(of: Callable[[torch.Tensor, torch.Tensor], Any]) -> Callable[[str], Case]:
    """An operator by itself, on small tensors."""

    def case(device: str) -> Case:
        x, y = torch.randn(64, 256).half().to(device), torch.ones(64, 256).half().to(device)
        return Case(lambda: of(x, y))

    return case


CASES: dict[str, Callable[[str], Case]] = {
    "chain": chain,
    "block": block,
    "decode": decode,
    "add": operator(torch.add),
    "softmax": operator(lambda x, _: x.softmax(-1)),
    "mul_": operator(torch.Tensor.mul_),
    "out": operator(lambda x, y: torch.mul(x, y, out=x)),
}


class Watch:
    """CPU time of this thread inside of functions, and what the machine was given last."""

    def __init__(self) -> None:
        self.inside = 0.0
        self.graph = 0.0
        self.given: tuple[Any, ...] = ()

    def machine(self, launch: Callable[..., None]) -> Callable[..., None]:
        """A machine's `launch`, watched."""

        def watched(*given: Any) -> None:
            self.given = given
            begin = time.thread_time()
            launch(*given)
            self.inside += time.thread_time() - begin

        return watched

    def of_graph(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """What Dynamo calls, watched."""

        def watched(*given: Any) -> Any:
            begin = time.thread_time()
            found = call(*given)
            self.graph += time.thread_time() - begin
            return found

        return watched


def measured(case: Case, host: Case, runs: int) -> Row:
    """Call a compiled model and its machine by turns, and then the model and the same one on the host."""
    watch, (call, before) = Watch(), case
    for _ in range(4):  # until nothing is found out any more
        before()
        call()
        host.call()
    with recorded() as launches:
        before()
        call()
    machines = [launch.machine for launch in launches]
    own = [machine.launch for machine in machines]
    assert len(machines) == 1, f"expects a program, but got {len(machines)}"
    machines[0].launch = watch.machine(own[0])  # type: ignore[method-assign]
    graphs, Guarded.__call__ = Guarded.__call__, watch.of_graph(Guarded.__call__)  # type: ignore[method-assign]
    rows: list[tuple[float, ...]] = []
    try:
        for _ in range(runs):
            before()
            watch.inside = watch.graph = 0.0
            begin = time.thread_time()
            results = call()
            called = time.thread_time()
            del results
            end = time.thread_time()
            own[0](*watch.given)
            alone = time.thread_time() - end
            guards = called - begin - watch.graph if watch.graph else 0.0
            rest = end - begin - watch.inside
            rows.append((end - begin, alone, rest, guards, rest - guards))
        floors = []
        for _ in range(-(-runs // 4)):
            before()
            call()
            begin = time.thread_time()
            host.call()
            floors.append(time.thread_time() - begin)
    finally:
        del machines[0].launch
        Guarded.__call__ = graphs  # type: ignore[method-assign]
    return Row(*(1e3 * median(column) for column in (*zip(*rows, strict=True), floors)))


def profiled(case: Case, runs: int) -> None:
    """Print who takes the time, the machine aside."""
    profile, launch = cProfile.Profile(time.thread_time), Machine.launch

    def apart(self: Machine, *given: Any) -> None:
        profile.disable()
        launch(self, *given)
        profile.enable()

    Machine.launch = apart  # type: ignore[method-assign]
    try:
        for _ in range(runs):
            case.before()
            profile.enable()
            case.call()
            profile.disable()
    finally:
        Machine.launch = launch  # type: ignore[method-assign]
    pstats.Stats(profile).sort_stats("tottime").print_stats(45)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="WORD", default=[""], help="cases whose name holds one of the words")
    parser.add_argument("--runs", type=int, default=200, metavar="N", help="calls of a median")
    parser.add_argument("--profile", action="store_true", help="who takes the time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    register()
    fails = 0
    print(f"{'case':8}" + "".join(f"{t:>10}" for t in Row._fields))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in (n for n in CASES if any(word in n for word in options.only)):
            torch._dynamo.reset()
            case = CASES[name]("spyre")
            row = measured(case, CASES[name]("cpu"), options.runs)
            bad = row.ours > MOST or (row.machine >= LONG and row.beyond > SHARE * row.machine)
            fails += bad
            print(f"{name:8}" + "".join(f"{v:10.3f}" for v in row) + ("  fails" if bad else ""), flush=True)
            if options.profile:
                profiled(case, options.runs)
    return int(fails > 0)


if __name__ == "__main__":
    sys.exit(main())
