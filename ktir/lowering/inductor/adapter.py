"""The only file that imports torch._inductor: compiles an FX graph through stock Inductor with our Scheduling in place of its own.

Inductor decomposes, lowers and schedules as always; we keep its loop nests unfused and un-merged, take all nests of a graph as one region
(RegionIR), and write one kernel call into the generated wrapper. Private names of torch that are touched here are listed in
test/unit/inductor/test_private_names.py, so that a new torch release shows at once what moved. Pinned to torch 2.13.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sympy
import torch
from torch import fx
from torch._inductor import ir
from torch._inductor import lowering as builtin
from torch._inductor.codegen import common
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.compile_fx import compile_fx
from torch._inductor.custom_graph_pass import CustomGraphModulePass, CustomSchedulerPass
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.ops_handler import DefaultHandler
from torch._inductor.scheduler import BaseSchedulerNode, BaseScheduling
from torch._inductor.utils import get_kernel_metadata, sympy_product
from torch._inductor.virtualized import V, ops
from torch.utils._ordered_set import OrderedSet

import ktir
from ktir import config
from ktir.lowering.inductor.checks import check_graph, shares_weight
from ktir.lowering.inductor.indices import Index, variable
from ktir.lowering.inductor.origins import origin, refusal, type_text
from ktir.lowering.inductor.region import Buffer, Nest, Record, Region, Role

aten = torch.ops.aten

RegionCompiler = Callable[[Region], str]
"""Compiles a region and returns the content hash under which the runtime finds the package."""

INDUCTOR_CONFIG: dict[str, Any] = {
    "split_reductions": False,  # one loop nest per reduction
    "unroll_reductions_threshold": 1,  # reductions over few elements stay reductions
    "comprehensive_padding": False,  # intermediates keep their natural strides
    "allow_buffer_reuse": False,
    "inplace_buffers": False,
    "mtia.disable_welford_reduction": True,  # acts on every device: variance is two sums
    "pattern_matcher": False,  # no rewriting into fused attention or into host kernels
    "online_softmax": False,
    "cpp_wrapper": False,
    "fx_wrapper": False,
}

_LOCK = threading.RLock()  # the registry and the table of user lowerings are process-wide


# ------------------------------------------------------------------------------------------------------------------------- entry


def compile_graph(
    gm: fx.GraphModule, inputs: Sequence[Any], compile_region: RegionCompiler, *, device: str = "cpu", nonce: str = ""
) -> Callable[..., Any]:
    """Compile with Inductor; each region of loop nests goes to `compile_region`. Returns the callable that Dynamo wants.

    A `nonce` enters the cache keys: with a fresh one, no cached result is found and `compile_region` is always called.
    """
    patches = {**INDUCTOR_CONFIG, "_pre_fusion_custom_pass": RefuseExterns()}
    with _LOCK, backend_for(device, functools.partial(Scheduling, compile_region), Identity(nonce)), user_lowerings():
        return compile_fx(gm, inputs, decompositions=decompositions(), config_patches=patches)  # type: ignore[arg-type]


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


# ------------------------------------------------------------------------------------------------- cache identity and graph checks


@functools.cache
def sources_hash() -> str:
    """Hash of every Python file of ktir: what stands behind a cached kernel besides the graph."""
    digest = hashlib.sha256()
    root = Path(ktir.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def identity() -> tuple[Any, ...]:
    """What must enter every cache key: version, sources, options."""
    return ("ktir", ktir.__version__, sources_hash(), config.current().key())


class Identity(CustomGraphModulePass):
    """Checks the post-grad graph; its uuid puts the identity of our compiler into Inductor's cache keys."""

    def __init__(self, nonce: str = "") -> None:
        self._nonce = nonce

    def __call__(self, gm: fx.GraphModule) -> None:
        check_graph(gm)

    def uuid(self) -> Any:
        return (*identity(), self._nonce)


class RefuseExterns(CustomSchedulerPass):
    """Whatever is not a plain loop nest would run as a call into ATen on the host: refuse it by name."""

    def __call__(self, nodes: list[BaseSchedulerNode]) -> list[BaseSchedulerNode]:
        for node in nodes:
            for leaf in node.get_nodes():
                data = getattr(leaf.node, "data", None)
                if not isinstance(leaf.node, ir.ComputedBuffer) or type(data) not in (ir.Pointwise, ir.Reduction):
                    kind = getattr(leaf.node, "python_kernel_name", None) or type(data or leaf.node).__name__
                    raise _refuse_leaf(leaf, f"'{kind}' op")
        return nodes

    def uuid(self) -> Any:
        return identity()


def _refuse_leaf(leaf: BaseSchedulerNode, what: str, reason: str = "", nearest: str = "") -> Exception:
    """The error for a scheduler node: what it is, its shape and dtype, its operators, its source line."""
    buffer: Any = leaf.node
    origins = _origins(buffer)
    described = ""
    if isinstance(buffer, ir.Buffer) and isinstance(buffer.layout, ir.Layout):
        described = " of " + type_text(buffer.get_size(), buffer.get_dtype())
    operators = ", ".join(f"'{t}'" for t in dict.fromkeys(o.target for o in origins)) or "the graph"
    source = next((f"{o.file}:{o.line}:1" for o in origins if o.file), None)
    return refusal(f"{what}{described} (from {operators})", reason, nearest, source)


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
    """Inductor's table without those for matmuls, which would turn small ones into sums before our lowerings see them."""
    table = Table(select_decomp_table())
    for op in (aten.mm.default, aten.bmm.default, aten.addmm.default):
        table.pop(op, None)
    return table


def _dot(a: Any, b: Any) -> Any:
    """[M, K] x [K, N] as one loop nest: a reduction of kind `dot`. Operands are realized, so the body is two plain loads.

    The result is the f32 accumulator; it is rounded to the operands' type where it is stored, after what is fused with it.
    """
    a.realize()
    b.realize()
    a = builtin.lowerings[aten.unsqueeze](a, -1)
    b = builtin.lowerings[aten.unsqueeze](b, 0)
    (a, b), _ = builtin.transform_args(args=[a, b], kwargs={}, broadcast=True, type_promotion_kind=None, convert_input_to_bool=False)
    return builtin.make_reduction("dot", torch.float32)(builtin.make_pointwise(ops.dot)(a, b), 1)


def _mm(a: Any, b: Any) -> Any:
    return builtin.to_dtype(_dot(a, b), a.get_dtype())


def _addmm(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    sum_ = builtin.lowerings[aten.add.Tensor](builtin.to_dtype(bias, torch.float32), _dot(a, b))
    return builtin.to_dtype(sum_, a.get_dtype())


def _bmm(a: Any, b: Any) -> Any:
    """A batched matmul whose second operand is one matrix: the batch folds into the rows. `check_graph` refuses all others."""
    if a.get_size()[0] != 1 and not shares_weight(V.graph.current_node):
        return None
    batch, rows, inner = a.get_size()
    a.realize()
    view = builtin.lowerings[aten.view]
    product = _mm(view(a, [batch * rows, inner]), builtin.lowerings[aten.select](b, 0, 0))
    return view(product, [batch, rows, b.get_size()[2]])


_LOWERINGS = {aten.mm.default: _mm, aten.bmm.default: _bmm, aten.addmm.default: _addmm}


@contextmanager
def user_lowerings() -> Iterator[None]:
    """Matmuls lower to loops inside the block; a lowering that returns None leaves the operator to Inductor."""
    saved = dict(builtin.user_lowerings)
    builtin.user_lowerings.update(_LOWERINGS)
    try:
        yield
    finally:
        builtin.user_lowerings.clear()
        builtin.user_lowerings.update(saved)


# ---------------------------------------------------------------------------------------------------------- loop bodies as records


def index_of(expression: Any) -> Index:
    """A sympy index expression as a tree of ours; raises ValueError for anything but sums, products and divisions by constants."""
    expression = sympy.sympify(expression)
    name = type(expression).__name__
    if expression.is_Integer:
        return Index(int(expression))
    if expression.is_Symbol:
        return variable(expression.name)
    if name == "Add":
        return functools.reduce(Index.__add__, map(index_of, expression.args))
    if name == "Mul":
        factor, rest = expression.as_coeff_Mul()
        if factor.is_Integer and factor != 1:
            return index_of(rest).scaled(int(factor))
    if name == "Identity":
        return index_of(expression.args[0])
    if name in ("FloorDiv", "Mod", "PythonMod", "ModularIndexing") and all(a.is_Integer and a > 0 for a in expression.args[1:]):
        inner, numbers = index_of(expression.args[0]), [int(a) for a in expression.args[1:]]
        if name == "FloorDiv":
            return inner.divided(numbers[0])
        if name == "ModularIndexing":
            return inner.divided(numbers[0]).modulo(numbers[1])
        return inner.modulo(numbers[0])
    raise ValueError(f"index expression {expression}")


class Recorder(DefaultHandler):
    """V.ops handler that replays a LoopBody into records. Values are their names, `%0`, `%1`, ..."""

    def __init__(self, refuse: Callable[..., Exception]) -> None:
        self.records: list[Record] = []
        self._refuse = refuse
        self._count = 0

    def _emit(self, op: str, args: Sequence[Any], **fields: Any) -> str:
        args = tuple(getattr(a, "value", a) for a in args)  # OpsValue
        if not all(isinstance(a, str) for a in args):
            raise self._refuse(f"'{op}' op")
        out = f"%{self._count}"
        self._count += 1
        self.records.append(Record(op, out, args, **fields))
        return out

    def _index(self, expression: Any) -> Index:
        try:
            return index_of(expression)
        except ValueError as error:
            raise self._refuse(str(error), "indices are sums and divisions of loop variables") from None

    def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._emit(name, [*args, *kwargs.values()])

    def constant(self, value: Any, dtype: torch.dtype) -> str:
        return self._emit("constant", (), value=float(value), dtype=_dtype(dtype))

    def to_dtype(self, x: Any, dtype: torch.dtype, src_dtype: Any = None, use_compute_types: bool = True) -> str:
        return self._emit("to_dtype", (x,), dtype=_dtype(dtype))

    def load(self, name: str, index: Any) -> str:
        return self._emit("load", (), buffer=name, index=self._index(index))

    def store(self, name: str, index: Any, value: Any, mode: Any = None) -> None:
        if mode is not None:
            raise self._refuse(f"'store' op with mode {mode!r}")
        value = getattr(value, "value", value)
        self.records.append(Record("store", "", (value,), buffer=name, index=self._index(index)))

    def store_reduction(self, name: str, index: Any, value: Any) -> None:
        self.store(name, index, value)

    def reduction(self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: Any, value: Any) -> Any:
        if reduction_type not in ("sum", "max", "min", "dot"):
            raise self._refuse(f"'{reduction_type}' reduction", "", "sum, mean, amax, amin")
        return self._emit("reduction", (value,), kind=reduction_type, dtype=_dtype(dtype))

    def index_expr(self, expr: Any, dtype: torch.dtype) -> Any:
        raise self._refuse(f"value of the index expression {expr}", "", "a tensor of the values, passed in")

    def indirect_indexing(self, *args: Any, **kwargs: Any) -> Any:
        raise self._refuse("indirect access", "an index comes from data", "a slice with constant bounds")

    def masked(self, mask: Any, body: Any, other: Any) -> Any:
        raise self._refuse("masked access (padding)", "", "padding outside of the compiled function")

    def scan(self, dtypes: Any, combine_fn: Any, values: Any) -> Any:
        raise self._refuse("'scan' op")

    def sort(self, dtypes: Any, values: Any, stable: Any, descending: Any) -> Any:
        raise self._refuse("'sort' op")


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# -------------------------------------------------------------------------------------------------------------------- scheduling


class Scheduling(BaseScheduling):
    """One kernel per graph: nests are collected unfused in final order and handed over when Inductor flushes."""

    scheduler: Any

    def __init__(self, compile_region: RegionCompiler, scheduler: Any) -> None:
        super().__init__(scheduler)
        self._compile_region = compile_region
        self._pending: list[BaseSchedulerNode] = []

    def get_backend_features(self, device: torch.device) -> OrderedSet[BackendFeature]:
        # Inductor also asks an instance made with scheduler=None.
        return OrderedSet([BackendFeature.REDUCE_TO_SINGLE_ELEMENT, BackendFeature.PREFER_STORE_LOOP_ORDER])

    def group_fn(self, sizes: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        return tuple(V.graph.sizevars.simplify(sympy_product(s)) for s in sizes)

    def can_fuse_vertical(self, node1: BaseSchedulerNode, node2: BaseSchedulerNode) -> bool:
        return False

    def can_fuse_horizontal(self, node1: BaseSchedulerNode, node2: BaseSchedulerNode) -> bool:
        return False

    def codegen_sync(self) -> None:
        pass

    def codegen_node(self, node: Any) -> None:
        self._pending += [n for n in node.get_nodes() if n.get_name() not in self.scheduler.removed_ops]

    def flush(self) -> None:
        """The end of a region: compile it and write the call."""
        nodes, self._pending = self._pending, []
        if not nodes:
            return
        region = self._region(nodes)
        key = self._compile_region(region)
        wrapper = V.graph.wrapper_code
        kernel = wrapper.src_to_kernel.get(key)
        if kernel is None:
            kernel = wrapper.src_to_kernel[key] = f"ktir_kernel_{wrapper.next_kernel_suffix()}"
            wrapper.add_import_once("import ktir.runtime.cache, ktir.lowering.inductor.artifacts")
            wrapper.add_import_once(f"ktir.lowering.inductor.artifacts.note({key!r})")
            wrapper.define_kernel(kernel, f"ktir.runtime.cache.kernel({key!r})", "\n".join(get_kernel_metadata(nodes, wrapper)), gpu=False)
        # Intermediates are SSA values of the kernel: they need no memory of the host.
        V.graph.removed_buffers.update(b.name for b in region.buffers.values() if b.role == "temp")
        for node in nodes:
            node.mark_run()
        self.codegen_comment(nodes, kernel)
        wrapper.writeline(f"{kernel}({', '.join(region.arguments)})")
        self.free_buffers_in_scheduler()

    def _region(self, nodes: Sequence[BaseSchedulerNode]) -> Region:
        nests = tuple(map(self._nest, nodes))
        names = dict.fromkeys(r.buffer for nest in nests for r in nest.body if r.buffer)
        buffers = {name: self._buffer(name) for name in names}
        order = {"input": 0, "constant": 1, "output": 2}
        position = {n: k for k, n in enumerate([*V.graph.graph_inputs, *V.graph.constants, *V.graph.get_output_names()])}
        arguments = sorted((b for b in buffers.values() if b.role != "temp"), key=lambda b: (order[b.role], position[b.name]))
        return Region("forward", buffers, nests, tuple(b.name for b in arguments))

    def _nest(self, leaf: BaseSchedulerNode) -> Nest:
        """The un-merged nest of a node: `_body` has merged and reordered loops, this has torch's dims, without those of size 1."""
        computed: Any = leaf.node
        refuse = functools.partial(_refuse_leaf, leaf)
        (iteration, reduction), body, _ = computed.get_default_sizes_body()
        recorder = Recorder(refuse)
        symbols = [
            [sympy.Symbol(f"{p}{k}", integer=True, nonnegative=True) for k in range(len(n))]
            for p, n in (("i", iteration), ("r", reduction))
        ]
        with V.set_ops_handler(recorder):
            body(*symbols)
        loops = [
            tuple((v.name, int(n)) for v, n in zip(vs, ns, strict=True)) for vs, ns in zip(symbols, (iteration, reduction), strict=True)
        ]
        records = tuple(self._resolved(r, refuse) for r in recorder.records)
        return Nest(leaf.get_name(), type(computed.data).__name__, loops[0], loops[1], records, _origins(computed))

    def _resolved(self, record: Record, refuse: Callable[..., Exception]) -> Record:
        """The record with the name of the buffer that really holds the data."""
        if not record.buffer:
            return record
        name = self.scheduler.mutation_real_name.get(record.buffer, record.buffer)
        layout = getattr(V.graph.try_get_buffer(record.buffer), "layout", None)
        if isinstance(layout, ir.MutationLayoutSHOULDREMOVE):
            raise refuse(f"change of '{layout.get_buffer().get_name()}' in place", "", "an op that returns the new value")
        if isinstance(layout, ir.NonOwningLayout):
            raise refuse("concatenation", "", "separate results")
        return Record(record.op, record.out, record.args, name, record.index)

    def _buffer(self, name: str) -> Buffer:
        role: Role = "temp"
        if name in V.graph.constants:
            tensor = V.graph.constants[name]
            return Buffer(name, _dtype(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), 0, "constant")
        if name in V.graph.graph_inputs:
            role, layout = "input", V.graph.graph_inputs[name].get_layout()  # type: ignore[union-attr]
        else:
            role = "output" if name in V.graph.get_output_names() else "temp"
            layout = V.graph.get_buffer(name).get_layout()
        size, stride = (tuple(int(n) for n in ns) for ns in (layout.size, layout.stride))
        # An input's offset is already in its data pointer.
        return Buffer(name, _dtype(layout.dtype), size, stride, 0 if role == "input" else int(layout.offset), role)
