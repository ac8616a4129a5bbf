"""Inductor's last step in our hands: the loop nests of its schedule become regions, as records of what their bodies compute."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._inductor import config as inductor_config
from torch._inductor import ir
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.scheduler import BaseSchedulerNode, BaseScheduling
from torch._inductor.utils import get_kernel_metadata, sympy_product
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from ktir import config
from ktir.lowering.inductor.nodes import Nodes
from ktir.lowering.inductor.running.fallback import Apart, Place, Refused, place_of
from ktir.lowering.region_to_ktir.region import Nest, NestRefused, Region
from ktir.lowering.region_to_ktir.translate import translate

RegionCompiler = Callable[[Region], str]
"""Compiles a region and returns the content hash under which the runtime finds the package. Raises NestRefused."""

MOST_APART = 16
"""Nests of a graph that may be taken out of the chip's programs."""
NO_LOOPS = "there are no loops for it"


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

    def __init__(self, compile_region: RegionCompiler, scheduler: Any, device: str = "cpu") -> None:
        super().__init__(scheduler)
        self._compile_region = compile_region
        self._apart: set[Place] = set()
        self._settled = False
        """Whether `_apart` is final."""
        self._fences: dict[str, int] = {}
        """Per nest, by name: how many calls and other devices come before it."""
        self._calls = 0
        """How many calls and other devices there are."""
        self._elsewhere: set[str] = set()
        """Buffers that calls use, by real name."""
        self._written: dict[str, str] = {}
        """By name as stored: the real name."""
        self._launches = "ktir.runtime.cache" if device == "cpu" else "ktir.device.launches"
        self._in_part = False
        self._pending: list[BaseSchedulerNode] = []
        self._nests: dict[str, Nest] | None = None
        self._nodes = Nodes(scheduler)

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
        region = self._nodes.region([self._nests[n.get_name()] for n in nodes if n.get_name() in self._nests])
        wrapper = V.graph.wrapper_code
        kernel = ""
        if region.nests:
            with debug_folder():
                key = self._compile(region)
            kernel = wrapper.src_to_kernel.get(key, "")
            if not kernel:
                kernel = wrapper.src_to_kernel[key] = f"ktir_kernel_{wrapper.next_kernel_suffix()}"
                wrapper.add_import_once(f"import {self._launches}, ktir.lowering.inductor.artifacts")
                wrapper.add_import_once(f"ktir.lowering.inductor.artifacts.note({key!r})")
                comment = "\n".join(get_kernel_metadata(nodes, wrapper))
                options = {"frozen_weights": config.current().frozen_weights, "strict": config.current().fallback == "error"}
                asked = "".join(f", {name}=True" for name, value in options.items() if value)
                wrapper.define_kernel(kernel, f"{self._launches}.kernel({key!r}{asked})", comment, gpu=False)
        for node in nodes:
            node.mark_run()
        if kernel:
            self.codegen_comment(nodes, kernel)
            wrapper.writeline(f"{kernel}({', '.join(self._nodes.numbers.expressions.get(a, a) for a in region.given)})")
        self.free_buffers_in_scheduler()

    def _compile(self, region: Region) -> str:
        """Compile, or report every nest that is refused, not only the first."""
        try:
            return self._compile_region(region)
        except Apart as cut:
            if self._settled or len(self._apart) >= MOST_APART or cut.places <= self._apart:
                return cut.key
            raise
        except NestRefused as error:
            refused = [error]
        while (rest := self._without(region.nests, refused[-1].nest)) and len(rest) < len(region.nests):
            region = self._nodes.region(rest)
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
        """Record all nests of the graph, and find out which the chip's compiler refuses and where each buffer has to live."""
        self._record()
        regions = self._regions()
        while cut := self._refused(regions.values()):
            self._apart |= cut.places
            regions = self._regions()
        self._settled = True
        if len(regions) > 1 or self._calls:  # a launch that fails has written nothing: one alone needs no undoing
            self._remember()
        for alias, real in self._written.items():
            if self._nodes.roles.get(real) in ("temp", "pool"):  # of the kernel: they need no memory of the host
                V.graph.removed_buffers.update((alias, real))

    def _refused(self, regions: Iterable[Sequence[Nest]]) -> Apart | None:
        """Compile regions, up to the first one of which nests have to be taken out."""
        try:
            for nests in regions:
                with debug_folder():
                    self._compile(self._nodes.region(nests))
        except Apart as cut:
            return cut
        return None

    def _record(self) -> None:
        self._nests = {}
        refused: list[NestRefused] = []
        fence, device = 0, None
        for node in self.scheduler.nodes:
            here = node.get_device() or device
            fence += device not in (None, here)  # Inductor flushes there as well
            device = here
            if node.is_extern() or node.is_template():
                fence += 1
                self._elsewhere |= {self._nodes.real(dep.name)[0] for dep in node.read_writes.reads | node.read_writes.writes}
                continue
            for leaf in self._leaves(node):
                if not isinstance(leaf.node, ir.ComputedBuffer) or 0 in leaf.node.get_pointwise_size():
                    continue  # owns the storage that others write into, or has nothing to do
                try:
                    nest = self._nests[leaf.get_name()] = self._nodes.recorded(leaf)
                except NestRefused as error:
                    refused.append(error)
                    continue
                if nest.calls:  # a kernel has all of its results, also those that nobody reads
                    V.graph.removed_buffers -= leaf.get_buffer_names()
                self._fences[leaf.get_name()] = fence
                self._written[leaf.node.get_name()] = self._nodes.real(leaf.node.get_name())[0]
        self._calls = fence
        if refused:
            raise Refused(refused)

    def _regions(self) -> dict[tuple[int, int], list[Nest]]:
        """The nests of each region: by what lies before it, calls and changes between what the chip refuses and takes. Gives the buffers
        their roles.
        """
        regions: dict[tuple[int, int], list[Nest]] = defaultdict(list)
        users: dict[str, set[tuple[int, int]]] = defaultdict(set)  # by real name: the regions that use a buffer
        in_memory: set[str] = set()
        shared: set[str] = set()
        changes, part = 0, False
        for name, nest in (self._nests or {}).items():
            before, part = part, place_of(nest) in self._apart
            changes += part != before
            region = self._fences[name], changes
            regions[region].append(nest)
            for record in nest.records():
                if record.buffer:
                    users[record.buffer].add(region)
                if record.op == "store" and (record.mode or any(v.startswith("ind") for v in record.index.variables)):
                    in_memory.add(record.buffer)
            if nest.calls:
                shared |= {r.buffer for r in nest.records() if r.buffer}
        outside = {self._nodes.real(name)[0] for name in V.graph.get_output_names()} | set(V.graph.graph_inputs) | set(V.graph.constants)
        own = {r for r in self._written.values() if r not in outside | self._elsewhere and len(users[r]) == 1}
        self._nodes.roles = {real: "mem" if real in in_memory else "pool" if real in shared else "temp" for real in own}
        return regions

    def _remember(self) -> None:
        """Let generated code keep the inputs that several programs and calls write to."""
        if V.graph.mutated_inputs:
            wrapper: Any = V.graph.wrapper_code
            wrapper.add_import_once("import ktir.lowering.inductor.running.guarded")
            wrapper.lines.insert(0, f"ktir.lowering.inductor.running.guarded.remember({', '.join(sorted(V.graph.mutated_inputs))})")
