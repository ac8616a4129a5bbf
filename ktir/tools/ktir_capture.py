"""`ktir-capture script.py:fn`: the KTIR of a PyTorch model at any stage, without running it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ktir import config
from ktir.tools.shared.script import on_model

if TYPE_CHECKING:
    from numpy.typing import NDArray


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="ktir-capture",
        description="Print the KTIR of a PyTorch model. FUNCTION takes no arguments and returns the model (a module or a function) and its "
        "example inputs: `return model, x, y`.",
    )
    made.add_argument("target", metavar="SCRIPT.py:FUNCTION", help="a Python file and a function in it")
    made.add_argument("--stage", default="logical", help="region, a level or a pass of the pipeline, or assembly (default: logical)")
    made.add_argument("-o", dest="output", metavar="FILE", type=Path, help="write to a file instead of standard output")
    made.add_argument("--debuginfo", action="store_true", help="with the locations in the PyTorch source")
    made.add_argument("--fallback", choices=("cpu", "error"), default=None, help="what to do about operators without KTIR form")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run the driver; returns the exit status: 0 captured, 1 refused, 2 a wrong call."""
    options = parser().parse_args(arguments)

    def run(model: Any, *inputs: Any) -> None:
        from ktir.lowering.inductor.capture import capture

        values: dict[str, NDArray[Any]] = {}
        with config.patch(**({"fallback": options.fallback} if options.fallback else {})):
            text = capture(model, *inputs, stage=options.stage, debuginfo=options.debuginfo, constants=values)
        if options.output:
            options.output.write_text(text)
        else:
            sys.stdout.write(text)
        if values:
            print(_kept(values, options.output), file=sys.stderr)

    return on_model("ktir-capture", options.target, options.output, run)


def _kept(values: dict[str, NDArray[Any]], output: Path | None) -> str:
    """Write the values of arguments that are the model's own beside the text; what is said of them."""
    import numpy as np

    said = f"ktir-capture: note: the program has arguments whose values are the model's own: {', '.join(values)}"
    if output is None:
        return f"{said}; with -o they are written, too"
    archive = output.with_suffix(".constants.npz")
    saved: dict[str, Any] = dict(values)
    np.savez(archive, **saved)
    return f"{said}; they are in {archive}: " + " ".join(f"--arg {name}=@{archive}:{name}" for name in values)


if __name__ == "__main__":
    sys.exit(main())
