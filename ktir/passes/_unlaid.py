"""What logical programs may have and no stick layout holds yet."""

from __future__ import annotations

from ktir.mlir import ir, operations
from ktir.passes._stick_roles import refuse


def refuse_unlaid(module: ir.Module) -> None:
    """Refuse views of elements without a layout, views that run backwards, and coordinates."""
    for op in operations(module):
        if op.name == "ktdp.construct_memory_view":
            element = ir.MemRefType(op.results[0].type).element_type
            if not isinstance(element, ir.F16Type | ir.F32Type):
                raise refuse(op, f"views elements of type {element}, which have no stick layout; f16 and f32 have")
            if any(stride < 0 for stride in ir.DenseI64ArrayAttr(op.attributes["static_strides"])):
                raise refuse(op, "runs backwards through memory, which is not supported")
        elif op.name == "linalg.index":
            raise refuse(op, "computes with coordinates, which is not supported on the logical level")
