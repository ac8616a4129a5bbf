"""`ktir-capture script.py:fn`: the KTIR of a PyTorch model at any stage, without running it."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

from ktir import config
from ktir.diagnostics import KtirError
from ktir.tools.shared.script import Usage, model_of, place_of


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
    try:
        model, inputs = model_of(options.target)
        text = _captured(model, inputs, options)
        if options.output:
            options.output.write_text(text)
        else:
            sys.stdout.write(text)
    except Usage as error:
        print(f"ktir-capture: error: {error}", file=sys.stderr)
        return 2
    except KtirError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"ktir-capture: error: cannot write '{options.output}': {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _captured(model: Any, inputs: tuple[Any, ...], options: argparse.Namespace) -> str:
    """What is printed. Where a model fails on its inputs in eager PyTorch, too, that is a fault in what was asked for."""
    from ktir.lowering.inductor.capture import capture

    log = logging.getLogger("torch._subclasses.fake_tensor")  # says of each failure, with a traceback, what the error says
    before, log.disabled = log.disabled, True
    try:
        with config.patch(**({"fallback": options.fallback} if options.fallback else {})):
            return capture(model, *inputs, stage=options.stage, debuginfo=options.debuginfo)
    except Exception as error:
        if isinstance(error, KtirError):
            raise
        try:
            model(*inputs)
        except Exception as own:
            file, _, name = options.target.rpartition(":")
            said = f"{place_of(own, Path(file))}{type(own).__name__}: {own}"
            raise Usage(f"the model of '{name}' fails on its example inputs: {said}") from None
        raise
    finally:
        log.disabled = before


if __name__ == "__main__":
    sys.exit(main())
