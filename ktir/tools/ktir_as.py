"""`ktir-as`: assembly text of the instruction stream -> `program.bin`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ktir.diagnostics import KtirError
from ktir.isa.assembly.text import parse_program
from ktir.isa.binary.encoding import encode
from ktir.isa.wellformed.verify import verify
from ktir.target import DATASHEET
from ktir.targets import find


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("ktir-as", description="Assemble a program of the instruction stream.")
    made.add_argument("input", help="assembly text; - for stdin")
    made.add_argument("-o", dest="output", default="program.bin", help="where to write the binary; - for stdout")
    made.add_argument("--verify", action="store_true", help="run the static verifier and write nothing if it finds a problem")
    made.add_argument("--target", default=DATASHEET.name, help="the machine of --verify: datasheet, fitted, or a .toml file")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    options = parser().parse_args(argv)
    try:
        program = parse_program(_read(options.input), options.input)
        problems = verify(program, find(options.target)) if options.verify else []
        if problems:
            for p in problems:
                print(p, file=sys.stderr)
            return 1
        _write(options.output, encode(program))
    except KtirError as e:
        print(e, file=sys.stderr)
        return 1
    return 0


def _read(name: str) -> str:
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return data.decode()
    except OSError as e:
        raise KtirError(f"cannot read {name}: {e.strerror or e}") from None
    except UnicodeDecodeError as e:
        raise KtirError(f"{name} is not valid UTF-8 at byte {e.start}") from None


def _write(name: str, data: bytes) -> None:
    try:
        if name == "-":
            sys.stdout.buffer.write(data)
        else:
            Path(name).write_bytes(data)
    except OSError as e:
        raise KtirError(f"cannot write {name}: {e.strerror or e}") from None


if __name__ == "__main__":
    sys.exit(main())
