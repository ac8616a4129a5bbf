"""Compiles an FX graph through stock Inductor with our Scheduling in place of its own. Only this file, `devices`, `lowerings`, `nodes`,
`calls`, `in_place` and `scheduling` import torch._inductor.

Inductor decomposes, lowers and schedules as always; we keep its loop nests unfused and un-merged, take all nests between two barriers
(calls of ATen on the host, collectives) as one region (RegionIR), and write one kernel call per region into the generated wrapper.
Private names of torch that are touched here are listed in test/unit/lowering/inductor/test_private_names.py, so that a new torch release
shows at once what moved. Pinned to torch 2.13.
"""

from __future__ import annotations

import functools
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._inductor import config as inductor_config
from torch._inductor import ir
from torch._inductor import standalone_compile as inductor_standalone
from torch._inductor.codegen import common
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.custom_graph_pass import CustomGraphModulePass, CustomGraphPass, CustomSchedulerPass, get_custom_graph_passes
from torch._inductor.dependencies import WeakDep
from torch._inductor.scheduler import BaseSchedulerNode, BaseScheduling
from torch._inductor.virtualized import V

from ktir import config, hints, registry, version
from ktir.lowering.inductor import devices, lying
from ktir.lowering.inductor.graph import constants, in_place, rounding, strides
from ktir.lowering.inductor.graph.early import exchanged
from ktir.lowering.inductor.graph.formulas.exponents import exponents_as_bytes
from ktir.lowering.inductor.graph.lowerings import ASSERTIONS, decompositions, lower_new_operators, user_lowerings, values_once
from ktir.lowering.inductor.nodes import origins_of, refuse_leaf
from ktir.lowering.inductor.running import calls
from ktir.lowering.inductor.running.fallback import Apart, Refusals, in_torch, refusals_in, say_of_extern
from ktir.lowering.inductor.scheduling import NO_LOOPS, RegionCompiler, Scheduling
from ktir.lowering.region_to_ktir.region import Region

INDUCTOR_CONFIG: dict[str, Any] = {
    "split_reductions": False,  # one loop nest per reduction
    "unroll_reductions_threshold": 1,  # reductions over few elements stay reductions
    "comprehensive_padding": False,  # intermediates keep their natural strides
    "allow_buffer_reuse": False,
    "inplace_buffers": False,
    "mtia.disable_welford_reduction": True,  # acts on every device: variance is two sums
    "triton.decompose_sort_ops": True,  # acts on every device: topk, median and mode are sorts, of any length
    "cpp.fallback_scatter_reduce_sum": False,  # else scatter_add is a call wherever PyTorch may use several threads
    "fallback_random": True,  # random numbers come from PyTorch's generator
    "pattern_matcher": False,  # no rewriting into fused attention or into host kernels
    "joint_graph_constant_folding": False,  # takes x * 0 for 0 and x + 0 for x, of NaN, infinities and -0 too
    "online_softmax": False,
    "graph_partition": False,
    "cpp_wrapper": False,
    "fx_wrapper": False,
}


_LOCK = threading.RLock()  # the registry and the table of user lowerings are process-wide


# ------------------------------------------------------------------------------------------------------------------------- entry


def compile_graph(
    gm: fx.GraphModule, inputs: Sequence[Any], compile_region: RegionCompiler, *, device: str = "cpu", nonce: str = "", cached: bool = True
) -> Callable[..., Any]:
    """Compile with Inductor; each region of loop nests goes to `compile_region`. Returns the callable that Dynamo wants.

    Nodes behind a nest that `compile_region` refuses become calls of ATen, and the graph is lowered again; where there are none, PyTorch
    runs the graph. A `nonce` enters the keys of torch's caches; those are neither read nor written where not `cached`.
    """

    def run(patches: dict[str, Any]) -> Any:
        patches["fx_graph_cache"] = cached and inductor_config.fx_graph_cache
        inner = compile_fx_inner if device == "cpu" else devices.as_on_host(compile_fx_inner)
        if any(steps := [lying.step_of(t) for t in inputs]):
            inner = lying.taken(inner, steps)
        return compile_fx(gm, inputs, inner, config_patches=patches, decompositions=decompositions())  # type: ignore[arg-type]

    with nullcontext() if device == "cpu" else devices.moves_shown(gm):
        return _accepted(run, compile_region, device, nonce, otherwise=gm)


def standalone_compile(
    gm: fx.GraphModule, inputs: Sequence[Any], compile_region: RegionCompiler, dynamic_shapes: Any, nonce: str = ""
) -> Any:
    """torch._inductor.standalone_compile with our lowering; the result has `save`. `nonce` as for `compile_graph`."""

    def run(patches: dict[str, Any]) -> Any:
        options = {"decompositions": decompositions(), "config_patches": patches}
        return inductor_standalone(gm, list(inputs), dynamic_shapes=dynamic_shapes, options=options)

    return _accepted(run, compile_region, nonce=nonce)


def _accepted(
    run: Callable[[dict[str, Any]], Any], compile_region: RegionCompiler, device: str = "cpu", nonce: str = "", otherwise: Any = None
) -> Any:
    """What `run` gives once every nest that is refused has become a call; `otherwise` where no call can stand for one."""
    refused: Refusals = {}
    compile_region = _once(compile_region)
    if inductor_config.trace.enabled:  # who debugs wants the stages: no cache may answer
        nonce = nonce or uuid.uuid4().hex
    while True:
        try:
            with inductor(compile_region, device=device, nonce=nonce, refused=refused) as patches:
                return run(patches)
        except Exception as error:
            found = refusals_in(error)
            if found is None:
                raise
            elsewhere = found.to_run_elsewhere(refused)
            if not elsewhere:
                if otherwise is None:
                    raise found.errors[0] from None
                return in_torch(otherwise, found.errors[0])
            refused.update(elsewhere)


def _once(compile_region: RegionCompiler) -> RegionCompiler:
    """The same, for a graph that is lowered several times, and its regions twice: what is equal is compiled the first time."""
    found: dict[str, str | Apart] = {}

    def compile_once(region: Region) -> str:
        text = repr(region)
        if text not in found:
            try:
                found[text] = compile_region(region)
            except Apart as cut:
                found[text] = cut
        known = found[text]
        if isinstance(known, Apart):
            raise known
        return known

    return compile_once


@contextmanager
def inductor(
    compile_region: RegionCompiler,
    *,
    device: str = "cpu",
    nonce: str = "",
    refused: Refusals | None = None,
) -> Iterator[dict[str, Any]]:
    """Inductor works for us inside the block; yields the configuration that it needs."""
    refused = {} if refused is None else refused
    before = (*get_custom_graph_passes(inductor_config.joint_custom_pre_pass), RoundValues())
    patches = {**INDUCTOR_CONFIG, "_pre_fusion_custom_pass": CheckExterns(refused), "joint_custom_pre_pass": before}
    scheduling = functools.partial(Scheduling, compile_region, device=device)
    backend = backend_for("cpu", scheduling, MarkRefused(nonce + device, refused), device)
    shown = nullcontext() if device == "cpu" else devices.shown_on_host()
    with _LOCK, backend, shown, user_lowerings(refused), exchanged(), in_place.careful(), values_once():
        yield patches


@contextmanager
def backend_for(
    device: str, scheduling: Callable[..., BaseScheduling], custom_pass: CustomGraphModulePass, buffers: str = "cpu"
) -> Iterator[None]:
    """Inductor uses our scheduling for `device` inside the block, in this thread: what other threads compile meanwhile is left alone. Old
    entries are assigned back, not popped: their order is part of the cache key. buffers: the device that generated code makes them on.
    """
    common.init_backend_registration()  # cached: lets Inductor fill its own entries first, so that there is something to restore
    tables: Any = (common.device_codegens, common.custom_backend_passes, common.custom_backend_codegen_configs)
    saved = [(t, t[device]) for t in tables if device in t]
    theirs = common.device_codegens.get(device)
    here = threading.get_ident()

    def of_thread(scheduler: Any) -> BaseScheduling:
        return theirs.scheduling(scheduler) if theirs and threading.get_ident() != here else scheduling(scheduler)

    others = (theirs.wrapper_codegen, theirs.cpp_wrapper_codegen, theirs.fx_wrapper_codegen) if theirs else (PythonWrapperCodegen,)
    if buffers != device:
        others = (_WrapperOfThread(here, devices.wrapper_for(buffers), others[0]), *others[1:])
    custom: Any = PassOfThread(here, custom_pass, common.custom_backend_passes.get(device))
    common.register_backend_for_device(device, of_thread, *others, device_custom_pass=custom)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for table, value in saved:
            table[device] = value


@dataclass(eq=False)
class _OfThread:
    """One thing in one thread, what was there before in all others."""

    _thread: int
    _ours: Any
    _theirs: Any

    def _chosen(self) -> Any:
        return self._ours if threading.get_ident() == self._thread else self._theirs


class _WrapperOfThread(_OfThread):
    """Makes code with our class in one thread."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chosen(), name)


class PassOfThread(_OfThread, CustomGraphModulePass):
    """Our pass in one thread."""

    def __call__(self, gm: fx.GraphModule) -> None:
        if (chosen := self._chosen()) is not None:
            chosen(gm)

    def uuid(self) -> Any:
        chosen = self._chosen()
        return None if chosen is None else chosen.uuid()


# ------------------------------------------------------------------------------------------------------ cache identity and externs


def identity() -> tuple[Any, ...]:
    """What must enter every cache key: version, sources, options, hints, what other packages do to graphs."""
    return ("ktir", version.__version__, version.sources_hash(), config.current().key(), str(hints.current()), registry.outside_rewrites())


class MarkRefused(CustomGraphModulePass):
    """Folds constants and marks the nodes that run as calls of ATen. Its uuid puts the identity of our compiler into Inductor's keys.

    The refused nodes are no part of the key: they follow from the graph and from what the key holds.
    """

    def __init__(self, nonce: str = "", refused: Refusals | None = None) -> None:
        self._nonce = nonce
        self._refused = refused or {}

    def __call__(self, gm: fx.GraphModule) -> None:
        constants.fold(gm)
        for node in gm.graph.nodes:
            if (node.name, str(node.target)) in self._refused:
                node.meta["should_fallback"] = True

    def uuid(self) -> Any:
        return (*identity(), self._nonce)


class RoundValues(CustomGraphPass):
    """Makes the roundings between operators of the user's program explicit, and copies of what is written, before any pass of Inductor."""

    def __call__(self, graph: fx.Graph) -> None:
        strides.copy_overlapping(graph)
        exponents_as_bytes(graph)
        for rewrite in registry.rewrites({str(getattr(node.target, "overloadpacket", "")) for node in graph.nodes}):
            rewrite(graph)
            lower_new_operators()
        rounding.mark(graph)

    def uuid(self) -> Any:
        return identity()


class CheckExterns(CustomSchedulerPass):
    """Whatever is no loop nest runs as a call on the host: say so, or refuse it; the generated wrapper counts it.

    Assertions are let through: they compute nothing.
    """

    _BARRIERS = (ir._CollectiveKernel, ir.InvokeSubgraph, ir.Conditional, ir.WhileLoop, ir.MultiOutput)
    _SCALARS = (ir.DynamicScalar, ir.AssertScalar, ir.DynamicSliceSize, ir.DynamicSelectStorageOffset)

    def __init__(self, refused: Refusals | None = None) -> None:
        self._refused = refused or {}

    def __call__(self, nodes: list[BaseSchedulerNode]) -> list[BaseSchedulerNode]:
        said: list[str] = []
        for node in nodes:
            for leaf in node.get_nodes():
                if leaf.is_extern() and not isinstance(leaf.node, (*self._BARRIERS, *self._SCALARS)):
                    kind = getattr(leaf.node, "op_overload", None) or getattr(leaf.node, "python_kernel_name", None)
                    if kind in ASSERTIONS or kind in calls.operators:  # the latter launch a program of their own
                        continue
                    if _is_view(leaf):
                        continue
                    origins = origins_of(leaf.node)
                    known = next((r for o in origins if (r := self._refused.get((o.node, o.target)))), None)
                    name = str(kind or type(leaf.node).__name__).removeprefix("torch.ops.")
                    error, reason = (known, known.message) if known else (refuse_leaf(leaf, f"'{name}' op", NO_LOOPS), NO_LOOPS)
                    said.append(say_of_extern(name, error, reason))
        if said:
            wrapper = V.graph.wrapper_code
            for line in ("import ktir.runtime.metrics, ktir.lowering.inductor.running.fallback", *dict.fromkeys(said)):
                wrapper.add_import_once(line)
            if not devices.counts_itself(wrapper):
                wrapper.writeline(f"ktir.runtime.metrics.count(torch={len(said)})")
        _assert_last(nodes)
        return _views_first(nodes)

    def uuid(self) -> Any:
        return identity()


def _is_view(node: BaseSchedulerNode) -> bool:
    """Whether a call of ATen only shows memory otherwise."""
    return getattr(node.node, "op_overload", None) == torch.ops.aten.view.dtype


def _views_first(nodes: list[BaseSchedulerNode]) -> list[BaseSchedulerNode]:
    """What shows inputs otherwise goes before all else, for calls cut a program in parts."""
    made = {name for node in nodes for name in node.get_buffer_names()}
    first = [node for node in nodes if not any(dep.name in made for dep in node.read_writes.reads)]
    views = [node for node in first if _is_view(node)]
    names = [name for node in views for name in node.get_buffer_names()]
    shown = [n for n in nodes if isinstance(n.node, ir.MultiOutput) and all(dep.name in names for dep in n.read_writes.reads)]
    views += shown  # the results of such calls
    for name in (*names, *(name for node in shown for name in node.get_buffer_names())):
        for node in (n for n in first if n not in views):
            node.add_fake_dep(WeakDep(name, mutating_buf=node.get_name(), is_fake=True))
    return [*views, *(node for node in nodes if node not in views)]


def _assert_last(nodes: Sequence[BaseSchedulerNode]) -> None:
    """Assertions wait for the results and for what all of them look at, for calls cut a program in parts."""
    asserted = [node for node in nodes if getattr(node.node, "op_overload", None) in ASSERTIONS]
    waited = {*V.graph.get_output_names(), *(dep.name for node in asserted for dep in node.read_writes.reads)}
    computed = sorted(waited.intersection(name for node in nodes for name in node.get_buffer_names()))
    for node in asserted:
        for name in computed:
            node.add_fake_dep(WeakDep(name, mutating_buf=node.get_name(), is_fake=True))
