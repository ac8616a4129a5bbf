"""What `ktir-opt` reads: text, cut into parts, or bytecode."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ktir.diagnostics import Diagnostic, KtirError, collect
from ktir.mlir import ir
from ktir.tools.shared.flags import UsageError

BYTECODE = b"ML\xefR"
"""How bytecode begins."""


@dataclass(frozen=True)
class Part:
    """A part of the input that is processed on its own; `first_line` is the number of its first line."""

    text: str
    first_line: int = 1
    bytecode: bytes | None = None
    """The module instead of text."""


def read(source: str) -> bytes:
    """The content of a file, or of stdin for `-`. Raises UsageError."""
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot open input file '{source}': {getattr(error, 'strerror', None) or error}") from None


def decoded(data: bytes, source: str) -> str:
    """Text with plain line breaks. Raises UsageError."""
    try:
        return data.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"input file '{source}' is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}") from None


def parts(text: str, marker: str | None) -> Iterator[Part]:
    """`text`, cut at lines that are `marker`."""
    if marker is None:
        yield Part(text)
        return
    first_line = 1
    for part in re.split(rf"(?m)^{re.escape(marker)}[ \t]*$\n?", text):
        yield Part(part, first_line)
        first_line += part.count("\n") + 1


def parse_bytecode(data: bytes, source: str) -> ir.Module:
    """The module in `data`, in the current context. Raises KtirError."""
    with collect(ir.Context.current) as found:
        try:
            return ir.Module.parse(data)
        except ir.MLIRError:
            pass
    raise KtirError.of([Diagnostic(d.severity, d.message, f"{source}:1:1", d.notes) for d in found], "the bytecode cannot be read")


def checked(module: ir.Module) -> ir.Module:
    """The module, that was just read. Raises KtirError for attributes of ours that cannot be, and grids and tiles that do not fit."""
    from ktir.analysis.program_rules import check_module
    from ktir.dialects.module_target import target_of

    check_module(module)
    target_of(module)
    return module
