"""Many independent runs, spread over worker processes or a Dask cluster; results are lines of JSON, so that a run goes on where it ended.

Each run happens in a process that is used again and again, and is replaced when it crashes or takes too long: that costs one run. The
executor is one of `concurrent.futures`, or, with the address of a Dask scheduler, that of the cluster. Its workers need the same checkout,
started with `PYTHONPATH=test`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from campaign.worker import Worker

Request = dict[str, Any]
Result = dict[str, Any]

_own = threading.local()
_all: list[Worker] = []


def isolated(script: str, request: Request, timeout: float) -> Result:
    """What the process of this thread answers; a result with the outcome `crashes` where it does not."""
    worker = getattr(_own, script, None)
    if worker is None:
        worker = Worker(script)
        setattr(_own, script, worker)
        _all.append(worker)
    answer = worker.ask(request, timeout)
    if not isinstance(answer, str):
        return answer
    worker.stop()
    _all.remove(worker)
    delattr(_own, script)
    return {**request, "crash": answer}


@contextmanager
def executor(jobs: int, dask: str = "") -> Iterator[Executor]:
    """Threads that each look after one process, or the Dask cluster at an address."""
    if not dask:
        with ThreadPoolExecutor(jobs) as pool:
            try:
                yield pool
            finally:
                pool.shutdown(cancel_futures=True)
                while _all:
                    _all.pop().stop()
        return
    try:
        from distributed import Client
    except ImportError:
        sys.exit("error: --dask needs the package 'distributed': pip install -e '.[dask]'")
    with Client(dask) as client:
        yield client.get_executor()


def spread(
    script: Path, requests: Sequence[Request], path: Path, show: Callable[[Result], None], *, jobs: int, timeout: float, dask: str = ""
) -> None:
    """Run the requests by `script --worker`, append each result to the file at `path`, and `show` it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with executor(jobs, dask) as pool, path.open("a") as out:
        running = [pool.submit(isolated, str(script), request, timeout) for request in requests]
        for each in as_completed(running):
            result = each.result()
            print(json.dumps(result), file=out, flush=True)
            show(result)


def read(path: Path, key: Callable[[Result], Hashable]) -> dict[Any, Result]:
    """The results so far, the last one of each key."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {key(r): r for r in map(json.loads, lines)}


def answer_requests(answer: Callable[[Request], Result]) -> int:
    """The side of the worker: answers line by line; what libraries print goes nowhere near the answers."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)
    return 0


def judge(seeds: Sequence[int], unit: str, finding: Callable[[int], str]) -> int:
    """Print what is found wrong with what each seed draws; the status of a command, 1 where something is."""
    bar, wrong = progress(len(seeds), unit), 0
    for seed in seeds:
        said = finding(seed)
        wrong += bool(said)
        bar("wrong" if said else "right")
        if said:
            print(f"seed {seed}: {said}", flush=True)
    print(f"{len(seeds)} {unit}s, {wrong} wrong")
    return int(wrong > 0)


def progress(total: int, unit: str) -> Callable[[str], None]:
    """Shows how far it is on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        return lambda text: None
    from tqdm import tqdm

    bar = tqdm(total=total, unit=unit)

    def show(text: str) -> None:
        bar.set_postfix_str(text[:40], refresh=False)
        bar.update()

    return show
