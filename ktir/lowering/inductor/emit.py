"""RegionIR -> one function of logical KTIR.

Inputs are read through views of host memory: a load's coefficients become the view's strides, so transposes, slices, reshapes and
broadcasts of inputs cost nothing. Intermediates are SSA tensors in torch's dims without unit dims. Each nest is one `linalg.generic`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ktir.diagnostics import Unsupported
from ktir.dialects import ktdp
from ktir.dialects.structured import IDENTITY, affine_map, generic
from ktir.lowering.inductor.access import Box, NotStrided, box_of, groups, route
from ktir.lowering.inductor.region import Buffer, Nest, NestRefused, Record, Region
from ktir.lowering.inductor.scalars import TYPES, Body, element_type
from ktir.mlir import arith, func, ir, linalg, tensor

Loop = tuple[str, int]

_COMBINERS = {"sum": ("add", arith.AddFOp), "max": ("max", arith.MaximumFOp), "min": ("min", arith.MinimumFOp)}


def emit(region: Region) -> ir.Module:
    """The module of a region, in the current context. Raises Unsupported for nests that have no logical form."""
    return _Emitter(region).module


@dataclass(frozen=True)
class Operand:
    """A tensor and, per dim of it, the loop that walks it."""

    value: ir.Value
    loops: tuple[str, ...]

    def map(self, loops: Sequence[Loop]) -> ir.AffineMap:
        """The indexing map from the loops of a nest."""
        names = [v for v, _ in loops]
        return affine_map(len(names), [names.index(v) for v in self.loops])


class _Emitter:
    """Emits the function; holds the current value of each intermediate."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._tensors: dict[str, ir.Value] = {}
        with ir.Location.name(region.name, ir.Location.unknown()):
            self.module = ir.Module.create()
            self.module.operation.attributes["ktir.level"] = ir.StringAttr.get("logical")
            with ir.InsertionPoint(self.module.body):
                function = func.FuncOp(region.name, ([ir.IndexType.get()] * len(region.arguments), []))
            function.arg_attrs = ir.ArrayAttr.get([_argument_attributes(region.buffers[a]) for a in region.arguments])
            block = function.add_entry_block()
            self._bases = dict(zip(region.arguments, block.arguments, strict=True))
            with ir.InsertionPoint(block):
                for nest in region.nests:
                    with location(nest):
                        self._nest(nest)
                func.ReturnOp([])

    def _nest(self, nest: Nest) -> None:
        stores = [r for r in nest.body if r.op == "store"]
        reductions = [r for r in nest.body if r.op == "reduction"]
        if len(stores) != 1 or len(reductions) > 1 or (reductions and stores[0].args != (reductions[0].out,)):
            raise self._refuse(nest, "a loop nest with several results")
        store = stores[0]
        buffer = self._region.buffers[store.buffer]
        if buffer.dtype not in TYPES:
            raise self._refuse(nest, "a result of this type", "float16 or float32")
        self._check_store(nest, store, buffer)
        if not reductions:
            value = self._pointwise(nest, store.args[0], TYPES[buffer.dtype])
        elif reductions[0].kind == "dot":
            value = self._contraction(nest, reductions[0])
        else:
            value = self._reduction(nest, reductions[0])
        value = _converted(value, TYPES[buffer.dtype])
        self._tensors[buffer.name] = value
        if buffer.role == "output":
            sizes, strides = [n for n, _ in buffer.dims], [s for _, s in buffer.dims]
            ktdp.store(value, self._tile(buffer, buffer.offset, sizes, strides))

    def _check_store(self, nest: Nest, store: Record, buffer: Buffer) -> None:
        """A nest writes its whole buffer, each loop one dim, in torch's order: then its result is the buffer's value."""
        if buffer.role not in ("temp", "output") or buffer.name in self._tensors:
            raise self._refuse(nest, f"a change of '{buffer.name}' in place", "an op that returns the new value")
        walked = tuple((n, store.index.coefficient(v)) for v, n in nest.iteration)
        if not store.index.is_affine or store.index.constant or walked != buffer.dims:
            raise self._refuse(nest, f"a store to a part of a buffer, at index {store.index}")

    # ------------------------------------------------------------------------------------------------------------------ nests

    def _pointwise(self, nest: Nest, result: str, type_: str) -> ir.Value:
        live = _live(nest, result)
        names, operands = self._operands(nest, live)
        shape = [n for _, n in nest.iteration]

        def body(arguments: list[ir.Value]) -> ir.Value:
            scalars = self._body(nest, live, names, arguments)
            return scalars.value(scalars.values[result], type_)

        maps = [*(o.map(nest.iteration) for o in operands), ir.AffineMap.get_identity(len(shape))]
        return generic([o.value for o in operands], _empty(shape, type_), maps, ["parallel"] * len(shape), body, loc=_here())

    def _reduction(self, nest: Nest, reduction: Record) -> ir.Value:
        """Sums accumulate in f32; maxima and minima, which do not round, in the type that Inductor gives."""
        if len(nest.reduction) != 1:
            dims = " x ".join(str(n) for _, n in nest.reduction)
            raise self._refuse(nest, f"a reduction over {len(nest.reduction)} dims at once ({dims})", "one dim after the other, last first")
        combiner, op = _COMBINERS[reduction.kind]
        type_ = "f32" if combiner == "add" else TYPES[reduction.dtype]
        live = _live(nest, reduction.args[0])
        names, operands = self._operands(nest, live)
        shape = [n for _, n in nest.iteration]

        def body(arguments: list[ir.Value]) -> ir.Value:
            scalars = self._body(nest, live, names, arguments)
            return op(arguments[-1], scalars.value(scalars.values[reduction.args[0]], type_)).result

        iterators = ["parallel"] * len(shape) + ["reduction"]
        maps = [*(o.map(nest.loops) for o in operands), affine_map(len(iterators), list(range(len(shape))))]
        return generic([o.value for o in operands], _filled(shape, type_, IDENTITY[combiner]), maps, iterators, body, loc=_here())

    def _contraction(self, nest: Nest, reduction: Record) -> ir.Value:
        """Loops (m, n, k): A over (m, k), B over (k, n), products of f16 added up in f32."""
        by_name = {r.out: r for r in nest.body}
        product = by_name[reduction.args[0]]
        loads = [by_name[a] for a in product.args]
        if product.op != "dot" or len(loads) != 2 or any(r.op != "load" for r in loads) or len(nest.reduction) != 1:
            raise self._refuse(nest, "a matmul whose operands are not plain tensors")
        for r in loads:
            if self._region.buffers[r.buffer].dtype != "float16":
                raise self._refuse(nest, f"a matmul of {self._region.buffers[r.buffer].dtype}", "float16 operands: model.half()")
        a, b = loads
        k = nest.reduction[0]
        if len(nest.iteration) == 2:
            m, n = [nest.iteration[0]], [nest.iteration[1]]
        else:  # a loop of one trip is absent; which one it was shows in the operand that uses the other
            of_b = [loop for loop in nest.iteration if loop[0] in b.index.variables]
            m, n = [loop for loop in nest.iteration if loop not in of_b], of_b
        operands = [self._load(nest, a, [*m, k]), self._load(nest, b, [k, *n])]
        shape = [size for _, size in nest.iteration]

        def body(arguments: list[ir.Value]) -> ir.Value:
            f32 = ir.F32Type.get()
            x, y = (arith.ExtFOp(f32, argument).result for argument in arguments[:2])
            return arith.AddFOp(arguments[2], arith.MulFOp(x, y).result).result

        iterators = ["parallel"] * len(shape) + ["reduction"]
        maps = [*(o.map(nest.loops) for o in operands), affine_map(len(iterators), list(range(len(shape))))]
        return generic([o.value for o in operands], _filled(shape, "f32", 0.0), maps, iterators, body, loc=_here())

    def _body(self, nest: Nest, live: Sequence[Record], names: Sequence[Sequence[str]], arguments: Sequence[ir.Value]) -> Body:
        """Emit the live records of a nest inside a generic."""
        of_loads = {name: argument for group, argument in zip(names, arguments, strict=False) for name in group}
        body = Body(of_loads, lambda what: self._refuse(nest, what))
        for record in live:
            if record.op != "load":
                body.emit(record)
        return body

    # --------------------------------------------------------------------------------------------------------------- operands

    def _operands(self, nest: Nest, live: Sequence[Record]) -> tuple[list[list[str]], list[Operand]]:
        """The operands that a body loads, equal loads once; per operand the names of its loads."""
        found: dict[tuple[str, object], list[str]] = {}
        loads: list[Record] = []
        for record in live:
            if record.op == "load":
                key = (record.buffer, record.index)
                if key not in found:
                    loads.append(record)
                found.setdefault(key, []).append(record.out)
        return list(found.values()), [self._load(nest, r, self._walked(nest, r)) for r in loads]

    def _walked(self, nest: Nest, load: Record) -> list[Loop]:
        """The loops that an operand is indexed by: those in its index. An input that has some of the row loops gets all of them, with
        stride 0, so that rows can be flattened; all loops but the last are rows.
        """
        used = set(load.index.variables)
        rows = {v for v, _ in nest.loops[:-1]}
        if used & rows and load.buffer not in self._tensors:
            used |= rows
        return [loop for loop in nest.loops if loop[0] in used]

    def _load(self, nest: Nest, load: Record, loops: Sequence[Loop]) -> Operand:
        buffer = self._region.buffers[load.buffer]
        if buffer.dtype not in TYPES:
            raise self._refuse(nest, f"an operand of dtype {buffer.dtype}", "float16 or float32")
        try:
            if buffer.name in self._tensors:
                loops = [loop for loop in loops if loop[0] in load.index.variables]
                return self._intermediate(buffer, box_of(load.index, loops), loops)
            if buffer.role not in ("input", "constant"):
                raise self._refuse(nest, f"a read of '{buffer.name}' before it is written")
            return self._memory(buffer, box_of(load.index, loops), loops)
        except NotStrided as error:
            kind = "input" if buffer.role == "input" else "intermediate"
            what = f"this access to {kind} '{buffer.name}' of shape {list(buffer.size)} (index {load.index})"
            raise self._refuse(nest, what, "slices and reshapes of inputs rather than of intermediates", str(error)) from None

    def _memory(self, buffer: Buffer, box: Box, loops: Sequence[Loop]) -> Operand:
        """An input: a view of exactly the box, read as one tile."""
        tile = self._tile(buffer, buffer.offset + box.offset, box.sizes, box.strides)
        value = ktdp.load(tile, element_type(buffer.dtype))
        return Operand(_reshaped(value, [n for _, n in loops]), tuple(v for v, _ in loops))

    def _intermediate(self, buffer: Buffer, box: Box, loops: Sequence[Loop]) -> Operand:
        """An SSA tensor: as it is, permuted by the map, reshaped, or (reshaped after a transpose) copied first."""
        value = self._tensors[buffer.name]
        path = route(buffer.dims, box)
        names, ranges = tuple(v for v, _ in loops), [n for _, n in loops]
        if path.in_order:
            return Operand(_reshaped(value, ranges), names)
        value = _reshaped(value, path.shape)
        if [path.shape[d] for d in path.order] == ranges:
            return Operand(value, tuple(names[path.order.index(d)] for d in range(len(names))))
        rank = len(path.order)
        copied = [path.shape[d] for d in path.order]
        maps = [affine_map(rank, [path.order.index(d) for d in range(rank)]), ir.AffineMap.get_identity(rank)]
        init = _empty(copied, str(ir.RankedTensorType(value.type).element_type))
        copy = generic([value], init, maps, ["parallel"] * rank, lambda arguments: arguments[0], loc=_here())
        return Operand(_reshaped(copy, ranges), names)

    def _tile(self, buffer: Buffer, offset: int, sizes: Sequence[int], strides: Sequence[int]) -> ir.Value:
        """The whole of a view of an argument."""
        base = self._bases[buffer.name]
        if offset:
            index = ir.IndexType.get()
            base = arith.AddIOp(base, arith.ConstantOp(index, ir.IntegerAttr.get(index, offset)).result).result
        view = ktdp.construct_memory_view(base, list(sizes), list(strides), element_type(buffer.dtype))
        return ktdp.construct_access_tile(view, [0] * len(sizes), list(sizes))

    def _refuse(self, nest: Nest, what: str, nearest: str = "", reason: str = "") -> Unsupported:
        """The error for a nest: what of it, its operators, shape, dtype, nearest supported form, source line."""
        operators = ", ".join(f"'{t}'" for t in dict.fromkeys(o.target for o in nest.origins)) or f"'{nest.name}'"
        store = next(r for r in nest.body if r.op == "store")
        buffer = self._region.buffers[store.buffer]
        text = f"{what}, in {operators} of shape {list(buffer.size)} and dtype {buffer.dtype}, is not supported"
        text += f": {reason}" if reason else ""
        text += f"; nearest supported form: {nearest}" if nearest else ""
        return NestRefused(text, nest.source, nest.name, nest.origins)


def location(nest: Nest) -> ir.Location:
    """The FX nodes of a nest, each named at its source line."""
    known = [ir.Location.name(o.node, ir.Location.file(o.file, o.line, 1) if o.file else ir.Location.unknown()) for o in nest.origins]
    return ir.Location.fused(known) if known else ir.Location.name(nest.name, ir.Location.unknown())


def _argument_attributes(buffer: Buffer) -> ir.Attribute:
    host = ir.RankedTensorType.get(list(buffer.size), element_type(buffer.dtype))
    return ir.DictAttr.get(
        {
            "ktir.name": ir.StringAttr.get(buffer.name),
            "ktir.role": ir.StringAttr.get("output" if buffer.role == "output" else "input"),
            "ktir.type": ir.TypeAttr.get(host),
        }
    )


def _live(nest: Nest, result: str) -> list[Record]:
    """The records that `result` depends on, in order."""
    needed = {result}
    for record in reversed(nest.body):
        if record.out in needed:
            needed |= set(record.args)
    return [r for r in nest.body if r.out in needed]


def _here() -> ir.Location:
    return ir.Location.current


def _empty(shape: Sequence[int], type_: str) -> ir.Value:
    return tensor.EmptyOp(list(shape), element_type(type_)).result


def _filled(shape: Sequence[int], type_: str, number: float) -> ir.Value:
    element = element_type(type_)
    scalar = arith.ConstantOp(element, ir.FloatAttr.get(element, number)).result
    return linalg.fill(scalar, outs=[_empty(shape, type_)])  # type: ignore[return-value]


def _converted(value: ir.Value, type_: str) -> ir.Value:
    """The tensor in another element type, by one more pointwise generic."""
    found = ir.RankedTensorType(value.type)
    if found.element_type == element_type(type_):
        return value
    cast = arith.TruncFOp if type_ == "f16" else arith.ExtFOp
    identity = ir.AffineMap.get_identity(found.rank)

    def body(arguments: list[ir.Value]) -> ir.Value:
        return cast(element_type(type_), arguments[0]).result

    return generic([value], _empty(found.shape, type_), [identity] * 2, ["parallel"] * found.rank, body, loc=_here())


def _reshaped(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """The tensor in another shape: dims that merge are collapsed, then dims that split are expanded."""
    type_ = ir.RankedTensorType(value.type)
    common = groups(type_.shape, shape)
    if any(len(g.before) > 1 for g in common):
        merged = ir.RankedTensorType.get([prod(type_.shape[d] for d in g.before) for g in common], type_.element_type)
        value = tensor.CollapseShapeOp(merged, value, [list(g.before) for g in common]).result
    if any(len(g.after) > 1 for g in common):
        split = ir.RankedTensorType.get(list(shape), type_.element_type)
        value = tensor.ExpandShapeOp(split, value, [list(g.after) for g in common], [], list(shape)).result
    return value
