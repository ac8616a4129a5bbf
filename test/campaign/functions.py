"""Random functions of PyTorch tensors of all types, compiled and judged by a model of their errors.

    python test/campaign/functions.py --programs 5000 --seed 0
    python test/campaign/functions.py --programs 100000 --dask tcp://scheduler:8786      # on a cluster
    python test/campaign/functions.py --show 1234                                        # the program of a seed
    python test/campaign/functions.py --reduce 1234                                      # a smaller one that fails alike

Each program runs in a process of its own kind that is stopped when it takes too long. Results are lines of JSON (`--results`), so that a
run that was stopped goes on where it ended.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "test"))

from campaign.spread import answer_requests, progress, read, spread  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 where a result was wrong or a program crashed."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--programs", type=int, default=5000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first program")
    parser.add_argument("--engine", default="spyre", choices=("spyre", "ktir"))
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="worker processes")
    parser.add_argument("--dask", default="", metavar="ADDRESS", help="run on the Dask cluster with this scheduler")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="for one program")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "build/functions.jsonl", help="results so far; those present are not run again"
    )
    parser.add_argument("--again", default="", metavar="OUTCOMES", help="run programs with these outcomes anew, e.g. wrong,crashes")
    parser.add_argument("--show", type=int, metavar="SEED", help="print the program of a seed")
    parser.add_argument("--reduce", type=int, metavar="SEED", help="print a smaller program that fails alike")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        return _work()
    if options.show is not None or options.reduce is not None:
        return _show(options)
    results = {k: _finished(r) for k, r in read(options.results, lambda r: (r["seed"], r["engine"])).items()}
    again = options.again.split(",")
    seeds = range(options.seed, options.seed + options.programs)
    pending = [s for s in seeds if (s, options.engine) not in results or results[s, options.engine]["outcome"] in again]
    bar = progress(len(pending), "program")

    def show(result: dict[str, Any]) -> None:
        result = _finished(result)
        results[result["seed"], result["engine"]] = result
        bar(result["outcome"])

    requests = [{"seed": s, "engine": options.engine} for s in pending]
    spread(Path(__file__).resolve(), requests, options.results, show, jobs=options.jobs, timeout=options.timeout, dask=options.dask)
    found = [_finished(results[s, options.engine]) for s in seeds]
    print(report(found))
    return 1 if any(r["outcome"] != "right" for r in found) else 0


def _finished(result: dict[str, Any]) -> dict[str, Any]:
    """A result, also where the process had none."""
    if "crash" not in result:
        return result
    nothing = {
        "launches": {"chip": 0, "executor": 0, "torch": 0},
        "reasons": [],
        "faults": [],
        "judged": 0,
        "elements": 0,
        "half": False,
        "note": "",
    }
    return {**nothing, **result, "outcome": "crashes", "what": result["crash"]}


def report(results: list[dict[str, Any]]) -> str:
    """Outcomes, what is wrong, refusals by reason, and how many float16 programs ran wholly on the chip."""
    from campaign.function_run import reason_class

    outcomes = Counter(r["outcome"] for r in results)
    lines = [f"{len(results)} programs: " + ", ".join(f"{n} {what}" for what, n in outcomes.most_common())]
    lines += [f"seed {r['seed']} {r['outcome']}: {r['what']}" for r in results if r["outcome"] != "right"]
    reasons = Counter(c for r in results for c in {reason_class(x) for x in r["reasons"]})
    if reasons:
        lines += ["refused, by reason:", *(f"{n:6} {reason}" for reason, n in reasons.most_common())]
    faults = Counter(c for r in results for c in {reason_class(x) for x in r["faults"]})
    if faults:
        lines += ["faults of the compiler, by reason:", *(f"{n:6} {reason}" for reason, n in faults.most_common())]
    half = [r for r in results if r["half"] and any(r["launches"].values())]
    whole = [r for r in half if r["launches"]["chip"] and not r["launches"]["executor"] and not r["launches"]["torch"]]
    if half:
        lines.append(f"float16: {len(whole)} of {len(half)} programs ({100 * len(whole) / len(half):.1f} %) wholly on the chip")
    few = sum(r["elements"] > 0 and r["judged"] < 0.5 * r["elements"] for r in results)
    lines.append(f"{few} programs with bounds that say nothing for most of their elements")
    return "\n".join(lines)


def _show(options: argparse.Namespace) -> int:
    from campaign.function_programs import drawn
    from campaign.function_reducer import reduced

    program = drawn(options.show if options.reduce is None else options.reduce)
    if options.reduce is not None:
        program = reduced(program, options.engine)
    print(f"# {program.note}; inputs: {program.described}\n{program.function_text()}")
    return 0


def _work() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KTIR_CACHE_DIR"] = folder
        import torch
        import torch._inductor.config as inductor
        from campaign.function_run import run_seed

        import ktir.lowering.inductor  # noqa: F401  registers the backend

        torch.set_num_threads(1)
        inductor.force_disable_caches = True  # a cached result would not tell again what is refused
        return answer_requests(lambda request: run_seed(request["seed"], request["engine"]))


if __name__ == "__main__":
    sys.exit(main())
