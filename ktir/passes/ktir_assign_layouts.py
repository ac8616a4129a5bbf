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

from ktir import numerics
from ktir.diagnostics import Unsupported, location_names, location_text
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import IDENTITY, Generic, affine_map, clone_ops, generic
from ktir.layout import Digit, Layout
from ktir.mlir import arith, func, ir, linalg, tensor
from ktir.pipeline import Pass
from ktir.target import LANES

_FOLD_UNARY = {"math.exp": "exp", "math.sqrt": "sqrt", "math.rsqrt": "rsqrt", "math.tanh": "tanh", "math.erf": "erf",
               "math.absf": "abs", "arith.negf": "neg", "math.floor": "floor", "math.log": "log"}  # fmt: skip
_FOLD_BINARY = {"arith.addf": "add", "arith.subf": "sub", "arith.mulf": "mul", "arith.divf": "div",
                "arith.maximumf": "max", "arith.minimumf": "min"}  # fmt: skip


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
        for op in list(module.body.operations):
            if isinstance(op, func.FuncOp):
                _Rewriter(op, _Roles(op)).rewrite()
        module.operation.attributes["ktir.level"] = ir.StringAttr.get("laid-out")


def _refuse(op: ir.Operation, text: str) -> Unsupported:
    names = location_names(op.location)
    origin = f" ({', '.join(names)})" if names else ""
    return Unsupported(f"'{op.name}' op{origin} {text}", location_text(op.location))


def _shape(value: ir.Value) -> list[int]:
    return list(ir.RankedTensorType(value.type).shape)


def _dtype(value: ir.Value) -> str:
    return str(ir.RankedTensorType(value.type).element_type)


def _groups(op: ir.Operation) -> list[list[int]]:
    """Reassociation of a collapse_shape or expand_shape: groups of the larger shape's dims."""
    return [[ir.IntegerAttr(i).value for i in ir.ArrayAttr(g)] for g in ir.ArrayAttr(op.attributes["reassociation"])]


_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")


def _source_load(value: ir.Value) -> ir.Operation | None:
    """The load that a value is, possibly reshaped; the host transfer does such reshapes, so they bind no roles."""
    owner = _owner(value)
    while owner is not None and owner.name in _RESHAPES:
        owner = _owner(owner.operands[0])
    return owner if owner is not None and owner.name == "ktdp.load" else None


def _owner(value: ir.Value) -> ir.Operation | None:
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation if hasattr(owner, "operation") else owner


class _Roles:
    """Union-find over the dimensions of all tensors; each class is in the stick (C) or a row (R)."""

    def __init__(self, function: func.FuncOp) -> None:
        self.parent: dict[tuple[ir.Value, int], tuple[ir.Value, int]] = {}
        self.role: dict[tuple[ir.Value, int], str] = {}
        ops = [o.operation for o in function.regions[0].blocks[0].operations]
        contractions = []
        for op in ops:
            if op.name == "linalg.generic":
                g = Generic(op)
                if g.is_contraction:
                    contractions.append(g)
                    self._contraction(g)
                else:
                    self._loops(g)
            elif op.name in _RESHAPES and _source_load(op.results[0]) is None:
                self._reshape(op)
        for g in contractions:
            self._second_operand(g)
        # tensors of more dimensions first: a vector is a row or a column depending on what it meets
        results = [(r, op) for op in ops for r in op.results if isinstance(r.type, ir.RankedTensorType)]
        for result, op in sorted(results, key=lambda r: -len(_shape(r[0]))):
            self._default(result, op)

    def find(self, key: tuple[ir.Value, int]) -> tuple[ir.Value, int]:
        root = self.parent.setdefault(key, key)
        if root != key:
            root = self.parent[key] = self.find(root)
        return root

    def union(self, a: tuple[ir.Value, int], b: tuple[ir.Value, int], op: ir.Operation) -> None:
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        role = self.role.get(a)
        self.parent[a] = b
        if role:
            self.label(b, role, op)

    def label(self, key: tuple[ir.Value, int], role: str, op: ir.Operation) -> None:
        root = self.find(key)
        if self.role.setdefault(root, role) != role:
            shape = "x".join(map(str, _shape(key[0])))
            raise _refuse(
                op,
                f"needs dimension {key[1]} of tensor<{shape}x{_dtype(key[0])}> both in the stick and as a row (a relayout), which is not "
                "supported; the nearest supported form reduces and multiplies along the same dimension everywhere",
            )

    def of(self, value: ir.Value, dim: int) -> str:
        return self.role[self.find((value, dim))]

    def rows(self, value: ir.Value) -> list[int]:
        return [d for d in range(len(_shape(value))) if self.of(value, d) == "R"]

    def stick(self, value: ir.Value) -> int | None:
        return next((d for d in range(len(_shape(value))) if self.of(value, d) == "C"), None)

    def _loops(self, g: Generic) -> None:
        result = g.op.results[0]
        of_loop: dict[int, tuple[ir.Value, int]] = {}
        for operand, value in enumerate([*g.inputs, result]):
            for d in range(len(g.maps[operand].results)):
                loop = g.loop_of(operand, d)
                if loop is None:
                    raise _refuse(g.op, "expects projected permutation maps on the logical level")
                if loop in of_loop:
                    self.union((value, d), of_loop[loop], g.op)
                of_loop[loop] = (value, d)
        if g.is_pointwise:
            return
        if g.combiner is None:
            raise _refuse(g.op, "expects a reduction by addf, maximumf or minimumf")
        if g.iterators.count("reduction") != 1:
            raise _refuse(g.op, "reduces several dimensions at once, which is not supported; reduce one after the other")
        for loop, kind in enumerate(g.iterators):
            self.label(of_loop[loop], "C" if kind == "reduction" else "R", g.op)

    def _contraction(self, g: Generic) -> None:
        result = g.op.results[0]
        k = g.iterators.index("reduction")
        where = {g.loop_of(2, d): (result, d) for d in range(len(_shape(result)))}
        for d in range(len(_shape(g.inputs[0]))):
            loop = g.loop_of(0, d)
            if loop == k:
                self.label((g.inputs[0], d), "C", g.op)
            elif loop in where:
                self.union((g.inputs[0], d), where[loop], g.op)
                self.label(where[loop], "R", g.op)
        rows = {g.loop_of(0, d) for d in range(len(_shape(g.inputs[0])))}
        for loop, key in where.items():
            if loop not in rows:
                self.label(key, "C", g.op)

    def _second_operand(self, g: Generic) -> None:
        """The second operand may lie with N or with K in the stick; the machine transposes the second form while loading weights."""
        b = g.inputs[1]
        k = g.iterators.index("reduction")
        dims = range(len(_shape(b)))
        of_k = [d for d in dims if g.loop_of(1, d) == k]
        of_n = [d for d in dims if g.loop_of(1, d) != k]
        if len(of_n) > 1 or len(of_k) != 1:
            raise _refuse(g.op, "expects a matrix as second operand; batched matmul is not supported")
        transposed = self.role.get(self.find((b, of_k[0]))) == "C" or any(self.role.get(self.find((b, d))) == "R" for d in of_n)
        self.label((b, of_k[0]), "C" if transposed else "R", g.op)
        for d in of_n:
            self.label((b, d), "R" if transposed else "C", g.op)

    def _reshape(self, op: ir.Operation) -> None:
        large, small = (op.operands[0], op.results[0])
        if op.name == "tensor.expand_shape":
            large, small = small, large
        for d, group in enumerate(_groups(op)):
            for i in group:
                self.union((large, i), (small, d), op)

    def _default(self, value: ir.Value, op: ir.Operation) -> None:
        roots = [self.find((value, d)) for d in range(len(_shape(value)))]
        free = [r for r in roots if r not in self.role]
        if free and not any(self.role.get(r) == "C" for r in roots):
            self.role[roots[-1] if roots[-1] in free else free[-1]] = "C"
        for r in roots:
            self.role.setdefault(r, "R")
        if sum(self.role[r] == "C" for r in roots) > 1:
            shape = "x".join(map(str, _shape(value)))
            raise _refuse(
                op, f"puts two dimensions of tensor<{shape}x{_dtype(value)}> into the stick (a reshape across it), which is not supported"
            )


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
    roles: _Roles
    tensors: dict[tuple[ir.Value, tuple[int, ...]], _Tensor] = field(default_factory=dict)
    arguments: dict[_DeviceView, ir.Value] = field(default_factory=dict)
    argument_attributes: list[ir.Attribute] = field(default_factory=list)

    def rewrite(self) -> None:
        source = self.source
        block = source.regions[0].blocks[0]
        if "grid" in source.attributes:
            raise _refuse(source.operation, "expects a logical function without grid")
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
        if _source_load(value) is not None:
            return value
        owner = _owner(value)
        while owner is not None and owner.name in _RESHAPES:
            value = owner.operands[0]
            owner = _owner(value)
        return value

    def _is_transposed(self, g: Generic) -> bool:
        k = g.iterators.index("reduction")
        return any(g.loop_of(1, d) == k and self.roles.of(g.inputs[1], d) == "C" for d in range(len(_shape(g.inputs[1]))))

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
            raise _refuse(op, "is not supported on the logical level")

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
        op = _source_load(value)
        if op is None:
            raise _refuse(_owner(value) or value.owner.owner, "is used with its rows in another order (a relayout), which is not supported")
        tile = op.operands[0].owner.opview
        view = self._device_view(value, tile.base.owner.opview, rows)
        with op.location:
            base = self._argument(view, tile.base.owner.opview)
            loaded = ktdp.load(self._tile(base, view.layout), _element(view.layout), _encoding(view.layout, "zero"))
        return _Tensor(loaded, view.layout, 0.0)

    def _device_view(self, value: ir.Value, view: ktdp.ConstructMemoryViewOp, rows: tuple[int, ...]) -> _DeviceView:
        """The device argument that a load or store of the whole `view` needs."""
        op = view.operation
        if any(not isinstance(x, int) for x in (*view.sizes, *view.strides)) or prod(view.sizes) != prod(_shape(value)):
            raise _refuse(op, "expects a static view that is read or written as a whole on the logical level")
        host, offset = self._base(view.offset, op)
        stick = self.roles.stick(value)
        dims = [*rows, *([] if stick is None else [stick])]
        if list(view.sizes) != _shape(value):  # a reshaped input: the host reshapes its view, so dimensions keep their order
            if dims != sorted(dims) or min(dims, default=0) < 0:
                raise _refuse(
                    op, "is reshaped and then used with another dimension in the stick, which is not supported; copy the input first"
                )
            dims = list(range(len(view.sizes)))
        sizes = [view.sizes[d] if d >= 0 else ~d for d in dims]
        strides = [view.strides[d] if d >= 0 else 0 for d in dims]
        columns = 1 if stick is None else _shape(value)[stick]
        layout = Layout.rows(prod(sizes) // columns, columns, _dtype(value))
        return _DeviceView(host, offset, tuple(sizes), tuple(strides), layout)

    def _layout(self, value: ir.Value) -> Layout:
        shape = _shape(value)
        stick = self.roles.stick(value)
        rows = prod(shape[d] for d in self.roles.rows(value))
        return Layout.rows(rows, 1 if stick is None else shape[stick], _dtype(value))

    def _base(self, offset: ir.Value, op: ir.Operation) -> tuple[int, int]:
        constant = 0
        while not isinstance(offset.owner, ir.Block):
            add = offset.owner
            if add.name != "arith.addi" or add.operands[1].owner.name != "arith.constant":
                raise _refuse(op, "expects an argument plus a constant as offset on the logical level")
            constant += ir.IntegerAttr(add.operands[1].owner.attributes["value"]).value
            offset = add.operands[0]
        return ir.BlockArgument(offset).arg_number, constant

    def _argument(self, view: _DeviceView, op: ktdp.ConstructMemoryViewOp) -> ir.Value:
        """The view op of a device argument, made at its first use."""
        found = self.arguments.get(view)
        if found is not None:
            return found
        host_attributes = ir.DictAttr(ir.ArrayAttr(self.source.attributes["arg_attrs"])[view.host])
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
            loop: _shape(value)[d]
            for i, value in enumerate([*g.inputs, g.op.results[0]])
            for d in range(len(_shape(value)))
            if (loop := g.loop_of(i, d)) is not None
        }
        for operand, value in enumerate(g.inputs):
            loops = [g.loop_of(operand, d) for d in range(len(_shape(value)))]
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
        loops = [g.loop_of(len(g.inputs), d) for d in range(len(_shape(result)))]
        rows = [loop for d in self.roles.rows(result) if (loop := loops[d]) is not None]
        stick = self.roles.stick(result)
        inputs, maps = self._maps(g, rows, None if stick is None else loops[stick])
        layout = self._layout(result)
        pad = _folded_pad(g, inputs, maps)
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
        loops = [g.loop_of(len(g.inputs), d) for d in range(len(_shape(result)))]
        stick = g.iterators.index("reduction")
        inputs, maps = self._maps(g, [loop for loop in loops if loop is not None], stick)
        columns = next(t.layout.size[1] for t, m in zip(inputs, maps, strict=True) if m[2] == 2)
        layout = self._layout(result)
        combiner = g.combiner
        assert combiner is not None
        identity = IDENTITY[combiner]
        pad = _folded_pad(g, inputs, maps, g.mapped)
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
            raise _refuse(g.op, "multiplies f32 matrices, which the matrix unit cannot; the nearest supported form has f16 operands")
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


def memory_view(base: ir.Value, layout: Layout) -> ir.Value:
    """The view of a whole device tensor in global memory."""
    sizes = list(layout.device_size)
    strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
    return ktdp.construct_memory_view(base, sizes, strides, _element(layout), attributes={"ktir.layout": _encoding(layout, "zero")})


def _element(layout: Layout) -> ir.Type:
    return ir.F16Type.get() if layout.dtype == "f16" else ir.F32Type.get()


def _encoding(layout: Layout, pad: str = "uninit") -> ir.Attribute:
    return kt.LayoutAttr.build(list(layout.size), list(layout.device_size), list(layout.stride_map), _element(layout), pad=pad)


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
    other = arith.ConstantOp(value.type, ir.FloatAttr.get(value.type, fill)).result
    return arith.SelectOp(live, value, other).result


def _folded_pad(g: Generic, inputs: list[_Tensor], maps: list[list[int | None]], scalar: ir.Value | None = None) -> float | None:
    """Value of the pad lanes of a body's result, where every operand's pad lanes are known constants; None otherwise.

    Column and scalar operands show data in the pad lanes, so they make the result unknown.
    """
    known: dict[ir.Value, np.float32] = {}
    for argument, tensor_, m in zip(g.body.arguments, inputs, maps, strict=False):
        if m[2] == 2 and tensor_.pad is not None:
            known[argument] = np.float32(tensor_.pad)
    for op in g.body_ops:
        folded = _fold(op, known)
        if folded is not None:
            known[op.results[0]] = folded
    result = known.get(g.yielded if scalar is None else scalar)
    return None if result is None else float(result)


def _fold(op: ir.Operation, known: dict[ir.Value, np.float32]) -> np.float32 | None:
    if op.name == "arith.constant":
        attribute = op.attributes["value"]
        return np.float32(ir.FloatAttr(attribute).value) if isinstance(attribute, ir.FloatAttr) else None
    operands = [known.get(v) for v in op.operands]
    if any(v is None for v in operands):
        return None
    arrays = [np.full(1, v, np.float32) for v in operands]
    if op.name in ("arith.extf", "arith.truncf"):
        result = arrays[0]
    elif op.name in _FOLD_UNARY:
        result = numerics.UNARY[_FOLD_UNARY[op.name]](arrays[0])
    elif op.name in _FOLD_BINARY:
        result = numerics.BINARY[_FOLD_BINARY[op.name]](*arrays)
    else:
        return None
    if isinstance(op.results[0].type, ir.F16Type):
        result = numerics.round_f16(result)
    return np.float32(result[0])
