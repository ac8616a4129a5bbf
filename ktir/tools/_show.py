"""The IR as `ktir-opt` prints it."""

import re
from bisect import bisect_right
from dataclasses import dataclass

from ktir.assembly import aliases
from ktir.assembly.printer import Printer
from ktir.mlir import ir, operations
from ktir.tools._flags import CommandLine


@dataclass(frozen=True)
class Printing:
    """How to print; as the flags of the same names."""

    generic: bool = False
    debuginfo: bool = False
    pretty_debuginfo: bool = False
    local_scope: bool = False
    skip_regions: bool = False
    names: bool = False
    elements_limit: int | None = None
    resource_limit: int | None = None

    @classmethod
    def of(cls, line: CommandLine) -> "Printing":
        return cls(
            line.on("mlir-print-op-generic"),
            line.on("mlir-print-debuginfo"),
            line.on("mlir-pretty-debuginfo"),
            line.on("mlir-print-local-scope"),
            line.on("mlir-print-skip-regions"),
            line.on("mlir-use-nameloc-as-prefix") or line.on("keep-names"),
            line.number("mlir-elide-elementsattrs-if-larger"),
            line.number("mlir-elide-resource-strings-if-larger"),
        )

    def text(self, op: ir.Module | ir.Operation | ir.OpView) -> str:
        """KTIR text of `op`, ending in a line break. The verifier is not run."""
        text = op.operation.get_asm(
            print_generic_op_form=self.generic,
            enable_debug_info=self.debuginfo or self.pretty_debuginfo,
            pretty_debug_info=self.pretty_debuginfo,
            use_local_scope=self.local_scope,
            skip_regions=self.skip_regions,
            use_name_loc_as_prefix=self.names,
            large_elements_limit=self.elements_limit,
            large_resource_limit=self.resource_limit,
            assume_verified=True,
        )
        text = Printer(text, ops=not self.generic).write()
        text = text if self.generic or self.local_scope else aliases.tidy(text)
        return text if text.endswith("\n") else text + "\n"


_NAME = re.compile(
    r"""//[^\n]* | "[^"\\\n]*(?:\\.[^"\\\n]*)*"
      | %(?P<name>[A-Za-z_$.\-][\w$.\-]*)(?P<results>(?:\s*:\s*\d+)?(?:\s*,\s*%[\w$.\-]+(?:\s*:\s*\d+)?)*\s*=(?!=)\s*)?""",
    re.VERBOSE,
)
_HEADER = re.compile(r"scf\.(?:for|while|parallel|forall)\b(?P<header>[^{]*)")
_BOUND = re.compile(r"%([\w$.\-]+)\s*(?==(?!=)|,[^=()]*\)\s*=)")


def keep_names(module: ir.Module, text: str, source: str, first_line: int) -> None:
    """Puts the names that `text` gives to values into the locations of the ops and arguments that define them.

    An op or argument is found by its position. Loop variables that MLIR gives no position are found in the header of their loop.
    """
    starts = [0, *(m.end() for m in re.finditer("\n", text))]
    names: dict[tuple[int, int], str] = {}
    for match in _NAME.finditer(text):
        if match["name"]:
            offset = match.end() if match["results"] else match.start()
            line = bisect_right(starts, offset)
            names[line + first_line - 1, offset - starts[line - 1] + 1] = match["name"]

    def named(location: ir.Location) -> ir.Location | None:
        if not isinstance(location, ir.FileLineColLoc) or location.filename != source:
            return None
        name = names.get((location.start_line, location.start_col))
        return ir.Location.name(name, location) if name else None

    def header(location: ir.Location) -> str:
        """The text of a loop that stands at `location`, up to its body."""
        if not isinstance(location, ir.FileLineColLoc) or location.filename != source:
            return ""
        line = location.start_line - first_line
        match = _HEADER.match(text, starts[line] + location.start_col - 1) if 0 <= line < len(starts) else None
        return match["header"] if match else ""

    for op in operations(module):
        if loop := header(op.location):
            for bound, argument in zip(_BOUND.findall(loop), op.regions[0].blocks[0].arguments, strict=False):
                if not bound.isdigit():
                    argument.set_location(ir.Location.name(bound, op.location))
        if op.results and (new := named(op.location)):
            op.location = new
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    if new := named(argument.location):
                        argument.set_location(new)
