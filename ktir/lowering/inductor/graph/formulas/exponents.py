"""Numbers of float8_e8m0fnu, powers of two by which blocks are scaled, as the bytes that they are.

PyTorch moves such numbers and converts them, and computes nothing with them. So a graph has uint8 in their place: what is given is seen so,
and what is made is seen as such numbers again; conversions are arithmetic on the bits of float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

aten, prims = torch.ops.aten, torch.ops.prims
E8M0 = torch.float8_e8m0fnu
_FRACTION, _HALF, _NAN = 23, 0x400000, 0x7FC00000
_CONVERSIONS = (prims.convert_element_type.default, aten._to_copy.default)


def exponents_as_bytes(graph: fx.Graph) -> None:
    """Rewrite a graph in place. Nodes that make such numbers in no way known stay, and what reads them."""
    if not any(_is_exponent(node) for node in graph.nodes):
        return
    held: dict[fx.Node, fx.Node] = {}
    first = next(n for n in graph.nodes if n.op not in ("placeholder", "get_attr"))
    for node in list(graph.nodes):
        if node.op in ("placeholder", "get_attr") and _is_exponent(node):
            with graph.inserting_before(first):
                held[node] = _add(graph, node, aten.view.dtype, node, torch.uint8)
        elif node.op == "call_function" and _is_exponent(node):
            given = [n for n in node.all_input_nodes if n not in held]
            with graph.inserting_before(node):
                if node.target in _CONVERSIONS and given:
                    held[node] = _encoded(graph, node)
                elif not given:
                    held[node] = _add(graph, node, node.target, *fx.map_arg(node.args, held.__getitem__), **_unplaced(node))
        elif node.target in _CONVERSIONS and node.args[0] in held:
            with graph.inserting_before(node):
                node.replace_all_uses_with(_decoded(graph, node, held[node.args[0]]))
            graph.erase_node(node)
        elif node.op == "output":
            for made in (n for n in node.all_input_nodes if n in held and n.op == "call_function"):
                with graph.inserting_before(node):
                    node.replace_input_with(made, _add(graph, made, aten.view.dtype, held[made], E8M0))
    graph.eliminate_dead_code()


def _is_exponent(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == E8M0


def _unplaced(node: fx.Node) -> dict[str, Any]:
    return {k: v for k, v in node.kwargs.items() if k != "dtype"}


def _add(graph: fx.Graph, of: fx.Node, op: Any, *args: Any, **named: Any) -> fx.Node:
    node = graph.call_function(op, args, named)
    node.meta = {k: v for k, v in of.meta.items() if k != "val"}
    with of.meta["val"].fake_mode:
        node.meta["val"] = op(*fx.map_arg(args, lambda n: n.meta["val"]), **named)
    return node


def _decoded(graph: fx.Graph, of: fx.Node, codes: fx.Node) -> fx.Node:
    """2^(code - 127): the code is the exponent of a float32; 0 is a number below the normal ones, 255 is NaN."""

    def add(op: Any, *args: Any, **named: Any) -> fx.Node:
        return _add(graph, of, op, *args, **named)

    device = codes.meta["val"].device
    wide = add(prims.convert_element_type.default, codes, torch.int32)
    least, nan = (add(aten.full.default, [], n, dtype=torch.int32, device=device) for n in (_HALF, _NAN))
    bits = add(aten.where.self, add(aten.eq.Scalar, wide, 0), least, add(aten.bitwise_left_shift.Tensor_Scalar, wide, _FRACTION))
    bits = add(aten.where.self, add(aten.eq.Scalar, wide, 255), nan, bits)
    return add(prims.convert_element_type.default, add(aten.view.dtype, bits, torch.float32), of.meta["val"].dtype)


def _encoded(graph: fx.Graph, of: fx.Node) -> fx.Node:
    """The exponent of a float32, one more from one and a half on; its sign goes, and infinities and NaN are 255."""

    def add(op: Any, *args: Any, **named: Any) -> fx.Node:
        return _add(graph, of, op, *args, **named)

    number = add(prims.convert_element_type.default, of.args[0], torch.float32)
    bits = add(aten.view.dtype, number, torch.int32)
    exponent = add(aten.bitwise_and.Scalar, add(aten.bitwise_right_shift.Tensor_Scalar, bits, _FRACTION), 255)
    rest = add(aten.bitwise_and.Scalar, bits, (1 << _FRACTION) - 1)
    normal = add(prims.convert_element_type.default, add(aten.gt.Scalar, exponent, 0), torch.int32)
    up = add(prims.convert_element_type.default, add(aten.gt.Scalar, add(aten.add.Tensor, rest, normal), _HALF), torch.int32)
    most = add(aten.full.default, [], 255, dtype=torch.int32, device=bits.meta["val"].device)
    code = add(aten.minimum.default, add(aten.add.Tensor, exponent, up), most)
    return add(prims.convert_element_type.default, code, torch.uint8)
