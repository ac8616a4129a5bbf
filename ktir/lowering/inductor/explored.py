"""Graphs that `config.explore` asks to see: their programs are taken down on the way, and `ktir.explore` draws the page."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import fx

from ktir import config
from ktir.diagnostics import Unsupported
from ktir.lowering.inductor.nodes import lowered_now
from ktir.lowering.region_to_ktir.region import Region
from ktir.runtime import notices

RegionCompiler = Callable[[Any], str]

_numbers: dict[str, itertools.count[int]] = {}
"""How many pages were asked for by each name."""


@contextmanager
def shown(compile_region: RegionCompiler, title: str) -> Iterator[RegionCompiler]:
    """A page of what is compiled inside the block, if one is asked for: `compile_region`, watched. A model of several graphs has a page
    for each: the second one's name ends in `-1`.
    """
    asked = config.current().explore
    if not asked:
        yield compile_region
        return
    graphs: list[fx.GraphModule] = []
    regions: dict[str, Region] = {}

    def watched(region: Region) -> str:
        graph = lowered_now()
        if graph is not None and graph not in graphs:
            graphs.append(graph)
        key = compile_region(region)
        regions[key] = region
        return key

    yield watched
    if regions:
        from ktir.explore import page

        number = next(_numbers.setdefault(str(Path(asked).absolute()), itertools.count()))
        place = Path(asked) if not number else Path(asked).with_stem(f"{Path(asked).stem}-{number}")
        try:
            for error in page.write_graph(title, graphs, [*regions.values()], place):  # what the chip does not take runs all the same
                notices.warn(error, f"page '{place}' is without this program")
        except Unsupported as error:
            notices.warn(error, f"there is no page '{place}'")
