"""How many kernels by hand are read, executed, compiled and equal on the machine, of each of some sets.

python conformance/counts.py                            the kernels of this repository: examples, the language, the specification
python conformance/counts.py DIR.. [--list] [--number FILE:ARG=N ..]    and those of other repositories, each folder a set

A text gets random arguments, and the numbers that `--number` gives by the name of its file, as softmax.mlir:n=57. It runs on the KTIR
executor and, compiled, on the emulated machine; the arrays that both leave are compared. The status is 1 where values differ by more than
the planner may make of sums, or something of ours failed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ktir.diagnostics import KtirError
from ktir.tools import ktir_opt, ktir_run

ROOT = Path(__file__).parents[1]
STEPS = ("read", "executed", "compiled and run", "same bits", "within tolerance", "different", "failed")
_FENCE = re.compile(r"```mlir\n(.*?)```", re.DOTALL)
_RUNS = re.compile(r"func\.func\b(?!\s+private)[^@]*@")
_TOLERANCE = 2.0**-9
"""Relative to the largest magnitude: what the planner may make of sums (docs/design/passes.md)."""


@dataclass(frozen=True)
class Outcome:
    """What became of a kernel: the last of `STEPS` that it reached, and what was said where it stopped."""

    name: str
    step: str
    said: str = ""

    def reached(self, step: str) -> bool:
        """Whether it got as far as a step; of the last four it reaches one."""
        if step in STEPS[3:]:
            return self.step == step
        done = STEPS.index(self.step) if self.step in STEPS else -1
        return self.step != "failed" and done >= STEPS.index(step)


def _quietly(main: object, words: Sequence[str]) -> tuple[int, str]:
    """The status of a tool, and what it said first that is an error."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            status = main(list(words))  # type: ignore[operator]
    except Exception as error:
        return -1, f"{type(error).__name__}: {error}"
    lines = [line for line in said.getvalue().splitlines() if "error:" in line]
    return status, lines[0].partition("error: ")[2] if lines else said.getvalue()[:200]


def compared(name: str, one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> Outcome:
    """Arrays that two engines have left."""
    if all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True)):
        return Outcome(name, "same bits")
    off = 0.0
    for a, b in zip(one, other, strict=True):
        if a.dtype.kind not in "f":
            if not np.array_equal(a, b):
                return Outcome(name, "different", "integers differ")
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        with np.errstate(invalid="ignore"):
            most = np.abs(x[np.isfinite(x)]).max(initial=np.finfo(np.float32).tiny)
            off = max(off, float(np.max(np.where(same, 0, np.nan_to_num(np.abs(x - y), nan=np.inf)), initial=0) / most))
    if off == 0:
        return Outcome(name, "same bits")
    return Outcome(name, "within tolerance" if off <= _TOLERANCE else "different", f"relative difference {off:.2g}")


def of_text(path: Path, name: str, numbers: Sequence[str]) -> Outcome:
    """A file: what becomes of it."""
    given = [f"--arg={n.partition(':')[2]}" for n in numbers if n.partition(":")[0] == path.name]
    with tempfile.TemporaryDirectory() as folder:
        status, said = _quietly(ktir_opt.main, [str(path), "-o", f"{folder}/read.mlir"])
        if status:
            return Outcome(name, "failed" if status < 0 else "refused", said)
        left = []
        for engine, reached in (("ktir", "read"), ("spyre", "executed")):
            file = f"{folder}/{engine}.npz"
            words = [str(path), "--random=1", "--quiet", f"--engine={engine}", f"--out=@{file}", *given]
            status, said = _quietly(ktir_run.main, words)
            if status:
                return Outcome(name, "failed" if status < 0 else reached, said)
            with np.load(file) as found:
                left.append([found[key] for key in sorted(found)])
        return compared(name, *left)


def of_language() -> Iterator[Outcome]:
    """The kernels of examples/kernels.py, each with its grid and its way."""
    sys.path.insert(0, str(ROOT / "examples"))
    import kernels  # pyright: ignore[reportMissingImports]

    for call, arrays, parameters, _ in kernels.cases():
        left = []
        outcome = None
        for on, reached in (("executor", "read"), ("chip", "executed")):
            own = [a.copy() for a in arrays]
            try:
                call.using(on=on)(*own, **parameters)
            except KtirError as error:
                outcome = Outcome(call.__name__, reached, error.message)
                break
            left.append(own)
        yield outcome or compared(call.__name__, *left)


def of_folder(folder: Path, numbers: Sequence[str]) -> Iterator[Outcome]:
    """The texts below a folder that have a function."""
    for path in sorted(folder.rglob("*.mlir")) if folder.is_dir() else [folder]:
        if _RUNS.search(path.read_text(errors="replace")):
            yield of_text(path, str(path.relative_to(folder)) if folder.is_dir() else path.name, numbers)


def of_pages(folder: Path) -> Iterator[Outcome]:
    """The functions that the pages of a folder show."""
    with tempfile.TemporaryDirectory() as there:
        for page in sorted(folder.glob("*.md")):
            for number, text in enumerate(_FENCE.findall(page.read_text())):
                if _RUNS.search(text):
                    (file := Path(there) / f"{page.stem}_{number}.mlir").write_text(text)
                    yield of_text(file, file.stem, ())


def table(sets: dict[str, list[Outcome]]) -> str:
    """How many of each set reach each step, in Markdown."""
    rows = [f"| set | kernels | {' | '.join(STEPS)} |", f"| --- |{' ---: |' * (len(STEPS) + 1)}"]
    for name, found in sets.items():
        rows.append(f"| {name} | {len(found)} | {' | '.join(str(sum(o.reached(s) for o in found)) for s in STEPS)} |")
    return "\n".join(rows)


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="folders of further texts, each a set")
    parser.add_argument("--number", action="append", default=[], metavar="FILE:ARG=N", help="a number that an argument of a file is")
    parser.add_argument("--list", action="store_true", help="also what became of each kernel")
    parser.add_argument("--others", action="store_true", help="the folders alone")
    options = parser.parse_args(arguments)
    sets: dict[str, list[Outcome]] = {}
    if not options.others:
        sets["examples/*.mlir"] = list(of_folder(ROOT / "examples", ()))
        sets["examples/kernels.py"] = list(of_language())
        sets["docs/spec"] = list(of_pages(ROOT / "docs" / "spec"))
    for folder in options.folders:
        sets[str(folder)] = list(of_folder(folder, options.number))
    print(table(sets))
    for name, found in sets.items():
        for each in found:
            if options.list or each.step not in ("same bits", "within tolerance"):
                print(f"{name}: {each.name}: {each.step}{': ' if each.said else ''}{each.said}")
    return int(any(each.step in ("different", "failed") for found in sets.values() for each in found))


if __name__ == "__main__":
    sys.exit(main())
