"""`ktir-objdump`: shows the program of a package, or of a `program.bin`, as assembly with source locations.

The text goes to stdout, errors to stderr; the status is 1 if the input cannot be read, or has problems with `--verify` or `--check`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ktir.diagnostics import KtirError
from ktir.isa.assembly.text import print_program
from ktir.isa.binary.encoding import decode, encode
from ktir.isa.problem import EncodingError, Problem
from ktir.isa.program import Kernel, Program
from ktir.isa.wellformed.verify import verify
from ktir.package import read
from ktir.target import DATASHEET, Target
from ktir.targets import find


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("ktir-objdump", description="Show the instruction stream of a package.")
    made.add_argument("input", help="folder of a package, or a program.bin")
    form = made.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a summary as JSON")
    form.add_argument("--mlir", action="store_true", help="print the program in the spyre dialect")
    made.add_argument("--mlir-print-debuginfo", action="store_true", help="with --mlir: print locations")
    made.add_argument("--verify", action="store_true", help="run the static verifier; problems go to stderr")
    made.add_argument(
        "--check", action="store_true", help="as --verify, then look for hazards and compare the program of a package with its KTIR"
    )
    made.add_argument("--target", help="the machine: datasheet, fitted, or a .toml file (default: the one that it was compiled for)")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    options = parser().parse_args(argv)
    try:
        program, own = load(Path(options.input))
        target = find(options.target) if options.target else own
        if options.check and not Path(options.input).is_dir():
            raise KtirError("--check expects the folder of a package, which has the KTIR")
        if options.json:
            text = json.dumps(summary(program, target), indent=1) + "\n"
        else:
            text = _mlir(program, options.mlir_print_debuginfo) if options.mlir else print_program(program)
    except KtirError as e:
        print(e, file=sys.stderr)
        return 1
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    problems: Sequence[Problem | KtirError] = verify(program, target) if options.verify or options.check else []
    if options.check and not problems:
        problems = _checked(Path(options.input), target)
    for p in problems:
        print(p, file=sys.stderr)
    return int(bool(problems))


def _checked(folder: Path, target: Target) -> Sequence[Problem | KtirError]:
    """What the emulator finds in the program of a package before any launch, or else where it differs from the package's KTIR."""
    from ktir.checking.stream import check_package
    from ktir.emulator.machine import Machine

    try:
        package = read(folder)
        return check_package(package, Machine(package.program, target).trace)
    except KtirError as e:
        return [e]


def load(place: Path) -> tuple[Program, Target]:
    """The program of a package folder, with its sources, or of a binary file, and the machine that it was compiled for as far as known."""
    if place.is_dir():
        package = read(place)
        return package.program, package.target
    try:
        return decode(place.read_bytes()), DATASHEET
    except OSError as e:
        raise KtirError(f"cannot read {place}: {e.strerror or e}") from None
    except EncodingError as e:
        raise KtirError(f"{place}: {e.message}") from None


def summary(program: Program, target: Target) -> dict[str, Any]:
    """Sizes and counts of a program."""
    return {
        "name": program.name,
        "bytes": len(encode(program)),
        "arguments": [vars(a) for a in program.arguments],
        "kernels": [_kernel(k) for k in program.kernels],
        "sources": len(program.sources) - 1,
        "problems": [str(p) for p in verify(program, target)],
    }


def _kernel(kernel: Kernel) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "cores": kernel.cores,
        "descriptors": len(kernel.descriptors),
        "tables": len(kernel.tables),
        "groups": len(kernel.groups),
        "words": {unit.name: len(kernel.units[unit]) for unit in sorted(kernel.units)},
        "instructions": dict(sorted(Counter(w.op for words in kernel.units.values() for w in words).items())),
    }


def _mlir(program: Program, debuginfo: bool) -> str:
    from ktir.assembly import print_module
    from ktir.context import context
    from ktir.dialects.spyre import to_mlir

    with context() as made:
        return print_module(to_mlir(program, made), debuginfo=debuginfo)


if __name__ == "__main__":
    sys.exit(main())
