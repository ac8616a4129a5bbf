"""`ktir-explain`: a readable report of an allocated module: per kernel grid, loops, scratchpad, traffic, time, place on the roofline.

    ktir-explain allocated.ktir.mlir [--target fitted]

The report goes to stdout, errors to stderr; the status is 1 if the input cannot be read or explained.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ktir.diagnostics import KtirError
from ktir.target import DATASHEET, Target
from ktir.targets import find


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("ktir-explain", description="Explain an allocated module, or a package, kernel by kernel.")
    made.add_argument("input", nargs="?", help="KTIR at the allocated level, `-` for stdin, or the folder of a package")
    made.add_argument("--target", help="the machine: datasheet, fitted, or a .toml file (default: the one that it was compiled for)")
    made.add_argument("--predict-only", action="store_true", help="do not run the emulator for the cycles that it counts")
    made.add_argument(
        "--figures",
        action="store_true",
        help="append the machine description with its sources; it needs no input",
    )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    options = parser().parse_args(argv)
    if options.input is None and not options.figures:
        parser().error("the following arguments are required: input")
    try:
        if options.input is None:
            text, target = "", find(options.target or DATASHEET.name)
        else:
            text, target = _explained(options.input, options.target, machine=not options.predict_only)
    except KtirError as error:
        print(error, file=sys.stderr)
        return 1
    if options.figures:
        rows = (f"  {f.name} = {f.value:g} {f.unit}, {f.status}: {f.source}" for f in target.figures())
        text += "\n".join(["", f"target '{target.name}'", *rows]) + "\n"
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()
    return 0


def explain(source: str, wanted: str | None = None, *, machine: bool = True) -> str:
    """The report of a file, of stdin (`-`) or of a package folder; `wanted`: on another machine. Raises KtirError."""
    return _explained(source, wanted, machine=machine)[0]


def _explained(source: str, wanted: str | None, *, machine: bool) -> tuple[str, Target]:
    from ktir.assembly import parse_module
    from ktir.context import context
    from ktir.dialects.module_target import target_of
    from ktir.mlir import ir
    from ktir.tools.shared.explain import report
    from ktir.tools.shared.flags import UsageError
    from ktir.tools.shared.input import decoded, read

    place = Path(source) / "allocated.ktir.mlir" if source != "-" and Path(source).is_dir() else source
    try:
        text = decoded(read(str(place)), str(place))
    except UsageError as error:
        raise KtirError(str(error)) from None
    with context(), ir.Location.unknown():
        module = parse_module(text, str(place))
        target = find(wanted) if wanted else target_of(module)
        return report(module, target, machine=machine), target


if __name__ == "__main__":
    sys.exit(main())
