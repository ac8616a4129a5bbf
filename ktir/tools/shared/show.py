"""The IR as `ktir-opt` prints it."""

from dataclasses import dataclass

from ktir.assembly import aliases
from ktir.assembly.names import LOOPS, TextNames
from ktir.assembly.printer import Printer
from ktir.mlir import ir, operations
from ktir.tools.shared.flags import CommandLine


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


def keep_names(module: ir.Module, text: str, source: str, first_line: int) -> None:
    """Puts the names that `text` gives to values into the locations of the ops and arguments that define them.

    An op or argument is found by its position. Loop variables that MLIR gives no position are found in the header of their loop.
    """
    names = TextNames(text, first_line)

    def place(location: ir.Location) -> tuple[int, int]:
        ours = isinstance(location, ir.FileLineColLoc) and location.filename == source
        return (location.start_line, location.start_col) if ours else (0, 0)

    def named(location: ir.Location) -> ir.Location | None:
        found = names.at(*place(location))
        name = found[0].partition("#")[0] if found else ""
        return ir.Location.name(name, location) if name and not name[0].isdigit() else None

    for op in operations(module):
        # Terminators that the text does not show stand where their loop does.
        if op.name in LOOPS and (bound := names.bound(*place(op.location))):
            for name, argument in zip(bound, op.regions[0].blocks[0].arguments, strict=False):
                if not name.isdigit():
                    argument.set_location(ir.Location.name(name, op.location))
        if op.results and (new := named(op.location)):
            op.location = new
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    if new := named(argument.location):
                        argument.set_location(new)
