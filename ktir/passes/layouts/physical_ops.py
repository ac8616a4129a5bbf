"""Laid-out ops: pointwise ops, reductions and contractions over sticks, rows and lanes, masked where pads would be read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from ktir.analysis.flat import Node, shape_of
from ktir.analysis.pads import folded_pad, unsafe_divisions
from ktir.dialects.byte_pairs import paired
from ktir.dialects.structured import IDENTITY, Generic, affine_map, clone_ops, constant, element_of, elementwise, fill, generic, padded
from ktir.layout import Digit, Layout
from ktir.mlir import ir, tensor
from ktir.passes.layouts.device_arguments import element_type, encoding
from ktir.passes.layouts.physical_tensors import PhysicalTensors, Tensor, empty, masked
from ktir.passes.layouts.row_merging import NO_ROW
from ktir.target import LANES


class PhysicalOps:
    """Builds ops on the tensors of one function."""

    def __init__(self, tensors: PhysicalTensors) -> None:
        self.tensors = tensors
        self.rows = tensors.plan.rows

    def _inputs(self, node: Node) -> tuple[list[Tensor], list[list[int | None]], int]:
        """Physical operands, per operand its map over the loops (s, rows.., l), and how many row loops there are."""
        found = [self.tensors.operand(node, i) for i in range(node.reads)]
        places = self.rows.places(node)
        return [t for t, _ in found], [use.walk(places) for _, use in found], max(1, len(places))

    def _result_layout(self, node: Node) -> Layout:
        value = node.result
        dtype = str(ir.RankedTensorType(value.type).element_type)
        return self.tensors.layout(shape_of(value), self.tensors.plan.roles.made(value), self.rows.made(value), dtype)

    def pointwise(self, node: Node) -> Tensor:
        """Build a pointwise op."""
        g = node.generic
        assert g is not None
        inputs, maps, rows = self._inputs(node)
        layout = self._result_layout(node)
        pad = folded_pad(g, _shown_pads(inputs, maps))
        mask = node.result in self.tensors.plan.zero_pads and layout.size[-1] % LANES != 0 and pad != 0.0
        divisions = unsafe_divisions(g, _shown_pads(inputs, maps), layout.size[-1])

        def body(arguments: list[ir.Value]) -> ir.Value:
            mapping = dict(zip(g.body.arguments, arguments, strict=True))
            _clone_with_divisors(g.body_ops, mapping, divisions, lambda v: masked(v, layout.size[-1], 0, rows + 1, 1.0))
            value = _yielded(g, mapping)
            return masked(value, layout.size[-1], 0, rows + 1, 0.0) if mask else value

        value = elementwise([t.value for t in inputs], empty(layout), body, maps)
        return Tensor(value, layout, 0.0 if mask else pad)

    def pairs(self, node: Node) -> Tensor:
        """Build an op that makes pairs of bytes."""
        (source, *_), _, _ = self._inputs(node)
        layout = self._result_layout(node)
        return Tensor(paired(source.value, empty(layout)), layout, None)

    def reduction(self, node: Node) -> Tensor:
        """Build a reduction."""
        g = node.generic
        assert g is not None
        inputs, maps, rows = self._inputs(node)
        columns = node.extent(g.iterators.index("reduction"))
        layout = self._result_layout(node)
        combiner = g.combiner
        assert combiner is not None
        identity = IDENTITY[combiner]
        pad = folded_pad(g, _shown_pads(inputs, maps), g.mapped)
        mask = columns % LANES != 0 and (pad is None or np.float64(pad).tobytes() != np.float64(identity).tobytes())
        divisions = unsafe_divisions(g, _shown_pads(inputs, maps), columns)
        physical = {0: rows, **{r: r - 1 for r in range(1, rows + 1)}, rows + 1: rows + 1, None: None}  # reduced loops last: (rows.., s, l)

        def body(arguments: list[ir.Value]) -> ir.Value:
            mapping = dict(zip(g.body.arguments, arguments, strict=True))
            *mapped, combine = g.body_ops
            _clone_with_divisors(mapped, mapping, divisions, lambda v: masked(v, columns, rows, rows + 1, 1.0))
            if mask:
                value = mapping.get(g.mapped, g.mapped)
                mapping[g.mapped] = masked(value, columns, rows, rows + 1, identity)
            clone_ops([combine], mapping)
            return mapping[g.yielded]

        loops = rows + 2
        element = element_type(layout.dtype)
        scalar = constant(element, identity)
        init = fill(scalar, empty(layout))
        value = generic(
            [t.value for t in inputs],
            init,
            [*(affine_map(loops, [physical[i] for i in m]) for m in maps), affine_map(loops, [None, *range(rows), None])],
            ["parallel"] * rows + ["reduction"] * 2,
            body,
            loc=g.op.location,
        )
        return Tensor(value, layout, None)

    def contraction(self, node: Node) -> Tensor:
        """Build a contraction."""
        g, loops_of = node.generic, node.contraction
        assert g is not None
        assert loops_of is not None
        (a, a_use), (b, b_use) = (self.tensors.operand(node, i) for i in (0, 1))
        layout = self._result_layout(node)
        transposed = b_use.stick is not None and node.loops[1][b_use.stick] in loops_of.reduced
        places = dict(self.rows.places(node))
        rows, taps = max(1, len(places)), loops_of.reduced[:-1]
        # loops (n, rows.., j, taps.., k, i): output sticks, rows, output lanes; taps of a window, K in sticks and lanes, reduced
        n, j, k, i = 0, rows + 1, rows + len(taps) + 2, rows + len(taps) + 3
        places.update({NO_ROW: 1, **{tap: rows + 2 + t for t, tap in enumerate(taps)}})
        inner = (n, j) if transposed else (k, i)
        split = next(1 + p for p, loop in enumerate(b_use.loops) if loop not in places)
        b_block = self._blocks(b, split, (layout if transposed else a.layout).device_size[0])
        b_rows = [at for loop in b_use.loops for at in ((places[loop],) if loop in places else inner)]
        others = [self.tensors.operand(node, number) for number in range(2, node.reads)]
        maps = [
            [k, *([places[loop] for loop in a_use.loops] or [1]), i],
            [k, *b_rows, i] if transposed else [n, *b_rows, j],
            *(use.factor_walk(places, n, j) for _, use in others),
            list(range(rows + 2)),
        ]
        element = element_of(g.init)
        empty = tensor.EmptyOp(list(layout.device_size), element, encoding=encoding(layout)).result

        iterators = ["parallel"] * (rows + 2) + ["reduction"] * (len(taps) + 2)
        affine = [affine_map(len(iterators), m) for m in maps]
        operands = [a.value, b_block, *(tensor.value for tensor, _ in others)]
        value = generic(operands, fill(constant(element, 0), empty), affine, iterators, g.copy_body, loc=g.op.location)
        return Tensor(value, layout, None)

    def _blocks(self, b: Tensor, dim: int, blocks: int) -> ir.Value:
        """Pad rows `dim` of a second operand to whole blocks of 64 with zeros and split them: [s, .., blocks, 64, .., 64]."""
        shape, value, size = list(b.layout.device_size), b.value, b.layout.size
        rows, digits, row = blocks * LANES, list(b.layout.digits), b.layout.digits[dim].dim
        if rows != shape[dim]:
            layout = Layout(size, (*digits[:dim], Digit(row, 1, rows), *digits[dim + 1 :]), b.layout.dtype)
            value = padded(value, ir.RankedTensorType.get(list(layout.device_size), element_type(layout.dtype), encoding(layout)))
        layout = Layout(size, (*digits[:dim], Digit(row, LANES, blocks), Digit(row, 1, LANES), *digits[dim + 1 :]), b.layout.dtype)
        split = [[d] if d < dim else [d, d + 1] if d == dim else [d + 1] for d in range(len(shape))]
        result = ir.RankedTensorType.get(list(layout.device_size), element_type(layout.dtype), encoding(layout))
        return tensor.ExpandShapeOp(result, value, split, [], list(layout.device_size)).result


def _yielded(g: Generic, mapping: dict[ir.Value, ir.Value]) -> ir.Value:
    """What the body's copy yields; a constant from outside is copied too."""
    owner = g.yielded.owner
    if g.yielded not in mapping and not isinstance(owner, ir.Block):
        mapping[g.yielded] = owner.clone().results[0]
    return mapping[g.yielded]


def _shown_pads(inputs: list[Tensor], maps: list[list[int | None]]) -> list[float | None]:
    """What operands show in pad lanes; column and scalar operands show data."""
    return [t.pad if m[-1] is not None else None for t, m in zip(inputs, maps, strict=True)]


def _clone_with_divisors(
    ops: Sequence[ir.Operation],
    mapping: dict[ir.Value, ir.Value],
    divisions: Collection[ir.Operation],
    masked: Callable[[ir.Value], ir.Value],
) -> None:
    """Clone the ops of a body; the divisors of `divisions` get a number in pad lanes by which anything can be divided."""
    for op in ops:
        clone_ops([op], mapping)
        if op in divisions:
            clone = mapping[op.results[0]].owner.operation
            with ir.InsertionPoint(clone), clone.location:
                clone.operands[1] = masked(clone.operands[1])
