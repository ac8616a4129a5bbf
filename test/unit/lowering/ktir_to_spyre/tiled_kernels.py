"""Kernels at the tiled level, built by hand: what `ktir-tile` may hand to `ktir-allocate-scratchpad`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects._foundation import affine
from ktir.dialects.structured import affine_map, fill, generic
from ktir.mlir import arith, func, ir, scf, tensor

LANES = 64
Size = int | ir.Value


@dataclass(frozen=True)
class Argument:
    """A linear argument of `elements` elements."""

    name: str
    role: str
    elements: int
    type: str = "f16"

    @property
    def sticks(self) -> int:
        """Rows of 64 elements of its array."""
        return -(-self.elements // LANES)


@dataclass(frozen=True)
class Tiled:
    """A module at the tiled level and its arguments."""

    text: str
    arguments: tuple[Argument, ...]

    def arrays(self, given: Mapping[str, np.ndarray], seed: int = 0) -> list[np.ndarray]:
        """Arrays [sticks, 64]: `given` ones padded, others random; outputs hold a number that no kernel makes."""
        rng = np.random.default_rng(seed)
        result = []
        for a in self.arguments:
            type_ = {"f16": np.float16, "f32": np.float32, "i32": np.int32}[a.type]
            if a.role == "output":
                flat = np.full(a.sticks * LANES, 77, type_)
            elif a.name in given:
                flat = np.zeros(a.sticks * LANES, type_)
                flat[: a.elements] = given[a.name].ravel()
            else:
                flat = rng.standard_normal(a.sticks * LANES).astype(type_)
            result.append(flat.reshape(a.sticks, LANES))
        return result


class Kernel:
    """Ops of a kernel, made at the insertion point."""

    def __init__(self, arguments: dict[str, ir.Value], types: dict[str, str], tile: ir.Value) -> None:
        self.arguments, self.types, self.core = arguments, types, tile
        self.columns: list[ir.Value] = []
        """One value per row, in lane 0."""

    def index(self, value: Size) -> ir.Value:
        """An index value."""
        return arith.ConstantOp(ir.IndexType.get(), value).result if isinstance(value, int) else value

    def add(self, a: Size, b: Size) -> ir.Value:
        return arith.AddIOp(self.index(a), self.index(b)).result

    def times(self, a: Size, b: Size) -> ir.Value:
        return arith.MulIOp(self.index(a), self.index(b)).result

    def share(self, extent: int, share: int, cores: int) -> tuple[ir.Value, Size]:
        """First row of a core, and how many it has."""
        first = self.times(self.core, share)
        if extent == share * cores:
            return first, share
        left = arith.SubIOp(self.index(extent), first).result
        return first, arith.MinSIOp(left, self.index(share)).result

    def view(
        self, name: str, offset: Size, sizes: Sequence[Size], strides: Sequence[int], cut: int | None = None, masked: bool = False
    ) -> ir.Value:
        """A view of an argument; `cut`: elements along the sticks of dim 0. `masked`: the rows of dim 1 clip even if they are static."""
        sizes = [self.index(s) if masked and d == 1 else s for d, s in enumerate(sizes)]
        attributes: dict[str, ir.Attribute] = {}
        if cut is not None and cut % LANES:
            extents = [s if isinstance(s, int) else None for s in sizes]
            attributes = {"coordinate_set": affine.clipped(extents, 0, cut - 1), "masked": ir.UnitAttr.get()}
        base = self.arguments[name]
        if not (isinstance(offset, int) and offset == 0):
            base = self.add(base, offset)
        return ktdp.construct_memory_view(base, sizes, strides, ir.Type.parse(self.types[name]), attributes=attributes)

    def load(self, view: ir.Value, at: Sequence[Size], shape: Sequence[int]) -> ir.Value:
        return ktdp.load(ktdp.construct_access_tile(view, at, shape), ir.MemRefType(view.type).element_type)

    def store(self, value: ir.Value, view: ir.Value, at: Sequence[Size]) -> None:
        ktdp.store(value, ktdp.construct_access_tile(view, at, list(ir.RankedTensorType(value.type).shape)))

    @contextmanager
    def loop(self, trips: int, step: int = 1, carried: Sequence[ir.Value] = ()) -> Iterator[scf.ForOp]:
        """A loop up to `trips`; without carried values it ends by itself."""
        loop = scf.ForOp(self.index(0), self.index(trips), self.index(step), list(carried))
        with ir.InsertionPoint(loop.body):
            yield loop
            if not carried:
                scf.YieldOp([])

    def filled(self, shape: Sequence[int], type_: str, value: float) -> ir.Value:
        element = ir.Type.parse(type_)
        attribute = ir.IntegerAttr.get(element, int(value)) if type_ == "i32" else ir.FloatAttr.get(element, value)
        return fill(arith.ConstantOp(element, attribute).result, tensor.EmptyOp(list(shape), element).result)

    def pointwise(self, body: Callable[..., ir.Value], shape: Sequence[int], type_: str, *inputs: ir.Value) -> ir.Value:
        """An elementwise op; a single row and columns are broadcast."""
        init = tensor.EmptyOp(list(shape), ir.Type.parse(type_)).result
        maps = [self._map(v, shape) for v in inputs] + [affine_map(3, [0, 1, 2])]
        return generic(inputs, init, maps, ["parallel"] * 3, lambda a: body(*a[: len(inputs)]), loc=ir.Location.current)

    def _map(self, value: ir.Value, shape: Sequence[int]) -> ir.AffineMap:
        row = None if ir.RankedTensorType(value.type).shape[1] == 1 and shape[1] > 1 else 1
        return affine_map(3, [None, row, None] if value in self.columns else [0, row, 2])

    def reduce(self, body: Callable[[ir.Value, ir.Value], ir.Value], value: ir.Value, identity: float) -> ir.Value:
        """Along sticks and lanes: a column of f32."""
        rows = ir.RankedTensorType(value.type).shape[1]
        init = self.filled([1, rows, LANES], "f32", identity)
        maps = [affine_map(3, [1, 0, 2]), affine_map(3, [None, 0, None])]
        iterators = ["parallel", "reduction", "reduction"]
        self.columns.append(generic([value], init, maps, iterators, lambda a: body(a[0], a[1]), loc=ir.Location.current))
        return self.columns[-1]

    def part(self, value: ir.Value, first: Sequence[Size], shape: Sequence[int]) -> ir.Value:
        """A slice."""
        type_ = ir.RankedTensorType.get(list(shape), ir.RankedTensorType(value.type).element_type)
        dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
        values = [f for f in first if not isinstance(f, int)]
        starts = [f if isinstance(f, int) else dynamic for f in first]
        return tensor.ExtractSliceOp(type_, value, values, [], [], starts, list(shape), [1, 1, 1]).result

    @staticmethod
    def block(a: ir.Value, b: ir.Value, sums: ir.Value, transposed: bool = False) -> ir.Value:
        """The sums with one stick of rows times a 64x64 block."""
        maps = [
            affine_map(3, [None, 0, 2]),
            affine_map(3, [None, 1, 2] if transposed else [None, 2, 1]),
            affine_map(3, [None, 0, 1]),
        ]
        return generic([a, b], sums, maps, ["parallel", "parallel", "reduction"], _multiply, loc=ir.Location.current)

    def matmul(
        self,
        a: ir.Value,
        b: Callable[[ir.Value, ir.Value], ir.Value],
        sticks: int,
        transposed: bool,
        result: Callable[[ir.Value], ir.Value],
    ) -> ir.Value:
        """a times the 64x64 blocks b(n, k); `result` makes a finished f32 block an f16 one."""
        steps, rows, _ = ir.RankedTensorType(a.type).shape
        f16 = ir.F16Type.get()
        with self.loop(sticks, carried=[tensor.EmptyOp([sticks, rows, LANES], f16).result]) as outer:
            n = outer.induction_variable
            with self.loop(steps, carried=[self.filled([1, rows, LANES], "f32", 0.0)]) as inner:
                k = inner.induction_variable
                stick = self.part(a, [k, 0, 0], [1, rows, LANES])
                scf.YieldOp([self.block(stick, b(n, k), inner.inner_iter_args[0], transposed)])
            block = result(inner.results[0])
            dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
            whole = outer.inner_iter_args[0]
            shape = [1, rows, LANES]
            scf.YieldOp([tensor.InsertSliceOp(block, whole, [n], [], [], [dynamic, 0, 0], shape, [1, 1, 1]).result])
        return outer.results[0]


def _multiply(a: Sequence[ir.Value]) -> ir.Value:
    f32 = ir.F32Type.get()
    wide = [arith.ExtFOp(f32, v).result for v in a[:2]]
    return arith.AddFOp(a[2], arith.MulFOp(*wide).result).result


def narrowed(value: ir.Value) -> ir.Value:
    """Rounded to f16."""
    return arith.TruncFOp(ir.F16Type.get(), value).result


def tiled(cores: int, arguments: Sequence[Argument], body: Callable[[Kernel], None]) -> Tiled:
    """The module of one kernel on `cores` cores."""
    with context(), ir.Location.file("kernel.mlir", 1, 1):
        module = ir.Module.create()
        module.operation.attributes["ktir.level"] = ir.StringAttr.get("tiled")
        index = [ir.IndexType.get()] * len(arguments)
        with ir.InsertionPoint(module.body):
            entry = func.FuncOp("forward", (index, []))
            kernel = func.FuncOp("kernel", (index, []))
        entry.operation.attributes["arg_attrs"] = ir.ArrayAttr.get([_attributes(i, a) for i, a in enumerate(arguments)])
        with ir.InsertionPoint(entry.add_entry_block()) as at:
            func.CallOp([], "kernel", list(at.block.arguments))
            func.ReturnOp([])
        i64 = ir.IntegerType.get_signless(64)
        kernel.operation.attributes["grid"] = ir.ArrayAttr.get([ir.IntegerAttr.get(i64, cores)])
        kernel.operation.attributes["ktir.rows"] = ir.DenseI64ArrayAttr.get([cores])
        kernel.operation.attributes["ktir.work"] = kt.WorkAttr.build([1, cores, 1], [1, 1, LANES])
        with ir.InsertionPoint(kernel.add_entry_block()) as at:
            (tile,) = ktdp.get_compute_tile_id()
            values = dict(zip([a.name for a in arguments], at.block.arguments, strict=True))
            body(Kernel(values, {a.name: a.type for a in arguments}, tile))
            func.ReturnOp([])
        text = print_module(module, debuginfo=True)
        parse_module(text, "kernel.mlir")
    return Tiled(text, tuple(arguments))


def _attributes(number: int, argument: Argument) -> ir.DictAttr:
    n = argument.elements
    attributes: dict[str, ir.Attribute] = {
        "ktir.name": ir.StringAttr.get(argument.name),
        "ktir.role": ir.StringAttr.get(argument.role),
        "ktir.layout": kt.LayoutAttr.build([n], [argument.sticks, LANES], [LANES, 1], ir.Type.parse(argument.type), "standard", "uninit"),
    }
    if argument.role != "pool":
        attributes["ktir.host"] = kt.HostViewAttr.build(number, 0, [n], [1])
    return ir.DictAttr.get(attributes)
