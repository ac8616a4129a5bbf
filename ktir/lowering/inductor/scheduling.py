"""Inductor's last step in our hands: the loop nests of its schedule become regions, as records of what their bodies compute."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import sympy
import torch
from torch._inductor import config as inductor_config
from torch._inductor import ir
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
from torch._inductor.scheduler import BaseSchedulerNode, BaseScheduling, NopKernelSchedulerNode
from torch._inductor.utils import get_kernel_metadata, sympy_product
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._ordered_set import OrderedSet

from ktir import config
from ktir.lowering.inductor.graph import rounding
from ktir.lowering.inductor.graph.numbers import Numbers
from ktir.lowering.inductor.graph.shapes import DynamicShape
from ktir.lowering.inductor.recorder import Recorder, dtype_name
from ktir.lowering.inductor.running.fallback import Apart, Place, Refused, place_of
from ktir.lowering.inductor.running.origins import origin, refusal, result_of, type_text
from ktir.lowering.region_to_ktir.indices import Index
from ktir.lowering.region_to_ktir.region import Buffer, Nest, NestRefused, Record, Region, Role
from ktir.lowering.region_to_ktir.translate import translate

RegionCompiler = Callable[[Region], str]
"""Compiles a region and returns the content hash under which the runtime finds the package. Raises NestRefused."""

MOST_APART = 16
"""Nests of a graph that may be taken out of the chip's programs, one lowering for each time that its compiler refuses some."""
NO_LOOPS = "there are no loops for it"


def refuse_leaf(leaf: BaseSchedulerNode, what: str, reason: str = "", nearest: str = "") -> NestRefused:
    """The error for a scheduler node: what it is, its shape and dtype, its operators, its source line."""
    buffer: Any = leaf.node
    origins = origins_of(buffer)
    described = ""
    if isinstance(buffer, ir.Buffer) and isinstance(buffer.layout, ir.Layout):
        described = " of " + type_text(buffer.get_size(), buffer.get_dtype())
    elif result := result_of(getattr(buffer, "origin_node", None)):
        described = f" of {result}"
    operators = ", ".join(f"'{t}'" for t in dict.fromkeys(o.target for o in origins)) or "the graph"
    source = next((f"{o.file}:{o.line}:1" for o in origins if o.file), None)
    error = refusal(f"{what}{described} (from {operators})", reason, nearest, source)
    return NestRefused(error.message, error.location, leaf.get_name(), origins)


def origins_of(node: Any) -> tuple[Any, ...]:
    """Origins of an IR node, the one that made it first."""
    main = getattr(node, "origin_node", None)
    found = ([main] if main is not None else []) + [o for o in getattr(node, "origins", ()) if o is not main]
    named = [o for o in found if o.target is not rounding.ROUNDED]
    return tuple(map(origin, named or found))


@functools.cache
def _type_rules() -> DtypePropagationOpsHandler:
    return DtypePropagationOpsHandler()


def _is_number(name: str) -> bool:
    """Whether a buffer is an input of one float64 that the graph does not change."""
    given = V.graph.graph_inputs.get(name)
    if not isinstance(given, ir.TensorBox) or name in V.graph.mutated_inputs:
        return False
    return given.get_dtype() == torch.float64 and not given.get_size()


@contextmanager
def debug_folder() -> Iterator[None]:
    """With TORCH_COMPILE_DEBUG=1 our stages go beside Inductor's own files, unless `config.dump_dir` asks for another place."""
    if not inductor_config.trace.enabled or config.current().dump_dir:
        yield
        return
    with config.patch(dump_dir=V.debug.filename("ktir")):
        yield


class Scheduling(BaseScheduling):
    """One kernel per region: nests are collected unfused in final order and handed over when Inductor flushes, which it does before
    each barrier and at the end.
    """

    scheduler: Any

    def __init__(self, compile_region: RegionCompiler, scheduler: Any, apart: Collection[Place] = ()) -> None:
        super().__init__(scheduler)
        self._compile_region = compile_region
        self._apart = apart
        self._in_part = False
        self._pending: list[BaseSchedulerNode] = []
        self._nests: dict[str, Nest] | None = None
        self._roles: dict[str, Role] = {}
        self._numbers = Numbers(_is_number)

    def get_backend_features(self, device: torch.device) -> OrderedSet[BackendFeature]:
        # Inductor also asks an instance made with scheduler=None.
        return OrderedSet(
            [
                BackendFeature.REDUCE_TO_SINGLE_ELEMENT,
                BackendFeature.PREFER_STORE_LOOP_ORDER,
                BackendFeature.SCAN,
                BackendFeature.SORT,
                BackendFeature.TUPLE_REDUCTION,
                BackendFeature.MASKED_SCATTER_WITH_INDEX,
                BackendFeature.BUCKETIZE,
            ]
        )

    def group_fn(self, sizes: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        return tuple(V.graph.sizevars.simplify(sympy_product(s)) for s in sizes)

    def can_fuse_vertical(self, node1: BaseSchedulerNode, node2: BaseSchedulerNode) -> bool:
        return False

    def can_fuse_horizontal(self, node1: BaseSchedulerNode, node2: BaseSchedulerNode) -> bool:
        return False

    def codegen_sync(self) -> None:
        pass

    def codegen_node(self, node: Any) -> None:
        if self._nests is None:
            self._survey()
        for leaf in self._leaves(node):
            part = self._part(leaf, self._in_part)
            if part != self._in_part:
                unfinished = {*node.last_usage} & self.scheduler.buffer_names_to_free
                self.scheduler.buffer_names_to_free -= unfinished  # they are for after this node
                self.flush()
                self.scheduler.buffer_names_to_free |= unfinished
            self._in_part = part
            self._pending.append(leaf)

    def _part(self, leaf: Any, before: bool) -> bool:
        """Whether a node belongs to what the chip's compiler refuses, which is a region of its own; one without loops goes with those
        before it.
        """
        nest = (self._nests or {}).get(leaf.get_name())
        return before if nest is None else place_of(nest) in self._apart

    def flush(self) -> None:
        """The end of a region: compile it and write the call."""
        nodes, self._pending = self._pending, []
        if not nodes:
            return
        assert self._nests is not None
        region = self._region([self._nests[n.get_name()] for n in nodes if n.get_name() in self._nests])
        wrapper = V.graph.wrapper_code
        kernel = ""
        if region.nests:
            with debug_folder():
                key = self._compile(region)
            kernel = wrapper.src_to_kernel.get(key, "")
            if not kernel:
                kernel = wrapper.src_to_kernel[key] = f"ktir_kernel_{wrapper.next_kernel_suffix()}"
                wrapper.add_import_once("import ktir.runtime.cache, ktir.lowering.inductor.artifacts")
                wrapper.add_import_once(f"ktir.lowering.inductor.artifacts.note({key!r})")
                comment = "\n".join(get_kernel_metadata(nodes, wrapper))
                options = {"frozen_weights": config.current().frozen_weights, "strict": config.current().fallback == "error"}
                asked = "".join(f", {name}=True" for name, value in options.items() if value)
                wrapper.define_kernel(kernel, f"ktir.runtime.cache.kernel({key!r}{asked})", comment, gpu=False)
        for node in nodes:
            node.mark_run()
        if kernel:
            self.codegen_comment(nodes, kernel)
            wrapper.writeline(f"{kernel}({', '.join(self._numbers.expressions.get(a, a) for a in region.arguments)})")
        self.free_buffers_in_scheduler()

    def _compile(self, region: Region) -> str:
        """Compile, or report every nest that is refused, not only the first."""
        try:
            return self._compile_region(region)
        except Apart as cut:
            if len(self._apart) >= MOST_APART or cut.places <= set(self._apart):
                return cut.key
            raise
        except NestRefused as error:
            refused = [error]
        while (rest := self._without(region.nests, refused[-1].nest)) and len(rest) < len(region.nests):
            region = self._region(rest)
            try:
                translate(region)
            except NestRefused as error:
                refused.append(error)
            else:
                break
        raise Refused(refused)

    def _without(self, nests: Sequence[Nest], refused: str) -> list[Nest]:
        """The nests without one of them, and without those that read what is then not computed."""
        gone: set[str] = set()
        kept: list[Nest] = []
        for nest in nests:
            buffers = {mode: {r.buffer for r in nest.records() if r.buffer and (r.op == "store") == mode} for mode in (True, False)}
            if nest.name == refused or gone & buffers[False]:
                gone |= buffers[True]
            else:
                kept.append(nest)
        return kept

    # ---------------------------------------------------------------------------------------------------- the graph as a whole

    def _leaves(self, node: Any) -> list[Any]:
        return [n for n in node.get_nodes() if n.get_name() not in self.scheduler.removed_ops]

    def _survey(self) -> None:
        """Record all nests of the graph and find out where each buffer has to live."""
        self._nests = {}
        regions: dict[str, set[int]] = defaultdict(set)  # by real name: the regions that use a buffer, -1 for users that are no loops
        written: dict[str, str] = {}  # by name as stored: the real name
        through_indices: set[str] = set()
        refused: list[NestRefused] = []
        number, part = 0, False
        for node in self.scheduler.nodes:
            if node.is_extern() or node.is_template():
                number += 1
                for dep in node.read_writes.reads | node.read_writes.writes:
                    regions[self._real(dep.name)[0]].add(-1)
                continue
            for leaf in self._leaves(node):
                if not isinstance(leaf.node, ir.ComputedBuffer) or 0 in leaf.node.get_pointwise_size():
                    continue  # owns the storage that others write into, or has nothing to do
                try:
                    nest = self._nests[leaf.get_name()] = self._recorded(leaf)
                except NestRefused as error:
                    refused.append(error)
                    continue
                before, part = part, self._part(leaf, part)
                number += part != before
                written[leaf.node.get_name()] = self._real(leaf.node.get_name())[0]
                for record in nest.records():
                    if record.buffer:
                        regions[record.buffer].add(number)
                    if record.op == "store" and (record.mode or any(v.startswith("ind") for v in record.index.variables)):
                        through_indices.add(record.buffer)
        if refused:
            raise Refused(refused)
        if number and V.graph.mutated_inputs:
            wrapper: Any = V.graph.wrapper_code
            wrapper.add_import_once("import ktir.lowering.inductor.running.guarded")
            wrapper.lines.insert(0, f"ktir.lowering.inductor.running.guarded.remember({', '.join(sorted(V.graph.mutated_inputs))})")
        outside = {self._real(name)[0] for name in V.graph.get_output_names()} | set(V.graph.graph_inputs) | set(V.graph.constants)
        for alias, real in written.items():
            if real not in outside and len(regions[real]) == 1 and -1 not in regions[real]:
                self._roles[real] = "mem" if real in through_indices else "temp"
                if self._roles[real] == "temp":  # values of the kernel: they need no memory of the host
                    V.graph.removed_buffers.update((alias, real))

    def _region(self, nests: Sequence[Nest]) -> Region:
        stored = {r.buffer for nest in nests for r in nest.records() if r.op == "store"}
        names = dict.fromkeys(r.buffer for nest in nests for r in nest.records() if r.buffer)
        buffers = {name: self._buffer(name, name in stored, nests) for name in names}
        order = {"input": 0, "constant": 1, "output": 2, "mutated": 2, "mem": 3}
        position = {n: k for k, n in enumerate([*V.graph.graph_inputs, *V.graph.constants, *V.graph.get_output_names()])}
        arguments = sorted(
            (b for b in buffers.values() if b.role != "temp"), key=lambda b: (order[b.role], position.get(b.name, len(position)))
        )
        return Region("forward", buffers, tuple(nests), tuple(b.name for b in arguments))

    # -------------------------------------------------------------------------------------------------------- nests and buffers

    def _recorded(self, leaf: BaseSchedulerNode) -> Nest:
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
        records = self._numbers.taken_out([self._resolved(r) for r in recorder.records])
        return Nest(leaf.get_name(), type(computed.data).__name__, loops[0], loops[1], records, origins_of(computed))

    def _resolved(self, record: Record) -> Record:
        """The record with the name of the buffer that really holds the data, and its index into that."""
        if record.body:
            record = replace(record, body=tuple(map(self._resolved, record.body)))
        if not record.buffer:
            return record
        name, offset = self._real(record.buffer)
        return replace(record, buffer=name, index=record.index + Index(offset))

    def _real(self, name: str) -> tuple[str, int]:
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
        if name in self._numbers.expressions:
            return Buffer(name, "float32", (), (), 0, "input")
        if V.graph.try_get_buffer(name) is None and name not in V.graph.graph_inputs:  # an integer that is known only at run time
            return Buffer(name, "int64", (), (), 0, "input")
        own: Any = V.graph.graph_inputs[name] if name in V.graph.graph_inputs else V.graph.get_buffer(name)
        layout = own.get_layout()
        role = self._roles.get(name)
        if role is None and not stored:
            role = "input"
        elif role is None:
            role = "output" if self._makes(name, nests) else "mutated"
        if not all(n.is_Integer for n in map(sympy.sympify, (*layout.size, *layout.stride, layout.offset))):
            raise DynamicShape(f"buffer '{name}' of dynamic shape {list(layout.size)}")
        size, stride = (tuple(int(n) for n in ns) for ns in (layout.size, layout.stride))
        # what comes from outside has its offset in its data pointer
        return Buffer(name, dtype_name(layout.dtype), size, stride, int(layout.offset) if role in ("output", "temp", "mem") else 0, role)

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
            if any(self._real(dep.name)[0] == name for dep in node.read_writes.writes):
                return False
        return True
