"""Lines of text that know which lines of the user's source they come from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

from ktir.assembly import print_module
from ktir.mlir import ir

Place = tuple[str, int, str]
"""A file, a line, and the node of the graph that is there; empty where no node is known. A node that has no line is in the
file "", line 0."""

_PLACE = re.compile(r'(?:"([^"]*)"\()?"([^"]+)":(\d+):\d+|"([^"]*)"(?:\("[^"]*"\))?')
_DEFINITION = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_REFERENCE = re.compile(r'"(?:\\.|[^"\\])*"|(#loc\d*)')
"""Strings, too, so that no alias is looked for in them."""
_AT_THE_END = re.compile(r"loc\((#loc\d*)\)$")


@dataclass
class Places:
    """Every place that something comes from, by number."""

    known: dict[Place, int] = field(default_factory=dict)
    _by_node: dict[str, list[Place]] = field(default_factory=dict)

    def number(self, place: Place) -> int:
        """The number of a place."""
        if place not in self.known:
            self.known[place] = len(self.known)
            self._by_node.setdefault(place[2], []).append(place)
        return self.known[place]

    def of(self, location: str) -> tuple[int, ...]:
        """Those in the text of a location, as MLIR writes it. What is in no file and of no node has none."""
        found = ((f, int(line or 0), name or node) for name, f, line, node in _PLACE.findall(location) if f not in ("-", "<unknown>"))
        return tuple(dict.fromkeys(map(self.number, found)))

    def of_source(self, location: str, nodes: str) -> tuple[int, ...]:
        """Those of an instruction that comes from `file:line:col`, and of these nodes. A node that is known stands where it is known to be:
        of several that became one op, each has a line of its own.
        """
        file, _, rest = location.rpartition(":")[0].rpartition(":")
        nowhere = not rest.isdigit() or file in ("-", "<unknown>")
        if nowhere and not nodes:
            return ()
        at, line = ("", 0) if nowhere else (file, int(rest))
        found: list[Place] = []
        for node in nodes.split(",") if nodes else [""]:
            known = [p for p in self._by_node.get(node, ()) if node]
            found += [(at, line, node)] if not known or (at, line, node) in known else known
        return tuple(dict.fromkeys(map(self.number, found)))


@dataclass(frozen=True)
class Line:
    """One line, without its locations, and the places that it comes from."""

    text: str
    places: tuple[int, ...] = ()


def lines_of(module: ir.Module, places: Places) -> list[Line]:
    """Lines of a module. Where an op has several, its first one comes from where the op does."""
    return lines_with(print_module(module, local_scope=True), locations(module), places)


def lines_with(text: str, locations: list[str], places: Places) -> list[Line]:
    """`lines_of` a printed module and the `locations` of its lines."""
    found: list[Line] = []
    open_: list[int] = []
    for line, location in zip(text.splitlines(), locations, strict=True):
        own = places.of(location) if location else ()
        if line.lstrip().startswith("}") and open_:
            first = open_.pop()
            found[first] = Line(found[first].text, own)
        if line.endswith("{"):
            open_.append(len(found))
        found.append(Line(line, own))
    return found


def locations(module: ir.Module | ir.Operation | ir.OpView) -> list[str]:
    """For each line of `print_module(module, local_scope=True)`, the location at its end as MLIR writes it, without `loc()`; empty where it
    has none or is not known. Of an op on several lines the last one has it.

    Ops that passes make of several ops hold the locations of all of these: written out at every op they take twenty times the text. So
    MLIR writes them as aliases here, and each is read once.
    """
    return located_lines(module.operation.get_asm(enable_debug_info=True, assume_verified=True))


def located_lines(text: str) -> list[str]:
    """`locations` of a module as MLIR prints it with locations and aliases."""
    defined = dict(_DEFINITION.findall(text))

    @cache
    def whole(alias: str) -> str:
        return _REFERENCE.sub(lambda found: whole(found[1]) if found[1] else found[0], defined[alias])

    lines = (line for line in text.splitlines() if not line.startswith(("#", "!")))
    return [whole(end[1]) if (end := _AT_THE_END.search(line)) else "" for line in lines]
