"""Memory that a pass adds to a function of the logical level: pools, and iotas."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ktir.analysis.calls import argument_attributes, set_arguments, text_attribute
from ktir.dialects import ktdp
from ktir.mlir import func, ir
from ktir.target import LANES


class NewArguments:
    """Adds arguments to a function; `finish` makes its type and attributes those of all arguments."""

    def __init__(self, function: func.FuncOp) -> None:
        self.function = function
        self.block: ir.Block = function.regions[0].blocks[0]
        self.attributes = argument_attributes(function)
        self.added: dict[str, int] = {}

    def add(self, role: str, shape: Sequence[int], element: ir.Type, location: ir.Location) -> ir.Value:
        """The base address of new memory of `shape`: a `pool`, or an `iota`, whose element i holds i."""
        number = self.added.get(role, 0)
        self.added[role] = number + 1
        names = {text_attribute(a, "ktir.name") for a in self.attributes}
        name = f"{role}{number}"
        while name in names:
            name = f"_{name}"
        given = {
            "ktir.name": ir.StringAttr.get(name),
            "ktir.role": ir.StringAttr.get(role),
            "ktir.type": ir.TypeAttr.get(ir.RankedTensorType.get(list(shape), element)),
        }
        self.attributes.append(ir.DictAttr.get(given))
        return self.block.add_argument(ir.IndexType.get(), location)

    def finish(self) -> None:
        """Write type and attributes of the function, if there are new arguments."""
        if self.added:
            set_arguments(self.function, self.attributes)


def pool_tile(base: ir.Value, type_: ir.RankedTensorType) -> ir.Value:
    """The memory of a tensor that functions give each other, in a pool: row-major, rows of whole sticks."""
    shape = list(type_.shape)
    padded = [*shape[:-1], *(-(-n // LANES) * LANES for n in shape[-1:])]
    strides = [prod(padded[d + 1 :]) for d in range(len(padded))]
    view = ktdp.construct_memory_view(base, shape, strides, type_.element_type)
    return ktdp.construct_access_tile(view, [0] * len(padded), shape)
