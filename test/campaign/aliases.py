"""Random programs of views and writes in place: to inputs, to what is computed, to parts of either, whole and by indices.

    python test/campaign/aliases.py --programs 2000 --seed 0 [--device] [--show]

Half of the programs have inputs that lie in one memory: interleaved, side by side in its rows, row by row in turn, overlapping, or in one
place. Elements are small whole numbers, on which all operators are exact: results and the memory of the inputs must have eager's bits. Not
drawn: a write of a tensor to another part of its own memory (eager itself refuses or leaves the order open; the source is cloned then),
indices that are equal, and sizes of zero.
Strides of results are not compared: stock Inductor's are others where a view is dropped that views everything. Ends with status 1 where a
program is wrong or stops.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from campaign.spread import progress
from torch import Tensor

from ktir.runtime.executable import recorded

SIZES = ((9, 6), (5, 70), (3, 64), (7, 7), (2, 130))
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32)
LYING = ("apart", "interleaved", "side by side", "in turn", "overlapping", "in one place")


@dataclass
class Program:
    """Lines of a function of matrices; `memory` names for each tensor the one in whose memory it may lie, `lying` says how inputs do."""

    r: random.Random
    dtype: torch.dtype
    lying: str
    shapes: dict[str, tuple[int, ...]]
    inputs: list[str] = field(default_factory=list)
    memory: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def made(self, text: str, shape: tuple[int, ...], of: str = "") -> None:
        name = f"v{len(self.shapes) - len(self.inputs)}"
        self.lines.append(f"{name} = {text}")
        self.shapes[name] = shape
        self.memory[name] = self.memory.get(of, name)

    def alike(self, name: str, fits: Callable[[tuple[int, ...]], bool]) -> str:
        """A tensor of a shape that fits, for a write to `name`: another memory, or a clone."""
        found = self.r.choice([x for x, shape in self.shapes.items() if fits(shape)])
        return found if self.memory[found] != self.memory[name] or found == name else f"{found}.clone()"

    @property
    def text(self) -> str:
        made = [name for name in self.shapes if name not in self.inputs]
        returned = [name for name in made if self.r.random() < 0.6] or made[-1:]
        lines = "".join(f"    {line}\n" for line in self.lines)
        return f"def f({', '.join(self.inputs)}):\n{lines}    return [{', '.join(returned)}]\n"

    def arguments(self, device: str = "cpu") -> tuple[list[Tensor], list[Tensor]]:
        """The inputs, and the memories that they lie in."""
        rows, columns = self.shapes[self.inputs[0]]
        count = len(self.inputs)
        shapes = {"apart": (count, rows, columns), "interleaved": (rows, columns, count), "overlapping": (rows + count - 1, columns)}
        shapes |= {"side by side": (rows, count * columns), "in turn": (count * rows, columns)}
        whole = torch.randint(-9, 10, shapes.get(self.lying, (rows, columns)), generator=torch.Generator().manual_seed(1))
        whole = whole.to(self.dtype).to(device)
        if self.lying == "apart":
            inputs = [part.clone() for part in whole]
            return inputs, inputs
        if self.lying == "interleaved":
            return [whole[:, :, k] for k in range(count)], [whole]
        if self.lying == "side by side":
            return list(whole.chunk(count, 1)), [whole]
        if self.lying == "in turn":
            return [whole[k::count] for k in range(count)], [whole]
        return [whole[k : k + rows] if self.lying == "overlapping" else whole.view(rows, columns) for k in range(count)], [whole]


def view(p: Program, a: str) -> None:
    """A part, or another order, of a tensor; a reshape may be a copy."""
    shape = p.shapes[a]
    if len(shape) == 1:
        p.made(f"{a}[::2]", (-(-shape[0] // 2),), a)
        return
    n, m = shape
    row = p.r.randrange(n)
    views: dict[str, tuple[int, ...]] = {
        f"{a}.t()": (m, n),
        f"{a}[{row}:]": (n - row, m),
        f"{a}[::2]": (-(-n // 2), m),
        f"{a}.reshape(-1)": (n * m,),
        f"{a}[{row}]": (m,),
        f"{a}.diagonal()": (min(n, m),),
    }
    if m > 3:
        views[f"{a}[:, 1:-1]"] = (n, m - 2)
    text = p.r.choice(list(views))
    p.made(text, views[text], a)


def value(p: Program, a: str) -> None:
    """A new tensor."""
    shape = p.shapes[a]
    b = p.r.choice([x for x, other in p.shapes.items() if other == shape])
    texts = [f"{a} + {b}", f"{a} - {b}", f"{a} + 1", f"{a}.abs()", f"torch.maximum({a}, {b})", f"torch.where({a} > 2, {a}, {b})"]
    p.made(p.r.choice([*texts, f"{a}.clone()", f"{a} * 1", f"{a}.flip(0)", f"torch.cat([{a}, {a}])[:{shape[0]}]"]), shape)


def placed(p: Program, a: str) -> None:
    """Rows of another tensor at places of a tensor, or of a copy of it."""
    shape = p.shapes[a]
    b = p.alike(a, lambda other: other[1:] == shape[1:] and len(other) == len(shape) and other[0] <= shape[0])
    count = p.shapes[b.removesuffix(".clone()")][0]
    first = shape[0] - count
    at = f"torch.arange({count}, device={p.inputs[0]}.device)"
    at = p.r.choice((f"{at} + {first}", f"{shape[0] - 1} - {at}"))
    copies = [f"{a}.index_copy(0, {at}, {b})", f"torch.index_put({a}, ({at},), {b})", f"{a}.index_add(0, {at}, {b})"]
    copies.append(f"{a}.slice_scatter({b}, 0, {first}, {shape[0]})")
    if p.r.random() < 0.55:
        p.made(p.r.choice(copies), shape)
    else:
        b = b if b != a else f"{a}.clone()"
        p.lines.append(p.r.choice((f"{a}[{at}] = {b}", f"{a}.index_copy_(0, {at}, {b})", f"{a}.index_add_(0, {at}, {b})")))


def written(p: Program, a: str) -> None:
    """A tensor as a whole."""
    b = p.alike(a, lambda other: other == p.shapes[a])
    p.lines.append(a + p.r.choice((".add_(1)", f".add_({b})", f".copy_({b})", ".fill_(3)", ".zero_()", ".clamp_(max=7)")))


def drawn(seed: int) -> tuple[str, Program]:
    """The text and the inputs of a program."""
    r = random.Random(seed)
    inputs = [f"x{k}" for k in range(r.choice((1, 2, 2, 3)))]
    size = r.choice(SIZES)
    lying = r.choice(("apart", r.choice(LYING[1:]))) if len(inputs) > 1 else "apart"
    memory = {name: inputs[0] if lying in ("overlapping", "in one place") else name for name in inputs}
    p = Program(r, r.choice(DTYPES), lying, dict.fromkeys(inputs, size), inputs, memory)
    for _ in range(r.choice((3, 4, 5, 6, 8, 10))):
        r.choice((view, view, value, value, placed, placed, written, written, written))(p, r.choice(list(p.shapes)))
    if len(p.shapes) == len(inputs):
        value(p, inputs[0])
    return p.text, p


def finding(seed: int, device: str = "cpu") -> tuple[str, bool]:
    """What is wrong with a program, empty if nothing is, and whether it ran on the chip."""
    text, p = drawn(seed)
    env: dict = {"torch": torch}
    exec(compile(text, f"<program {seed}>", "exec"), env)
    (theirs, their_memory), (mine, my_memory) = p.arguments(), p.arguments(device)
    torch._dynamo.reset()
    with torch.no_grad(), recorded() as launches:
        wanted = env["f"](*theirs)
        try:
            found = torch.compile(env["f"], backend="ktir", dynamic=False)(*mine)
        except Exception as error:
            return f"stops: {type(error).__name__}: {error}", False
    pairs = list(zip([*found, *my_memory], [*wanted, *their_memory], strict=True))
    wrong = [k for k, (a, b) in enumerate(pairs) if a.dtype != b.dtype or not torch.equal(a.cpu(), b)]
    return (f"differs in results {wrong} of {len(found)} and {len(my_memory)} memories" if wrong else ""), bool(launches)


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 where a program is wrong or stops."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--programs", type=int, default=2000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first program")
    parser.add_argument("--device", action="store_true", help="with tensors of the device")
    parser.add_argument("--show", action="store_true", help="print the programs instead")
    options = parser.parse_args(arguments)
    seeds = range(options.seed, options.seed + options.programs)
    if options.show:
        programs = [(seed, *drawn(seed)) for seed in seeds]
        print("\n".join(f"# seed {seed}, {p.dtype}, inputs {p.lying}\n{text}" for seed, text, p in programs))
        return 0
    if options.device:
        from ktir.device.autoload import register

        register()
    bar, launched, wrong = progress(len(seeds), "program"), 0, 0
    for seed in seeds:
        said, chip = finding(seed, "spyre" if options.device else "cpu")
        launched += chip
        wrong += bool(said)
        bar("wrong" if said else "right")
        if said:
            print(f"seed {seed} {said}\n{drawn(seed)[0]}")
    print(f"{len(seeds)} programs, {wrong} wrong, {launched} with a launch of the chip")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
