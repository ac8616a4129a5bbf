"""Logical -> laid-out KTIR: every tensor gets its stick layout, and padding is made harmless.

Each dimension of a tensor is either *in the stick* (C) or a *row* (R). The roles follow from the ops by unification: a reduced loop
and the K loop of a contraction's first operand lie in the stick, the other loops of such ops are rows, pointwise ops pass roles
through. What stays free takes the last dimension as the stick. Rows are flattened, so reshapes of rows vanish.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import ClassVar

import numpy as np

from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import IDENTITY, Generic, affine_map, clone_ops, generic, number
from ktir.layout import Digit, Layout
from ktir.mlir import arith, func, ir, linalg, tensor
from ktir.passes._levels import require_level, set_level
from ktir.passes._pads import folded_pad
from ktir.passes._stick_roles import RESHAPES, StickRoles, dtype_of, owner_of, refuse, shape_of, source_load
from ktir.passes._unlaid import refuse_unlaid
from ktir.pipeline import Pass
from ktir.target import LANES


@dataclass(frozen=True)
class AssignLayoutsPass(Pass):
    """Give every tensor a stick layout and mask padding where it would be read.

    Expects: the logical level. Guarantees: the laid-out level. Refuses programs in which one dimension would have to be both in the stick
    and a row (a relayout), naming the op.
    """

    name: ClassVar[str] = "ktir-assign-layouts"
    description: ClassVar[str] = "logical -> laid-out: stick layouts, masks against padding"
    tolerance: ClassVar[float] = 2.0**-10  # a reduction may add its sticks in another order than along the host dimension

    def run(self, module: ir.Module) -> None:
        """Rewrite each function of the module."""
        require_level(module, self.name, "logical")
        refuse_unlaid(module)
        for op in list(module.body.operations):
            if isinstance(op, func.FuncOp):
                _Rewriter(op, StickRoles(op)).rewrite()
        set_level(module, "laid-out")


@dataclass
class _Tensor:
    """A laid-out value: `rows` x `columns`, the bit value of its pad lanes (None = anything)."""

    value: ir.Value
    layout: Layout
    pad: float | None


@dataclass(frozen=True)
class _DeviceView:
    """What makes one device argument: a view of a host buffer with rows first and the stick dimension last."""

    host: int
    offset: int
    size: tuple[int, ...]
    strides: tuple[int, ...]
    layout: Layout


@dataclass
class _Rewriter:
    """Rebuilds one function on physical shapes."""

    source: func.FuncOp
    roles: StickRoles
    tensors: dict[tuple[ir.Value, tuple[int, ...]], _Tensor] = field(default_factory=dict)
    arguments: dict[_DeviceView, ir.Value] = field(default_factory=dict)
    argument_attributes: list[ir.Attribute] = field(default_factory=list)

    def rewrite(self) -> None:
        source = self.source
        block = source.regions[0].blocks[0]
        if "grid" in source.attributes:
            raise refuse(source.operation, "expects a logical function without grid")
        self.zero_pads = self._needs_zero_pads(block)
        with ir.InsertionPoint(source), source.location:
            self.function = func.FuncOp(source.name.value, ([], []))
        self.function.attributes["sym_visibility"] = ir.StringAttr.get("public")
        self.block = self.function.add_entry_block()
        with ir.InsertionPoint(self.block):
            for op in block.operations:
                with op.location:
                    self._op(op.operation)
        types = [a.type for a in self.block.arguments]
        self.function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
        self.function.attributes["arg_attrs"] = ir.ArrayAttr.get(self.argument_attributes)
        source.operation.erase()
        del self.function.attributes["sym_visibility"]

    def _needs_zero_pads(self, block: ir.Block) -> set[ir.Value]:
        """Values whose pad lanes meet the K loop of a contraction: garbage times zero may be NaN, so both sides must be zero."""
        needed = set()
        for op in block.operations:
            if op.operation.name == "linalg.generic":
                g = Generic(op.operation)
                if g.is_contraction:
                    needed.add(self._root(g.inputs[0]))
                    if self._is_transposed(g):
                        needed.add(self._root(g.inputs[1]))
        return needed

    def _root(self, value: ir.Value) -> ir.Value:
        """The value before reshapes: rows are flattened, so a reshape of rows is the same physical tensor.

        A reshaped input stays what it is: each of its shapes is an own device argument.
        """
        if source_load(value) is not None:
            return value
        owner = owner_of(value)
        while owner is not None and owner.name in RESHAPES:
            value = owner.operands[0]
            owner = owner_of(value)
        return value

    def _is_transposed(self, g: Generic) -> bool:
        k = g.iterators.index("reduction")
        return any(g.loop_of(1, d) == k and self.roles.of(g.inputs[1], d) == "C" for d in range(len(shape_of(g.inputs[1]))))

    def _op(self, op: ir.Operation) -> None:
        if op.name == "linalg.generic":
            g = Generic(op)
            build = self._pointwise if g.is_pointwise else self._contraction if g.is_contraction else self._reduction
            tensor_ = build(g)
            self.tensors[(op.results[0], self._natural(op.results[0]))] = tensor_
        elif op.name == "ktdp.store":
            self._store(op)
        elif op.name == "func.return":
            func.ReturnOp([])
        elif op.name not in _PASSED_OVER:
            raise refuse(op, "is not supported on the logical level")

    # Operands

    def _natural(self, value: ir.Value) -> tuple[int, ...]:
        return tuple(self.roles.rows(value))

    def _operand(self, value: ir.Value, rows: tuple[int, ...] | None = None) -> _Tensor:
        """The physical tensor of a value.

        `rows` asks for its row dimensions in another order, or (as the complement of an extent) for a row dimension that it lacks and is
        repeated over; only a view of an input can have that.
        """
        root = self._root(value)
        order = self._natural(root) if rows is None else rows
        found = self.tensors.get((root, order))
        if found is None:
            found = self.tensors[(root, order)] = self._load(root, order)
        return found

    def _load(self, value: ir.Value, rows: tuple[int, ...]) -> _Tensor:
        op = source_load(value)
        if op is None:
            raise refuse(
                owner_of(value) or value.owner.owner, "is used with its rows in another order (a relayout), which is not supported"
            )
        tile = op.operands[0].owner.opview
        _require_whole(tile)
        view = self._device_view(value, tile.base.owner.opview, rows)
        with op.location:
            base = self._argument(view, tile.base.owner.opview)
            loaded = ktdp.load(self._tile(base, view.layout), _element(view.layout), _encoding(view.layout, "zero"))
        return _Tensor(loaded, view.layout, 0.0)

    def _device_view(self, value: ir.Value, view: ktdp.ConstructMemoryViewOp, rows: tuple[int, ...]) -> _DeviceView:
        """The device argument that a load or store of the whole `view` needs."""
        op = view.operation
        if any(not isinstance(x, int) for x in (*view.sizes, *view.strides)) or prod(view.sizes) != prod(shape_of(value)):
            raise refuse(op, "expects a static view that is read or written as a whole on the logical level")
        host, offset = self._base(view.offset, op)
        stick = self.roles.stick(value)
        dims = [*rows, *([] if stick is None else [stick])]
        if list(view.sizes) != shape_of(value):  # a reshaped input: the host reshapes its view, so dimensions keep their order
            if dims != sorted(dims) or min(dims, default=0) < 0:
                raise refuse(
                    op, "is reshaped and then used with another dimension in the stick, which is not supported; copy the input first"
                )
            dims = list(range(len(view.sizes)))
        sizes = [view.sizes[d] if d >= 0 else ~d for d in dims]
        strides = [view.strides[d] if d >= 0 else 0 for d in dims]
        columns = 1 if stick is None else shape_of(value)[stick]
        layout = Layout.rows(prod(sizes) // columns, columns, dtype_of(value))
        return _DeviceView(host, offset, tuple(sizes), tuple(strides), layout)

    def _layout(self, value: ir.Value) -> Layout:
        shape = shape_of(value)
        stick = self.roles.stick(value)
        rows = prod(shape[d] for d in self.roles.rows(value))
        return Layout.rows(rows, 1 if stick is None else shape[stick], dtype_of(value))

    def _base(self, offset: ir.Value, op: ir.Operation) -> tuple[int, int]:
        constant = 0
        while not isinstance(offset.owner, ir.Block):
            add = offset.owner
            if add.name != "arith.addi" or add.operands[1].owner.name != "arith.constant":
                raise refuse(op, "expects an argument plus a constant as offset on the logical level")
            constant += ir.IntegerAttr(add.operands[1].owner.attributes["value"]).value
            offset = add.operands[0]
        return ir.BlockArgument(offset).arg_number, constant

    def _argument(self, view: _DeviceView, op: ktdp.ConstructMemoryViewOp) -> ir.Value:
        """The view op of a device argument, made at its first use."""
        found = self.arguments.get(view)
        if found is not None:
            return found
        host_attributes = ir.DictAttr(ir.ArrayAttr(self.source.attributes["arg_attrs"])[view.host])
        for name in ("ktir.name", "ktir.role"):
            if name not in host_attributes:
                raise refuse(self.source.operation, f"expects an attribute '{name}' on argument {view.host}")
        base = self.block.add_argument(ir.IndexType.get(), op.location)
        layout = _encoding(view.layout, "zero")
        attributes = {
            "ktir.name": host_attributes["ktir.name"],
            "ktir.role": host_attributes["ktir.role"],
            "ktir.host": kt.HostViewAttr.build(view.host, view.offset, list(view.size), list(view.strides)),
            "ktir.layout": layout,
        }
        self.argument_attributes.append(ir.DictAttr.get(attributes))
        with ir.InsertionPoint.at_block_begin(self.block), op.location:
            found = self.arguments[view] = memory_view(base, view.layout)
        return found

    def _tile(self, view: ir.Value, layout: Layout) -> ir.Value:
        return ktdp.construct_access_tile(view, [0, 0, 0], list(layout.device_size))

    def _store(self, op: ir.Operation) -> None:
        value, tile = op.operands
        _require_whole(tile.owner.opview)
        view = tile.owner.opview.base.owner.opview
        order = self._natural(value)
        source = self._operand(value)
        device = self._device_view(value, view, order)
        ktdp.store(source.value, self._tile(self._argument(device, view), device.layout))

    # Ops

    def _maps(self, g: Generic, rows: list[int], stick: int | None) -> tuple[list[_Tensor], list[list[int | None]]]:
        """Physical inputs, and per input its map over the loops (s, p, l) = (0, 1, 2)."""
        tensors, maps = [], []
        extents = {
            loop: shape_of(value)[d]
            for i, value in enumerate([*g.inputs, g.op.results[0]])
            for d in range(len(shape_of(value)))
            if (loop := g.loop_of(i, d)) is not None
        }
        for operand, value in enumerate(g.inputs):
            loops = [g.loop_of(operand, d) for d in range(len(shape_of(value)))]
            own = [loop for loop in loops if loop in rows]
            if not own and rows:
                tensor_, p = self._operand(value), None
            elif own == rows:
                tensor_, p = self._operand(value), 1
            else:  # another order of rows, or only some of them: a view of an input can have that
                order = tuple(loops.index(r) if r in own else ~extents[r] for r in rows)
                tensor_, p = self._operand(value, order), 1
            in_stick = stick is not None and stick in loops
            tensors.append(tensor_)
            maps.append([0 if in_stick else None, p, 2 if in_stick else None])
        return tensors, maps

    def _pointwise(self, g: Generic) -> _Tensor:
        result = g.op.results[0]
        loops = [g.loop_of(len(g.inputs), d) for d in range(len(shape_of(result)))]
        rows = [loop for d in self.roles.rows(result) if (loop := loops[d]) is not None]
        stick = self.roles.stick(result)
        inputs, maps = self._maps(g, rows, None if stick is None else loops[stick])
        layout = self._layout(result)
        pad = folded_pad(g, _shown_pads(inputs, maps))
        mask = result in self.zero_pads and layout.size[1] % LANES != 0 and not _is_zero(pad)

        def body(arguments: list[ir.Value]) -> ir.Value:
            mapping = dict(zip(g.body.arguments, arguments, strict=True))
            clone_ops(g.body_ops, mapping)
            value = mapping.get(g.yielded, g.yielded)
            return _masked(value, layout.size[1], 0, 2, 0.0) if mask else value

        init = tensor.EmptyOp(list(layout.device_size), _element(layout), encoding=_encoding(layout)).result
        value = generic(
            [t.value for t in inputs],
            init,
            [*(affine_map(3, m) for m in maps), affine_map(3, [0, 1, 2])],
            ["parallel"] * 3,
            body,
            loc=g.op.location,
        )
        return _Tensor(value, layout, 0.0 if mask else pad)

    def _reduction(self, g: Generic) -> _Tensor:
        result = g.op.results[0]
        loops = [g.loop_of(len(g.inputs), d) for d in range(len(shape_of(result)))]
        stick = g.iterators.index("reduction")
        inputs, maps = self._maps(g, [loop for loop in loops if loop is not None], stick)
        columns = next(t.layout.size[1] for t, m in zip(inputs, maps, strict=True) if m[2] == 2)
        layout = self._layout(result)
        combiner = g.combiner
        assert combiner is not None
        identity = IDENTITY[combiner]
        pad = folded_pad(g, _shown_pads(inputs, maps), g.mapped)
        mask = columns % LANES != 0 and not (pad is not None and np.float32(pad).tobytes() == np.float32(identity).tobytes())
        to_physical = {0: 1, 1: 0, 2: 2, None: None}  # (s, p, l) -> (p, s, l): reduced loops last

        def body(arguments: list[ir.Value]) -> ir.Value:
            mapping = dict(zip(g.body.arguments, arguments, strict=True))
            *mapped, combine = g.body_ops
            clone_ops(mapped, mapping)
            if mask:
                value = mapping.get(g.mapped, g.mapped)
                mapping[g.mapped] = _masked(value, columns, 1, 2, identity)
            clone_ops([combine], mapping)
            return mapping[g.yielded]

        scalar = arith.ConstantOp(_element(layout), ir.FloatAttr.get(_element(layout), identity)).result
        empty = tensor.EmptyOp(list(layout.device_size), _element(layout), encoding=_encoding(layout)).result
        init = linalg.fill(scalar, outs=[empty])
        value = generic(
            [t.value for t in inputs],
            init,
            [*(affine_map(3, [to_physical[i] for i in m]) for m in maps), affine_map(3, [None, 0, None])],
            ["parallel", "reduction", "reduction"],
            body,
            loc=g.op.location,
        )
        return _Tensor(value, layout, None)

    def _contraction(self, g: Generic) -> _Tensor:
        result = g.op.results[0]
        a, b = (self._operand(v) for v in g.inputs)
        if a.layout.dtype != "f16" or b.layout.dtype != "f16":
            raise refuse(g.op, "multiplies f32 matrices, which the matrix unit cannot; the nearest supported form has f16 operands")
        layout = self._layout(result)
        transposed = self._is_transposed(g)
        steps = a.layout.device_size[0]
        n_sticks = layout.device_size[0]
        b_block = self._blocks(b, n_sticks if transposed else steps)
        # loops (n, m, j, k, i): output sticks, rows, output lanes; K in sticks and lanes, reduced
        maps = [
            affine_map(5, [3, 1, 4]),
            affine_map(5, [3, 0, 2, 4] if transposed else [0, 3, 4, 2]),
            affine_map(5, [0, 1, 2]),
        ]
        scalar = arith.ConstantOp(ir.F32Type.get(), ir.FloatAttr.get(ir.F32Type.get(), 0.0)).result
        empty = tensor.EmptyOp(list(layout.device_size), ir.F32Type.get(), encoding=_encoding(layout)).result

        def body(arguments: list[ir.Value]) -> ir.Value:
            mapping = dict(zip(g.body.arguments, arguments, strict=True))
            clone_ops(g.body_ops, mapping)
            return mapping[g.yielded]

        iterators = ["parallel"] * 3 + ["reduction"] * 2
        value = generic([a.value, b_block], linalg.fill(scalar, outs=[empty]), maps, iterators, body, loc=g.op.location)
        return _Tensor(value, layout, None)

    def _blocks(self, b: _Tensor, blocks: int) -> ir.Value:
        """Pad the rows of a second operand to whole blocks of 64 with zeros and split them: [s, blocks, 64, 64]."""
        sticks, rows, lanes = b.layout.device_size
        value = b.value
        padded = blocks * LANES
        size = b.layout.size
        outer, inner = b.layout.digits[0], b.layout.digits[2]
        if padded != rows:
            layout = Layout(size, (outer, Digit(0, 1, padded), inner), b.layout.dtype)
            result = ir.RankedTensorType.get([sticks, padded, lanes], _element(layout), _encoding(layout))
            pad = tensor.PadOp(result, value, [], [], [0, 0, 0], [0, padded - rows, 0])
            block = ir.Block.create_at_start(pad.operation.regions[0], [ir.IndexType.get()] * 3, [ir.Location.current] * 3)
            with ir.InsertionPoint(block):
                zero = arith.ConstantOp(_element(layout), ir.FloatAttr.get(_element(layout), 0.0)).result
                tensor.YieldOp(zero)
            value = pad.result
        layout = Layout(size, (outer, Digit(0, LANES, blocks), Digit(0, 1, LANES), inner), b.layout.dtype)
        shape = [sticks, blocks, LANES, lanes]
        result = ir.RankedTensorType.get(shape, _element(layout), _encoding(layout))
        return tensor.ExpandShapeOp(result, value, [[0], [1, 2], [3]], [], shape).result


_PASSED_OVER = {
    "arith.constant", "arith.addi", "ktdp.construct_memory_view", "ktdp.construct_access_tile", "ktdp.load", "tensor.empty", "linalg.fill",
    "tensor.collapse_shape", "tensor.expand_shape",
}  # fmt: skip
"""Ops that are rebuilt where their result is used."""


def _require_whole(tile: ktdp.ConstructAccessTileOp) -> None:
    """Refuse a tile that is not its whole view, in the view's order."""
    anchored = all(isinstance(e, ir.AffineConstantExpr) and e.value == 0 for e in tile.base_map.results)
    zeros = all(v.owner.name == "arith.constant" and ir.IntegerAttr(v.owner.attributes["value"]).value == 0 for v in tile.index_operands)
    if (
        not (anchored or zeros)
        or list(tile.order) != list(range(len(tile.order)))
        or list(tile.shape) != list(tile.base.owner.opview.sizes)
    ):
        raise refuse(tile.operation, "expects a tile of the whole view in its order on the logical level")


def memory_view(base: ir.Value, layout: Layout) -> ir.Value:
    """The view of a whole device tensor in global memory."""
    sizes = list(layout.device_size)
    strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
    return ktdp.construct_memory_view(base, sizes, strides, _element(layout), attributes={"ktir.layout": _encoding(layout, "zero")})


def _element(layout: Layout) -> ir.Type:
    return ir.F16Type.get() if layout.dtype == "f16" else ir.F32Type.get()


def _encoding(layout: Layout, pad: str = "uninit") -> ir.Attribute:
    return kt.LayoutAttr.build(list(layout.size), list(layout.device_size), list(layout.stride_map), _element(layout), pad=pad)


def _shown_pads(inputs: list[_Tensor], maps: list[list[int | None]]) -> list[float | None]:
    """What operands show in pad lanes; column and scalar operands show data."""
    return [t.pad if m[2] == 2 else None for t, m in zip(inputs, maps, strict=True)]


def _is_zero(pad: float | None) -> bool:
    return pad == 0.0


def _masked(value: ir.Value, columns: int, stick_loop: int, lane_loop: int, fill: float) -> ir.Value:
    """`value` where 64*stick + lane < columns, else `fill`, inside a body."""
    index = ir.IndexType.get()
    stick = linalg.IndexOp(stick_loop).result
    lane = linalg.IndexOp(lane_loop).result
    lanes = arith.ConstantOp(index, LANES).result
    position = arith.AddIOp(arith.MulIOp(stick, lanes).result, lane).result
    limit = arith.ConstantOp(index, columns).result
    live = arith.CmpIOp(arith.CmpIPredicate.ult, position, limit).result
    other = arith.ConstantOp(value.type, number(value.type, fill)).result
    return arith.SelectOp(live, value, other).result
