"""Logical programs whose functions nest, made from programs of one function."""

from __future__ import annotations

import numpy as np

from ktir.analysis.calls import argument_attributes, functions_of, root_of, set_arguments, text_attribute
from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.mlir import func, ir


def nested(text: str, count: int, carried: str | None = None) -> str:
    """An entry that calls the function of `text` `count` times, each on what the one before made.

    `carried` is the name of the input that takes it, by default the first one; each call has other inputs of its own.
    """
    with context(), ir.Location.file("nested.mlir", 1, 1):
        module = parse_module(text, "layer")
        (layer,) = functions_of(module).values()
        layer.attributes["sym_name"] = ir.StringAttr.get("layer")
        own = argument_attributes(layer)
        roles = [text_attribute(a, "ktir.role") for a in own]
        names = [text_attribute(a, "ktir.name") for a in own]
        source, target = names.index(carried) if carried else roles.index("input"), roles.index("output")
        with ir.InsertionPoint(module.body):
            entry = func.FuncOp("main", ([], []))
        block, attributes = entry.add_entry_block(), list[ir.DictAttr]()

        def argument(like: int, name: str, role: str) -> ir.Value:
            given = {a.name: a.attr for a in own[like]}
            attributes.append(ir.DictAttr.get({**given, "ktir.name": ir.StringAttr.get(name), "ktir.role": ir.StringAttr.get(role)}))
            return block.add_argument(ir.IndexType.get(), ir.Location.current)

        value = argument(source, "x", "input")
        with ir.InsertionPoint(block):
            for k in range(count):
                last = k == count - 1
                operands = []
                for i, name in enumerate(names):
                    if i == source:
                        operands.append(value)
                    elif i == target:
                        operands.append(argument(i, "y" if last else f"h{k}", "output" if last else "pool"))
                    else:
                        operands.append(argument(i, f"{name}_{k}", roles[i]))
                func.CallOp([], "layer", operands)
                value = operands[target]
            func.ReturnOp([])
        set_arguments(entry, attributes)
        return print_module(module, debuginfo=False)


def host_arrays(text: str, seed: int = 0) -> list[np.ndarray]:
    """Random host arrays for the entry of a program, by the types of its arguments."""
    rng = np.random.default_rng(seed)
    arrays = []
    with context(), ir.Location.unknown():
        module = parse_module(text)
        for attributes in argument_attributes(root_of(functions_of(module), module.operation.location)):
            if text_attribute(attributes, "ktir.role") != "pool":
                type_ = ir.RankedTensorType(ir.TypeAttr(attributes["ktir.type"]).value)
                dtype = np.float16 if isinstance(type_.element_type, ir.F16Type) else np.float32
                arrays.append((rng.standard_normal(tuple(type_.shape)) * 0.5).astype(dtype))
    return arrays
