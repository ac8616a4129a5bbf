"""Breakpoints: stops before ops of chosen source lines, shows values, goes on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TextIO

import numpy as np

from ktir.checking.observers import AGAIN, results_of
from ktir.checking.values import Names, array_of, describe, place_of
from ktir.diagnostics import KtirError
from ktir.emulator.reference.compile.program import OpPlan
from ktir.emulator.reference.observer import Observer
from ktir.emulator.reference.record.recorder import Recorder

__all__ = ["HELP", "Debugger", "Stopped"]

HELP = """\
print NAME[indices] [@TILE]   the value of %NAME, whole or a part of it, on all tiles or one: print x[0, 2:4] @3
info                          all values that are known here
list                          the source around this op
step                          execute this op, or go into its region; stop at the next
next                          execute this op with its regions; stop after it
continue                      go on to the next breakpoint
break LINE, delete LINE       set or remove a breakpoint
quit                          end the execution; arrays stay as they were
An empty line repeats the last command; the first letter of a command is enough."""


class Stopped(KtirError):
    """The user ended the execution."""


class Debugger(Observer):
    """Stops before each op on one of `lines` of the source. `read(prompt)` gives the next command, or None when there are no more:
    from then on each stop shows the operands and results of its op and goes on."""

    values = True

    def __init__(self, names: Names, lines: Iterable[int], read: Callable[[str], str | None], out: TextIO) -> None:
        self.names, self.lines, self.read, self.out = names, set(lines), read, out
        self.asked = frozenset(self.lines)
        self.reached: set[int] = set()
        """Lines at whose breakpoints it has stopped."""
        self.depth = 0
        self.until: int | None = None
        """Stop at the next op that is nested no deeper than this; None: at breakpoints only."""
        self.last = ""
        self.ended = False
        self._shown: list[OpPlan] = []

    def started(self, rec: Recorder) -> None:
        self.names.bind(rec.program)
        if self.reached:
            self._say(AGAIN)
        self.depth, self.until, self._shown = 0, None, []

    def before_op(self, rec: Recorder, op: OpPlan) -> None:
        self.depth += 1
        place = place_of(op.where)
        at_break = place is not None and place[1] in self.lines
        if place is not None and at_break:
            self.reached.add(place[1])
        if at_break or (self.until is not None and self.depth <= self.until):
            self.until = None
            self._stop(rec, op)

    def after_op(self, rec: Recorder, op: OpPlan) -> None:
        self.depth -= 1
        if self._shown and self._shown[-1] is op:
            self._shown.pop()
            self._say(*results_of(rec, op, self.names))

    def _say(self, *lines: str) -> None:
        for line in lines:
            print(line, file=self.out)

    def _stop(self, rec: Recorder, op: OpPlan) -> None:
        self._say(f"{op.where.location or '<unknown>'}: stopped before {op.where}", *filter(None, [self.names.line(op.where)]))
        while not self.ended:
            line = self.read("(ktir) ")
            if line is None:
                self.ended = True
                break
            line = line.strip() or self.last
            self.last = line
            if line and self._command(rec, op, line):
                return
        for slot in dict.fromkeys(op.operands):
            first, *rest = describe(rec, rec.get(slot))
            self._say(f"  %{self.names.name(op, slot)}: {first}", *(f"  {line}" for line in rest))
        self._shown.append(op)

    def _command(self, rec: Recorder, op: OpPlan, line: str) -> bool:
        """Does what `line` says; whether execution goes on."""
        word, _, rest = line.partition(" ")
        known = ("print", "info", "list", "step", "next", "continue", "break", "delete", "quit", "help")
        name = next((k for k in known if k.startswith(word)), None)
        if name is None:
            self._say(f"unknown command '{word}'; 'help' lists them")
        elif name == "quit":
            raise Stopped("the execution was ended at a breakpoint", op.where.location)
        elif name == "continue":
            return True
        elif name in ("step", "next"):
            self.until = self.depth + (1 << 30 if name == "step" else 0)
            self._shown.append(op)
            return True
        elif name == "help":
            self._say(HELP)
        elif name == "list":
            self._list(op)
        elif name == "info":
            for slot, value in enumerate(rec.values):
                if value is not None:
                    self._say(f"  %{self.names.name(op, slot)}: {describe(rec, value)[0]}")
        elif name == "print":
            self._print(rec, op, rest.strip())
        elif rest.strip().isdecimal():
            (self.lines.add if name == "break" else self.lines.discard)(int(rest))
        else:
            self._say(f"'{name}' expects a line number")
        return False

    def _list(self, op: OpPlan) -> None:
        place = place_of(op.where)
        if place is None or not self.names.line(op.where):
            self._say("the source of this op is not at hand")
            return
        for number in range(max(1, place[1] - 5), min(len(self.names.lines), place[1] + 5) + 1):
            self._say(f"{'->' if number == place[1] else '  '} {number:4}  {self.names.lines[number - 1]}")

    def _print(self, rec: Recorder, op: OpPlan, what: str) -> None:
        match = re.fullmatch(r"%?([\w$.#-]+)\s*(?:\[([^\]]*)\])?\s*(?:@\s*(\d+))?", what)
        if match is None:
            self._say("'print' expects a name, as in: print x[0, 2:4] @3")
            return
        slot = self.names.find(op, match[1], rec.values)
        if slot is None:
            self._say(f"there is no value '{match[1]}' here; 'info' lists those that are known")
            return
        data = array_of(rec, rec.get(slot))
        if data is None or (match[2] is None and match[3] is None):
            first, *rest = describe(rec, rec.get(slot))
            self._say(f"%{match[1]}: {first}", *rest)
            return
        try:
            self._say(*_part(data[0], data[2], match[2], match[3]))
        except (IndexError, ValueError):
            self._say(f"there is no element '{what}'; %{match[1]} has shape {list(data[0].shape[1:])} on {len(data[0])} tiles")


def _part(array: Any, differs: bool, indices: str | None, tile: str | None) -> list[str]:
    """A part of an array [tiles or 1, ...] in full. Raises IndexError or ValueError for indices that do not fit."""
    index: list[Any] = []
    for entry in indices.split(",") if indices and indices.strip() else []:
        ends = [int(x) if x.strip() else None for x in entry.split(":")]
        index.append(ends[0] if len(ends) == 1 else slice(*ends))
    tiles = range(len(array)) if tile is None else [int(tile) if differs else 0]
    lines = []
    with np.printoptions(threshold=1 << 16, linewidth=130):
        for each in tiles:
            text = str(array[each][tuple(index)])
            lines += [f"tile {each}: {text}" if differs else text]
    return lines
