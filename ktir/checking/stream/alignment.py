"""Which words belong to which action: every unit's words stand in the order of the KTIR, in loops that are those of the KTIR, and name the
op that they belong to. Loops and tokens name no op.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ktir.checking.stream import expected
from ktir.isa.problem import Problem
from ktir.isa.program import Program, Word
from ktir.isa.units import Unit

Placed = tuple[int, Word]
"""A word with its place in the unit's program."""


class Misaligned(Exception):
    """The words of a unit do not follow the KTIR."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass
class Part:
    """A loop of a unit's program, or all of it: loops and statements in order. A statement is a word, with the streams of a PAR or the body
    of a REP."""

    place: int
    trips: int = 1
    level: int = -1
    items: list[list[Placed] | Part] = field(default_factory=list)


@dataclass(frozen=True)
class Aligned:
    """An action and its words. Its instances are numbered in the order of the KTIR: `first` + sum of counter[level] * steps[level]."""

    action: expected.Action
    words: dict[Unit, list[Placed]]
    first: int
    steps: dict[int, int]


class Alignment:
    """Gives the actions of a kernel their words, in `found`. Raises Misaligned."""

    def __init__(self, program: Program, number: int, kernel: expected.Kernel) -> None:
        self.program, self.number, self.stream = program, number, program.kernels[number]
        units = {unit: _parts(self.stream.units.get(unit, [])) for unit in Unit}
        self.found = list(self._body(kernel.body, units, 0, {}))
        self.instances = _instances(kernel.body)

    def problem(self, unit: Unit | None, word: int | None, message: str) -> Problem:
        """A problem of the stream."""
        place = Problem(message, kernel=self.number, kernel_name=self.stream.name, unit=unit)
        if unit is None or word is None:
            return place
        w = self.stream.units[unit][word]
        return replace(place, word=word, op=w.op, source=self.program.source_of(w))

    def _body(self, loop: expected.Loop, units: dict[Unit, Part], first: int, steps: dict[int, int]) -> Iterator[Aligned]:
        """Align the children of a loop with what each unit has inside of it."""
        rest = {unit: [i for i in part.items if not isinstance(i, Part) or _acts(i)] for unit, part in units.items()}
        for child in loop.children:
            if isinstance(child, expected.Action):
                words = {unit: self._take(unit, rest.get(unit, []), count, child) for unit, count in needs(child).items()}
                yield Aligned(child, words, first, steps)
                first += 1
                continue
            used = {unit for action in child.actions() for unit in needs(action)}
            inner = {unit: self._enter(unit, rest.get(unit, []), child) for unit in Unit if unit in used}
            size = sum(_instances(c) for c in child.children)
            yield from self._body(child, inner, first, {**steps, child.level: size})
            first += size * child.trips
        for unit, items in rest.items():
            if items:
                place = items[0].place if isinstance(items[0], Part) else items[0][0][0]
                raise Misaligned(self.problem(unit, place, "stands where KTIR has no op that needs it"))

    def _enter(self, unit: Unit, items: list[list[Placed] | Part], loop: expected.Loop) -> Part:
        """The unit's loop for a loop of KTIR."""
        if not items or not isinstance(items[0], Part):
            place = items[0][0][0] if items and not isinstance(items[0], Part) else None
            action = next(a for a in loop.actions() if unit in needs(a)).source
            raise Misaligned(self.problem(unit, place, f"a loop is missing here, around what '{action.op}' at {action.location} needs"))
        part = items.pop(0)
        assert isinstance(part, Part)
        if (part.trips, part.level) != (loop.trips, loop.level):
            message = f"'loop' has {part.trips} trips of level {part.level}, but KTIR {loop.trips} of level {loop.level}"
            raise Misaligned(self.problem(unit, part.place, message))
        return part

    def _take(self, unit: Unit, items: list[list[Placed] | Part], count: int, action: expected.Action) -> list[Placed]:
        """The next statements, of up to `count` words without bodies, which must name the action's op."""
        words: list[Placed] = []
        source = action.source
        while count > 0:
            item = items[0] if items else None
            place = item.place if isinstance(item, Part) else item[0][0] if item else None
            if not isinstance(item, list):
                if words:
                    break
                raise Misaligned(self.problem(unit, place, f"the words for '{source.op}' at {source.location} are missing here"))
            if self.program.source_of(item[0][1]) != source:
                if words:
                    break
                message = f"'{item[0][1].op}' stands where the words for '{source.op}' at {source.location} are expected"
                raise Misaligned(self.problem(unit, place, message))
            stray = next((i for i, w in item if self.program.source_of(w) != source), None)
            if stray is not None:
                raise Misaligned(self.problem(unit, stray, f"names another op than the '{item[0][1].op}' that it belongs to"))
            words += item
            del items[0]
            count -= 1 if item[0][1].op == "rep" else len(item) - (item[0][1].op == "par")
        return words


def needs(action: expected.Action) -> dict[Unit, int]:
    """The units that work on an action, and how many words each has at most, a body not counted."""
    match action:
        case expected.Transfer():
            return {Unit.MNIL if action.loads else Unit.MNIS: 1}
        case expected.Fill():
            return {Unit.MNIL: 1}
        case expected.Exchange():
            return {Unit.MNIS: 1, Unit.MNIL: 1}
        case expected.Multiply():
            return {Unit.LXLU: 2, Unit.PT: 2}
        case expected.Vector():
            reads = sum(o.each is not None for o in action.operands)
            sums = len(action.operands) - reads
            return {Unit.SFP: 1, Unit.LXSU: 1} | ({Unit.LXLU: reads} if reads else {}) | ({Unit.PT: sums} if sums else {})
    raise AssertionError(action)


def _instances(node: expected.Action | expected.Loop) -> int:
    """How often actions run in a part of a kernel."""
    return 1 if isinstance(node, expected.Action) else node.trips * sum(_instances(child) for child in node.children)


def _acts(part: Part) -> bool:
    return any(not isinstance(item, Part) or _acts(item) for item in part.items)


def _apart(statement: list[Placed]) -> list[list[Placed]]:
    """A statement; of a PAR each of the streams, since they may belong to two ops."""
    if statement[0][1].op != "par":
        return [statement]
    return [statement[:2], *([placed] for placed in statement[2:])]


def _parts(words: list[Word]) -> Part:
    """The loops and statements of a unit's program, which is well-formed, without tokens."""
    whole = Part(-1)
    stack = [whole]
    i = 0
    while i < len(words):
        w = words[i]
        size = 1 + (w["streams"] if w.op == "par" else w["start"] + w["each"] + w["end"] if w.op == "rep" else 0)
        if w.op == "loop":
            inner = Part(i, w["trips"], w["level"])
            stack[-1].items.append(inner)
            stack.append(inner)
        elif w.op == "endl":
            stack.pop()
        elif w.op not in ("wait", "sig", "halt"):
            stack[-1].items += _apart(list(enumerate(words[i : i + size], i)))
        i += size
    return whole
