"""The `ktdp` ops by which a kernel asks what it was launched with: its place in the grid, its runtime arguments."""

from collections.abc import Sequence
from typing import Any

from ktir.dialects._foundation.base import Operation, Pure
from ktir.dialects._ktdp.types import Ktdp, RuntimeArgType
from ktir.mlir import ext, ir


class GetComputeTileIdOp(Operation, dialect=Ktdp, name="get_compute_tile_id", traits=[Pure]):
    """The executing tile's coordinates: result k is the one along grid dim k.

    %t = ktdp.get_compute_tile_id : index
    """

    ids: Sequence[ext.Result[ir.IndexType]]

    assembly = "attr-dict `:` type($ids)"

    def check(self) -> str | None:
        return None if len(self.results) else "must return at least one index (num tile-grid dims >= 1)"


EXTRACTS = ("value", "granularity", "upperbound")


class RuntimeArgExtractOp(Operation, dialect=Ktdp, name="runtime_arg_extract", traits=[Pure]):
    """The value of a runtime argument, or one of the numbers that its type promises.

    %n = ktdp.runtime_arg_extract value from %a : <index, granularity=64> -> index
    """

    result: ext.Result[Any]
    argument: ext.Operand[RuntimeArgType]

    required = {"kind": ir.IntegerAttr}
    assembly = f"enum($kind, {', '.join(EXTRACTS)}) `from` $argument `:` stripped($argument) attr-dict `->` type($result)"

    @property
    def extracts(self) -> str:
        """`value`, `granularity` or `upperbound`."""
        return EXTRACTS[ir.IntegerAttr(self.attributes["kind"]).value]

    def check(self) -> str | None:
        number = ir.IntegerAttr(self.attributes["kind"]).value
        if number not in range(len(EXTRACTS)):
            return f"attribute 'kind' must be 0 to {len(EXTRACTS) - 1}, but got {number}"
        kind, argument, result = EXTRACTS[number], self.operands[0].type, self.results[0].type
        if kind == "value":
            if result == argument.underlying:
                return None
            return f"result type ('{result}') must match runtime_arg underlying type ('{argument.underlying}') when extracting value"
        if getattr(argument, kind) is None:
            return f"cannot extract {kind} from runtime_arg that doesn't have one"
        if not isinstance(result, ir.IndexType):
            return f"result type must be index when extracting {kind}, but got '{result}'"
        return None
