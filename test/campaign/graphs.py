"""Random logical programs on tensors of any rank: what a front end may write, with awkward sizes, also 1.

    python test/campaign/graphs.py --programs 2000 --seed 0
    python test/campaign/graphs.py --programs 2000 --seed 0 --layers
    python test/campaign/graphs.py --programs 2000 --seed 0 --near
    python test/campaign/graphs.py --programs 2000 --seed 0 --kernels

Ops are drawn one by one: views of inputs (transposed, sliced, spread, backwards, repeated), pointwise chains with permuted and broadcast
operands, reductions, contractions, reshapes, slices, pads, concatenations, masks by position, in f16 and f32; arithmetic, comparisons,
conversions and reductions of i32, i64 and i1; gathers and scatters of rows, scans, sorts; blocks of models such as norms and attention;
buffers that are read and written. Or layers, of which several kernels share parts: projections into heads, readers of the same sums, rows
of several loops, bytes, long rows, rows of experts. With `--near`, the machine's addresses span a part of the largest buffer, so that
transfers are cut; that some division or step reaches further is no finding. With `--kernels`, many small kernels read what earlier ones
wrote and overwrite what they read, on few cores and many, with much scratchpad and little; the literal machine has their values too, with
as many loads ahead of a kernel as it pleases. What no op used is stored at the end, so nothing is dead.

The command checks one program per seed: NumPy's values, then every level and both modes of the emulator. A finding is a line, with the
program in a file; the status is 1 if there was one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "test"))

import numpy as np  # noqa: E402
from campaign import graph_blocks, graph_indices, graph_integers, graph_kernels, graph_layers, graph_memory, graph_ops  # noqa: E402
from campaign.graph_draws import LARGE, LARGE_SIZES, Draws  # noqa: E402
from campaign.worker import Worker  # noqa: E402

Op = Callable[[Draws], None]
Parts = Literal["ops", "layers", "kernels"]
SIZES: dict[Parts, tuple[int, ...]] = {"ops": (2, 5, 9), "layers": (1, 2, 4), "kernels": (3, 5, 8, 12)}
"""How many of its parts a program has."""

FLOATS: dict[Op, int] = graph_ops.OPS
MODELS: dict[Op, int] = {**graph_ops.OPS, **graph_blocks.OPS, **graph_memory.OPS}
ALL: dict[Op, int] = {**MODELS, **graph_integers.OPS, **graph_indices.OPS}
LAYERS: dict[Op, int] = {**graph_layers.OPS, graph_ops.binary: 1, graph_ops.reduction: 1, graph_ops.slice_: 1, graph_blocks.softmax: 1}
CORES = (32, 3, 1)
CARDS = ((32, 2048), (8, 512), (3, 256), (64, 512), (1, 2048), (64, 2048), (16, 256))
"""Cores, and KiB of scratchpad of each, of targets for many small kernels."""
SMALL = 20_000
"""Elements in memory of those that the literal machine runs, too."""
TARGET = 'cores = {}\nlx_bytes = {{ value = {}, unit = "KiB" }}\nlaunch_cycles = {}\n'


def graph(seed: int, ops: int = 5, *, of: Parts = "ops") -> tuple[str, list[np.ndarray]]:
    """The program of a seed, of about so many ops, or so many layers, or steps, and its arguments."""
    g = drawn(seed, ops, of=of)
    return g.module(), [g.array(i, v) for i, (_, v) in enumerate(g.arguments)]


def drawn(seed: int, ops: int, *, of: Parts = "ops") -> Draws:
    """The program of a seed and what was drawn for it."""
    kind = seed // len(CORES) % 4
    g = Draws(random=random.Random(seed))
    if of == "kernels":
        graph_kernels.in_a_row(g, ops)
        ops = 0
    if kind == 3:
        g.sizes, g.largest = LARGE_SIZES, LARGE
    kinds = LAYERS if of == "layers" else (FLOATS, ALL, ALL, MODELS)[kind]
    while ops > 0 or not (g.unused or g.lines):
        op = g.random.choices(list(kinds), list(kinds.values()))[0]
        written = len(g.lines)
        op(g)
        if len(g.lines) > written:
            g.drawn.append(op.__name__)
        ops -= 1
    for value in list(g.unused.values()):
        g.store(value)
    return g


def program(seed: int, *, of: Parts = "ops") -> tuple[str, list[np.ndarray]]:
    """The program of a seed, of a size that the seed decides, and its arguments."""
    return graph(seed, ops=random.Random(seed).choice(SIZES[of]), of=of)


def each(seeds: range, check: Callable[[int], None]) -> None:
    """Check seeds in turn; an error names its seed."""
    for seed in seeds:
        try:
            check(seed)
        except Exception as error:
            raise AssertionError(f"graph({seed})") from error


@contextmanager
def near_target(seed: int, arguments: list[np.ndarray]) -> Iterator[str]:
    """The file of a target whose addresses span a part of the largest argument; what reaches further all the same ends the block."""
    from ktir.diagnostics import KtirError

    random_ = random.Random(seed)
    span = max(max(a.nbytes for a in arguments) // random_.choice((1, 2, 4)), 1024) // 128 * 128
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "near.toml"
        path.write_text(f"span_bytes = {span}\n")
        try:
            yield str(path)
        except KtirError as error:
            if not any(words in str(error) for words in ("can be addressed", "bytes of addresses", "an address reaches")):
                raise


@contextmanager
def card_target(seed: int) -> Iterator[str]:
    """The file of a target of few cores or many, with little scratchpad or much."""
    cores, kib = CARDS[seed % len(CARDS)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "card.toml"
        path.write_text(TARGET.format(cores, kib, (0, 200)[seed // len(CARDS) % 2]))
        yield str(path)


def check(seed: int, *, of: Parts = "ops", near: bool = False) -> None:
    """Raises Mismatch where a level changes values, KtirError where one refuses the program, AssertionError where NumPy has others."""
    from campaign import graph_literal

    from ktir import config

    text, arguments = program(seed, of=of)
    cores = CORES[seed % len(CORES)]
    if of == "kernels":
        with card_target(seed) as target, config.patch(target=target):
            _check(seed, text, arguments, None)
            if sum(a.size for a in arguments) <= SMALL:
                graph_literal.agrees(seed, text, arguments, None)
    elif near:
        with near_target(seed, arguments) as target, config.patch(target=target):
            _check(seed, text, arguments, cores)
    else:
        _check(seed, text, arguments, cores)


def _check(seed: int, text: str, arguments: list[np.ndarray], cores: int | None) -> None:
    from campaign import graph_numpy

    from ktir import config
    from ktir.checking import check_levels
    from ktir.checking.compare import compare

    with config.patch(verify_each=True):
        levels = check_levels(text, arguments, cores=cores, source=f"graph-{seed}.mlir")
    for number, (wanted, found) in enumerate(zip(graph_numpy.run(text, arguments), levels[0].arrays, strict=True)):
        difference = compare(wanted, found)
        assert difference is None, f"not what NumPy computes: {difference.describe(f'b{number}')}"


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 where a program was refused or had other values."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--programs", type=int, default=2000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first program; the others follow")
    kinds = parser.add_mutually_exclusive_group()
    layers = "layers of models instead of single ops"
    kinds.add_argument("--layers", dest="of", action="store_const", const="layers", default="ops", help=layers)
    kinds.add_argument("--kernels", dest="of", action="store_const", const="kernels", help="many small kernels that hand on through memory")
    parser.add_argument("--near", action="store_true", help="on a machine whose addresses span little")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="for one program")
    parser.add_argument("--reproducers", type=Path, default=ROOT / "build/graphs", metavar="DIR", help="where programs with findings go")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        return _work()
    from tqdm import tqdm

    findings = 0
    worker = Worker(__file__)
    for seed in tqdm(range(options.seed, options.seed + options.programs), unit="program", disable=None):
        answer = worker.ask({"seed": seed, "of": options.of, "near": options.near}, options.timeout)
        if isinstance(answer, str):
            answer = {"finding": answer}
            worker.stop()
            worker = Worker(__file__)
        if answer["finding"]:
            findings += 1
            options.reproducers.mkdir(parents=True, exist_ok=True)
            file = options.reproducers / f"{options.of}-{seed}.mlir"
            file.write_text(program(seed, of=options.of)[0])
            tqdm.write(f"{seed}: {answer['finding']}; {file}")
            sys.stdout.flush()
    worker.stop()
    print(f"{options.programs} programs, {findings} findings")
    return 1 if findings else 0


def _work() -> int:
    """Answers requests; what libraries print goes nowhere near the answers."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        finding = ""
        try:
            check(**json.loads(line))
        except Exception as error:
            finding = f"{type(error).__name__}: {error}".partition("\n")[0]
        print(json.dumps({"finding": finding}), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
