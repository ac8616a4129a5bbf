"""The `ktdp` ops that move tiles: loads and stores."""

from typing import Any

from ktir.dialects._foundation.base import Operation, ReadEffect, WriteEffect
from ktir.dialects._ktdp.tiles import ConstructAccessTileOp, ConstructIndirectAccessTileOp
from ktir.dialects._ktdp.types import AccessTileType, Ktdp
from ktir.dialects._ktdp.views import ConstructMemoryViewOp, sizes_text
from ktir.mlir import ext, ir
from ktir.target import widened

_WITHOUT_LAYOUTS = ("logical", "flat")
"""Levels at which memory has what tensors have."""
_TILES = (ConstructAccessTileOp.OPERATION_NAME, ConstructIndirectAccessTileOp.OPERATION_NAME)


def _tile_fault(tensor: Any, tile: ir.Value, what: str, shapes: str) -> str | None:
    """What is wrong with moving `tensor` to or from `tile`."""
    shape = tensor.shape
    if shape != tile.type.shape:
        return f"{shapes}, but got '{tensor}' for a tile of shape {sizes_text(tile.type.shape)}"
    owner = tile.owner
    if isinstance(owner, ir.Block) or owner.name not in _TILES:
        return None
    element = owner.operands[0].type.element_type
    if element != tensor.element_type and not _widens(owner.operands[0], tensor.element_type):
        return f"expects {what} of element type '{element}', that of the view, but got '{tensor.element_type}'"
    return None


def _widens(view: ir.Value, element: ir.Type) -> bool:
    """Whether a tensor may have wider elements than a view: where programs have layouts, f16 of floats of one byte in global memory."""
    owner = view.owner
    if isinstance(owner, ir.Block) or owner.name != ConstructMemoryViewOp.OPERATION_NAME or owner.opview.memory_space != "global":
        return False
    above = owner.operation
    while "ktir.level" not in above.attributes and above.parent is not None:
        above = above.parent.operation
    level = above.attributes.get("ktir.level")
    laid_out = isinstance(level, ir.StringAttr) and level.value not in _WITHOUT_LAYOUTS
    return laid_out and str(element) == widened(view.type.element_type) != str(view.type.element_type)


class LoadOp(Operation, dialect=Ktdp, name="load", traits=[ReadEffect]):
    """The elements of a tile, as a tensor of the tile's shape.

    %x = ktdp.load %t : <2x64xindex> -> tensor<2x64xf16>
    """

    result: ext.Result[ir.RankedTensorType]
    tile: ext.Operand[AccessTileType]

    assembly = "$tile attr-dict `:` stripped($tile) `->` type($result)"

    @property
    def value(self) -> ir.Value:
        """The loaded tensor."""
        return self.results[0]

    def check(self) -> str | None:
        return _tile_fault(self.results[0].type, self.operands[0], "a result", "access tile shape must match result tensor shape")


class StoreOp(Operation, dialect=Ktdp, name="store", traits=[WriteEffect]):
    """Writes a tensor to the elements of a tile of the same shape.

    ktdp.store %x, %t : tensor<2x64xf16>, <2x64xindex>
    """

    value: ext.Operand[ir.RankedTensorType]
    tile: ext.Operand[AccessTileType]

    assembly = "$value `,` $tile attr-dict `:` type($value) `,` stripped($tile)"

    def check(self) -> str | None:
        return _tile_fault(self.operands[0].type, self.operands[1], "a value", "data tile shape must match access tile shape")
