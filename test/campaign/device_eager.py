"""Random programs of eager operators on the device, line by line the same as on the host: values, types, sizes, errors, and what is not
written.

    python test/campaign/device_eager.py --programs 2000 --seed 0 [--show] [--statements binary,written]

Operands are of all types, some with special values, of sizes around multiples of 64 and 0, some without elements; numbers are of Python,
some beyond the type. After each line all tensors are compared: integers, truth values, places and copies have the host's bits; floats that
are computed are those of the host, or within the bound of docs/promises.md of the value in float64, and what reads them later on the host
gets what the device has. Where the host raises, the device raises the same type. Ends with status 1 where a program is wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from campaign import device_statements
from campaign.device_statements import SHAPES, STATEMENTS, Drawing, Line, content, operand, run
from campaign.function_model import INF, UNIT, rounded, wrong
from campaign.spread import judge
from torch import Tensor

_MOST = 5000
"""Elements of a tensor with which a program goes on."""


def drawn(seed: int, statements: tuple[Callable[[Drawing], None], ...] = STATEMENTS) -> list[Line]:
    """The lines of a program."""
    r = random.Random(seed)
    d = Drawing(r, {"torch": torch, "content": content})
    shape = r.choice(SHAPES)
    for _ in range(r.choice((2, 3, 4))):
        operand(d, shape if r.random() < 0.85 else r.choice(SHAPES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(r.choice((2, 4, 6))):
            r.choice(statements)(d)
            for name in [n for n, t in d.tensors.items() if t.numel() > _MOST]:
                d.lines.append(Line(f"del {name}"))
                del d.env[name]
    return d.lines


def finding(seed: int, statements: tuple[Callable[[Drawing], None], ...] = STATEMENTS) -> str:
    """What is wrong with a program, empty if nothing is."""
    theirs: dict[str, Any] = {"torch": torch, "content": content}
    mine: dict[str, Any] = {"torch": torch, "content": lambda *given: content(*given).to("spyre")}
    for line in drawn(seed, statements):
        before = {n: t.detach().clone() for n, t in theirs.items() if isinstance(t, Tensor)}
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            wanted = run(line.text, theirs)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            _forget_warnings()
            got = run(line.text, mine)
        if faults := [str(w.message) for w in said if "the fault lies in ktir" in str(w.message) or "Error: " in str(w.message)]:
            return f"{line.text}: a fault: {faults[0]}"
        if type(wanted) is not type(got):
            return f"{line.text}: the host {_outcome(wanted)}, the device {_outcome(got)}"
        if wanted is not None and (".out" in line.text or "out=" in line.text or "_(" in line.text or "] = " in line.text):
            return ""  # what is written before an error is nobody's
        if wrong_ones := _differences(line, theirs, mine, before):
            return f"{line.text}: {wrong_ones}"
    return ""


def _forget_warnings() -> None:
    from ktir.device.operators import fallback

    fallback._said.clear()


def _outcome(error: BaseException | None) -> str:
    text = str(error).partition("\n")[0]
    return "returns" if error is None else f"raises {type(error).__name__}: {text[:160]}"


def _differences(line: Line, theirs: dict[str, Any], mine: dict[str, Any], before: dict[str, Tensor]) -> str:
    """What is other on the device after a line. Floats within their bound are then those of the host, too."""
    for name in [n for n in theirs if n in mine and n[1:].isdigit()]:
        a, b = theirs[name], mine[name]
        if not isinstance(a, Tensor):
            if a != b and not (a != a and b != b):
                return f"{name} is {a!r} on the host, {b!r} on the device"
            continue
        if (a.dtype, a.shape) != (b.dtype, b.shape) or b.device.type != "spyre":
            return f"{name} is {a.dtype} {tuple(a.shape)} on the host, {b.dtype} {tuple(b.shape)} on {b.device}"
        found = b.cpu()
        apart = _apart(a, found)
        if apart.any() and (line.judged == "exact" or not a.is_floating_point() or _beyond(line, a, found, apart, before)):
            at = apart.nonzero()[0].tolist()
            return f"{name}{at} ({a.dtype}) is {a[tuple(at)].item()!r} on the host, {found[tuple(at)].item()!r} on the device"
        if apart.any():
            with torch.no_grad():
                a.copy_(found)
    return ""


def _apart(a: Tensor, b: Tensor) -> Tensor:
    """Where two tensors of the host differ: NaNs are alike, zeros of either sign are not."""
    if not a.is_floating_point():
        return a != b
    return ((a != b) | (torch.signbit(a) != torch.signbit(b))) & ~(torch.isnan(a) & torch.isnan(b))


def _beyond(line: Line, host: Tensor, found: Tensor, apart: Tensor, before: dict[str, Tensor]) -> bool:
    """Whether some element is outside of the bound of its value in float64, which is that of eager PyTorch on operands in float64."""
    exact = _in_float64(line, before)
    if exact is None or exact.shape != found.shape:
        return True
    magnitude = exact.abs()
    if line.sums:
        power = 2 if "@" in line.text or "mul" in line.text else 1
        magnitude = magnitude + sum(t.double().nan_to_num(0, 0, 0).abs().sum() ** power for t in before.values())
    if line.terms:
        terms = eval(line.terms, {"torch": torch, **before})
        magnitude = magnitude + terms.nan_to_num(0.0, 0.0, 0.0)
    size = torch.where(torch.isfinite(magnitude), magnitude, 0.0)
    error = line.roundings * max(UNIT[torch.float32], UNIT[host.dtype] if host.dtype == torch.float64 else 0) * size
    bound = rounded(exact, error, host.dtype)
    of_host = (host.double() - exact).abs()
    as_far = torch.where(torch.isfinite(host), 1.5 * of_host, torch.where(host.double() == exact, 0.0, INF))
    bound.error = torch.maximum(bound.error, as_far.nan_to_num(0.0, INF))
    other_zero = (found == 0) & (host == 0) & (exact == 0) & (not line.sums)
    return bool(((wrong(found, bound) | other_zero) & apart).any())


def _in_float64(line: Line, before: dict[str, Tensor]) -> Tensor | None:
    env: dict[str, Any] = {"torch": torch, **{n: t.double() if t.is_floating_point() else t.clone() for n, t in before.items()}}
    text = line.text
    if "out=" in text:
        text = "found = " + text.partition(", out=")[0] + ")"
    elif " *= " in text or ("_(" in text and not text.startswith("v")):
        name = text.partition(".")[0].partition(" ")[0]
        text += f"\nfound = {name}"
    elif " = " not in text:
        return None
    else:
        text = "found" + text[text.index(" = ") :]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        usual = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)  # of functions of integers, too
        try:
            return None if run(text, env) else torch.as_tensor(env["found"]).double()
        finally:
            torch.set_default_dtype(usual)


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 where a program is wrong."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--programs", type=int, default=2000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first program")
    parser.add_argument("--statements", default="", metavar="KINDS", help="draw these alone, e.g. binary,written")
    parser.add_argument("--show", action="store_true", help="print the programs instead")
    options = parser.parse_args(arguments)
    kinds = tuple(getattr(device_statements, name) for name in options.statements.split(",") if name) or STATEMENTS
    seeds = range(options.seed, options.seed + options.programs)
    if options.show:
        print("\n".join(f"# seed {seed}\n" + "\n".join(line.text for line in drawn(seed, kinds)) for seed in seeds))
        return 0
    from ktir.device.autoload import register

    register()
    return judge(seeds, "program", lambda seed: finding(seed, kinds))


if __name__ == "__main__":
    sys.exit(main())
