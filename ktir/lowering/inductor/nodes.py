"""Nodes and buffers of Inductor's schedule as records: nests of loops, and where the data of each buffer really lies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
from torch._inductor.scheduler import BaseSchedulerNode, NopKernelSchedulerNode
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ktir.diagnostics import some_of
from ktir.lowering.inductor import lying
from ktir.lowering.inductor.graph import rounding
from ktir.lowering.inductor.graph.numbers import Numbers
from ktir.lowering.inductor.graph.shapes import DynamicShape
from ktir.lowering.inductor.recorder import Recorder, dtype_name
from ktir.lowering.inductor.running.origins import origin, refusal, result_of, type_text
from ktir.lowering.region_to_ktir.indices import Index
from ktir.lowering.region_to_ktir.region import Buffer, Nest, NestRefused, Record, Region, Role


def refuse_leaf(leaf: BaseSchedulerNode, what: str, reason: str = "", nearest: str = "") -> NestRefused:
    """The error for a scheduler node: what it is, its shape and dtype, its operators, its source line."""
    buffer: Any = leaf.node
    origins = origins_of(buffer)
    described = ""
    if isinstance(buffer, ir.Buffer) and isinstance(buffer.layout, ir.Layout):
        described = " of " + type_text(buffer.get_size(), buffer.get_dtype())
    elif result := result_of(getattr(buffer, "origin_node", None)):
        described = f" of {result}"
    operators = some_of(f"'{t}'" for t in dict.fromkeys(o.target for o in origins)) or "the graph"
    source = next((f"{o.file}:{o.line}:1" for o in origins if o.file), None)
    error = refusal(f"{what}{described} (from {operators})", reason, nearest, source)
    return NestRefused(error.message, error.location, leaf.get_name(), origins)


def origins_of(node: Any) -> tuple[Any, ...]:
    """Origins of an IR node, the one that made it first."""
    main = getattr(node, "origin_node", None)
    found = ([main] if main is not None else []) + [o for o in getattr(node, "origins", ()) if o is not main]
    named = [o for o in found if o.target is not rounding.ROUNDED]
    return tuple(map(origin, named or found))


def lowered_now() -> torch.fx.GraphModule | None:
    """The graph of ATen that Inductor lowers at this moment."""
    graph = V.graph.module
    return graph if isinstance(graph, torch.fx.GraphModule) else None


def constants_now(names: Iterable[str]) -> dict[str, torch.Tensor]:
    """Of these arguments of a program, those that the graph which Inductor lowers at this moment has values for: nobody gives them."""
    return {name: V.graph.constants[name] for name in names if name in V.graph.constants}


@functools.cache
def _type_rules() -> DtypePropagationOpsHandler:
    return DtypePropagationOpsHandler()


def _is_number(name: str) -> bool:
    """Whether a buffer is an input of one float64 that the graph does not change."""
    given = V.graph.graph_inputs.get(name)
    if not isinstance(given, ir.TensorBox) or name in V.graph.mutated_inputs:
        return False
    return given.get_dtype() == torch.float64 and not given.get_size()


@dataclass
class Nodes:
    """What is known of the nodes and buffers of a graph."""

    scheduler: Any
    roles: dict[str, Role] = field(default_factory=dict)
    """Of buffers that only regions use, by real name."""
    numbers: Numbers = field(default_factory=lambda: Numbers(_is_number))

    def region(self, nests: Sequence[Nest]) -> Region:
        """Nests with the buffers that they use."""
        stored = {r.buffer for nest in nests for r in nest.records() if r.op == "store"}
        names = dict.fromkeys(r.buffer for nest in nests for r in nest.records() if r.buffer)
        buffers = {name: self._buffer(name, name in stored, nests) for name in names}
        order = {"input": 0, "constant": 1, "output": 2, "mutated": 2, "mem": 3, "pool": 4}
        position = {n: k for k, n in enumerate([*V.graph.graph_inputs, *V.graph.constants, *V.graph.get_output_names()])}
        arguments = sorted(
            (b for b in buffers.values() if b.role != "temp"), key=lambda b: (order[b.role], position.get(b.name, len(position)))
        )
        return Region("forward", buffers, tuple(nests), tuple(b.name for b in arguments))

    def recorded(self, leaf: BaseSchedulerNode) -> Nest:
        """The un-merged nest of a node: `_body` has merged and reordered loops, this has torch's dims, without those of size 1."""
        computed: Any = leaf.node
        refuse = functools.partial(refuse_leaf, leaf)
        (iteration, reduction), body, _ = computed.get_default_sizes_body()
        sizes = [sympy.sympify(n) for n in (*iteration, *reduction)]
        if any(map(free_unbacked_symbols, sizes)):
            raise refuse("a size that depends on data")
        if not all(n.is_Integer for n in sizes):
            raise DynamicShape(refuse("a dynamic shape").message)
        symbols = [
            [sympy.Symbol(f"{p}{k}", integer=True, nonnegative=True) for k in range(len(n))]
            for p, n in (("i", iteration), ("r", reduction))
        ]
        names = [v.name for vs in symbols for v in vs]
        recorder: Any = Recorder(_type_rules(), names, V.graph.get_dtype, refuse)
        with V.set_ops_handler(recorder):
            body(*symbols)
        loops = [
            tuple((v.name, int(n)) for v, n in zip(vs, ns, strict=True)) for vs, ns in zip(symbols, (iteration, reduction), strict=True)
        ]
        records = self.numbers.taken_out([self._resolved(r) for r in self._in_its_type(computed, recorder.records, refuse)])
        return Nest(leaf.get_name(), type(computed.data).__name__, loops[0], loops[1], records, origins_of(computed))

    def _in_its_type(self, computed: Any, records: Sequence[Record], refuse: Callable[[str], NestRefused]) -> list[Record]:
        """The records, with the bits of what is stored to a view of another type than the memory's, which is written in the memory's."""
        layout = computed.layout
        if not isinstance(layout, ir.MutationLayoutSHOULDREMOVE):
            return list(records)
        seen, held = layout.target.get_dtype(), V.graph.get_dtype(self.real(computed.get_name())[0])
        if seen == held:
            return list(records)
        found: list[Record] = []
        for record in records:
            if record.op == "store" and record.buffer == computed.get_name():
                if record.mode or seen.itemsize != held.itemsize:
                    raise refuse(f"'{record.mode or 'store'}' op on a view of {dtype_name(held)} as {dtype_name(seen)}")
                bits = f"{record.args[0]}_bits"
                found.append(Record("to_dtype_bitcast", bits, record.args, dtype=dtype_name(held), source=dtype_name(seen)))
                record = replace(record, args=(bits,))
            found.append(record)
        return found

    def _resolved(self, record: Record) -> Record:
        """The record with the name of the buffer that really holds the data, and its index into that."""
        if record.body:
            record = replace(record, body=tuple(map(self._resolved, record.body)))
        if not record.buffer:
            return record
        name, offset = self.real(record.buffer)
        return replace(record, buffer=name, index=record.index + Index(offset))

    def real(self, name: str) -> tuple[str, int]:
        """The buffer that really holds the data of `name`, and where in it."""
        offset = 0
        while True:
            before = name
            name = self.scheduler.mutation_real_name.get(name, name)
            layout = getattr(V.graph.try_get_buffer(name), "layout", None)
            if isinstance(layout, ir.MutationLayoutSHOULDREMOVE):  # an index into it has the offset of its target already
                name = layout.get_buffer().get_name()
            elif isinstance(layout, ir.NonOwningLayout):
                offset += int(layout.view.get_layout().offset)
                name = layout.view.get_name()
            if name == before:
                return name, offset

    def _buffer(self, name: str, stored: bool, nests: Sequence[Nest]) -> Buffer:
        if name in V.graph.constants:
            tensor = V.graph.constants[name]
            return Buffer(
                name, dtype_name(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), 0, "mutated" if stored else "constant"
            )
        if name in self.numbers.expressions:
            return Buffer(name, "float32", (), (), 0, "input")
        if V.graph.try_get_buffer(name) is None and name not in V.graph.graph_inputs:  # an integer that is known only at run time
            return Buffer(name, "int64", (), (), 0, "input")
        own: Any = V.graph.graph_inputs[name] if name in V.graph.graph_inputs else V.graph.get_buffer(name)
        layout = own.get_layout()
        role = self.roles.get(name)
        if role is None and not stored:
            role = "input"
        elif role is None:
            role = "output" if self._makes(name, nests) else "mutated"
        if not all(n.is_Integer for n in map(sympy.sympify, (*layout.size, *layout.stride, layout.offset))):
            place = next((n.source for n in nests if any(r.buffer == name for r in n.records())), None)
            described = f"a tensor of shape {list(layout.size)}, strides {list(layout.stride)} and offset {layout.offset}"
            raise DynamicShape(f"{described} is not supported: they are known only at run time", place)
        size, stride = (tuple(int(n) for n in ns) for ns in (layout.size, layout.stride))
        if role == "temp" and len(size) > 2 and stride[1] == 1 < size[1] and 0 not in (*size, *stride):
            # channels last; nobody outside sees its dims, which are those of a tensor as it lies
            order = sorted(range(len(size)), key=lambda d: -stride[d])
            size, stride = tuple(size[d] for d in order), tuple(stride[d] for d in order)
        # what comes from outside has its offset in its data pointer
        offset = int(layout.offset) if role in ("output", "temp", "mem", "pool") else 0
        return Buffer(name, dtype_name(layout.dtype), size, stride, offset, role, lying.of_input(name) if role == "input" else 0)

    def _makes(self, name: str, nests: Sequence[Nest]) -> bool:
        """Whether a buffer that a region stores to came into being with it: nothing before it wrote there."""
        if name in V.graph.graph_inputs:
            return False
        first = nests[0].name
        for node in self.scheduler.nodes:
            if node.get_name() == first:
                return True
            if isinstance(node, NopKernelSchedulerNode):  # memory that others write: of a concatenation, or as `empty` gives it
                continue
            if any(self.real(dep.name)[0] == name for dep in node.read_writes.writes):
                return False
        return True
