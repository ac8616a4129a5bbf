"""Test vectors for machines: what memory holds before and after a program of the instruction set, on the literal machine.

    python conformance/streams.py PACKAGE DIR     # a package, as `ktir-compile` writes it

writes the program as `program.s` and `program.bin`, and per argument `NAME.before` and `NAME.after`: bytes as they lie in memory. Inputs
are numbers from a seed. A machine that is loaded with the program and the bytes before must hold the bytes after, in arguments of the roles
`output` and `input_output`; any two NaNs are alike. `arguments.json` has names, roles, element sizes and lengths, in order.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from pathlib import Path

from ktir.checking.literal import run
from ktir.isa.assembly.text import print_program
from ktir.isa.binary.encoding import encode
from ktir.isa.program import Argument
from ktir.package import read

FOLDER = Path(__file__).resolve().parent
if str(FOLDER) not in sys.path:
    sys.path.insert(0, str(FOLDER))

from case_values import packed  # noqa: E402

STICK = 128


def before(argument: Argument, drawn: random.Random) -> bytearray:
    """What an argument holds before: numbers from -2 to 2, of an iota 0, 1, 2, …, of all that is not read first every bit set."""
    count = argument.sticks * STICK // argument.element_bytes
    if argument.role == "iota":
        return bytearray(struct.pack(f"<{count}i", *range(count)))
    if argument.role not in ("input", "input_output"):
        return bytearray([0xFF]) * (argument.sticks * STICK)
    kind = argument.half if argument.element_bytes == 2 else "f32"
    return bytearray(b"".join(packed(kind, drawn.uniform(-2, 2)) for _ in range(count)))


def write(package: Path, folder: Path, seed: int = 0) -> list[str]:
    """The vectors of a package; names of the arguments that a machine is judged by."""
    program = read(package).program
    drawn = random.Random(seed)
    memory = [before(a, drawn) for a in program.arguments]
    folder.mkdir(parents=True, exist_ok=True)
    for argument, held in zip(program.arguments, memory, strict=True):
        (folder / f"{argument.name}.before").write_bytes(held)
    (folder / "program.s").write_text(print_program(program))
    (folder / "program.bin").write_bytes(encode(program))
    run(print_program(program), memory)
    for argument, held in zip(program.arguments, memory, strict=True):
        (folder / f"{argument.name}.after").write_bytes(held)
    facts = [
        {"name": a.name, "role": a.role, "element_bytes": a.element_bytes, "half": a.half, "sticks": a.sticks} for a in program.arguments
    ]
    (folder / "arguments.json").write_text(json.dumps(facts, indent=1) + "\n")
    return [a.name for a in program.arguments if a.role in ("output", "input_output")]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit((__doc__ or "").strip())
    print("judged by", ", ".join(write(Path(sys.argv[1]), Path(sys.argv[2]))))
