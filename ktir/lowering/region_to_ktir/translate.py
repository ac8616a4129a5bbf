"""RegionIR -> one function of logical KTIR, as text. No torch, no MLIR.

Buffers of the roles `input`, `constant`, `mutated` and `mem`, and outputs that are written through indices from data, are memory: each nest
loads what it reads and stores what it writes, program order is the only ordering. All other buffers are SSA tensors in torch's dims
without those of size 1; outputs are stored after the last nest that writes them. Loops are never split: whatever cuts an index needs are
made on the operand, so every op runs over the loops of its nest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ktir.diagnostics import some_of
from ktir.lowering.region_to_ktir import masks, scalars
from ktir.lowering.region_to_ktir.accesses import Accesses, NoAccess, Storage, Table, span
from ktir.lowering.region_to_ktir.dtypes import ELEMENTS, computed, is_float, literal
from ktir.lowering.region_to_ktir.indices import Index, variable
from ktir.lowering.region_to_ktir.masked_loads import MaskedLoads
from ktir.lowering.region_to_ktir.nodes import Node, constant_node, index_node, tensor_node
from ktir.lowering.region_to_ktir.reductions import Reductions
from ktir.lowering.region_to_ktir.region import Buffer, Nest, NestRefused, Origin, Record, Region
from ktir.lowering.region_to_ktir.scalar_body import Body, NoScalarForm, Scalar
from ktir.lowering.region_to_ktir.text import Writer, tensor_type


@dataclass(frozen=True)
class Rung:
    """How one access was translated, and why by no better rung of the ladder."""

    nest: Nest
    buffer: str
    name: str
    reason: str = ""

    def __str__(self) -> str:
        return f"access of '{self.buffer}' uses {self.name}" + (f": {self.reason}" if self.reason else "")


@dataclass
class Translation:
    """The text of a module, and the rung of each access."""

    text: str
    rungs: list[Rung] = field(default_factory=list)


def _refused(nest: Nest, buffer: Buffer | None, what: str) -> NestRefused:
    """The error for a nest: what of it, its operators, shape, dtype and source line."""
    operators = some_of(f"'{t}'" for t in dict.fromkeys(o.target for o in nest.origins)) or f"'{nest.name}'"
    of = f" of shape {list(buffer.size)} and dtype {buffer.dtype}" if buffer else ""
    return NestRefused(f"{what}, in {operators}{of}, is not supported", nest.source, nest.name, nest.origins)


def translate(region: Region) -> Translation:
    """The logical KTIR of a region. Raises NestRefused."""
    return _Region(_checked(region)).run()


def _checked(region: Region) -> Region:
    """The region with each index that is to be checked in an address, for accesses are what is checked when they are executed.

    An index that no address depends on goes into that of the access after it, as what is 0 wherever the index is below its bound, and
    elsewhere leads out of the buffer.
    """
    nests = [_Checks(region, nest.body).run() for nest in region.nests]
    if all(body is nest.body for body, nest in zip(nests, region.nests, strict=True)):
        return region
    return replace(region, nests=tuple(replace(nest, body=body) for nest, body in zip(region.nests, nests, strict=True)))


class _Checks:
    """The records of one nest."""

    def __init__(self, region: Region, body: Sequence[Record]) -> None:
        self._buffers, self._body = region.buffers, tuple(body)
        self._used = {name for r in _every(self._body) for name in r.index.variables}
        self._waiting: list[Record] = []

    def run(self) -> tuple[Record, ...]:
        """The records with all checks; the same ones where nothing is amiss."""
        if not any(self._is_lost(r) for r in _every(self._body)):
            return self._body
        return self._records(self._body)

    def _is_lost(self, record: Record) -> bool:
        return record.op == "indirect" and record.check and not record.size.terms and record.out not in self._used

    def _records(self, body: Iterable[Record]) -> tuple[Record, ...]:
        found: list[Record] = []
        for record in body:
            if self._is_lost(record):
                self._waiting.append(record)
            elif record.op == "masked":
                record = replace(record, body=self._records(record.body))
            elif record.op in ("load", "store") and record.buffer in self._buffers and self._waiting:
                more, index = self._with_checks(self._buffers[record.buffer], record.index)
                found += more
                record = replace(record, index=index)
            found.append(record)
        return tuple(found)

    def _with_checks(self, buffer: Buffer, index: Index) -> tuple[list[Record], Index]:
        records: list[Record] = []
        for lost in self._waiting:
            name, size = lost.out, lost.size.constant
            if size != 1:  # the quotient is 0 below the bound; -1, which counts from the end, where the index may
                name, number, quotient = f"{lost.out} below {size}", f"%{lost.out} size", f"%{lost.out} quotient"
                records += [
                    Record("constant", number, dtype="int64", value=size),
                    Record("floordiv", quotient, (lost.args[0], number), dtype="int64"),
                    replace(lost, out=name, args=(quotient,), size=Index(1)),
                ]
            index += variable(name).scaled(span(buffer))
        self._waiting.clear()
        return records, index


def _every(body: Iterable[Record]) -> Iterable[Record]:
    for record in body:
        yield record
        yield from _every(record.body) if record.op == "masked" else ()


class _Region:
    """The function: arguments, nests in order, stores of outputs."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._writer = Writer()
        self._locations = _Locations()
        self._rungs: list[Rung] = []
        scattered = {
            r.buffer
            for nest in region.nests
            for r in nest.records()
            if r.op == "store" and (nest.calls or r.mode or r.index.variables - {v for v, _ in nest.loops})
        }
        self._functions: dict[str, str] = {}
        """Texts of the functions that are called, by symbol."""
        in_memory = [name for name in region.arguments if region.buffers[name].role != "output" or name in scattered]
        self._arguments = {name: f"%arg{k}" for k, name in enumerate(region.arguments)}
        self._storage = Storage({name: self._arguments[name] for name in in_memory})
        self._last_store = {r.buffer: nest for nest in region.nests for r in nest.records() if r.op == "store"}

    def run(self) -> Translation:
        for nest in self._region.nests:
            self._nest(nest)
        return Translation(self._module(), self._rungs)

    def _nest(self, nest: Nest) -> None:
        stores = [r for r in nest.records() if r.op == "store"]
        target = self._region.buffers[stores[0].buffer] if stores else None
        place, of_lookups = self._locations.of(nest.origins, nest.name), self._locations.of(_lookups_first(nest.origins), nest.name)
        self._writer.location = place
        for name in dict.fromkeys(r.buffer for r in nest.records() if r.buffer):
            if self._region.buffers[name].dtype not in ELEMENTS:
                raise _refused(nest, target, f"dtype {self._region.buffers[name].dtype}")
        if nest.calls:
            self._call(nest)
            return
        known = {v for v, _ in nest.loops} | {r.out for r in nest.records() if r.op == "indirect"}
        for record in nest.records():
            if unknown := sorted(record.index.variables - known):
                raise _refused(nest, target, f"an index with '{unknown[0]}', which is known only when the program runs")
        try:
            _Nest(nest, self._region.buffers, self._writer, self._storage, self._rungs, of_lookups).run()
        except (NoAccess, NoScalarForm) as refusal:
            raise _refused(nest, target, str(refusal)) from None
        self._writer.location = place
        for name in dict.fromkeys(s.buffer for s in stores):
            if self._region.buffers[name].role == "output" and self._last_store[name] is nest and name in self._storage.values:
                self._output(self._region.buffers[name])

    def _call(self, nest: Nest) -> None:
        (call,) = (r for r in nest.body if r.op == "call")
        read = {r.out: r.buffer for r in nest.body if r.op == "load"}
        *rest, first = (r.buffer for r in nest.body if r.op == "store")
        operands = [read[a] for a in call.args]
        whole = {"operand": operands, "written": operands, "result": [first, *rest]}
        parts = [part.split(":") for part in str(call.option("order")).split()]
        self._writer.call(call.kind, [self._arguments[whole[kind][int(number)]] for kind, number in parts])
        self._functions[call.kind] = str(call.option("program"))

    def _output(self, buffer: Buffer) -> None:
        sizes, strides = [n for n, _ in buffer.dims], [s for _, s in buffer.dims]
        view = self._writer.view(self._arguments[buffer.name], buffer.offset, sizes, strides, ELEMENTS[buffer.dtype])
        self._writer.store(self._storage.values[buffer.name], self._writer.tile(view))

    def _module(self) -> str:
        buffers = self._region.buffers
        arguments = ", ".join(f"{self._arguments[name]}: index {_attributes(buffers[name])}" for name in self._region.arguments)
        name = json.dumps(self._region.name)
        where = f"loc({name})"
        head = f'module attributes {{ktir.level = "logical"}} {{\nfunc.func @{name}({arguments}) {{'
        return (
            "\n".join(
                [
                    head,
                    *self._writer.lines,
                    f"return {where}",
                    f"}} {where}",
                    *self._functions.values(),
                    f"}} {where}",
                    *self._locations.lines,
                ]
            )
            + "\n"
        )


_ROLES = {"output": "output", "mutated": "input_output", "mem": "output", "pool": "pool"}


def _attributes(buffer: Buffer) -> str:
    role = _ROLES.get(buffer.role, "input")
    host = tensor_type(buffer.size, ELEMENTS[buffer.dtype])
    dense = all(n == 1 or s == math.prod(buffer.size[d + 1 :]) for d, (n, s) in enumerate(zip(buffer.size, buffer.stride, strict=True)))
    strides = "" if dense or 0 in buffer.size else f", ktir.strides = array<i64: {', '.join(map(str, buffer.stride))}>"
    lies = f"ktir.lies = {buffer.lies} : i64, " if buffer.lies else ""
    return f'{{{lies}ktir.name = {json.dumps(buffer.name)}, ktir.role = "{role}"{strides}, ktir.type = {host}}}'


class _Locations:
    """Location aliases: the FX nodes of each nest, each named at its source line, or in its module where it has no line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._known: dict[tuple[object, ...], str] = {}

    def of(self, origins: tuple[Origin, ...], name: str) -> str:
        """What ends a line that comes from these nodes; without any, a line of the nest of this name."""
        if origins not in self._known:
            places = [f"{json.dumps(o.node)}{self._place(o)}" for o in origins]
            text = f"fused[{', '.join(places)}]" if len(places) > 1 else places[0] if places else json.dumps(name)
            alias = f"#loc{len(self.lines)}"
            self.lines.append(f"{alias} = loc({text})")
            self._known[origins] = f" loc({alias})"
        return self._known[origins]

    @staticmethod
    def _place(origin: Origin) -> str:
        """The line of a node, else its module."""
        if origin.file:
            return f"({json.dumps(origin.file)}:{origin.line}:1)"
        return f"({json.dumps(origin.module)})" if origin.module else ""


_LOOKUPS = ("embedding", "index", "gather", "scatter", "take")
"""In names of operators whose indices are data."""


def _lookups_first(origins: tuple[Origin, ...]) -> tuple[Origin, ...]:
    """Of nodes that became one nest those before the others at which an index out of range is the fault."""
    return tuple(sorted(origins, key=lambda o: not any(word in o.target for word in _LOOKUPS)))


class _Nest:
    """One nest: its records in order become nodes; tensors are emitted where a node must be one."""

    def __init__(
        self, nest: Nest, buffers: Mapping[str, Buffer], writer: Writer, storage: Storage, rungs: list[Rung], of_lookups: str
    ) -> None:
        self._nest = nest
        self._of_lookups = of_lookups
        self._buffers = buffers
        self._writer = writer
        self._values: dict[str, Node] = {}
        self._tables: dict[str, Table] = {}
        self._loaded: dict[tuple[str, Index, Node | None], Node] = {}

        def note(*rung: str) -> None:
            rungs.append(Rung(nest, *rung))

        self._accesses = Accesses(writer, storage, nest.loops, self._tables, note)
        self._reductions = Reductions(writer, nest.iteration, nest.reduction)
        self._masked = MaskedLoads(nest.loops, self._tables, self._accesses, writer, storage, note)
        self._orders = _index_orders(nest) | _operand_orders(nest)

    def run(self) -> None:
        """Emit the nest."""
        of_nest = self._writer.location
        for record in _ordered(self._nest.body):
            self._writer.location = self._of_lookups if record.index.variables & self._tables.keys() else of_nest
            self._record(record, None)

    def _record(self, record: Record, mask: Node | None) -> None:
        match record.op:
            case "store":
                self._store(record)
            case "check_bounds":
                pass  # every access is checked when it is executed
            case "indirect":
                self._indirect(record, mask)
            case _:
                results = self._results(record, mask)
                self._values |= zip(record.results, results, strict=True)

    def _results(self, record: Record, mask: Node | None) -> Sequence[Node]:
        args = [self._values[a] for a in record.args]
        dtypes = record.dtypes or (record.dtype,)
        for dtype in dtypes:
            if dtype not in ELEMENTS:
                raise NoScalarForm(f"'{record.op}' op of dtype {dtype}")
        match record.op:
            case "load":
                return [self._load(record, mask)]
            case "constant":
                return [constant_node(record.value, record.dtype)]
            case "index_expr":
                node = index_node(record.index, {n: t.node for n, t in self._tables.items()})
                return [node if node.dtype == record.dtype else Node("to_dtype", record.dtype, (node,))]
            case "masked":
                inner = args[0] if mask is None else Node("logical_and", "bool", (mask, args[0]))
                shown = any(r.op == "load" and record.yields[0] in r.results for r in record.body)
                in_all_types = record.value == 0 or math.isinf(record.value)
                self._masked.wanted = record.value if shown and in_all_types and mask is None else 0
                for nested in record.body:
                    self._record(nested, inner)
                self._masked.wanted = 0
                value = self._values[record.yields[0]]
                held = self._masked.elsewhere.get(value.operand.tensor.name) if mask is None and value.operand else None
                if held is not None and in_all_types and held == literal(record.value, value.dtype):
                    return [value]
                other = constant_node(record.value, record.dtype)
                return [Node("where", record.dtype, (args[0], self._values[record.yields[0]], other))]
            case "reduction":
                return self._reductions.reduce(record.kind, args, record.source, record.dtype)
            case "scan":
                return self._reductions.scan(args, dtypes, _Combiner(record).combine)
            case "sort":
                stable, descending = (bool(record.option(o)) for o in ("stable", "descending"))
                return self._reductions.sort(args, dtypes, stable=stable, descending=descending)
            case "bucketize":
                return [self._place(record, args)]
            case "to_dtype_bitcast":
                source = record.source or args[0].dtype
                return [Node("to_dtype_bitcast", record.dtype, tuple(args), source=source)]
            case op if len(dtypes) > 1:
                raise NoScalarForm(f"'{op}' op")
            case "floordiv" | "truncdiv" | "mod" | "fmod" | "remainder" if mask is not None and not is_float(record.dtype):
                one = constant_node(1, args[1].dtype)  # nobody asked for a quotient where the mask is false: a load has 0 there
                return [Node(record.op, record.dtype, (args[0], Node("where", args[1].dtype, (mask, args[1], one))))]
            case op:
                return [Node(op, record.dtype, tuple(args))]

    def _place(self, record: Record, args: Sequence[Node]) -> Node:
        """The place of a value among sorted boundaries: how many are below it, or not above it. A NaN is above all."""
        value, start = args[0], masks.index_of(args[1])
        if start is None or record.size.terms:
            raise NoScalarForm("'bucketize' op with boundaries from data")
        buffer, count, walked = self._buffers[record.buffer], record.size.constant, "boundary"
        if count == 0:
            return constant_node(0, record.dtype)
        among = [(walked, count)] if count > 1 else []
        index = start + variable(walked).scaled(int(record.option("stride"))) if among else start
        boundary = self._accesses.within([*self._nest.loops, *among]).load(buffer, index)
        relation = "gt" if record.option("right") else "ge"
        above = Node(relation, "bool", (tensor_node(boundary, buffer.dtype), value))
        below = Node("to_dtype", record.dtype, (Node("logical_not", "bool", (above,)),))
        return Reductions(self._writer, self._nest.loops, among).reduce("sum", [below], record.dtype, record.dtype)[0]

    def _indirect(self, record: Record, mask: Node | None) -> None:
        """An index from data becomes a table; negatives count from the end, points outside of the mask read element 0."""
        node = self._values[record.args[0]]
        if record.size.terms:
            raise NoAccess(f"an index below {record.size}, which is not constant")
        size = record.size.constant
        if record.wrap and not self._is_natural(node):
            dtype = node.dtype if node.dtype in ("int32", "int64") else "int64"
            negative = Node("lt", "bool", (node, constant_node(0, dtype)))
            node = Node("where", dtype, (negative, Node("add", dtype, (node, constant_node(size, dtype))), node))
        if mask is not None:
            node = Node("where", node.dtype, (mask, node, constant_node(0, node.dtype)))
        self._tables[record.out] = Table(node, size)

    def _is_natural(self, node: Node) -> bool:
        """Whether the value is an index expression that is never negative."""
        while node.op == "to_dtype" and not is_float(node.args[0].dtype):
            node = node.args[0]
        if node.index is None:
            return False
        found = masks.extremes(node.index, {v: (0, n) for v, n in self._nest.loops})
        return found is not None and found[0] >= 0

    # Loads

    def _load(self, record: Record, mask: Node | None) -> Node:
        buffer = self._buffers[record.buffer]
        key = (record.buffer, record.index, mask)
        if key not in self._loaded:
            if mask is None:
                operand = self._accesses.load(buffer, record.index, self._orders.get(record.out, ()))
            else:
                operand = self._masked.load(buffer, record.index, mask)
            self._loaded[key] = tensor_node(operand, buffer.dtype)
        return self._loaded[key]

    # Stores

    def _store(self, record: Record) -> None:
        node = self._values[record.args[0]]
        buffer = self._buffers[record.buffer]
        once = bool(self._nest.reduction) and not node.variables & {v for v, _ in self._nest.reduction}
        once = once and not record.index.variables & {v for v, _ in self._nest.reduction}
        accesses = self._accesses.within(self._nest.iteration) if once else self._accesses
        if node.dtype != buffer.dtype and not (is_float(node.dtype) and computed(buffer.dtype) == node.dtype):
            node = Node("to_dtype", buffer.dtype, (node,))
        accesses.store(buffer, record.index, node, record.mode)


def _operand_orders(nest: Nest) -> dict[str, tuple[str, ...]]:
    """The loops of the two loads of a contraction, as a matmul has them: batch, m, k and batch, k, n."""
    by_name = {r.out: r for r in nest.body}
    dots = [r for r in nest.body if r.op == "reduction" and r.kind == "dot"]
    product = by_name.get(dots[0].args[0]) if dots else None
    if product is None or len(product.args) != 2 or any(by_name[a].op != "load" for a in product.args):
        return {}
    a, b = (by_name[name].index.variables for name in product.args)
    summed = [v for v, _ in nest.reduction]
    both = [v for v, _ in nest.iteration if v in a and v in b]
    rest = [v for v, _ in nest.iteration if v not in both]
    return {product.args[0]: (*both, *rest, *summed), product.args[1]: (*both, *summed, *rest)}


def _index_orders(nest: Nest) -> dict[str, tuple[str, ...]]:
    """The loops of the loads that indices are computed from: an index is walked by what it depends on, and by no row loop beside it."""
    args = {r.out: r.args for r in nest.records()}
    wanted = [a for r in nest.records() if r.op == "indirect" for a in r.args]
    found: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += args.get(name, ())
    order = tuple(v for v, _ in nest.loops)
    return {r.out: order for r in nest.records() if r.op == "load" and r.out in found}


def _ordered(body: Sequence[Record]) -> list[Record]:
    """The records with all stores last: a nest reads everything before it writes."""
    return [*(r for r in body if r.op != "store"), *(r for r in body if r.op == "store")]


class _Combiner:
    """The body of a scan's combiner."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def combine(self, body: Body, points: list[Scalar]) -> list[Scalar]:
        """The results of combining two points: first those of `%a0`, ..., then those of `%b0`, ..."""
        count = len(self._record.args)
        names = [f"%{side}{k}" for side in "ab" for k in range(count)]
        values = dict(zip(names, points, strict=True))
        for record in self._record.body:
            if record.op == "constant":
                values[record.out] = Scalar(record.dtype, number=record.value)
            else:
                values[record.out] = scalars.record(body, record.op, [values[a] for a in record.args], record.dtype)
        return [values[y] for y in self._record.yields]
