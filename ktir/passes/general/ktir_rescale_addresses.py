"""Text whose addresses of global memory count sticks or bytes -> KTIR, whose addresses count elements of the view's type.

Producers differ: 64 is element 64 here, and stick 64, byte 8192, in older examples. Nothing in the text says which; whoever reads it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects.structured import index_constant
from ktir.mlir import arith, ir, is_a, operations
from ktir.pipeline import Pass
from ktir.target import STICK_BYTES

UNITS = {"element": 0, "stick": STICK_BYTES, "byte": 1}
"""What an address may count, and its bytes; 0 where that depends on the type."""


@dataclass(frozen=True)
class RescaleAddressesPass(Pass):
    """Let addresses of global memory that are numbers in the text count elements. An address that an argument is stays as it is.

    Expects: any level. Guarantees: the same bytes in the meaning of KTIR. Refused: bytes that are no whole number of elements.
    """

    name: ClassVar[str] = "ktir-rescale-addresses"
    description: ClassVar[str] = "addresses in sticks or bytes -> in elements"
    unit: Literal["stick", "byte", "element"] = "stick"
    """What addresses count: `stick`, `byte` or `element`."""

    def run(self, module: ir.Module) -> None:
        """Give each view of global memory at a number another number."""
        for op in operations(module):
            if (
                UNITS[self.unit]
                and is_a(op, ktdp.ConstructMemoryViewOp)
                and op.opview.memory_space == "global"
                and _is_fixed(op.operands[0])
            ):
                op.operands[0] = _rescaled(op, UNITS[self.unit])


def _is_fixed(value: ir.Value) -> bool:
    """Whether an address is computed from constants."""
    return not isinstance(value.owner, ir.Block) and all(map(_is_fixed, value.owner.operands))


def _rescaled(view: ir.Operation, unit: int) -> ir.Value:
    address, type_ = view.operands[0], view.opview.element_type
    element = -(-type_.width // 8)  # pyright: ignore[reportAttributeAccessIssue]
    with ir.InsertionPoint(view), view.location:
        if is_a(address.owner, arith.ConstantOp):
            number, rest = divmod(ir.IntegerAttr(address.owner.attributes["value"]).value * unit, element)
            if rest:
                raise refused(view, f"begins {rest} bytes inside of an element of type {type_}")
            return index_constant(number)
        if unit % element:
            raise refused(view, f"begins at a byte that is computed, of which elements of type {type_} are several")
        return arith.MulIOp(address, index_constant(unit // element)).result
