"""KTIR's text: `parse_module` reads it, `print_module` prints it. Pretty, generic and mixed input are all accepted.

Old spellings are accepted in silence; `parse_module(..., warn_deprecated=True)` adds a warning for each that says what to write instead.
Programs that are legal but hardly meant, as a tile whose shape is not that of its set, give warnings. With `strict=True` both are errors.
Warnings go to `diagnostics`.
"""

import re

from ktir import mlir
from ktir.assembly import aliases, formats, guards
from ktir.assembly.judgement import judging
from ktir.assembly.lexer import SyntaxFault
from ktir.assembly.printer import Printer
from ktir.assembly.reader import Reader
from ktir.assembly.source_map import SourceMap
from ktir.context import load_offered
from ktir.diagnostics import Diagnostic, KtirError, close_to, collect
from ktir.mlir import ir, operations

__all__ = ["parse_module", "pretty", "print_module"]

_PARSED = "-"  # the file name that MLIR gives to text parsed from memory
_WRITTEN = "|"  # stands for it while parsing where the text itself says loc("-":1:2); just as long
_WRITTEN_LOCATION = re.compile(rf'"{_PARSED}":(?=\d+:\d)')


def parse_module(
    text: str,
    source: str = "-",
    *,
    first_line: int = 1,
    diagnostics: list[Diagnostic] | None = None,
    strict: bool = False,
    warn_deprecated: bool = False,
) -> ir.Module:
    """Reads a module in the current context and verifies it.

    `source` is the file name in locations; `first_line` the line of it at which `text` starts. Warnings are
    added to `diagnostics`. Raises KtirError, placed exactly, if the text does not parse or does not verify.
    """
    shift = first_line - 1
    text = _WRITTEN_LOCATION.sub(f'"{_WRITTEN}":', text)
    load_offered(text)
    reader = Reader(text)
    try:
        guards.check(text)
        pieces = reader.read()
    except SyntaxFault as fault:
        line, column = SourceMap(text, []).position(fault.offset)
        errors = [Diagnostic("error", message, f"{source}:{line + shift}:{column}") for message in fault.message.split("\n")]
        raise KtirError.of(errors, fault.message) from None
    origin = SourceMap(text, pieces)
    warnings: list[Diagnostic] = []
    if reader.old and (strict or warn_deprecated):
        for offset, message in reader.old:
            line, column = origin.position(offset)
            warnings.append(Diagnostic("error" if strict else "warning", message, f"{source}:{line + shift}:{column}"))
        if strict:
            raise KtirError.of(warnings, warnings[0].message)

    def place(location: str | None) -> str | None:
        file, line, column = (location or "::").rsplit(":", 2)
        if file != _PARSED:
            return location
        at, column = origin.source_position(int(line), int(column))
        return f"{source}:{at + shift}:{column}"

    def placed(diagnostic: Diagnostic) -> Diagnostic:
        notes = tuple(placed(note) for note in diagnostic.notes)
        return Diagnostic(diagnostic.severity, _with_hint(pretty(diagnostic.message)), place(diagnostic.location), notes)

    with collect(ir.Context.current) as found, judging(strict) as judgement:
        try:
            module = ir.Module.parse("".join(piece for piece, _ in pieces))
        except ir.MLIRError:
            module = None
    if diagnostics is not None:
        diagnostics += [*warnings, *map(placed, judgement.warnings)]
        diagnostics += [d for d in map(placed, found) if module is not None or d.severity != "error"]
    if module is None:
        unsaid = Diagnostic("error", "the module does not parse", f"{source}:{1 + shift}:1")
        raise KtirError.of([placed(d) for d in found] or [unsaid], unsaid.message)
    _relocate(module, source, shift, origin)
    return module


_UNKNOWN_OP = re.compile(r"custom op '((\w+)\.[\w.]+)' is unknown")


def _with_hint(message: str) -> str:
    """MLIR's message of an op that there is not, with the one of its dialect that may have been meant."""
    match = _UNKNOWN_OP.match(message)
    if match is None:
        return message
    of_mlir = (getattr(cls, "OPERATION_NAME", "") for cls in vars(getattr(mlir, match[2], object)).values())
    return message + close_to(match[1], (name for name in (*formats.OPS, *of_mlir) if name and name.startswith(f"{match[2]}.")))


def _relocate(module: ir.Module, source: str, shift: int, origin: SourceMap) -> None:
    """Gives ops and block arguments the positions that they have in the source instead of in the generated text."""

    def moved(location: ir.Location) -> ir.Location | None:
        if isinstance(location, ir.FileLineColLoc) and location.filename == _PARSED:
            line, column = origin.source_position(location.start_line, location.start_col)
            return ir.Location.file(source, line + shift if line else 0, column)
        if f'"{_WRITTEN}":' in str(location):
            written = str(location).replace(f'"{_WRITTEN}":', f'"{_PARSED}":')
            return ir.Module.parse(f"module {{}} {written}").operation.location
        return None

    hiding = {name for name, syntax in formats.OPS.items() if name in origin.source and syntax.hides}
    for op in operations(module):
        parent = op.parent if hiding else None
        if parent is not None and parent.name in hiding:  # what the text does not show is where its op is
            op.location = parent.location
            continue
        if new := moved(op.location):
            op.location = new
        if op.name in hiding:
            for argument in op.regions[0].blocks[0].arguments:
                argument.set_location(op.location)
            continue
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    if new := moved(argument.location):
                        argument.set_location(new)


def print_module(
    module: ir.Module | ir.Operation | ir.OpView, *, generic: bool = False, debuginfo: bool = False, local_scope: bool = False
) -> str:
    """KTIR text of a module or op, ending in a line break; reading it gives the same module.

    `generic` prints every op in MLIR's generic form, `debuginfo` adds locations, `local_scope` prints without aliases.
    The verifier is not run.
    """
    text = module.operation.get_asm(
        print_generic_op_form=generic, enable_debug_info=debuginfo, use_local_scope=local_scope, assume_verified=True
    )
    text = Printer(text, ops=not generic).write()
    if not local_scope:
        text = aliases.name_sets(text) if generic else aliases.tidy(text)
    return text if text.endswith("\n") else text + "\n"


def pretty(thing: object) -> str:
    """Text of a type or attribute, or a message that quotes some, with ours spelled as in KTIR text."""
    return Printer(str(thing), ops=False).write()
