"""Runs PyTorch's operator database against the backend and writes the table of coverage.

    python test/campaign/opinfo.py                        # every variant, float32 and float16, docs/coverage.md
    python test/campaign/opinfo.py --ops 'nn.functional.*' --samples 0 --page ''

Each variant runs in a worker process that is stopped when it takes too long; a crash costs one variant. Results are kept as lines of JSON
(`--results`), so that a run that was stopped goes on where it ended, and `--again` runs only variants with a given outcome anew.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import queue
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "test"))

from campaign.opinfo_page import page, worst  # noqa: E402
from campaign.worker import Worker  # noqa: E402

Key = tuple[str, str]
Result = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 where a result was wrong or a sample failed."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--ops", default="*", metavar="PATTERN", help="variants whose name fits this (shell patterns, comma between)")
    parser.add_argument("--dtypes", default="float32,float16")
    parser.add_argument("--samples", type=int, default=8, metavar="N", help="samples per variant, spread evenly over all; 0 = all")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="worker processes")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="for one variant")
    parser.add_argument("--results", type=Path, default=ROOT / "build/opinfo.jsonl", help="results so far; those present are not run again")
    parser.add_argument("--again", default="", metavar="OUTCOMES", help="run variants with these outcomes anew, e.g. wrong,fails,crashes")
    parser.add_argument("--page", default=str(ROOT / "docs/coverage.md"), help="the page to write; '' = none")
    parser.add_argument("--list", action="store_true", help="print what is there, run nothing")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        return _work()
    results = _read(options.results)
    if not options.list:
        wanted = [
            k for k in _known() if k[1] in options.dtypes.split(",") and any(fnmatch.fnmatch(k[0], p) for p in options.ops.split(","))
        ]
        again = options.again.split(",")
        _run([k for k in wanted if k not in results or worst(results[k]) in again], options, results)
    if options.page:
        Path(options.page).write_text(page(list(results.values())))
    bad = 0
    for key, result in sorted(results.items()):
        if worst(result) in ("wrong", "fails", "crashes"):
            bad += 1
            print(f"{key[1]} {key[0]}: {worst(result)}: {result['reasons'].get(worst(result), '')}")
    print(", ".join(f"{n} {what}" for what, n in _totals(results).items()))
    return 1 if bad else 0


def _totals(results: dict[Key, Result]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for key, result in sorted(results.items()):
        what = f"{key[1]} {worst(result)}"
        totals[what] = totals.get(what, 0) + 1
    return totals


def _read(path: Path) -> dict[Key, Result]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {(r["name"], r["dtype"]): r for r in map(json.loads, lines)}


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


def _run(keys: list[Key], options: argparse.Namespace, results: dict[Key, Result]) -> None:
    pending: queue.SimpleQueue[Key] = queue.SimpleQueue()
    for key in keys:
        pending.put(key)
    lock = threading.Lock()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    show = _progress(len(keys))

    def serve() -> None:
        worker = Worker(__file__)
        while True:
            try:
                key = pending.get_nowait()
            except queue.Empty:
                return worker.stop()
            answer = worker.ask({"name": key[0], "dtype": key[1], "samples": options.samples}, options.timeout)
            if isinstance(answer, str):
                answer = {"name": key[0], "dtype": key[1], "counts": {"crashes": 1}, "reasons": {"crashes": answer}}
                worker.stop()
                worker = Worker(__file__)
            with lock, options.results.open("a") as out:
                results[key] = answer
                print(json.dumps(answer), file=out)
                show(key)

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _progress(total: int) -> Any:
    """Shows how far it is on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        return lambda key: None
    from tqdm import tqdm

    bar = tqdm(total=total, unit="op")

    def show(key: Key) -> None:
        bar.set_postfix_str(f"{key[0]} {key[1]}"[:40], refresh=False)
        bar.update()

    return show


def _work() -> int:
    """Answers requests; what libraries print goes nowhere near the answers."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch
    import torch._inductor.config as inductor
    from campaign.opinfo_samples import DTYPES, check, has, variants

    import ktir.lowering.inductor  # noqa: F401  registers the backend

    torch.set_num_threads(1)
    inductor.force_disable_caches = True  # a cached result would not tell again what falls back
    found = variants()
    for line in sys.stdin:
        request = json.loads(line)
        if "list" in request:
            answer: Any = {"variants": [(n, d) for d in DTYPES for n, op in found.items() if has(op, d)]}
        else:
            answer = asdict(check(request["name"], found[request["name"]], request["dtype"], request["samples"]))
        print(json.dumps(answer), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
