"""Arrays that stand in a kernel as constants, on the chip: its programs hold no data, so a launch gives them behind the arguments."""

from __future__ import annotations

import numpy as np

from ktir.analysis.calls import argument_attributes, free_name, set_arguments
from ktir.dialects import ktdp
from ktir.lang.base.scalars import ELEMENTS
from ktir.mlir import arith, func, ir, is_a, operations


def constants_given(function: func.FuncOp) -> list[np.ndarray]:
    """Make arguments of the constant tensors of several numbers, and return what they are. In place."""
    attributes, found = list(argument_attributes(function)), list[np.ndarray]()
    for op in operations(function):
        if not is_a(op, arith.ConstantOp) or not isinstance(held := op.attributes["value"], ir.DenseElementsAttr) or held.is_splat:
            continue
        type_ = ir.RankedTensorType(op.results[0].type)
        attributes.append(_described(free_name("constant", attributes), type_))
        block = function.regions[0].blocks[0]
        base = block.add_argument(ir.IndexType.get(), op.location)
        with ir.InsertionPoint.at_block_begin(block), op.location:
            shape = list(type_.shape)
            strides = [int(np.prod(shape[d + 1 :])) for d in range(len(shape))]
            view = ktdp.construct_memory_view(base, shape, strides, type_.element_type)
            loaded = ktdp.load(ktdp.construct_access_tile(view, [0] * len(shape), shape), type_.element_type)
        op.results[0].replace_all_uses_with(loaded)
        name = next(n for n, element in ELEMENTS.items() if element == str(type_.element_type))
        found.append(np.array(held, dtype=name).reshape(shape))
        op.erase()
    if found:
        set_arguments(function, attributes)
    return found


def _described(name: str, type_: ir.RankedTensorType) -> ir.DictAttr:
    return ir.DictAttr.get(
        {"ktir.name": ir.StringAttr.get(name), "ktir.role": ir.StringAttr.get("input"), "ktir.type": ir.TypeAttr.get(type_)}
    )
