"""Matmuls of integers of one byte by those of floats of 16 bits, which hold each of them."""

from __future__ import annotations

from ktir.analysis.flat import shape_of
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, elementwise, extended, filled, generic, maps_of, sum_of_products
from ktir.mlir import arith, i32_type, ir, is_a, linalg, tensor
from ktir.passes.flat.integers.made_of_bytes import conversion_of
from ktir.passes.flat.memory.windows import Window, direct_view, view_of, window_of_view

_EXACT = 1024
"""Products of two i8 that float32 adds up exactly in any order: each is at most 2^14."""


def view_of_load(value: ir.Value) -> ir.Operation | None:
    """The view that a value is loaded from as a whole; None for another value."""
    load = value.owner
    tile = None if isinstance(load, ir.Block) or not is_a(load, ktdp.LoadOp) else load.operands[0].owner
    view = None if tile is None else direct_view(tile)
    return view if view is not None and is_a(view, ktdp.ConstructMemoryViewOp) and shape_of(value) == list(view.opview.sizes) else None


def widened_bytes(value: ir.Value) -> Generic | None:
    """The pointwise op that makes a tensor of i32, if each of them is an i8 to the end; None for another value."""
    if isinstance(value.owner, ir.Block) or not is_a(value.owner, linalg.GenericOp) or len(value.owner.results) != 1:
        return None
    g = Generic(value.owner)
    last = g.yielded.owner
    i8 = ir.IntegerType.get_signless(8)
    return g if g.is_pointwise and not isinstance(last, ir.Block) and is_a(last, arith.ExtSIOp) and last.operands[0].type == i8 else None


def products_in_parts(g: Generic, reduced: int) -> None:
    """Let a sum of products of integers, each of which is `widened_bytes`, be one of sums in f32, part by part of the loop `reduced`.
    Whoever reads it reads that; the op itself stays."""
    depth = shape_of(g.inputs[0])[g.walk(0).index(reduced)]
    sizes = list(ir.RankedTensorType(g.init.type).shape)
    with ir.InsertionPoint(g.op), g.op.location:
        operands = [_Operand(value, g.walk(i).index(reduced)) for i, value in enumerate(g.inputs)]
        total = g.init
        for start in range(0, depth, _EXACT):
            extent = min(_EXACT, depth - start)
            factors = [operand.part(start, extent) for operand in operands]
            begun = filled(sizes, ir.F32Type.get(), 0.0)
            sums = generic(factors, begun, maps_of(g.op), g.iterators, sum_of_products, loc=g.op.location)
            total = elementwise([total, sums], tensor.EmptyOp(sizes, i32_type()).result, _add)
    g.op.results[0].replace_all_uses_with(total)


def _add(scalars: list[ir.Value]) -> ir.Value:
    so_far, part, _ = scalars
    return arith.AddIOp(so_far, arith.FPToSIOp(so_far.type, part).result).result


class _Operand:
    """A factor as floats, cut along a dim. What only converts bytes that lie in memory does so part by part, which leaves them there."""

    def __init__(self, value: ir.Value, dim: int) -> None:
        self.dim, self.floats = dim, None
        self.conversion = conversion_of(value.owner)
        if self.conversion is None:
            self.floats = as_floats(Generic(value.owner))

    def part(self, start: int, extent: int) -> ir.Value:
        """Elements `start` and on along the dim, as f16."""
        if self.conversion is None:
            assert self.floats is not None
            sizes = shape_of(self.floats)
            return _part(self.floats, [start if d == self.dim else 0 for d in range(len(sizes))], _with(sizes, self.dim, extent))
        bytes_, made = self.conversion.inputs[0], self.conversion.walk(1)
        loops = [made.index(loop) for loop in self.conversion.walk(0)]
        along, sizes = loops.index(self.dim), shape_of(bytes_)
        part = _part(bytes_, _with([0] * len(sizes), along, start), _with(sizes, along, extent))
        shape = _with([sizes[loops.index(d)] for d in range(len(loops))], self.dim, extent)
        f16 = ir.F16Type.get()
        return elementwise([part], tensor.EmptyOp(shape, f16).result, lambda x: extended(x[0], f16), [loops])


def _with(numbers: list[int], place: int, number: int) -> list[int]:
    return [*numbers[:place], number, *numbers[place + 1 :]]


def as_floats(made: Generic) -> ir.Value:
    """What `widened_bytes` gives, as f16 instead."""
    f16 = ir.F16Type.get()

    def body(scalars: list[ir.Value]) -> ir.Value:
        wide = made.copy_body(scalars)
        value = extended(wide.owner.operands[0], f16)
        wide.owner.erase()
        return value

    empty = tensor.EmptyOp(shape_of(made.op.results[0]), f16).result
    return generic(made.inputs, empty, made.maps, made.iterators, body, loc=made.op.location)


def _part(value: ir.Value, offsets: list[int], sizes: list[int]) -> ir.Value:
    """A slice; of what is loaded a load of its own, so that it stays one."""
    element = ir.RankedTensorType(value.type).element_type
    view = view_of_load(value)
    if view is None:
        type_ = ir.RankedTensorType.get(sizes, element)
        return tensor.ExtractSliceOp(type_, value, [], [], [], offsets, sizes, [1] * len(sizes)).result
    base, window = window_of_view(view)
    moved = Window(window.offset + sum(o * s for o, s in zip(offsets, window.strides, strict=True)), tuple(sizes), window.strides)
    return ktdp.load(ktdp.construct_access_tile(view_of(base, moved, element), [0] * len(sizes), sizes), element)
