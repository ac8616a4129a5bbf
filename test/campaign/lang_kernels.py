"""Kernels of the language, drawn by a seed: on NumPy, the executor and the chip near what NumPy's float64 gives, on the latter two with a
grid in the same bits; and so where the chip's compiler may divide the work of a grid anew.

python test/campaign/lang_kernels.py --programs 500 --seed 0
"""

from __future__ import annotations

import argparse
import linecache
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from campaign.lang_draws import Drawn, draw
from campaign.lang_meaning import Known, meaning, wrong
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from ktir import lang
from ktir.diagnostics import Unsupported

ENGINES = ("numpy", "executor", "chip")
SIGNED = ("executor", "chip")
"""Which give zeros their sign as the meaning has it."""


def compiled(drawn: Drawn, name: str) -> Any:
    """The kernel, with its grid; its lines are known under `name`."""
    linecache.cache[name] = len(drawn.text), None, drawn.text.splitlines(keepends=True), name
    scope: dict[str, Any] = {"np": np, "lang": lang, "bfloat16": bfloat16}
    exec(compile(drawn.text, name, "exec"), scope)
    return scope["kernel"][drawn.grid] if drawn.grid else scope["kernel"]


def copies(arrays: Sequence[Any]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]


def judged(drawn: Drawn, seed: int) -> str:
    """`equal`, `refused: ...` for what the chip does not take, `unknown: ...` for what the meaning does not say, or what is wrong."""
    name = f"/drawn/{seed}.py"
    try:
        meant = meaning(drawn.text, copies(drawn.arrays), drawn.grid)
    except Known as error:
        return f"unknown: {error}"
    kernel, bits = compiled(drawn, name), dict[str, bytes]()

    def off(found: list[Any], *, zeros: bool) -> str:
        pairs = zip(found, meant, strict=True)
        listed = (f"argument {k}: {wrong(a, m, zeros=zeros)}" for k, (a, m) in enumerate(pairs) if isinstance(a, np.ndarray))
        return next((said for said in listed if not said.endswith(": ")), "")

    for on in ENGINES:
        found = copies(drawn.arrays)
        try:
            kernel.using(on=on)(*found)
        except Unsupported as error:
            return f"refused: {error.message}" if on == "chip" and str(error).startswith(name) else f"{on}: {error}"
        if said := off(found, zeros=on in SIGNED):
            return f"{on}: {said}"
        bits[on] = b"".join(bits_of(a) for a in found if isinstance(a, np.ndarray))
    if drawn.grid and bits["chip"] != bits["executor"]:
        return "chip: other bits than the executor"
    if not drawn.grid:
        return "equal"
    found = copies(drawn.arrays)
    try:
        kernel.using(on="chip", way="lift")(*found)
    except Unsupported:
        return "equal"
    said = off(found, zeros=False)
    return f"lifted: {said}" if said else "equal"


def bits_of(array: NDArray[Any]) -> bytes:
    """Its bits, where each NaN is the same."""
    return np.where(array != array, array.dtype.type(np.nan), array).tobytes() if array.dtype.kind not in "iub" else array.tobytes()


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge as many kernels as asked for; 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    found: Counter[str] = Counter()
    bad = 0
    for seed in range(options.seed, options.seed + options.programs):
        drawn = draw(seed)
        try:
            verdict = judged(drawn, seed)
        except Exception as error:  # a crash, or a refusal of what the language has, is a finding
            verdict = f"{type(error).__name__}: {error}"
        found[verdict.partition(";")[0][:110]] += 1
        if verdict != "equal" and not verdict.startswith(("refused: ", "unknown: ")):
            bad += 1
            print(f"seed {seed}, grid {drawn.grid}: {verdict}\n{drawn.text}", flush=True)
    for verdict, count in found.most_common():
        print(f"{count:6} {verdict}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
