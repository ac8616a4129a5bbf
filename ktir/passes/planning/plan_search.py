"""The search for the cheapest plan: from what the passes would do by themselves, one change after the other, as long as the program gets
faster by the price of its kernels.

A change is another dimension in the stick at an op, with which its neighbours go along where that moves fewer bytes; a kernel whose columns
are dealt out, or are not, at a matmul or a chain of pointwise ops; a kernel that ends before an op. Ops that are alike, as those of equal
layers, change together. The order of changes and the number of them that are priced are fixed, so that the result does not depend on the
machine that the search runs on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from ktir.analysis.flat import Memory, Node, shape_of
from ktir.analysis.items import Contraction, Op
from ktir.cost.estimate import kernel_start
from ktir.passes.layouts.physical_items import PhysicalItems
from ktir.passes.layouts.stick_roles import Configuration, stick_text
from ktir.passes.planning.kernel_price import kernel_price
from ktir.passes.planning.planner import GAIN, Contents, Draft, Move
from ktir.target import LANES, element_bytes

_SORTED = 4
"""Items that are put into kernels in the time in which one is priced."""

STEPS = 24
"""Changes that are priced, unless a program is long."""

MOST_ITEMS = 1800
"""Ops and stores, those of all changes together, that may be priced: long programs get fewer changes, so that all compile in time."""


@dataclass(frozen=True)
class Change:
    """A change that was priced: what it is, at which op, and the cycles of the program with it and before it."""

    text: str
    node: Node
    cycles: float
    before: float
    taken: bool
    """Whether the plan has it."""


@dataclass(frozen=True)
class Found:
    """The best draft, its cycles, those of the first one, a number of cycles that no plan undercuts, and all changes that were priced."""

    draft: Draft
    cycles: float
    first: float
    bound: float
    changes: tuple[Change, ...]


def search(draft: Draft, steps: int) -> Found:
    """The cheapest plan that `steps` priced changes lead to."""
    return _Search(draft, steps).run()


class _Priced(NamedTuple):
    """Cycles and cores of a kernel; infinite and none where no division is legal."""

    cycles: float
    cores: int


class _Search:
    def __init__(self, draft: Draft, steps: int) -> None:
        self.target = draft.wishes.target
        self.best = draft
        self.steps = steps
        self.changes: list[Change] = []
        self.left = MOST_ITEMS
        """Items that may still be priced."""
        self._known: dict[tuple[PhysicalItems, Contents], _Priced] = {}
        self.first = self.cycles = self._price(draft)

    def run(self) -> Found:
        """Change layouts first, then kernels, whose items depend on them."""
        seen = {_outcome(self.best)}
        for node, option in _layouts(self.best):
            if 2 * len(self.changes) >= self.steps or 2 * self.left < MOST_ITEMS:
                break
            changed = Draft(self.best.roles.with_configuration(node, option), self.best.wishes)
            if _outcome(changed) not in seen:
                seen.add(_outcome(changed))
                self._try(changed, f"{stick_text(option[-1])} instead of {stick_text(self.best.roles.chosen[node][-1])}", node)
        for item, move, alike in self._moves():
            if len(self.changes) >= self.steps or self.left <= 0:
                break
            node = next(n for n, i in self.best.physical.of_node.items() if i is item)
            moves: dict[int, Move] = {**self.best.moves, **{number: move for number in alike}}
            self._try(self.best.with_moves(moves), _MOVES[move], node)
        return Found(self.best, self.cycles, self.first, self._bound(), tuple(self.changes))

    def _try(self, changed: Draft, text: str, node: Node) -> None:
        cycles = self._price(changed)
        alone = [Counter(kernel.cycles for kernel in self._priced(draft)) for draft in (self.best, changed)]
        both = sum((alone[0] & alone[1]).elements())
        self.changes.append(Change(text, node, cycles, self.cycles, cycles - both < (self.cycles - both) * GAIN))
        if self.changes[-1].taken:
            self.best, self.cycles = changed, cycles

    def _price(self, draft: Draft) -> float:
        """Cycles of a program; infinite where a kernel cannot be divided."""
        self.left -= len(draft.physical.items) // _SORTED
        return sum(kernel.cycles for kernel in self._priced(draft))

    def _priced(self, draft: Draft) -> list[_Priced]:
        """The kernels of a draft with their cycles; those that are not known yet are divided and priced."""
        kernels = [(draft.physical, contents) for contents in draft.contents]
        for number, kernel in enumerate(kernels):
            if kernel not in self._known:
                facts = draft.facts_of(number)
                work = draft.work_of(facts)
                cycles = float("inf") if work is None else kernel_price(facts, work, self.target).cycles
                self._known[kernel] = _Priced(cycles, 0 if work is None else work.cores)
                self.left -= len(facts.ops) + len(facts.stores)
        return [self._known[kernel] for kernel in kernels]

    def _moves(self) -> Iterator[tuple[Op, Move, list[int]]]:
        """Changes of kernels: those of the kernel that takes longest first; per group of ops that are alike once."""
        alike: dict[Hashable, list[int]] = {}
        for item in self.best.physical.items:
            if isinstance(item, Op):
                alike.setdefault(_likeness(item), []).append(item.number)
        priced = self._priced(self.best)
        order = sorted(range(len(priced)), key=lambda i: (-priced[i].cycles, i))
        named = set(self.best.physical.of_node.values())
        done: set[tuple[Hashable, Move]] = set()
        clusters = self.best.clustering.clusters
        for number in order:
            idle = 0 < 2 * priced[number].cores <= self.target.cores
            for at, item in enumerate(clusters[number].compute):
                columns = clusters[number].columns
                wide = item.value.shape[0] > 1
                moves: list[Move] = []
                if isinstance(item, Contraction) and not item.has_batches and wide:
                    toggled: Move = "rows" if columns else "columns"
                    moves.append(toggled)
                elif idle and wide and not columns and item.is_local(item.value.shape[0]):
                    moves.append("columns")
                if at and idle and not isinstance(item, Contraction):
                    moves.append("cut")
                for move in moves:
                    key = _likeness(item), move
                    if item in named and key not in done:
                        done.add(key)
                        yield item, move, alike[_likeness(item)]

    def _bound(self) -> float:
        """Cycles of what any plan must do: every byte of the host's buffers that it needs once, and one start."""
        roles = self.best.roles
        needed: dict[Hashable, int] = {}
        for node in roles.nodes:
            if (m := node.memory) is not None and roles.buffers.is_packed(m):
                view = m.argument, m.offset, m.sizes, m.strides
                needed[view] = max(needed.get(view, 0), _needed(node, m))
        return sum(needed.values()) / self.target.dram_bytes_per_cycle + kernel_start(self.target)


def _needed(node: Node, memory: Memory) -> int:
    """Bytes of a view without which a load or store cannot do: of a table only as many rows as are looked up, what is spread once."""
    elements = prod(n for n, stride in zip(memory.sizes, memory.strides, strict=True) if stride)
    if node.subscripts:
        elements = min(elements, prod(shape_of(node.tensors[-1])))
    return elements * element_bytes(memory.element)


_MOVES: dict[Move, str] = {
    "columns": "a kernel of its own whose columns are dealt out",
    "rows": "no kernel of its own for its columns",
    "cut": "a kernel that starts here",
}


def _outcome(draft: Draft) -> Hashable:
    return tuple(draft.roles.chosen.values())


def _likeness(item: Op) -> Hashable:
    shapes = tuple(tensor.shape for tensor in (*item.sources, item.value))
    return type(item), shapes, tuple(item.walks), item.work, isinstance(item, Contraction) and item.has_batches, item.positional


def _layouts(draft: Draft) -> Iterator[tuple[Node, Configuration]]:
    """Configurations of ops that leave fewer lanes empty, for each tensor shape once; those that save most first."""
    done: set[Hashable] = set()
    found: list[tuple[int, Node, Configuration]] = []
    for node in draft.roles.nodes:
        if node.is_source or node.kind in ("reduction", "contraction"):
            continue
        shape, chosen = shape_of(node.tensors[-1]), draft.roles.chosen[node]
        for option in draft.roles.options(node):
            key = tuple(shape), chosen[-1], option[-1]
            saved = _sticks(shape, chosen[-1]) - _sticks(shape, option[-1])
            if saved > 0 and key not in done:
                done.add(key)
                found.append((saved, node, option))
    yield from ((node, option) for _, node, option in sorted(found, key=lambda f: -f[0]))


def _sticks(shape: list[int], stick: int | None) -> int:
    """Sticks of a tensor, as many of them as are needed for its padding included."""
    return prod(shape) if stick is None else prod(shape) // shape[stick] * -(-shape[stick] // LANES)
