"""Random functions under `torch.compile`, without a backend's name, on tensors of the device.

    python test/campaign/device_compiled.py --programs 300 --seed 0 [--show]

Arguments are floats of a type, integers, truth values, views that share memory, tensors of the host, numbers. Functions compute, move,
index, write to what they are given and to views of it, break their graph, and ask for numbers; some are compiled with `dynamic=True` and
called with several sizes. All are called several times, so that the later calls are those that launch without the code around it. After
each call results and arguments are compared: types, sizes, which argument a result shares memory with, integers and truth values exactly.
The oracle of floats is the same function, uncompiled, on the host in float64. They may be off by four times what the host is off in their
own type, and by some roundings. Ends with status 1 where a program is wrong.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from campaign.device_compiled_lines import Drawing, arguments, lines
from campaign.spread import progress
from torch import Tensor

_ROUNDINGS = 16
_SIZES = ((1, 5), (3, 64), (5, 65), (4, 130), (2, 3), (8, 16))
_WIDE = {"F": torch.float64, "F16": torch.float64, "BF16": torch.float64, "F32": torch.float64}
_OWN = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}


class Program(NamedTuple):
    """A function and its arguments, as text, and how it is called. `dtype`: of its floats."""

    text: str
    arguments: list[str]
    dtype: torch.dtype
    sizes: list[tuple[int, int]]
    dynamic: bool
    keeps: bool
    """Whether all calls get the same tensors, with what the calls before have left in them."""
    inference: bool


def drawn(seed: int) -> Program:
    """The program of a seed."""
    r = random.Random(seed)
    d = Drawing(r)
    given = arguments(d)
    lines(d, r.choice((2, 5, 10)))
    results = [name for name in d.made if not any(re.search(rf"\b{name}\b(?! =)", line) for line in d.text)]  # nothing is dead
    results += r.sample(d.made, min(len(d.made), 1)) if r.random() < 0.3 or not results else []
    results = results or [r.choice(d.floats)]
    names = ", ".join(f"a{k}" for k in range(len(given)))
    text = f"def f({names}):\n" + "\n".join(f"    {line}" for line in d.text) + f"\n    return ({', '.join(results)},)\n"
    dynamic = r.random() < 0.3
    size = r.choice(_SIZES)
    sizes = [size, size, *r.sample(_SIZES, 2), size] if dynamic else [size] * 5
    return Program(text, given, r.choice([*_OWN.values()]), sizes, dynamic, not dynamic and r.random() < 0.5, r.random() < 0.3)


class _Side:
    """A program on one device, in its own type or in float64."""

    def __init__(self, program: Program, device: str, wide: bool) -> None:
        types = _WIDE if wide else _OWN | {"F": program.dtype}
        self.env: dict[str, Any] = {"torch": torch, "functional": torch.nn.functional, "D": device, **types}
        self.program = program
        exec(compile(program.text, f"<program on {device}>", "exec"), self.env)
        self.function: Callable[..., Any] = self.env["f"]
        self.given: list[Any] = []

    def call(self, number: int) -> list[Any]:
        """Its results of a call."""
        if not (self.given and self.program.keeps):
            rows, columns = self.program.sizes[number]
            self.env |= {"R": rows, "C": columns, "SEED": number, "base": {}}
            self.given = [eval(text, self.env) for text in self.program.arguments]
        with torch.inference_mode() if self.program.inference else torch.no_grad():
            return list(self.function(*self.given))

    def shared(self, results: list[Any]) -> list[list[int]]:
        """For each result, the arguments whose memory it shows."""
        memories = [t.untyped_storage()._cdata if isinstance(t, Tensor) else 0 for t in self.given]
        return [[k for k, m in enumerate(memories) if isinstance(t, Tensor) and m == t.untyped_storage()._cdata] for t in results]


def finding(seed: int) -> str:
    """What is wrong with a program, empty if nothing is."""
    program = drawn(seed)
    sides = exact, host, mine = _Side(program, "cpu", True), _Side(program, "cpu", False), _Side(program, "spyre", False)
    torch._dynamo.reset()
    mine.function = torch.compile(mine.function, dynamic=True if program.dynamic else None)
    for number in range(len(program.sizes)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                wanted, theirs = exact.call(number), host.call(number)
        except Exception as error:  # what the host refuses is no program
            return "" if number else _refused(program, error)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                got = mine.call(number)
            except Exception as error:
                return f"call {number} raises {type(error).__name__}: {str(error)[:300]}"
        if faults := [str(w.message) for w in said if "the fault lies in ktir" in str(w.message)]:
            return f"call {number}: {faults[0][:300]}"
        if host.shared(theirs) != mine.shared(got):
            return f"call {number}: results share memory with arguments {mine.shared(got)}, on the host {host.shared(theirs)}"
        for what, three in (("result", (wanted, theirs, got)), ("argument", tuple(side.given for side in sides))):
            for place, (w, t, m) in enumerate(zip(*three, strict=True)):
                if reason := _difference(w, t, m):
                    return f"call {number}, {what} {place}: {reason}"
    return ""


_refusals: list[str] = []


def _refused(program: Program, error: Exception) -> str:
    _refusals.append(f"{error}\n{program.text}")
    return ""


def _difference(wanted: Any, host: Any, mine: Any) -> str:
    """What is other on the device; `wanted`: in float64."""
    if not isinstance(host, Tensor):
        return "" if mine == host else f"is {mine}, not {host}"
    if (mine.dtype, mine.shape) != (host.dtype, host.shape):
        return f"is {mine.dtype} {tuple(mine.shape)}, not {host.dtype} {tuple(host.shape)}"
    if mine.is_inference() != host.is_inference():
        return f"is {'an' if mine.is_inference() else 'no'} inference tensor"
    found = mine.detach().cpu()
    if not host.is_floating_point():
        apart = found != host
    else:
        exact, unit = wanted.double(), torch.finfo(host.dtype).eps
        finite = exact[torch.isfinite(exact)].abs()
        most = float(finite.max()) if finite.numel() else 0.0
        theirs = (host.double() - exact).abs().nan_to_num(0, 0, 0)
        bound = 4 * (float(theirs.max()) if theirs.numel() else 0.0) + _ROUNDINGS * unit * most
        off = (found.double() - exact).abs()
        apart = ~((off <= bound) | (found.double() == exact) | (found.isnan() & host.isnan()) | (found == host))
    if not bool(apart.any()):
        return ""
    at = tuple(apart.nonzero()[0].tolist())
    return f"{host.dtype} {tuple(host.shape)} at {list(at)} is {found[at].item()!r}, not {host[at].item()!r} ({int(apart.sum())} differ)"


def main(given: list[str] | None = None) -> int:
    """The command; 1 where a program is wrong."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--programs", type=int, default=300, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first program")
    parser.add_argument("--show", action="store_true", help="print the programs instead")
    options = parser.parse_args(given)
    seeds = range(options.seed, options.seed + options.programs)
    if options.show:
        for seed in seeds:
            program = drawn(seed)
            print(f"# seed {seed}: {program._replace(text='')}\n{program.text}")
        return 0
    from ktir.device.autoload import register
    from ktir.runtime import metrics

    register()
    bar, wrong = progress(options.programs, "program"), 0
    with metrics.counted() as launches:
        for seed in seeds:
            said = finding(seed)
            wrong += bool(said)
            bar("wrong" if said else "right")
            if said:
                print(f"seed {seed}: {said}", flush=True)
    print(f"{options.programs} programs, {wrong} wrong, {len(_refusals)} that the host refuses; {launches()}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
