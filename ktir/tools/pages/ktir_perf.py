"""`ktir-perf run plan.yaml`: modelled times of models of real sizes; `compare`: what two runs differ in; `plot`: a picture of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from ktir.diagnostics import KtirError

WIDTHS = (48, 11, 11, 8, 11, 9, 14, 7)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="ktir-perf",
        description="Modelled time to the first token and between tokens of language models, from their configurations alone.",
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="measure what a plan names", description="Compile what a plan names and print its times.")
    run.add_argument("plan", metavar="PLAN.yaml", type=Path, help="models, dtypes, batches, lengths")
    run.add_argument("-o", dest="output", metavar="FILE", type=Path, help="write the table for compare")
    run.add_argument("--only", metavar="TEXT", nargs="+", default=[], help="lines with all of these in their names")
    compare = commands.add_parser("compare", help="compare two tables", description="Exit status 1 where a line is slower or missing.")
    compare.add_argument("before", metavar="BEFORE", type=Path, help="a table of run")
    compare.add_argument("after", metavar="AFTER", type=Path, help="a later one")
    compare.add_argument("--tolerance", metavar="SHARE", type=float, default=0.01, help="changes below this are none (default: 0.01)")
    plot = commands.add_parser("plot", help="draw tables", description="Draw each line's time and bound, of several tables side by side.")
    plot.add_argument("tables", metavar="TABLE", nargs="+", type=Path, help="tables of run")
    plot.add_argument(
        "-o", dest="output", metavar="FILE", type=Path, default=Path("perf.svg"), help=".svg, .png or .pdf (default: perf.svg)"
    )
    serve = commands.add_parser("serve", help="measure vLLM's engine on the chip", description="Serve random requests to a model's folder.")
    serve.add_argument("folder", metavar="FOLDER", help="a model of transformers")
    serve.add_argument("-o", dest="output", metavar="FILE", type=Path, help="write the table for compare and plot")
    for name, default, does in (
        ("seats", [4], "sequences at once; an engine for each number"),
        ("prompt", [32], "tokens of each prompt"),
        ("new", [32], "tokens that follow"),
        ("requests", [40], "how many come"),
    ):
        serve.add_argument(f"--{name}", metavar="N", nargs="+", type=int, default=default, help=f"{does} (default: {default[0]})")
    serve.add_argument(
        "--apart", metavar="MS", nargs="+", type=float, default=[0.0], help="modelled time between two on average (default: 0)"
    )
    serve.add_argument("--dtype", metavar="NAME", default="float16", help="of the model (default: float16)")
    serve.add_argument("--max-model-len", metavar="N", type=int, default=128, help="of vLLM (default: 128)")
    serve.add_argument(
        "--check",
        action="store_true",
        help="tell how many answers are those of transformers in float32, or part where the dtype leaves a doubt",
    )
    return made


def _line(*cells: str) -> str:
    return "".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, WIDTHS, strict=False)))


def _run(plan: Path, output: Path | None, only: Sequence[str]) -> int:
    from ktir.perf.compare import write
    from ktir.perf.modelled import measure
    from ktir.perf.plan import read

    rows, status, generation = [], 0, dict[str, float]()
    print(_line("", "ms", "bound ms", "share", "tokens/s", "host s", "generation s", "GB"))
    for case in read(plan):
        if not all(text in case.name for text in only):
            continue
        try:
            row = measure(case)
        except KtirError as error:
            print(f"{case.name}: {error}", file=sys.stderr)
            status = 1
            continue
        numbers = (f"{row.ms:.2f}", f"{row.bound:.2f}", f"{row.share:.0%}", f"{row.tokens_per_second:,.1f}")
        here = (f"{row.host:.1f}", f"{row.generation:.1f}", f"{row.gigabytes:.1f}")
        print(_line(row.name, *numbers, *here), flush=True)
        rows.append(row)
        generation[case.model] = generation.get(case.model, 0.0) + row.generation
    for model, seconds in generation.items():
        print(f"{model}: programs generated in {seconds:.1f} s of CPU time")
    if output is not None:
        write(rows, output)
    return status


def _compare(before: Path, after: Path, tolerance: float) -> int:
    from ktir.perf.compare import compare, is_worse, read

    changes = compare(read(before), read(after), tolerance)
    for change in changes:
        print(_line(change.name, "" if change.ratio is None else f"{change.ratio:.3f}", change.verdict))
    worse = is_worse(changes)
    print("verdict: " + ("worse" if worse else "no worse"))
    return int(worse)


def _serve(options: argparse.Namespace) -> int:
    import os

    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine's times are read in this process
    from ktir.perf.compare import write
    from ktir.perf.served import Load, measure

    rows = []
    loads = [Load(*each) for each in product(options.requests, options.prompt, options.new, options.apart)]
    for seats in options.seats:
        sizes = {"max_num_seqs": seats, "max_model_len": options.max_model_len, "max_num_batched_tokens": options.max_model_len}
        for load, served in zip(loads, measure(options.folder, loads, options.check, dtype=options.dtype, **sizes), strict=True):
            apart = f" apart {load.apart:g} ms" if load.apart else ""
            name = f"{Path(options.folder).name} {options.dtype} seats {seats} prompt {load.prompt} new {load.new} x {load.requests}{apart}"
            print("\n".join([name, *(f"  {line}" for line in served.lines())]), flush=True)
            rows += served.rows(name)
    if options.output is not None:
        write(rows, options.output)
    return 0


def _plot(tables: Sequence[Path], output: Path) -> int:
    from ktir.perf.compare import read
    from ktir.perf.plot import write

    write([(table.stem, read(table)) for table in tables], output)
    print(f"{output}: {output.stat().st_size:,} bytes")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status: 0 well, 1 refused, or worse than before."""
    options = parser().parse_args(arguments)
    try:
        if options.command == "run":
            return _run(options.plan, options.output, options.only)
        if options.command == "serve":
            return _serve(options)
        if options.command == "plot":
            return _plot(options.tables, options.output)
        return _compare(options.before, options.after, options.tolerance)
    except KtirError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        said = f"cannot read or write '{error.filename}': {error.strerror}" if error.filename else str(error)
        print(f"ktir-perf: error: {said}", file=sys.stderr)
    except ModuleNotFoundError as error:
        print(f"ktir-perf: error: needs the package '{error.name}': pip install 'ktir[models]' pyyaml; vllm: make vllm", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
