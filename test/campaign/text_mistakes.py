"""Mistakes in KTIR text: each is said at a line of the file, or the text runs as before on every engine.

    python test/campaign/text_mistakes.py --texts 200 --seed 0 [--show SEED]

A mistake is one change of a kernel by hand: a name of a value, an op, an attribute, a type, a shape, a number, a predicate, a map or a
set, a memory space, the grid; a line that is gone, doubled or moved; an end that is missing. The kernels are those of `examples`, the ten
of the kernel language as text, those of `docs/producers.md`, and cases of the conformance suite. Each goes through `ktir-opt`, `ktir-run`
on both engines, pinned and by what is faster, and `ktir-compile`. None of them may raise, crash, hang, or refuse without
`file:line:column: error:`; what several engines run gives the same bits, and what the executor refuses as wrong the chip does not run.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import random
import re
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ktir.tools import ktir_compile, ktir_opt, ktir_run

ROOT = Path(__file__).parents[2]
SECONDS = 60
"""What the tools may take for one text."""
BYTES = 12 << 30
CASES = """
C101 C104 C107 C110 C115 C120 C125 C126 C130 C135 C140 C201 C205 C210 C215 C220 C225
C301 C305 C310 C315 C320 C325 C330 C343
""".split()
TYPES = ["f16", "f32", "bf16", "f64", "i32", "i64", "i1", "i8", "index", "f8E4M3FN", "f99"]
NUMBERS = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "31",
    "33",
    "64",
    "65",
    "1000",
    "4294967296",
    "9223372036854775807",
    "99999999999999999999",
    "1.5",
]
SPACES = ["<global>", "<ct_local>", "<ct_local, ct_id = 0>", "<ct_local, ct_id = 99>", "<nowhere>", "<>", "<HBM>", "<global, ct_id = 0>"]
OPS = "arith.addf arith.addi math.exp ktdp.load scf.yield tensor.empty linalg.matmul ktdp.foo tensor.splat".split()
GRIDS = [f"grid = {n}" for n in ("[0]", "[-1]", "[1, 1, 1, 1]", "4", "[1]", "[40]", '["a"]', "[]", "[2, 2]", "[1000000]")]
ATTRIBUTES = "sizes grid memory_space coordinate_set foo access_tile_set access_tile_order".split()
WORDS = re.compile(r"[a-z_]+\.[a-z_0-9.]+|[a-z_]{4,}|[%#@][\w$.-]+")

Change = Callable[[str, random.Random], "str | None"]


def _one(pattern: str, put: Callable[[re.Match[str], random.Random], str]) -> Change:
    """A change of one place that a pattern finds."""
    compiled = re.compile(pattern, re.MULTILINE)

    def change(text: str, r: random.Random) -> str | None:
        places = list(compiled.finditer(text))
        if not places:
            return None
        at = r.choice(places)
        return text[: at.start()] + put(at, r) + text[at.end() :]

    return change


def _lines(move: Callable[[list[str], int, random.Random], None]) -> Change:
    """A change of lines."""

    def change(text: str, r: random.Random) -> str | None:
        lines = text.splitlines(keepends=True)
        move(lines, r.randrange(len(lines)), r)
        return "".join(lines)

    return change


def _typo(at: re.Match[str], r: random.Random) -> str:
    word, k = at[0], r.randrange(1, len(at[0]))
    return r.choice([word[:k] + word[k + 1 :], word[:k] + "x" + word[k:], word[:k] + word[k].upper() + word[k + 1 :]])


def _value(text: str, r: random.Random) -> str | None:
    """Another value of the same text where one is read."""
    names = sorted(set(re.findall(r"%[\w$.-]+", text)))
    return _one(r"(?<![\w(])%[\w$.-]+(?=[,) \]:])", lambda _, q: q.choice([*names, "%nowhere", "%0", "%1#1"]))(text, r)


CHANGES: dict[str, Change] = {
    "value": _value,
    "type": _one(rf"\b({'|'.join(TYPES)})\b", lambda _, r: r.choice(TYPES)),
    "extent": _one(r"(?<=[<x])\d+(?=x)", lambda _, r: r.choice([*NUMBERS[:11], "?"])),
    "number": _one(r"(?<![\w.%#-])-?\d+(?![\w.])", lambda _, r: r.choice(NUMBERS)),
    "constant": _one(r"(?<=constant )\S+", lambda _, r: r.choice([*NUMBERS, "true", "dense<0>", "dense<1.0>", "unit"])),
    "typo": _one(WORDS.pattern, _typo),
    "op": _one(r"\b(arith|math|linalg|ktdp|scf|tensor)\.[a-z_]+", lambda _, r: r.choice(OPS)),
    "predicate": _one(r"(?<=cmp[if] )\w+", lambda _, r: r.choice(["slt", "ogt", "eq", "ult", "foo", "oge"])),
    "relation": _one(r">= 0|== 0", lambda _, r: r.choice(["== 0", ">= 1", "> 0", "<= 0", ""])),
    "dim of a map": _one(r"\bd\d\b", lambda _, r: r.choice(["d0", "d1", "d2", "d7", "s0", "d0 * d1", "d0 mod 3", "d0 floordiv 2"])),
    "space": _one(r"(?<=memory_space)<[^>]*>", lambda _, r: r.choice(SPACES)),
    "grid": _one(r"grid = \[[^\]]*\]", lambda _, r: r.choice(GRIDS)),
    "iterator": _one(r'"parallel"|"reduction"', lambda _, r: r.choice(['"parallel"', '"reduction"', '"window"'])),
    "attribute": _one(r"\b[a-z_]+(?= = )", lambda _, r: r.choice(ATTRIBUTES)),
    "sign": _one(r"[\[\](){},:=<>]|->", lambda at, r: r.choice(["", at[0] * 2, ",", ")", ">"])),
    "line gone": _lines(lambda lines, k, _: lines.__delitem__(k)),
    "line doubled": _lines(lambda lines, k, _: lines.insert(k, lines[k])),
    "line moved": _lines(lambda lines, k, r: lines.insert(r.randrange(len(lines)), lines.pop(k))),
    "end": lambda text, r: text[: r.randrange(len(text))],
    "terminator": _one(r"^ *(return|scf\.yield|linalg\.yield|ktdp\.\w*yield).*$", lambda _, r: r.choice(["", "return", "scf.yield"])),
    "loop": _one(r"(?<= to )%\S+|(?<=step )%\S+", lambda _, r: r.choice(["%c0", "%c1", "%nowhere"])),
}  # fmt: skip
"""Kinds of mistake by name."""


def _quiet(main: Callable[[list[str]], int], words: list[str]) -> tuple[int, str]:
    """The status of a tool, and what it said. Whatever it raises is raised."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        status = main(words)
    return int(status or 0), said.getvalue()


def _runs(text: str) -> bool:
    """Whether a text runs on the executor with random arguments."""
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder) / "kernel.mlir").write_text(text)
        return _quiet(ktir_run.main, [str(file), "--random=1", "--quiet"])[0] == 0


@cache
def sources() -> tuple[str, ...]:
    """Texts that run."""
    return tuple(text for text in _texts() if _runs(text))


def _texts() -> Iterator[str]:
    yield from ((ROOT / "examples" / f"{name}.mlir").read_text() for name in ("add", "softmax"))
    yield from re.findall(r"```mlir\n(.*?)```", (ROOT / "docs/producers.md").read_text(), re.DOTALL)
    for case in CASES:
        yield from (path.read_text() for path in (ROOT / "conformance/cases").glob(f"{case}_*.mlir"))
    spec = importlib.util.spec_from_file_location("kernels_of_the_language", ROOT / "examples/kernels.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    with tempfile.TemporaryDirectory() as folder:
        for call, arrays, parameters, _ in module.cases():
            (file := Path(folder) / "kernel.mlir").write_text(call.ktir(*arrays, **parameters))
            _quiet(ktir_opt.main, [str(file), "-o", f"{folder}/plain.mlir"])
            # without what the author lets sums differ by: all engines give the same bits then
            yield re.sub(r", ktir\.(tolerance|way) = [^,}]*", "", Path(f"{folder}/plain.mlir").read_text())


def drawn(seed: int) -> tuple[str, str]:
    """The kind of a mistake, and the text with it."""
    r = random.Random(seed)
    kinds = list(CHANGES)
    while True:
        kind, text = kinds[seed % len(kinds)], r.choice(sources())
        changed = CHANGES[kind](text, r)
        if changed is not None and changed != text:
            return kind, changed


def finding(seed: int, found: Callable[[str, str], object] = lambda tool, said: None) -> str:
    """What is wrong with what is said of a mistake, empty if nothing is. found: gets what each tool said."""
    _, text = drawn(seed)
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder) / "mistake.mlir").write_text(text)
        run = [str(file), "--random=1", "--quiet"]
        tools: dict[str, tuple[Callable[[Any], int], list[str]]] = {
            "ktir-opt": (ktir_opt.main, [str(file), "-o", f"{folder}/o.mlir"]),
            "ktir-run": (ktir_run.main, [*run, f"--out=@{folder}/run.npz"]),
            "ktir-run pinned": (ktir_run.main, [*run, "--engine=spyre", f"--out=@{folder}/pin.npz"]),
            "ktir-run auto": (ktir_run.main, [*run, "--engine=spyre", "--way=auto", f"--out=@{folder}/auto.npz"]),
            "ktir-compile": (ktir_compile.main, [str(file), "-o", f"{folder}/out"]),
        }
        states = {}
        for tool, (main, words) in tools.items():
            before = signal.signal(signal.SIGALRM, _hangs)
            signal.alarm(SECONDS)
            try:
                states[tool], said = _quiet(main, words)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                return f"{tool}: {type(error).__name__}: {error}"
            finally:
                signal.alarm(0)
                signal.signal(signal.SIGALRM, before)
            found(tool, said)
            if wrong := _said_wrong(states[tool], said, str(file)):
                return f"{tool}: {wrong}"
        return _differ(states, folder)


def _said_wrong(status: int, said: str, file: str) -> str:
    """What is wrong with a message of a tool."""
    if "Traceback" in said or "internal" in said:
        return said
    first = next((line for line in said.splitlines() if "error:" in line), "")
    if status == 0:
        return f"succeeds, and says {first}" if first else ""
    place = re.match(rf"{re.escape(file)}:(\d+):\d+: error: \S", first)
    if place is None:
        return f"does not say where: {first or said[:200] or 'nothing'}"
    lines = Path(file).read_text().count("\n") + 1
    return "" if 1 <= int(place[1]) <= lines + 1 else f"names line {place[1]} of {lines}"


def _differ(states: dict[str, int], folder: str) -> str:
    """Where engines do not do the same."""
    if states["ktir-opt"]:
        ran = [tool for tool, status in states.items() if status == 0]
        return f"ktir-opt refuses, and not {ran[0]}" if ran else ""
    arrays = {}
    for tool, name in (("ktir-run", "run"), ("ktir-run pinned", "pin"), ("ktir-run auto", "auto")):
        if states[tool] == 0:
            with np.load(f"{folder}/{name}.npz") as found:
                arrays[tool] = {key: found[key] for key in found}
    if "ktir-run" not in arrays:
        return f"ktir-run refuses, and not {next(iter(arrays))}" if arrays else ""
    for tool, theirs in arrays.items():
        for key, mine in arrays["ktir-run"].items():
            if not np.array_equal(mine, theirs[key], equal_nan=mine.dtype.kind == "f"):
                return f"{tool} gives other values of {key} than ktir-run"
    return ""


def _hangs(*_: object) -> None:
    raise TimeoutError(f"it takes more than {SECONDS} seconds")


def _apart(seed: int) -> str:
    """`finding` in a process of its own, which may crash."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        with contextlib.suppress(BaseException), os.fdopen(write, "w") as out:
            out.write(finding(seed) or "fine")
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    _, status = os.waitpid(process, 0)
    return "" if said == "fine" else said or f"the process ends with {status}"


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, metavar="SEED", help="the text of a seed, and what each tool says of it")
    options = parser.parse_args()
    if options.show is not None:
        kind, text = drawn(options.show)
        print("\n".join(f"{n:4} {line}" for n, line in enumerate(text.splitlines(), 1)), f"-- {kind}", sep="\n")
        print(finding(options.show, lambda tool, said: print(f"-- {tool}: {said[:1500]}")))
        return 0
    wrong = 0
    sources()
    for seed in range(options.seed, options.seed + options.texts):
        if said := _apart(seed):
            wrong += 1
            print(f"seed {seed} ({drawn(seed)[0]}): {said}", flush=True)
    print(f"{options.texts} texts of {len(sources())} kernels, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
