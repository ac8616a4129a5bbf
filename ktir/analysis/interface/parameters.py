"""What a function wants to be called with: which arguments are buffers, how large they are, what may stand in them.

Found from the IR alone: the views that are built on an argument give shape and element type, loads and stores give the role, an index
view of an indirect access gives the range of its values. Numbers that depend on the tile or on a loop are intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ktir.analysis.interface.demands import Range, demands
from ktir.assembly.names import TextNames
from ktir.diagnostics import KtirError, position
from ktir.dialects import ktdp
from ktir.dialects.structured import loop_extents
from ktir.mlir import arith, func, ir, is_a, named, names, operations, scf

__all__ = ["Parameter", "Place", "argument_names", "bytes_of", "functions", "parameters", "roots"]


@dataclass(frozen=True)
class Parameter:
    """An argument of a function. `element` is the element type of the buffer, or the type of the number.

    `shape`: of the buffer, None for a number, or where it cannot be told. `below`: the values of an index buffer must be less.
    `role`: `input`, `output`, `input_output`, `pool`, or `number`. `depends`: names of the numbers that decide the shape.
    """

    position: int
    name: str
    element: str
    role: str
    shape: tuple[int, ...] | None = None
    below: int | None = None
    depends: tuple[str, ...] = ()
    most: int | None = None
    """What a runtime argument promises to be at most."""
    granularity: int = 1
    device: bool = False
    """Whether it is device memory: sticks that a layout describes."""
    strides: tuple[int, ...] | None = None
    """Those in which the elements of a declared shape lie, where they do not lie one after the other."""
    views: tuple[tuple[tuple[int | None, ...], tuple[int | None, ...]], ...] = ()
    """Sizes and strides with which a buffer is seen of which no shape is declared; None for what is not known."""

    @property
    def is_buffer(self) -> bool:
        return self.role != "number"


def functions(module: ir.Module | ir.Operation) -> dict[str, ir.Operation]:
    """The functions of a module that have a body, by name."""
    block = module.operation.regions[0].blocks[0]
    found = [view.operation for view in block.operations if is_a(view.operation, func.FuncOp)]
    return {ir.StringAttr(op.attributes["sym_name"]).value: op for op in found if len(op.regions[0].blocks)}


def roots(module: ir.Module) -> list[str]:
    """Names of the functions that no other one calls; private ones, which nobody can call then, only if there are no others."""
    called = {
        ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        for op in operations(module)
        if is_a(op, func.CallOp) and "callee" in op.attributes
    }
    found = {name: op for name, op in functions(module).items() if name not in called}
    public = [name for name, op in found.items() if "sym_visibility" not in op.attributes]
    return public or list(found)


@dataclass(frozen=True)
class Place:
    """A buffer at an address that the program has as a number, in elements: as a Parameter without a name."""

    offset: int
    element: str
    role: str
    shape: tuple[int, ...] | None
    below: int | None = None
    views: tuple[tuple[tuple[int | None, ...], tuple[int | None, ...]], ...] = ()
    is_shared_number: bool = False
    """Whether other memory, of elements of another size, begins at the same number of its own elements."""

    @property
    def key(self) -> tuple[str, int] | tuple[str, int, str]:
        """Where it is given to an execution."""
        return ("global", self.offset, self.element) if self.is_shared_number else ("global", self.offset)

    @property
    def name(self) -> str:
        return ":".join(map(str, self.key))


def argument_names(function: ir.Operation, names: TextNames, source: str) -> dict[int, str]:
    """The names that the text of file `source` gives to the arguments of a function, by position."""
    found: dict[int, str] = {}
    for i, argument in enumerate(function.regions[0].blocks[0].arguments):
        at = position(argument.location)
        if at is not None and at[0] == source and (name := names.at(*at[1:])):
            found[i] = name[0]
    return found


def parameters(
    module: ir.Module | ir.Operation, function: str, *, names: Mapping[int, str] | None = None, numbers: Mapping[str, int] | None = None
) -> tuple[list[Parameter], list[Place]]:
    """The arguments of `function`, and the buffers at fixed addresses of global memory that it uses.

    names: those that the text gives to arguments, by position; `ktir.name` goes before them. numbers: values of number arguments, by
    name, which may decide shapes.
    """
    op = functions(module)[function]
    block = op.regions[0].blocks[0]
    attributes = [ir.DictAttr(a) for a in ir.ArrayAttr(op.attributes["arg_attrs"])] if "arg_attrs" in op.attributes else []
    reader = _Reader(functions(module))
    bases = [_Use(i) for i in range(len(block.arguments))]
    known = numbers or {}
    labels = []
    for i, argument in enumerate(block.arguments):
        given = attributes[i] if attributes else None
        label = ir.StringAttr(given["ktir.name"]).value if given is not None and "ktir.name" in given else (names or {}).get(i, f"arg{i}")
        labels.append(label)
        reader.numbers[argument] = (known[label], known[label]) if label in known else None
        reader.origins[argument] = bases[i]
    reader.function(op)
    found = []
    for i, argument in enumerate(block.arguments):
        found.append(_parameter(i, labels, argument, bases[i], attributes[i] if attributes else None))
    places = []
    offsets = [offset for offset, _ in reader.places]
    for (offset, _), use in sorted(reader.places.items(), key=lambda item: item[0]):
        shape, element = use.shape()
        places.append(Place(offset, element, use.role, shape, use.below, use.seen(), offsets.count(offset) > 1))
    return found, places


def _parameter(i: int, labels: list[str], argument: ir.Value, use: _Use, given: ir.DictAttr | None) -> Parameter:
    label = labels[i]
    role = ir.StringAttr(given["ktir.role"]).value if given is not None and "ktir.role" in given else use.role
    if given is not None and "ktir.layout" in given:
        layout: Any = given["ktir.layout"]
        return Parameter(i, label, str(layout.dtype), role, tuple(layout.device), device=True)
    if given is not None and "ktir.type" in given:
        tensor = ir.RankedTensorType(ir.TypeAttr(given["ktir.type"]).value)
        strides = tuple(ir.DenseI64ArrayAttr(given["ktir.strides"])) if "ktir.strides" in given else None
        return Parameter(i, label, str(tensor.element_type), role, tuple(tensor.shape), use.below, strides=strides)
    if use.views:
        shape, element = use.shape()
        shape = None if shape is None else tuple(max(n, 0) for n in shape)  # of a masked view that has less than no rows
        if shape is not None and prod(shape) * bytes_of(element) >= 2**63:
            what = f"has argument #{i} with {prod(shape)} elements, more than any memory has"
            raise KtirError(f"'func.func' op {what}", argument.location)
        depends = tuple(labels[p] for p in sorted({p for v in use.views for p in v.depends}))
        return Parameter(i, label, element, role, shape, use.below, depends, views=use.seen())
    type_: Any = argument.type
    underlying = getattr(type_, "underlying", None)
    if underlying is not None:
        return Parameter(i, label, str(underlying), "number", most=type_.upperbound, granularity=type_.granularity or 1)
    return Parameter(i, label, str(type_), "number", most=use.most)


@dataclass
class _View:
    """A view of an argument: offset, sizes (greatest), strides in elements, where they are known."""

    element: str
    offset: Range | None
    sizes: list[int | None]
    strides: list[int | None]
    depends: tuple[int, ...] = ()
    below: dict[int, int] = field(default_factory=dict)

    @property
    def span(self) -> int | None:
        """End of the elements that it reaches."""
        if self.offset is None or None in self.sizes or None in self.strides:
            return None
        if 0 in self.sizes:
            return 0
        return self.offset[1] + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True) if n and s and s > 0) + 1

    def natural(self) -> tuple[int, ...] | None:
        """The shape of a dense row-major array that it shows whole, in whatever order of dims."""
        if self.offset != (0, 0) or None in self.sizes or None in self.strides:
            return None
        dims = sorted(((s, n) for s, n in zip(self.strides, self.sizes, strict=True) if s and n != 1 and n is not None), reverse=True)
        expected = 1
        for stride, size in reversed(dims):
            if stride != expected:
                return None
            expected *= size
        if all(s for s in self.strides) and self.strides == sorted(self.strides, key=lambda s: -(s or 0)):
            return tuple(n or 0 for n in self.sizes)
        return tuple(n for _, n in dims) or (1,)


def bytes_of(element: str) -> int:
    """Bytes of an element in memory of the host."""
    return {"i1": 1, "i8": 1, "i16": 2, "f16": 2, "bf16": 2, "f32": 4, "i32": 4}.get(element, 8)


class _Use:
    """What a function does with one of its arguments."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.views: list[_View] = []
        self.read = self.written = False
        self.below: int | None = None
        self.most: int | None = None

    @property
    def role(self) -> str:
        if not self.views:
            return "number"
        return ("input_output" if self.read else "output") if self.written else "input"

    def seen(self) -> tuple[tuple[tuple[int | None, ...], tuple[int | None, ...]], ...]:
        """Sizes and strides of all views, each once."""
        return tuple(dict.fromkeys((tuple(v.sizes), tuple(v.strides)) for v in self.views))

    def shape(self) -> tuple[tuple[int, ...] | None, str]:
        """The shape of the buffer and its element type: that of the view which reaches furthest, if that shows the whole of it."""
        spans = [v.span for v in self.views]
        element = self.views[0].element
        if any(s is None for s in spans):
            return None, element
        ends = [(s or 0) * bytes_of(v.element) for s, v in zip(spans, self.views, strict=True)]
        far = max(range(len(ends)), key=lambda i: ends[i])
        view = self.views[far]
        natural = view.natural()
        if natural is not None and prod(natural) == spans[far]:
            return natural, view.element
        return (spans[far] or 0,), view.element


class _Reader:
    """A walk over functions that keeps intervals of numbers, and what views and tiles are made of."""

    def __init__(self, known: dict[str, ir.Operation]) -> None:
        self.functions = known
        self.numbers: dict[ir.Value, Range | None] = {}
        self.origins: dict[ir.Value, _Use] = {}
        """Arguments of the outermost function, and the same values in what it calls."""
        self.offsets: dict[ir.Value, Range | None] = {}
        """What is added to such an argument where it is passed on."""
        self.places: dict[tuple[int, int], _Use] = {}
        """Views at addresses in global memory that the program has as numbers, by address and bytes of an element."""
        self.made_of: dict[ir.Value, list[tuple[_Use | None, _View]]] = {}
        self.grid: tuple[int, ...] = (1,)
        self.depth = 0

    def function(self, op: ir.Operation) -> None:
        if self.depth > 32:
            return
        outer = self.grid
        if "grid" in op.attributes:
            self.grid = tuple(ir.IntegerAttr(n).value for n in ir.ArrayAttr(op.attributes["grid"]))
        self.depth += 1
        self.block(op.regions[0].blocks[0])
        self.depth -= 1
        self.grid = outer

    def block(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            visit = getattr(self, "_" + op.name.replace(".", "_"), None)
            if visit is not None:
                visit(op)
            elif op.name in _ARITHMETIC and len(op.results) == 1:
                self.numbers[op.results[0]] = _ARITHMETIC[op.name]([self.number(v) for v in op.operands])
            if not is_a(op, scf.ForOp):
                for region in op.regions:
                    for inner in region.blocks:
                        self.block(inner)

    def number(self, value: ir.Value) -> Range | None:
        return self.numbers.get(value)

    # Numbers

    def _arith_constant(self, op: ir.Operation) -> None:
        attribute = op.attributes["value"]
        if isinstance(attribute, ir.IntegerAttr):
            self.numbers[op.results[0]] = (attribute.value, attribute.value)

    def _linalg_index(self, op: ir.Operation) -> None:
        extent = loop_extents(op.operation.block.owner.operation)[ir.IntegerAttr(op.attributes["dim"]).value]
        self.numbers[op.results[0]] = (0, extent - 1) if extent > 0 else None

    def _ktdp_get_compute_tile_id(self, op: ir.Operation) -> None:
        for result, extent in zip(op.results, self.grid, strict=False):
            self.numbers[result] = (0, extent - 1)

    def _ktdp_runtime_arg_extract(self, op: ir.Operation) -> None:
        view: Any = op.opview
        argument = op.operands[0]
        promised = getattr(argument.type, view.extracts, None) if view.extracts != "value" else None
        self.numbers[op.results[0]] = self.number(argument) if promised is None else (promised, promised)
        if view.extracts == "value" and argument in self.origins:
            self.origins[op.results[0]] = self.origins[argument]

    def _scf_for(self, op: ir.Operation) -> None:
        low, high = self.number(op.operands[0]), self.number(op.operands[1])
        body = op.regions[0].blocks[0]
        if low is not None and high is not None:
            self.numbers[body.arguments[0]] = (low[0], max(low[0], high[1] - 1))
        self.block(body)

    def _func_call(self, op: ir.Operation) -> None:
        callee = self.functions.get(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
        if callee is None:
            return
        for value, argument in zip(op.operands, callee.regions[0].blocks[0].arguments, strict=False):
            self.numbers[argument] = self.number(value)
            base, offset = self.base(value)
            self.origins.pop(argument, None)
            if base is not None:
                self.origins[argument] = base
                if offset != (0, 0):
                    self.offsets[argument] = offset
        self.function(callee)

    # Views

    def base(self, value: ir.Value) -> tuple[_Use | None, Range | None]:
        """The argument that an address is built on, and what is added to it."""
        if value in self.origins:
            return self.origins[value], self.offsets.get(value, (0, 0))
        owner = value.owner
        if isinstance(owner, ir.Block):
            return None, self.number(value)
        if is_a(owner, arith.AddIOp, arith.SubIOp, arith.IndexCastOp, arith.SelectOp):
            operands = list(owner.operands)[1:] if is_a(owner, arith.SelectOp) else list(owner.operands)
            found = [(i, *self.base(v)) for i, v in enumerate(operands)]
            bases = [f for f in found if f[1] is not None]
            if not bases:
                return None, self.number(value)
            # Of several arguments that are added the one that is no number anywhere else is the address.
            at, use, offset = next((f for f in bases if not _counted(_argument_of(operands[f[0]]))), bases[0])
            if is_a(owner, arith.IndexCastOp, arith.SelectOp):
                return use, offset
            other = self.number(operands[1 - at])
            if is_a(owner, arith.SubIOp):
                other = None if other is None else (-other[1], -other[0])
            return use, None if other is None or offset is None else (offset[0] + other[0], offset[1] + other[1])
        return None, self.number(value)

    def _ktdp_construct_memory_view(self, op: ir.Operation) -> None:
        view: Any = op.opview
        if view.memory_space != "global":
            self.made_of[op.results[0]] = []
            return
        use, offset = self.base(op.operands[0])
        sizes = [s if isinstance(s, int) else self.most(s) for s in view.sizes]
        strides = [s if isinstance(s, int) else self.most(s) for s in view.strides]
        depends: list[int] = []
        if offset is None or None in sizes or None in strides:
            depends = [self.origins[v].position for v in _below(op.operands) if v in self.origins and self.origins[v] is not use]
        made = _View(str(view.element_type), offset, sizes, strides, tuple(depends))
        if use is None and offset is not None and offset[0] == offset[1]:
            use = self.places.setdefault((offset[0], bytes_of(made.element)), _Use(-1))
            made.offset = (0, 0)
        if use is not None:
            use.views.append(made)
        self.made_of[op.results[0]] = [(use, made)]

    def most(self, value: ir.Value) -> int | None:
        found = self.number(value)
        return None if found is None else found[1]

    def _ktdp_construct_distributed_memory_view(self, op: ir.Operation) -> None:
        self.made_of[op.results[0]] = [part for v in op.operands for part in self.made_of.get(v, [])]

    def _ktdp_construct_access_tile(self, op: ir.Operation) -> None:
        self.made_of[op.results[0]] = self.made_of.get(op.operands[0], [])

    def _ktdp_construct_indirect_access_tile(self, op: ir.Operation) -> None:
        view: Any = op.opview
        base = op.operands[0]
        self.made_of[op.results[0]] = self.made_of.get(base, [])
        shape = ir.MemRefType(base.type).shape if isinstance(base.type, ir.MemRefType) else []
        for dim, (_, index) in enumerate(view.subscripts):
            if index is None:
                continue
            sizes = [made.sizes[dim] for _, made in self.made_of.get(base, []) if dim < len(made.sizes)]
            size = sizes[0] if sizes else (shape[dim] if dim < len(shape) and shape[dim] > 0 else None)
            for use, _ in self.made_of.get(index, []):
                if use is not None:
                    use.read = True
            if size is not None:
                self.bound(index, size)

    def bound(self, index: ir.Value, below: int) -> None:
        """Values of memory `index` must be less than `below`; what this asks of the buffers that they come from."""
        for place, least in demands(index, below, self.number):
            for use, _ in self.made_of.get(place, []):
                if use is not None:
                    use.below = least if use.below is None else min(least, use.below)

    def _ktdp_load(self, op: ir.Operation) -> None:
        for use, _ in self.made_of.get(op.operands[0], []):
            if use is not None:
                use.read = True

    def _ktdp_store(self, op: ir.Operation) -> None:
        for use, _ in self.made_of.get(op.operands[1], []):
            if use is not None:
                use.written = True


def _below(values: Iterable[ir.Value]) -> list[ir.Value]:
    """`values`, and all that they are computed from."""
    found: dict[ir.Value, None] = {}
    todo = list(values)
    while todo:
        value = todo.pop()
        if value not in found:
            found[value] = None
            if not isinstance(value.owner, ir.Block):
                todo += value.owner.operands
    return list(found)


def _argument_of(value: ir.Value) -> ir.Value:
    """The argument at the bottom of a chain of additions."""
    while not isinstance(value.owner, ir.Block) and is_a(value.owner, arith.AddIOp, arith.IndexCastOp):
        value = value.owner.operands[0]
    return value


def _counted(value: ir.Value) -> bool:
    """Whether `value` is used as a number and not only in sums that may be addresses."""
    sums = names(arith.AddIOp, arith.SubIOp, func.CallOp, arith.IndexCastOp, arith.SelectOp)
    for use in value.uses:
        owner = use.owner.operation
        if is_a(owner, ktdp.ConstructMemoryViewOp) and use.operand_number == 0:
            continue
        if owner.name not in sums:
            return True
    return False


def _both(compute: Any) -> Any:
    def result(ranges: list[Range | None]) -> Range | None:
        a, b = ranges
        return None if a is None or b is None else compute(a, b)

    return result


def _corners(compute: Any) -> Any:
    def result(a: Range, b: Range) -> Range:
        values = [compute(x, y) for x in a for y in b]
        return min(values), max(values)

    return _both(result)


def _divided(compute: Any) -> Any:
    return _both(lambda a, b: (compute(a[0], b[1]), compute(a[1], b[0])) if b[0] > 0 and a[0] >= 0 else None)


def _least(ranges: list[Range | None]) -> Range | None:
    """A minimum is no more than either side, even if the other is not known (it is taken as non-negative)."""
    a, b = ranges
    if a is None or b is None:
        known = a or b
        return None if known is None else (min(0, known[0]), known[1])
    return min(a[0], b[0]), min(a[1], b[1])


_ARITHMETIC: dict[str, Any] = named(
    {
        arith.AddIOp: _corners(lambda x, y: x + y),
        arith.SubIOp: _corners(lambda x, y: x - y),
        arith.MulIOp: _corners(lambda x, y: x * y),
        arith.MinSIOp: _least,
        arith.MinUIOp: _least,
        arith.MaxSIOp: _both(lambda a, b: (max(a[0], b[0]), max(a[1], b[1]))),
        arith.MaxUIOp: _both(lambda a, b: (max(a[0], b[0]), max(a[1], b[1]))),
        arith.DivSIOp: _divided(lambda x, y: x // y),
        arith.DivUIOp: _divided(lambda x, y: x // y),
        arith.FloorDivSIOp: _divided(lambda x, y: x // y),
        arith.CeilDivSIOp: _divided(lambda x, y: -(-x // y)),
        arith.CeilDivUIOp: _divided(lambda x, y: -(-x // y)),
        arith.RemSIOp: _both(lambda a, b: (0, min(a[1], b[1] - 1)) if a[0] >= 0 and b[0] > 0 else None),
        arith.RemUIOp: _both(lambda a, b: (0, min(a[1], b[1] - 1)) if a[0] >= 0 and b[0] > 0 else None),
        arith.IndexCastOp: lambda ranges: ranges[0],
        arith.IndexCastUIOp: lambda ranges: ranges[0],
        arith.ExtSIOp: lambda ranges: ranges[0],
        arith.ExtUIOp: lambda ranges: ranges[0],
        arith.TruncIOp: lambda ranges: ranges[0],
        arith.SelectOp: lambda ranges: None if None in ranges[1:] else (min(r[0] for r in ranges[1:]), max(r[1] for r in ranges[1:])),
    }
)
"""Op -> interval of its result from those of its operands."""
