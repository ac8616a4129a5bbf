"""`ktir-explore script.py:fn -o page.html`: one page with a model's source, graph, levels, instructions and timeline side by side."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ktir.runtime.notices import warning_text
from ktir.tools.shared.script import on_model

if TYPE_CHECKING:
    from ktir.explore.gather import Explored


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="ktir-explore",
        description="Write an HTML page, which needs no network, that shows what becomes of a PyTorch model. FUNCTION takes no arguments "
        "and returns the model (a module or a function) and its example inputs: `return model, x, y`.",
    )
    made.add_argument("target", metavar="SCRIPT.py:FUNCTION", help="a Python file and a function in it")
    made.add_argument("-o", dest="output", metavar="FILE", type=Path, default=Path("explore.html"), help="the page (default: explore.html)")
    made.add_argument("--before", metavar="FILE", type=Path, help="an earlier page, whose levels and cycles are compared with these")
    return made


def explore(title: str, model: Any, *inputs: Any) -> Explored:
    """What a page shows of `model(*inputs)`, a function or module of PyTorch. Raises KtirError as `ktir.capture` does."""
    from ktir.explore.gather import of_graphs
    from ktir.lowering.inductor.capture import capture_regions
    from ktir.lowering.inductor.running import progress

    graphs: list[Any] = []
    progress.show(title, "traced by PyTorch")
    try:
        regions = capture_regions(model, *inputs, seen=graphs.append)
        return of_graphs(title, graphs, regions, progress.show)
    finally:
        progress.clear()


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status: 0 written, 1 refused, 2 a wrong call."""
    options = parser().parse_args(arguments)

    def run(model: Any, *inputs: Any) -> None:
        from ktir.explore.page import write

        explored = explore(options.target, model, *inputs)
        for error in explored.refused:
            print(warning_text(error, "the page is without this program"), file=sys.stderr)
        write(explored, options.output, options.before)
        print(f"{options.output}: {options.output.stat().st_size:,} bytes")

    return on_model("ktir-explore", options.target, options.output, run)


if __name__ == "__main__":
    sys.exit(main())
