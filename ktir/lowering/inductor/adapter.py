"""The only file that imports torch._inductor: compiles an FX graph through stock Inductor with our Scheduling in place of its own.

Inductor decomposes, lowers and schedules as always; we keep its loop nests unfused and un-merged, take all nests between two barriers
(calls of ATen on the host, collectives) as one region (RegionIR), and write one kernel call per region into the generated wrapper.
Private names of torch that are touched here are listed in test/unit/inductor/test_private_names.py, so that a new torch release shows at
once what moved. Pinned to torch 2.13.
"""

from __future__ import annotations

import functools
import hashlib
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import sympy
import torch
from torch import fx
from torch._inductor import ir
from torch._inductor import lowering as builtin
from torch._inductor import standalone_compile as inductor_standalone
from torch._inductor.codegen import common
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.compile_fx import compile_fx
from torch._inductor.config import trace
from torch._inductor.custom_graph_pass import CustomGraphModulePass, CustomSchedulerPass
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
from torch._inductor.scheduler import BaseSchedulerNode, BaseScheduling
from torch._inductor.utils import get_kernel_metadata, sympy_product
from torch._inductor.virtualized import V, ops
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._ordered_set import OrderedSet

import ktir
from ktir import config, hints
from ktir.lowering.inductor.decompositions import DECOMPOSITIONS
from ktir.lowering.inductor.fallback import Refusals, Refused, refusals_in, warn_of_extern, warn_once
from ktir.lowering.inductor.indices import Index
from ktir.lowering.inductor.origins import origin, refusal, result_of, shares_weight, type_text
from ktir.lowering.inductor.recorder import Recorder, dtype_name
from ktir.lowering.inductor.region import Buffer, Nest, NestRefused, Record, Region, Role
from ktir.lowering.inductor.shapes import DynamicShape

aten = torch.ops.aten

RegionCompiler = Callable[[Region], str]
"""Compiles a region and returns the content hash under which the runtime finds the package. Raises NestRefused."""

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
    "online_softmax": False,
    "graph_partition": False,
    "cpp_wrapper": False,
    "fx_wrapper": False,
}
_NO_LOOPS = "there are no loops for it"
_MATMULS = (aten.mm, aten.bmm, aten.addmm, aten.baddbmm)

_LOCK = threading.RLock()  # the registry and the table of user lowerings are process-wide


# ------------------------------------------------------------------------------------------------------------------------- entry


def compile_graph(
    gm: fx.GraphModule, inputs: Sequence[Any], compile_region: RegionCompiler, *, device: str = "cpu", nonce: str = ""
) -> Callable[..., Any]:
    """Compile with Inductor; each region of loop nests goes to `compile_region`. Returns the callable that Dynamo wants.

    Nodes behind a nest that `compile_region` refuses become calls of ATen, and the graph is lowered again; where there are none, PyTorch
    runs the graph. A `nonce` enters the cache keys: with a fresh one, no cached result is found and `compile_region` is always called.
    """

    def run(patches: dict[str, Any]) -> Any:
        return compile_fx(gm, inputs, decompositions=decompositions(), config_patches=patches)  # type: ignore[arg-type]

    return _accepted(run, compile_region, device, nonce, otherwise=gm)


def standalone_compile(gm: fx.GraphModule, inputs: Sequence[Any], compile_region: RegionCompiler, dynamic_shapes: Any) -> Any:
    """torch._inductor.standalone_compile with our lowering; the result has `save`."""

    def run(patches: dict[str, Any]) -> Any:
        options = {"decompositions": decompositions(), "config_patches": patches}
        return inductor_standalone(gm, list(inputs), dynamic_shapes=dynamic_shapes, options=options)

    return _accepted(run, compile_region)


def _accepted(
    run: Callable[[dict[str, Any]], Any], compile_region: RegionCompiler, device: str = "cpu", nonce: str = "", otherwise: Any = None
) -> Any:
    """What `run` gives once every nest that is refused has become a call; `otherwise` where no call can stand for one."""
    refused: Refusals = {}
    if trace.enabled:  # who debugs wants the stages: no cache may answer
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
                warn_once("graph", found.errors[0], found.errors[0].message, "the whole graph runs on the CPU")
                return otherwise
            refused.update(elsewhere)


@contextmanager
def inductor(
    compile_region: RegionCompiler, *, device: str = "cpu", nonce: str = "", refused: Refusals | None = None
) -> Iterator[dict[str, Any]]:
    """Inductor works for us inside the block; yields the configuration that it needs."""
    refused = {} if refused is None else refused
    patches = {**INDUCTOR_CONFIG, "_pre_fusion_custom_pass": CheckExterns(refused)}
    scheduling = functools.partial(Scheduling, compile_region)
    with _LOCK, backend_for(device, scheduling, MarkRefused(nonce, refused)), user_lowerings(refused):
        yield patches


@contextmanager
def backend_for(device: str, scheduling: Callable[..., BaseScheduling], custom_pass: CustomGraphModulePass) -> Iterator[None]:
    """Inductor uses our scheduling for `device` inside the block. Old entries are assigned back, not popped: their order is part of
    the cache key.
    """
    common.init_backend_registration()  # cached: lets Inductor fill its own entries first, so that there is something to restore
    tables: Any = (common.device_codegens, common.custom_backend_passes, common.custom_backend_codegen_configs)
    saved = [(t, t[device]) for t in tables if device in t]
    common.register_backend_for_device(device, scheduling, PythonWrapperCodegen, device_custom_pass=custom_pass)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for table, value in saved:
            table[device] = value


@contextmanager
def debug_folder() -> Iterator[None]:
    """With TORCH_COMPILE_DEBUG=1 our stages go beside Inductor's own files, unless `config.dump_dir` asks for another place."""
    if not trace.enabled or config.current().dump_dir:
        yield
        return
    with config.patch(dump_dir=V.debug.filename("ktir")):
        yield


# ------------------------------------------------------------------------------------------------------ cache identity and externs


@functools.cache
def sources_hash() -> str:
    """Hash of every Python file of ktir: what stands behind a cached kernel besides the graph."""
    digest = hashlib.sha256()
    root = Path(ktir.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def identity() -> tuple[Any, ...]:
    """What must enter every cache key: version, sources, options, hints."""
    return ("ktir", ktir.__version__, sources_hash(), config.current().key(), str(hints.current()))


class MarkRefused(CustomGraphModulePass):
    """Marks the nodes that run as calls of ATen; its uuid puts the identity of our compiler into Inductor's cache keys.

    The refused nodes are no part of the key: they follow from the graph and from what the key holds.
    """

    def __init__(self, nonce: str = "", refused: Refusals | None = None) -> None:
        self._nonce = nonce
        self._refused = refused or {}

    def __call__(self, gm: fx.GraphModule) -> None:
        for node in gm.graph.nodes:
            if (node.name, str(node.target)) in self._refused:
                node.meta["should_fallback"] = True

    def uuid(self) -> Any:
        return (*identity(), self._nonce)


class CheckExterns(CustomSchedulerPass):
    """Whatever is no loop nest runs as a call on the host: say so, or refuse it."""

    _BARRIERS = (ir._CollectiveKernel, ir.InvokeSubgraph, ir.Conditional, ir.WhileLoop, ir.MultiOutput)
    _SCALARS = (ir.DynamicScalar, ir.AssertScalar, ir.DynamicSliceSize, ir.DynamicSelectStorageOffset)

    def __init__(self, refused: Refusals | None = None) -> None:
        self._refused = refused or {}

    def __call__(self, nodes: list[BaseSchedulerNode]) -> list[BaseSchedulerNode]:
        for node in nodes:
            for leaf in node.get_nodes():
                if leaf.is_extern() and not isinstance(leaf.node, (*self._BARRIERS, *self._SCALARS)):
                    origins = _origins(leaf.node)
                    known = next((r for o in origins if (r := self._refused.get((o.node, o.target)))), None)
                    kind = getattr(leaf.node, "op_overload", None) or getattr(leaf.node, "python_kernel_name", None)
                    name = str(kind or type(leaf.node).__name__).removeprefix("torch.ops.")
                    if known:
                        warn_of_extern(name, known, known.message)
                    else:
                        warn_of_extern(name, _refuse_leaf(leaf, f"'{name}' op", _NO_LOOPS), _NO_LOOPS)
        return nodes

    def uuid(self) -> Any:
        return identity()


def _refuse_leaf(leaf: BaseSchedulerNode, what: str, reason: str = "", nearest: str = "") -> NestRefused:
    """The error for a scheduler node: what it is, its shape and dtype, its operators, its source line."""
    buffer: Any = leaf.node
    origins = _origins(buffer)
    described = ""
    if isinstance(buffer, ir.Buffer) and isinstance(buffer.layout, ir.Layout):
        described = " of " + type_text(buffer.get_size(), buffer.get_dtype())
    elif result := result_of(getattr(buffer, "origin_node", None)):
        described = f" of {result}"
    operators = ", ".join(f"'{t}'" for t in dict.fromkeys(o.target for o in origins)) or "the graph"
    source = next((f"{o.file}:{o.line}:1" for o in origins if o.file), None)
    error = refusal(f"{what}{described} (from {operators})", reason, nearest, source)
    return NestRefused(error.message, error.location, leaf.get_name(), origins)


def _origins(node: Any) -> tuple[Any, ...]:
    """Origins of an IR node, the one that made it first."""
    main = getattr(node, "origin_node", None)
    others = [o for o in getattr(node, "origins", ()) if o is not main]
    return tuple(origin(o) for o in ([main] if main is not None else []) + others)


# ------------------------------------------------------------------------------------------------------ decompositions and lowerings


class Table(dict[Any, Any]):
    """A decomposition table that pickles as a reference; a plain dict switches Inductor's caches off."""

    def __reduce__(self) -> Any:
        return (decompositions, ())


def decompositions() -> Table:
    """Inductor's table with ours, and without those for matmuls, which would turn small ones into sums before our lowerings see them."""
    table = Table({**select_decomp_table(), **DECOMPOSITIONS})
    for packet in _MATMULS:
        for overload in packet.overloads():
            table.pop(getattr(packet, overload), None)
    return table


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _dot(a: Any, b: Any, batch: int = 0) -> Any:
    """[.., M, K] x [.., K, N] as one loop nest: a reduction of kind `dot`. Operands are realized, so the body is two plain loads.

    The result is the accumulator (f32 for half precision); it is rounded to the operands' type where it is stored, after what is fused
    with it.
    """
    a.realize()
    b.realize()
    kind = _accumulator(a.get_dtype())
    if a.get_size()[-1] == 0:
        return builtin.full([*a.get_size()[:-1], b.get_size()[-1]], 0, dtype=kind, device=a.get_device())
    a = builtin.lowerings[aten.unsqueeze](a, -1)
    b = builtin.lowerings[aten.unsqueeze](b, -3)
    (a, b), _ = builtin.transform_args(args=[a, b], kwargs={}, broadcast=True, type_promotion_kind=None, convert_input_to_bool=False)
    return builtin.make_reduction("dot", kind)(builtin.make_pointwise(ops.dot)(a, b), 1 + batch)


def _mm(a: Any, b: Any, out_dtype: torch.dtype | None = None) -> Any:
    return builtin.to_dtype(_dot(a, b), out_dtype or a.get_dtype())


def _bmm(a: Any, b: Any, out_dtype: torch.dtype | None = None) -> Any:
    """A batched matmul; where the second operand is one matrix, the batch folds into the rows."""
    if a.get_size()[0] != 1 and not shares_weight(V.graph.current_node):
        return builtin.to_dtype(_dot(a, b, 1), out_dtype or a.get_dtype())
    batch, rows, inner = a.get_size()
    a.realize()
    view = builtin.lowerings[aten.view]
    product = _mm(view(a, [batch * rows, inner]), builtin.lowerings[aten.select](b, 0, 0), out_dtype)
    return view(product, [batch, rows, b.get_size()[2]])


def _plus(bias: Any, product: Any, dtype: torch.dtype, beta: float, alpha: float) -> Any:
    """beta * bias + alpha * product, on the accumulator; a bias with beta = 0 is not read."""
    multiply, kind = builtin.lowerings[aten.mul.Tensor], _accumulator(dtype)
    if alpha != 1:
        product = multiply(product, alpha)
    if beta != 0:
        bias = builtin.to_dtype(bias, kind)
        product = builtin.lowerings[aten.add.Tensor](bias if beta == 1 else multiply(bias, beta), product)
    elif list(product.get_size()) != list(V.graph.current_node.meta["val"].shape):
        return None
    return builtin.to_dtype(product, dtype)


def _addmm(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    return _plus(bias, _dot(a, b), a.get_dtype(), beta, alpha)


def _addbmm(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """The sum of a batch of products is one product, whose inner dim is the batch and the inner dim."""
    batch, rows, inner = a.get_size()
    view, permute = builtin.lowerings[aten.view], builtin.lowerings[aten.permute]
    a = view(permute(a, [1, 0, 2]), [rows, batch * inner])
    return _addmm(bias, a, view(b, [batch * inner, b.get_size()[2]]), beta=beta, alpha=alpha)


def _baddbmm(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    return _plus(bias, _dot(a, b, 1), a.get_dtype(), beta, alpha)


def _division(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    """Division of floats rounded to a whole number, as PyTorch's kernel does it: in half precision each step is rounded, unless the
    divisor is one number; rounding down goes by the exact remainder, so that 1 / 0.1 gives 9, as in Python, not 10.
    """
    if rounding_mode is None:
        return None
    steps = hasattr(b, "get_numel") and b.get_numel() != 1
    (a, b), _ = builtin.transform_args(
        args=[a, b], kwargs={}, broadcast=True, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT, convert_input_to_bool=False
    )
    dtype = next(x.get_dtype() for x in (a, b) if hasattr(x, "get_dtype"))
    if not dtype.is_floating_point:
        return None

    def rounded(x: Any) -> Any:
        return ops.to_dtype(x, dtype, use_compute_types=False) if steps and _accumulator(dtype) != dtype else x

    def towards_zero(x: Any, y: Any) -> Any:
        return ops.trunc(rounded(ops.truediv(x, y)))

    def down(x: Any, y: Any) -> Any:
        zero, one = ops.constant(0.0, dtype), ops.constant(1.0, dtype)
        quotient, rest = rounded(ops.truediv(x, y)), ops.fmod(x, y)
        whole = rounded(ops.truediv(rounded(ops.sub(x, rest)), y))
        signs_differ = ops.logical_xor(ops.lt(rest, zero), ops.lt(y, zero))
        whole = ops.where(ops.logical_and(ops.ne(rest, zero), signs_differ), rounded(ops.sub(whole, one)), whole)
        floor = ops.floor(whole)
        # the difference and the quotient were rounded
        too_low = ops.gt(rounded(ops.sub(whole, floor)), ops.constant(0.5, dtype))
        floor = ops.where(too_low, rounded(ops.add(floor, one)), floor)
        floor = ops.where(ops.eq(whole, zero), ops.copysign(zero, quotient), floor)
        return ops.where(ops.eq(y, zero), quotient, floor)

    return builtin.make_pointwise(towards_zero if rounding_mode == "trunc" else down)(a, b)


def _cat(inputs: Sequence[Any], dim: int = 0) -> Any:
    """A `cat` of bytes, which Inductor leaves to ATen on the host."""
    parts = [x for x in inputs if len(x.get_size()) != 1 or x.get_size()[0] != 0]  # ATen takes empty tensors of one dim for nothing
    kinds = {x.get_dtype() for x in inputs}
    if len(parts) < 2 or len(kinds) > 1 or kinds - {torch.int8, torch.uint8}:
        return None
    return builtin.pointwise_cat(parts, dim % len(parts[0].get_size()))


_LOWERINGS = {
    aten.cat.default: _cat,
    aten.div.Tensor_mode: _division,
    aten.div.Scalar_mode: _division,
    aten.mm.default: _mm,
    aten.mm.dtype: _mm,
    aten.bmm.default: _bmm,
    aten.bmm.dtype: _bmm,
    aten.addmm.default: _addmm,
    aten.addbmm.default: _addbmm,
    aten.baddbmm.default: _baddbmm,
}


def _real_numbers(lowering: Callable[..., Any]) -> Callable[..., Any]:
    """The lowering, except for complex numbers, which Inductor leaves to ATen."""

    def lower(*args: Any, **kwargs: Any) -> Any:
        return None if any(getattr(a, "dtype", torch.float32).is_complex for a in args) else lowering(*args, **kwargs)

    return lower


def _copies(refused: Refusals) -> Callable[..., Any]:
    """In-place copies that are refused. Inductor makes some of them when `MarkRefused` has run: they are calls from here on."""

    def lower(target: Any, value: Any, *options: Any) -> Any:
        node = V.graph.current_node
        if (node.name, str(node.target)) in refused:
            return builtin.fallback_handler(aten.copy_.default, add_to_fallback_set=False)(target, value, *options)
        return None

    return lower


@contextmanager
def user_lowerings(refused: Refusals) -> Iterator[None]:
    """Inside the block, matmuls lower to loops, divisions to steps that are rounded as in PyTorch, refused copies to calls. A lowering that
    returns None leaves the operator to Inductor.
    """
    saved = dict(builtin.user_lowerings)
    ours = {**_LOWERINGS, aten.copy_.default: _copies(refused)}
    builtin.user_lowerings.update({op: _real_numbers(lowering) for op, lowering in ours.items()})
    try:
        yield
    finally:
        builtin.user_lowerings.clear()
        builtin.user_lowerings.update(saved)


# -------------------------------------------------------------------------------------------------------------------- scheduling


@functools.cache
def _type_rules() -> DtypePropagationOpsHandler:
    return DtypePropagationOpsHandler()


class Scheduling(BaseScheduling):
    """One kernel per region: nests are collected unfused in final order and handed over when Inductor flushes, which it does before
    each barrier and at the end.
    """

    scheduler: Any

    def __init__(self, compile_region: RegionCompiler, scheduler: Any) -> None:
        super().__init__(scheduler)
        self._compile_region = compile_region
        self._pending: list[BaseSchedulerNode] = []
        self._nests: dict[str, Nest] | None = None
        self._roles: dict[str, Role] = {}

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
        self._pending += self._leaves(node)

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
                wrapper.define_kernel(kernel, f"ktir.runtime.cache.kernel({key!r})", comment, gpu=False)
        for node in nodes:
            node.mark_run()
        if kernel:
            self.codegen_comment(nodes, kernel)
            wrapper.writeline(f"{kernel}({', '.join(region.arguments)})")
        self.free_buffers_in_scheduler()

    def _compile(self, region: Region) -> str:
        """Compile, or report every nest that is refused, not only the first."""
        refused: list[NestRefused] = []
        while region.nests:
            try:
                key = self._compile_region(region)
            except NestRefused as error:
                refused.append(error)
                region = self._region([n for n in region.nests if n.name != error.nest])
            else:
                if not refused:
                    return key
                break
        raise Refused(refused)

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
        number = 0
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
                written[leaf.node.get_name()] = self._real(leaf.node.get_name())[0]
                for record in nest.records():
                    if record.buffer:
                        regions[record.buffer].add(number)
                    if record.op == "store" and (record.mode or any(v.startswith("ind") for v in record.index.variables)):
                        through_indices.add(record.buffer)
        if refused:
            raise Refused(refused)
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
        refuse = functools.partial(_refuse_leaf, leaf)
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
        records = tuple(self._resolved(r) for r in recorder.records)
        return Nest(leaf.get_name(), type(computed.data).__name__, loops[0], loops[1], records, _origins(computed))

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
            if isinstance(getattr(node, "node", None), ir.ConcatKernel):
                continue
            if any(self._real(dep.name)[0] == name for dep in node.read_writes.writes):
                return False
        return True
