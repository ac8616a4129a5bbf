"""The `spyre` dialect: a program of the instruction stream as MLIR, generated from the instruction table.

A `spyre.program` holds its arguments and kernels; a kernel its tables, groups, channels, descriptors and units; a unit its words.
`spyre.loop` and `spyre.rep` are regions; every other instruction is one op with its fields as attributes. An op's location is that of the
KTIR op it comes from, named after that op. `_spyre_ops` holds the other ops and the declaration, `Spyre(Dialect, name="spyre")`, which
the registry looks for here. `to_mlir` and `from_mlir` convert exactly; the dialect's verifier is `ktir.isa.binary.validate`.

    spyre.program "softmax" {
      spyre.argument "x" role = input, sticks = 8192, element_bytes = 2
      spyre.kernel "kernel_0" cores = 32 {
        spyre.descriptor ddr element_bytes = 2 extent = [16, 4] stride = [32768, 128] arg = 0
        spyre.descriptor lx element_bytes = 2 extent = [16, 4] stride = [512, 128]
        spyre.unit MNIL {
          spyre.loop trips = 16, level = 0, region = 1 {
            spyre.move src = 0 dst = 1
          }
          spyre.halt
        }
      }
    }
"""

from typing import Any

from ktir.dialects._foundation.base import Operation
from ktir.dialects._spyre_ops import INSTRUCTION_OPS, Spyre
from ktir.isa.program import Program
from ktir.mlir import ext, ir

__all__ = ["INSTRUCTION_OPS", "ProgramOp", "Spyre", "from_mlir", "to_mlir"]


class ProgramOp(Operation, dialect=Spyre, name="program", traits=[ir.NoTerminatorTrait]):
    """Arguments, then kernels, which run in order with a barrier between them."""

    body: ext.Region

    required = {"name": ir.StringAttr}
    assembly = "$name region($body) attr-dict"

    @staticmethod
    def verify_region_invariants(op: Any) -> bool:
        from ktir.dialects._spyre_convert import Misformed, Reader  # heavy to load, and only programs need it
        from ktir.isa.binary.validate import validate

        try:
            reader = Reader(op)
            problems = validate(reader.program)
        except Misformed as e:
            e.place.emit_error(e.message)
            return False
        for p in problems:
            name, location = reader.place(p)
            location.emit_error(f"'{name}' op is not well-formed: {p.message}")
        return not problems


def to_mlir(program: Program, context: ir.Context) -> ir.Module:
    """A module with `program` as its only op. Raises ProgramError if it is not well-formed or its loops do not nest."""
    from ktir.dialects._spyre_convert import to_mlir

    return to_mlir(program, context)


def from_mlir(module: ir.Module | ir.Operation) -> Program:
    """The program in a module, or of a `spyre.program` op. Raises KtirError if there is not exactly one, or it is not well-formed."""
    from ktir.dialects._spyre_convert import from_mlir

    return from_mlir(module)
