"""The page: one HTML file with all of its data inside, packed, which asks no network."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import fx

from ktir.diagnostics import KtirError, Unsupported
from ktir.explore.gather import Explored, Run, Slice, of_graphs
from ktir.lowering.region_to_ktir.region import Region

VERSION = 1
_DATA = re.compile(r'<script id="data" type="application/octet-stream">([^<]*)</script>')


def write(explored: Explored, place: Path, before: Path | None = None) -> None:
    """Write a page. `before` is an earlier page: its levels can be compared with those of this one. Raises KtirError where it is none."""
    data = data_of(explored)
    if before is not None:
        _beside(data, read(before))
    packed = base64.b64encode(zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 9)).decode()
    parts = files("ktir.explore") / "assets"
    contents = {
        "TITLE": html.escape(explored.title),
        "STYLE": (parts / "page.css").read_text(encoding="utf-8"),
        "SCRIPT": "".join((parts / f"{n}.js").read_text(encoding="utf-8") for n in ("panes", "drawings", "page")),
        "DATA": packed,
    }
    text = (parts / "page.html").read_text(encoding="utf-8")
    place.write_text(re.sub("@@([A-Z]+)@@", lambda match: contents[match[1]], text), encoding="utf-8")


def write_graph(title: str, graphs: Sequence[fx.GraphModule], regions: Sequence[Region], place: Path) -> Sequence[Unsupported]:
    """Write the page of graphs of ATen and the programs that were made of them; why some are left out. Raises KtirError where it cannot be
    written, and Unsupported where the chip takes none of the programs.
    """
    try:
        explored = of_graphs(title, graphs, regions)
        write(explored, place)
        return explored.refused
    except OSError as error:
        raise KtirError(f"explore: cannot write '{place}': {error.strerror or error}") from None


def read(place: Path) -> dict[str, Any]:
    """The data of a page. Raises KtirError for what is no page of ours."""
    try:
        found = _DATA.search(place.read_text(encoding="utf-8"))
        data = json.loads(zlib.decompress(base64.b64decode(found[1], validate=True))) if found else {}
    except (OSError, ValueError, zlib.error) as error:
        raise KtirError(f"cannot read page '{place}': {error}") from None
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise KtirError(f"'{place}' is no page of this version of ktir-explore")
    return data


def data_of(explored: Explored) -> dict[str, Any]:
    """A page's data: lines once each, everything else by number."""
    lines: dict[tuple[str, tuple[int, ...]], int] = {}
    views = [
        {
            "name": v.name,
            "kind": v.kind,
            "program": v.program,
            "lines": [lines.setdefault((line.text, line.places), len(lines)) for line in v.lines],
        }
        for v in explored.views
    ]
    sources = [{"name": name, "lines": text, "places": {str(n): found for n, found in at.items()}} for name, text, at in explored.sources()]
    names: dict[str, int] = {}
    return {
        "version": VERSION,
        "title": explored.title,
        "target": explored.target,
        "places": [list(place) for place in explored.places.known],
        "lines": [[text, list(places)] for text, places in lines],
        "views": views,
        "sources": sources,
        "remarks": [
            {"kind": r.kind, "pass": r.pass_name, "text": r.message, "program": n, "places": list(p)} for r, n, p in explored.remarks
        ],
        "runs": [_run(run, names) for run in explored.runs],
        "names": list(names),
    }


def _run(run: Run, names: dict[str, int]) -> dict[str, Any]:
    """Texts of slices by number: there are many slices and few texts."""

    def packed(s: Slice) -> list[Any]:
        row, name = (names.setdefault(text, len(names)) for text in (s.row, s.name))
        return [row, s.begin, s.end, name, int(s.wait), list(s.places)]

    return asdict(run) | {"slices": [packed(s) for s in run.slices], "lives": [packed(s) for s in run.lives]}


def _beside(data: dict[str, Any], before: dict[str, Any]) -> None:
    """Add the views of an earlier page, whose lines come from no place of this one."""
    first = len(data["lines"])
    data["lines"] += [[text, []] for text, _ in before["lines"]]
    for view in before["views"]:
        if view["kind"] != "before":
            data["views"].append(view | {"name": f"before: {view['name']}", "kind": "before", "lines": [first + n for n in view["lines"]]})
    data["before"] = {"title": before["title"], "runs": [{"cycles": r["cycles"], "kernels": r["kernels"]} for r in before["runs"]]}
