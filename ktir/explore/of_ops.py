"""What becomes of one op of a program: its lines at each level."""

from __future__ import annotations

import re

from ktir.context import context
from ktir.explore.lines import Places, lines_of
from ktir.isa.program import Source, own_nodes
from ktir.lowering.compile import compile_logical
from ktir.lowering.region_to_ktir.emit import emit
from ktir.lowering.region_to_ktir.region import Region
from ktir.mlir import ir


def is_of(node: str, op: str) -> bool:
    """Whether a node of a graph is the op: its name, or that with a number behind it."""
    return node == op or re.fullmatch(re.escape(op) + r"_\d+", node) is not None


def levels(region: Region, op: str) -> dict[str, list[str]]:
    """By the name of the pass that left them, the lines that come from nodes that are `op`; without passes that change none of them."""
    found: dict[str, list[str]] = {}
    before: list[str] = []
    with context(), ir.Location.unknown():
        module = emit(region)

        def watch(name: str, m: ir.Module) -> None:
            nonlocal before
            places = Places()
            lines = lines_of(m, places)
            names = [place[2] for place in places.known]
            sources = [Source("", "", ",".join(n for p in line.places if (n := names[p]))) for line in lines]
            own = own_nodes(sources)
            mine = [line.text for line, s in zip(lines, sources, strict=True) if any(is_of(node, op) for node in own[s].split(","))]
            if mine != before:
                found[name] = before = mine

        compile_logical(module, observe=watch)
    return found
