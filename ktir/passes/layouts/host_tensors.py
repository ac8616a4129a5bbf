"""The tensors that the host gives a program: noted on the module where device arguments take the place of them.

`ktir.hosts` is a list of types in the order of the caller's arguments: `tensor<57x10xf16>`, or `memref<3x4xf32, strided<[1, 3]>>` where the
elements do not lie one after the other.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ktir.analysis.calls import argument_attributes, functions_of, root_of, text_attribute
from ktir.mlir import ir
from ktir.package import HostTensor
from ktir.roles import OWN_ROLES

HOSTS = "ktir.hosts"


def note_host_tensors(module: ir.Module) -> None:
    """Note the tensors of a logical module's entry function on the module, if its arguments say their types."""
    noted: list[ir.Attribute] = []
    for own in argument_attributes(root_of(functions_of(module), module.operation.location)):
        if text_attribute(own, "ktir.role") in OWN_ROLES:
            continue
        if "ktir.type" not in own:
            return
        type_ = ir.RankedTensorType(ir.TypeAttr(own["ktir.type"]).value)
        if "ktir.strides" in own:
            layout = ir.StridedLayoutAttr.get(0, list(ir.DenseI64ArrayAttr(own["ktir.strides"])))
            noted.append(ir.TypeAttr.get(ir.MemRefType.get(list(type_.shape), type_.element_type, layout)))
        else:
            noted.append(ir.TypeAttr.get(type_))
    module.operation.attributes[HOSTS] = ir.ArrayAttr.get(noted)


def host_tensors(module: ir.Module) -> tuple[HostTensor, ...]:
    """What `note_host_tensors` has noted; nothing where it never saw the module."""
    found: list[HostTensor] = []
    attributes = module.operation.attributes
    for noted in ir.ArrayAttr(attributes[HOSTS]) if HOSTS in attributes else ():
        type_: Any = ir.TypeAttr(noted).value
        size = tuple(type_.shape)
        dense = tuple(prod(size[d + 1 :]) for d in range(len(size)))
        strides = tuple(ir.StridedLayoutAttr(type_.layout).strides) if isinstance(type_, ir.MemRefType) else dense
        found.append(HostTensor(str(type_.element_type), size, strides))
    return tuple(found)
