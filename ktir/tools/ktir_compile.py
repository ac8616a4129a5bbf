"""`ktir-compile FILE.mlir -o DIR`: KTIR to a package."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ktir import config
from ktir.diagnostics import KtirError
from ktir.tools.memory import NOTHING_LEFT, at_most_what_there_is


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="ktir-compile", description="Compile KTIR of any level to a package of the Spyre instruction stream."
    )
    made.add_argument("file", help="KTIR text, or - for standard input")
    made.add_argument("-o", dest="output", metavar="DIR", type=Path, required=True, help="folder to write the package to")
    made.add_argument("--cores", type=int, default=None, help="cores to divide the work over (default: all of the target, or SENCORES)")
    made.add_argument("--target", default=None, help="machine to compile for: datasheet, fitted, or a .toml file (default: datasheet)")
    number = "what an argument is that is no memory, of a kernel with a grid"
    made.add_argument("--number", action="append", default=[], metavar="NAME=N", help=number)
    ways = "of a kernel with a grid: pin it, lift it so that its work is divided anew, or auto, the faster one of both (default: pin)"
    made.add_argument("--way", default="pin", choices=("pin", "lift", "auto"), help=ways)
    within = "relative difference that sums in another order may make, for --way auto"
    made.add_argument("--tolerance", type=float, default=0.0, metavar="T", help=within)
    counted = "what addresses of memory count that are numbers in the text: element, stick, byte (default: element)"
    made.add_argument("--addresses", default="element", metavar="UNIT", help=counted)
    made.add_argument("--keep", metavar="DIR", help="also write the KTIR of every level and the assembly to DIR")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run the driver; returns the exit status: 0 compiled, 1 refused."""
    options = parser().parse_args(arguments)
    if arguments is None:
        at_most_what_there_is()
    try:
        changed = {"target": options.target, "cores": options.cores, "dump_dir": options.keep}
        with config.patch(**{k: v for k, v in changed.items() if v is not None}):
            _compile(options)
    except (KtirError, ValueError, OSError) as error:
        print(error if isinstance(error, KtirError) else f"ktir-compile: error: {error}", file=sys.stderr)
        return 1
    except MemoryError:
        print(f"ktir-compile: error: {NOTHING_LEFT}", file=sys.stderr)
        return 1
    return 0


def _compile(options: argparse.Namespace) -> None:
    from ktir.assembly import parse_module
    from ktir.context import context
    from ktir.lowering.compile import compile_logical
    from ktir.mlir import ir
    from ktir.package.files import write_folder
    from ktir.passes.general.ktir_check_legality import refuse_illegal_exchanges
    from ktir.passes.general.ktir_rescale_addresses import RescaleAddressesPass
    from ktir.targets import find
    from ktir.tools.shared.input import checked

    output: Path = options.output
    text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text()
    with context(), ir.Location.unknown():
        module = checked(parse_module(text, options.file))
        refuse_illegal_exchanges(module)
        RescaleAddressesPass(options.addresses).run(module)
        files = compile_logical(
            module,
            target=None if options.target is None else find(options.target),
            numbers=options.number,
            way=options.way,
            tolerance=options.tolerance,
        )
    write_folder(output, files)


if __name__ == "__main__":
    sys.exit(main())
