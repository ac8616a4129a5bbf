"""Lines of text that know which lines of the user's source they come from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

Place = tuple[str, int, str]
"""A file, a line, and the node of the graph that is there; empty where no node is known. A node that has no line is in the
file "", line 0."""

_PLACE = re.compile(r'(?:"([^"]*)"\()?"([^"]+)":(\d+):\d+|"([^"]*)"(?:\("[^"]*"\))?')
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"| ?(?<![\w.$])loc\(|[()]')
"""What a scan for locations stops at: strings, locations, parentheses."""


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


def lines_of(text: str, places: Places) -> list[Line]:
    """Lines of a module that is printed with locations. Where an op has several lines, its first one comes from where the op does."""
    found: list[Line] = []
    open_: list[int] = []
    for line in text.splitlines():
        bare, locations = _apart(line)
        own = places.of(locations[-1]) if locations and line.endswith(locations[-1]) else ()
        if bare.lstrip().startswith("}") and open_:
            first = open_.pop()
            found[first] = Line(found[first].text, own)
        if bare.endswith("{"):
            open_.append(len(found))
        found.append(Line(bare, own))
    return found


def _apart(line: str) -> tuple[str, list[str]]:
    """A line without `loc(...)`, and these."""
    pieces, locations, at = [], [], 0
    for begin, end in _spans(line):
        pieces.append(line[at:begin])
        locations.append(line[begin:end])
        at = end
    return "".join([*pieces, line[at:]]), locations


def _spans(line: str) -> Iterator[tuple[int, int]]:
    """Where locations begin and end."""
    begin, depth = 0, 0
    for token in _TOKEN.finditer(line):
        text = token[0]
        if depth:
            depth += text.endswith("(") - (text == ")")
            if not depth:
                yield begin, token.end()
        elif text.endswith("loc("):
            begin, depth = token.start(), 1
