"""Runs PyTorch's operator database against the backend and writes the table of coverage.

    python test/campaign/opinfo.py                        # every variant, seven types, the default engine, docs/coverage.md
    python test/campaign/opinfo.py --engine ktir --dtypes float64 --page ''
    python test/campaign/opinfo.py --ops 'nn.functional.*' --samples 0 --page ''
    python test/campaign/opinfo.py --engine eager --without 'linalg.*,fft.*,sparse.*,special.*,masked.*'  # uncompiled, on the device
    python test/campaign/opinfo.py --device spyre --ops 'add,sum'  # compiled, on tensors of the device

Each variant runs in a worker process that is stopped when it takes too long; a crash costs one variant. Results are kept as lines of JSON
(`--results`), so that a run that was stopped goes on where it ended, one with more samples repeats what had fewer, and `--again` runs only
variants with a given outcome anew.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "test"))

from campaign.opinfo_page import BAD, DTYPES, ENGINES, page, updated, worst  # noqa: E402
from campaign.spread import answer_requests, progress, read, spread  # noqa: E402
from campaign.worker import Worker  # noqa: E402

Key = tuple[str, str]
Result = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 where a result was wrong or a sample failed."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--ops", default="*", metavar="PATTERN", help="variants whose name fits this (shell patterns, comma between)")
    parser.add_argument("--without", default="", metavar="PATTERN", help="and not this")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--engine", default="spyre", choices=("spyre", "ktir", "eager"), help="eager: uncompiled, on the device")
    parser.add_argument("--device", default="cpu", choices=("cpu", "spyre"), help="on which tensors are; with --engine eager always spyre")
    parser.add_argument("--samples", type=int, default=8, metavar="N", help="samples per variant, spread evenly over all; 0 = all")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="worker processes")
    parser.add_argument("--dask", default="", metavar="ADDRESS", help="run on the Dask cluster with this scheduler")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="for one variant")
    parser.add_argument("--results", type=Path, default=ROOT / "build/opinfo.jsonl", help="results so far; those present are not run again")
    parser.add_argument("--again", default="", metavar="OUTCOMES", help="run variants with these outcomes anew, e.g. wrong,fails,crashes")
    parser.add_argument("--page", help="the page to write; '' = none. Default: docs/coverage.md, of compiled operators")
    parser.add_argument(
        "--update", action="store_true", help="write what there are results of into the page, and leave the rest of it as it is"
    )
    parser.add_argument("--list", action="store_true", help="print what is there, run nothing")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        return _work()
    if options.page and options.engine not in ENGINES:
        parser.error(f"--page: the page is about compiled operators, engine {' or '.join(ENGINES)}, but got engine {options.engine}")
    if options.engine == "eager":
        options.device = "spyre"
    if options.device == "spyre" and options.engine != "eager":
        options.page = options.page or ""
    results = results_of(options.results, options.engine, options.device)
    if not options.list:
        _run(options, results)
    if options.page is None and options.engine in ENGINES:
        options.page = ROOT / "docs/coverage.md"
    if options.page:
        place, found = Path(options.page), list(results.values())
        place.write_text(updated(place.read_text(), found) if options.update else page(found, options.engine))
    bad = 0
    for key, result in sorted(results.items()):
        if worst(result) in BAD:
            bad += 1
            print(f"{key[1]} {key[0]}: {worst(result)}: {result['reasons'].get(worst(result), '')}")
    totals = Counter(f"{key[1]} {worst(result)}" for key, result in sorted(results.items()))
    print(", ".join(f"{n} {what}" for what, n in totals.items()))
    samples = Counter[str]()
    for result in results.values():
        samples.update(result["counts"])
    something = samples.total() - samples["no code"]
    print(f"{samples.total()} samples; {samples['chip']} of {something} that are more than views and memory ran on the chip")
    return 1 if bad else 0


def results_of(path: Path, engine: str, device: str = "cpu") -> dict[Key, Result]:
    """The results so far of an engine on a device, by variant and type."""
    found = read(path, lambda r: (r["name"], r["dtype"], r["engine"], r.get("device", "cpu")))
    return {key[:2]: _finished(r) for key, r in found.items() if key[2:] == (engine, device)}


def _finished(result: Result) -> Result:
    """A result, also where the process had none."""
    return {**result, "counts": {"crashes": 1}, "reasons": {"crashes": result["crash"]}} if "crash" in result else result


def _known() -> list[Key]:
    """All variants with their dtypes, asked of a worker: this process does without torch."""
    worker = Worker(__file__)
    try:
        answer = worker.ask({"list": True}, 1800)  # importing takes long on a busy machine
        if isinstance(answer, str):
            sys.exit(f"no list of the variants: {answer}")
        return [(name, dtype) for name, dtype in answer["variants"]]
    finally:
        worker.stop()


def _fits(name: str, patterns: str) -> bool:
    return any(fnmatch.fnmatch(name, p) for p in patterns.split(","))


def _run(options: argparse.Namespace, results: dict[Key, Result]) -> None:
    again, asked = options.again.split(","), options.samples or sys.maxsize

    def is_open(key: Key) -> bool:
        there = results.get(key)
        return there is None or (there["samples"] or sys.maxsize) < asked or worst(there) in again

    wanted = [k for k in _known() if k[1] in options.dtypes.split(",")]
    pending = [k for k in wanted if _fits(k[0], options.ops) and not _fits(k[0], options.without) and is_open(k)]
    bar = progress(len(pending), "op")

    def show(result: Result) -> None:
        results[result["name"], result["dtype"]] = _finished(result)
        bar(f"{result['name']} {result['dtype']}")

    common = {"engine": options.engine, "device": options.device, "samples": options.samples}
    requests = [{"name": name, "dtype": dtype, **common} for name, dtype in pending]
    spread(Path(__file__).resolve(), requests, options.results, show, jobs=options.jobs, timeout=options.timeout, dask=options.dask)


def _work() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KTIR_CACHE_DIR"] = folder
        import torch
        import torch._inductor.config as inductor
        from campaign.opinfo_samples import TYPES, check, has, variants

        import ktir.lowering.inductor  # noqa: F401  registers the backend
        from ktir.device.autoload import register

        torch.set_num_threads(1)
        inductor.force_disable_caches = True  # a cached result would not tell again what falls back
        found = variants()

        def answer(request: dict[str, Any]) -> Result:
            if "list" in request:
                return {"variants": [(n, d) for d in TYPES for n, op in found.items() if has(op, d)]}
            if request["device"] == "spyre":
                register()
            outcome = check(found[request["name"]], **request)
            return {**request, **asdict(outcome)}

        return answer_requests(answer)


if __name__ == "__main__":
    sys.exit(main())
