"""Work division: the best split of a problem's loops over the cores.

Every split into equal shares (the last one may be smaller, unless the loop is `even`) is a candidate: loops are cut in their units, at most
one reduction loop is cut, and no operand may need a window of addresses beyond the chip's span. All legal candidates are priced, so the
choice is the optimum of the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from ktir.cost.estimate import Cost
from ktir.cost.model import Division, Model
from ktir.cost.problem import Operand, Problem
from ktir.diagnostics import KtirError
from ktir.hints import Hint
from ktir.layout import Layout
from ktir.target import STICK_BYTES, Target

TAILS = ("masked", "padded", "exact")
"""What happens where a loop does not divide: the last core's view is masked, every share is padded, or such splits are not allowed."""


_OTHERS = 31
"""Candidates behind the best one that are kept for who knows a price of all ops."""


class Infeasible(KtirError):
    """No division is legal, or a hint cannot be honoured; the message says why."""


@dataclass(frozen=True)
class Plan:
    """The choice and why: its cost, the next best candidates, how many were priced, and how many fell to which rule."""

    problem: Problem
    target: Target
    division: Division
    layouts: dict[str, Layout]
    cost: Cost
    others: tuple[tuple[Division, Cost], ...]
    """The next best candidates: one, or several for a softmax between matmuls, of which the model knows other ops as one number."""
    considered: int
    refused: dict[str, int]

    @property
    def runner_up(self) -> tuple[Division, Cost] | None:
        """The next best candidate."""
        return self.others[0] if self.others else None

    @property
    def microseconds(self) -> float:
        """Predicted time."""
        return self.target.microseconds(self.cost.cycles)

    def splits(self) -> dict[str, int]:
        """Parts by loop name, those of one part left out."""
        return {loop.name: s for loop, s in zip(self.problem.loops, self.division.splits, strict=True) if s > 1}

    def explain(self) -> str:
        """The decision as text: choice, cost by term, bound, runner-up, what was refused."""
        out = [f"{self.problem.name}: {describe(self.problem, self.division)}"]
        out += [f"  {line}" for line in self.cost.lines(self.target)]
        for name, layout in self.layouts.items():
            out.append(f"  layout of {name}: {list(layout.device_size)}")
        if self.runner_up is not None:
            division, cost = self.runner_up
            more = f"{cost.cycles / self.cost.cycles - 1:+.1%}, bound by the {cost.bound.resource.title}"
            out.append(f"  runner-up: {describe(self.problem, division)}, {self.target.microseconds(cost.cycles):.2f} us ({more})")
        out.append(f"  {self.considered} candidates compared; this is the best of them")
        out += [f"  {count} refused: {reason}" for reason, count in self.refused.items()]
        return "\n".join(out)


def describe(problem: Problem, division: Division) -> str:
    """A division as text: `m/4 (128), n/8 (8 x 64) on 32 cores`."""
    parts = []
    for loop, split, share in zip(problem.loops, division.splits, division.shares, strict=True):
        if split > 1:
            tail = "" if loop.blocks % share == 0 else ", padded" if division.padded else ", the last one fewer"
            parts.append(f"{loop.name}/{split} ({share}{f' x {loop.unit}' if loop.unit > 1 else ''}{tail})")
    return f"{', '.join(parts) or 'undivided'} on {division.cores} core{'s' if division.cores > 1 else ''}"


def candidates(problem: Problem, cores: int, tails: str = "masked") -> Iterator[Division]:
    """Every division with at most `cores` parts and at most one reduction loop cut. `tails`: one of `TAILS`."""
    if tails not in TAILS:
        raise ValueError(f"tails must be one of {', '.join(TAILS)}, but got '{tails}'")
    options = []
    for loop in problem.loops:
        blocks = loop.blocks
        shares = sorted({-(-blocks // parts) for parts in range(1, min(cores, blocks) + 1)}, reverse=True)
        options.append([(-(-blocks // s), s) for s in shares if blocks % s == 0 or not (loop.even or tails == "exact")])
    reduction = [loop.reduction for loop in problem.loops]
    padded = tails == "padded"

    def choose(at: int, budget: int, reduced: bool, splits: tuple[int, ...], shares: tuple[int, ...]) -> Iterator[Division]:
        if at == len(options):
            yield Division(splits, shares, padded)
            return
        for split, share in options[at]:
            if split > budget or (split > 1 and reduction[at] and reduced):
                continue
            yield from choose(at + 1, budget // split, reduced or (split > 1 and reduction[at]), (*splits, split), (*shares, share))

    return choose(0, cores, False, (), ())


def span_bytes(layout: Layout, shares: tuple[int, ...]) -> int:
    """Window of addresses that a core needs whose share of dimension d is `shares[d]` elements: the published rule.

    The outermost device dimension along which a core's share has more than one position decides: all that lies inside it belongs to the
    window.
    """
    inside = layout.sticks * STICK_BYTES
    for digit in layout.digits[:-1]:
        inside //= digit.extent
        if digit.dim is None:
            continue
        positions = _positions(shares[digit.dim], digit.divisor, digit.extent, layout.size[digit.dim])
        if positions > 1:
            return positions * inside
    return inside


def _positions(share: int, divisor: int, extent: int, size: int) -> int:
    """Positions of a digit that the worst share touches."""
    if share >= size or share >= divisor * extent:
        return extent
    if share % divisor == 0:
        return share // divisor
    if divisor % share == 0:
        return 1
    return max((min(start + share, size) - 1) // divisor - start // divisor + 1 for start in range(0, size, share))


class _Solver:
    def __init__(self, problem: Problem, target: Target) -> None:
        self.problem, self.target = problem, target
        self.model = Model(problem, target)
        self.number = {loop.name: i for i, loop in enumerate(problem.loops)}
        limit = target.span_bytes
        self.wide = [o for o in problem.operands if any(layout.sticks * STICK_BYTES > limit for layout in o.layouts)]
        self._choice: dict[tuple[str, tuple[int, ...]], Layout | None] = {}

    def layout(self, operand: Operand, division: Division) -> Layout | None:
        """The first layout of an operand whose span is legal."""
        shares = tuple(division.shares[self.number[x]] * self.problem.loop(x).unit for x in operand.loops)
        key = (operand.name, shares)
        if key not in self._choice:
            legal = (layout for layout in operand.layouts if span_bytes(layout, shares) <= self.target.span_bytes)
            self._choice[key] = next(legal, None)
        return self._choice[key]

    def refusal(self, division: Division) -> str | None:
        """Why a division is not legal."""
        for operand in self.wide:
            if self.layout(operand, division) is None:
                return f"a core's part of '{operand.name}' spans more than {self.target.span_bytes} bytes of addresses"
        return None


def _rank(division: Division, cost: Cost) -> tuple[float, ...]:
    """Order of preference: time; then what is left of the compute and ring time; then fewer cores. Splits at last, so that it is total."""
    rest = max(cost.of("PT"), cost.of("SFP")) + cost.of("fill") + cost.of("ring") + cost.of("partial sums")
    return (round(cost.cycles, 3), round(rest, 3), division.cores, *division.splits)


def solve(problem: Problem, target: Target, *, tails: str = "masked", hint: Hint | None = None) -> Plan:
    """The best legal division of `problem` over at most `target.cores` cores.

    A hint's `work_div` fixes the number of parts of the loops that it names. Raises Infeasible if nothing is legal or the hint cannot be
    honoured.
    """
    solver = _Solver(problem, target)
    choices = candidates(problem, target.cores, tails)
    if hint is not None and hint.work_div:
        choices = iter(_hinted(problem, target, tails, hint))
    refused: Counter[str] = Counter()
    best: list[tuple[tuple[float, ...], Division, Cost]] = []
    most = 1 + (_OTHERS if problem.kind == "softmax" else 1)
    legal: list[tuple[float, Division]] = []
    for division in choices:
        if (reason := solver.refusal(division)) is not None:
            refused[reason] += 1
        else:
            legal.append((solver.model.at_least(division), division))
    considered = len(legal)
    for least, division in sorted(legal):
        if len(best) == most and least > best[-1][0][0] + 0.001:
            break  # and so are all that follow
        cost = solver.model.cost(division)
        if cost is None:
            refused["two rows of a core's part do not fit the scratchpad"] += 1
            considered -= 1
        elif len(best) < most or cost.cycles <= best[-1][0][0] + 0.001:
            best = sorted([*best, (_rank(division, cost), division, cost)], key=lambda b: b[0])[:most]
    if not best:
        raise Infeasible(_why_not(problem, target, refused, hint))
    _, division, cost = best[0]
    layouts = {o.name: layout for o in problem.operands if o.layouts and (layout := solver.layout(o, division)) is not None}
    return Plan(problem, target, division, layouts, cost, tuple(b[1:] for b in best[1:]), considered, dict(refused))


def _hinted(problem: Problem, target: Target, tails: str, hint: Hint) -> list[Division]:
    """The candidates that give a hint what it asks for. Raises Infeasible with the reason if there are none."""
    wishes = dict(hint.work_div)
    names = [loop.name for loop in problem.loops]
    for name, parts in wishes.items():
        if name not in names:
            raise Infeasible(f"hint work_div names loop '{name}', but '{problem.name}' has {', '.join(names)}")
        loop = problem.loop(name)
        share = -(-loop.blocks // min(parts, loop.blocks))
        if parts > loop.blocks:
            unit = f" of {loop.unit}" if loop.unit > 1 else ""
            raise Infeasible(
                f"hint work_div wants {parts} parts of '{name}', which has {loop.blocks} unit{'s' if loop.blocks > 1 else ''}{unit}"
            )
        if (loop.even or tails == "exact") and loop.blocks % parts:
            raise Infeasible(f"hint work_div wants {parts} parts of '{name}', which do not divide its {loop.blocks} units")
        if -(-loop.blocks // share) != parts:
            raise Infeasible(
                f"hint work_div wants {parts} parts of '{name}', but equal shares of its {loop.blocks} units "
                f"give {-(-loop.blocks // share)}"
            )
    if prod(wishes.values()) > target.cores:
        raise Infeasible(f"hint work_div wants {prod(wishes.values())} cores, but {target.cores} are available")
    cut = [name for name, parts in wishes.items() if parts > 1 and problem.loop(name).reduction]
    if len(cut) > 1:
        raise Infeasible(f"hint work_div cuts {len(cut)} reduction loops ({', '.join(cut)}), but one may be cut")
    fixed = {names.index(name): parts for name, parts in wishes.items()}
    return [d for d in candidates(problem, target.cores, tails) if all(d.splits[i] == parts for i, parts in fixed.items())]


def _why_not(problem: Problem, target: Target, refused: Counter[str], hint: Hint | None) -> str:
    reasons = "; ".join(f"{count} because {reason}" for reason, count in refused.most_common())
    shape = " x ".join(f"{loop.name}={loop.extent}" for loop in problem.loops)
    what = f"the division that hint '{hint}' asks for" if hint is not None and hint.work_div else "every division"
    way_out = "more cores" if target.idle_cores else "layouts with another outermost dimension, or tiles in time"
    return f"'{problem.name}' ({shape}) cannot be divided over {target.cores} cores: {what} is refused, {reasons}; a way out: {way_out}"
