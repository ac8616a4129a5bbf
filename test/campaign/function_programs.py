"""Random functions of PyTorch tensors: drawn from a seed, printed as runnable Python, run, and judged by the model of their errors."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from campaign.function_call import Call, Number, apply, evaluate, source
from campaign.function_draws import ALL, FLOATS, HALF, MOST, SIZES, Draw, Node, NoFit
from campaign.function_model import Bounded, exactly, forget_overflow, wrong
from campaign.function_moves import MOVES
from campaign.function_pointwise import BINARY, OTHER, UNARY, Sampler
from campaign.function_sums import CONTRACTIONS, SUMS
from torch import Tensor
from torch.nn import functional

OPS: dict[str, Sampler] = {**UNARY, **BINARY, **OTHER, **SUMS, **CONTRACTIONS, **MOVES}
GROUPS = ((UNARY, 12), (BINARY, 15), (OTHER, 15), (SUMS, 18), (CONTRACTIONS, 14), (MOVES, 26))


@dataclass
class Program:
    """Nodes in order; `outputs` are numbers of those that are returned."""

    nodes: list[Node]
    outputs: list[int]
    note: str = ""

    @property
    def inputs(self) -> list[int]:
        return [k for k, n in enumerate(self.nodes) if n.call is None]

    @property
    def mutated(self) -> dict[int, int]:
        """Inputs that are changed in place: the node that stands for what they hold then."""
        return {n.call.operands[n.call.mutates]: k for k, n in enumerate(self.nodes) if n.call is not None and n.call.mutates is not None}

    def function_text(self) -> str:
        """The function as Python."""
        names = [f"v{k}" for k in range(len(self.nodes))]
        lines = [f"def f({', '.join(names[k] for k in self.inputs)}):"]
        for k, node in enumerate(self.nodes):
            if node.call is not None:
                lines += [f"    {line}" for line in source(node.call, names, names[k]).splitlines()]
        return "\n".join([*lines, f"    return {', '.join(names[k] for k in self.outputs)},"])

    def function(self) -> Callable[..., tuple[Tensor, ...]]:
        """The function itself, made from its text."""
        env: dict[str, Any] = {"torch": torch, "F": functional}
        exec(compile(self.function_text(), "<program>", "exec"), env)
        return env["f"]

    def script(self, arguments: str) -> str:
        """A file that shows the program; `arguments` is the expression of its inputs."""
        header = "import torch\nimport torch.nn.functional as F\n\n\n"
        return f"{header}{self.function_text()}\n\n\nargs = {arguments}\nprint(f(*args))\n"

    def arguments(self) -> list[Tensor]:
        return [self.nodes[k].eager.clone() for k in self.inputs]

    @property
    def described(self) -> str:
        return ", ".join(f"{str(self.nodes[k].dtype).removeprefix('torch.')}{list(self.nodes[k].shape)}" for k in self.inputs)


# ------------------------------------------------------------------------------------------------------------------------------- drawing


def drawn(seed: int) -> Program:
    """The program of a seed."""
    r = random.Random(seed)
    main = r.choices(ALL, (40, 8, 16, 4, 8, 7, 3, 3, 6, 2))[0]
    style = r.choices(("normal", "exact", "wide", "special"), (45, 30, 15, 10))[0]
    d = Draw(r, style, main, tuple(r.sample(SIZES, 3)))
    while True:
        d.nodes.clear()
        _inputs(d)
        for _ in range(r.choice((1, 2, 3, 4, 5, 6, 8, 10))):
            _grow(d)
        if any(n.call is not None for n in d.nodes):
            break
    program = _with_outputs(d)
    program.note = f"seed {seed}, {str(main).removeprefix('torch.')}, {style}"
    return program


def _inputs(d: Draw) -> None:
    a, b, c = d.sizes
    shapes = [(a, b), (a, b), (b,), (a, 1), (c, a, b), (b, c), (min(c, 6), min(a, 9), b), (a,), (), (2, min(a, 8), min(b, 12), min(c, 12))]
    for k in range(d.r.choice((1, 1, 2, 2, 3))):
        shape = d.r.choice([s for s in shapes if torch.Size(s).numel() <= MOST])
        kind = d.main if k == 0 or d.r.random() < 0.8 else d.r.choice(ALL)
        d.new(d.values(shape, kind))
        if len(shape) > 1 and d.r.random() < 0.15:  # any strides
            d.nodes[-1].eager = d.values((*shape[:-2], shape[-1], shape[-2]), kind).mT


def _grow(d: Draw) -> None:
    """One more call of a random operator, if eager PyTorch has a result for it."""
    for _ in range(20):
        before = len(d.nodes)
        group = d.r.choices([g for g, _ in GROUPS], [w for _, w in GROUPS])[0]
        try:
            call = group[d.r.choice(list(group))](d)
            eager = _eager(d, call)
        except (NoFit, RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
            del d.nodes[before:]
            continue
        if eager.dtype.is_complex or eager.numel() == 0 or eager.numel() > MOST or eager.dim() > 5:
            del d.nodes[before:]
            continue
        roots: frozenset[int] = frozenset()
        if call.views:
            roots = frozenset(r for o in call.operands if not isinstance(o, Number) for r in d.nodes[o].roots)
        if call.mutates is not None:
            roots = frozenset({len(d.nodes)})
            d.nodes[call.operands[call.mutates]].gone = True
        d.nodes.append(Node(eager, call, roots))
        return


def _eager(d: Draw, call: Call) -> Tensor:
    operands: list[Any] = [o.value if isinstance(o, Number) else d.nodes[o].eager for o in call.operands]
    if call.mutates is not None:
        operands[call.mutates] = operands[call.mutates].clone()
    with torch.no_grad():
        return apply(call.text, operands).detach()


def _with_outputs(d: Draw) -> Program:
    """Returns what nothing reads, and now and then an intermediate; a program may leave some of its results out."""
    read = {o for n in d.nodes if n.call is not None for o in n.call.operands if not isinstance(o, Number)}
    calls = [k for k, n in enumerate(d.nodes) if n.call is not None and not n.gone]
    outputs = [k for k in calls if k not in read or d.r.random() < 0.15] or calls[-1:]
    if not outputs:
        outputs = [k for k, n in enumerate(d.nodes) if n.call is not None][-1:]
    return needed(Program(d.nodes, outputs))


def needed(program: Program) -> Program:
    """Without the nodes on which no output and no change of an input depends."""
    live = set(program.outputs) | set(program.mutated.values())
    for k in reversed(range(len(program.nodes))):
        call = program.nodes[k].call
        if k in live and call is not None:
            live |= {o for o in call.operands if not isinstance(o, Number)}
    order = sorted(live)
    place = {k: i for i, k in enumerate(order)}
    return Program([renumbered(program.nodes[k], place) for k in order], [place[k] for k in program.outputs], program.note)


def renumbered(node: Node, place: dict[int, int]) -> Node:
    """A node whose operands have other numbers."""
    if node.call is None:
        return Node(node.eager)
    operands = tuple(o if isinstance(o, Number) else place[o] for o in node.call.operands)
    return Node(node.eager, Call(**{**vars(node.call), "operands": operands}))


# ------------------------------------------------------------------------------------------------------------------------------- judging


@dataclass
class Verdict:
    """`wrong`: what is wrong, empty if nothing is. `judged` of `elements` elements had a bound that says something."""

    wrong: list[str] = field(default_factory=list)
    judged: int = 0
    elements: int = 0


def judge(program: Program, results: Sequence[Tensor], inputs: Sequence[Tensor]) -> Verdict:
    """Results, and inputs as the call has left them, against what they may be. Behind a result that was returned the model goes on from
    its own bits: one value is the same for all who read it."""
    verdict = Verdict()
    returned = dict(zip(program.outputs, results, strict=True))
    left = dict(zip(program.inputs, inputs, strict=True))
    mutated = program.mutated
    returned |= {node: left[k] for k, node in mutated.items()}
    known: list[Bounded] = []
    for k, node in enumerate(program.nodes):
        if node.call is None:
            known.append(exactly(node.eager))
            if k not in mutated and not same_bits(left[k], node.eager):
                verdict.wrong.append(f"input v{k} is changed")
            continue
        wanted = evaluate(node.call, known, node.eager)
        if k in returned:
            _judge(verdict, f"v{k}", node, returned[k], wanted, [known[o] for o in node.call.operands if not isinstance(o, Number)])
            if returned[k].shape == node.eager.shape and returned[k].dtype == node.dtype:
                known.append(exactly(returned[k]))
                continue
        known.append(forget_overflow(wanted) if node.dtype in HALF else wanted)
    return verdict


def _judge(verdict: Verdict, name: str, node: Node, got: Tensor, wanted: Bounded, operands: list[Bounded]) -> None:
    if got.shape != node.eager.shape or got.dtype != node.dtype:
        verdict.wrong.append(f"{name} is {got.dtype} {list(got.shape)}, not {node.dtype} {list(node.eager.shape)}")
        return
    bad = wrong(got, wanted)
    assert node.call is not None
    if node.call.check is not None:
        bad = bad | (torch.isinf(wanted.error) & node.call.check(got, operands))
        verdict.judged += got.numel()
    else:
        telling = wanted.error <= 0.125 * wanted.value.double().abs().clamp(min=0.1) if node.is_float else wanted.error == 0
        verdict.judged += int((telling | ~torch.isfinite(wanted.value.double()) & (wanted.error == 0)).sum())
    verdict.elements += got.numel()
    if bad.any():
        at = tuple(bad.nonzero()[0].tolist())
        bound = f" ± {wanted.error[at].item():.3g}" if node.is_float else ""
        verdict.wrong.append(
            f"{name} ({node.call.text.splitlines()[-1]}): {int(bad.sum())} of {bad.numel()} elements, at {list(at)} "
            f"{got[at].item()}, not {wanted.value[at].item()}{bound}"
        )


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors hold the same, with NaNs equal to one another."""
    return torch.equal(torch.isnan(a), torch.isnan(b)) and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))


def eager_verdict(program: Program) -> Verdict:
    """What the model says of eager PyTorch itself."""
    inputs = program.arguments()
    with torch.no_grad():
        results = program.function()(*inputs)
    return judge(program, results, inputs)


__all__ = ["FLOATS", "HALF", "OPS", "Program", "drawn", "eager_verdict", "judge", "needed", "renumbered"]
