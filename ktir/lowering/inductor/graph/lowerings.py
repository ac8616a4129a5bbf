"""How operators become loops: Inductor's decompositions with ours, and lowerings of our own, which act in the thread that compiles."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import sympy
import torch
from torch._inductor import config as inductor_config
from torch._inductor import ir
from torch._inductor import lowering as builtin
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.inductor_prims import _flatten_index, _flattened_index_to_nd
from torch._inductor.ops_handler import ReductionType
from torch._inductor.virtualized import V, ops
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND
from torch.utils._sympy.functions import FloorDiv, PythonMod

from ktir.lowering.inductor.graph import edges, floats, groups, operands, rounding, strides
from ktir.lowering.inductor.graph.decompositions import DECOMPOSITIONS
from ktir.lowering.inductor.graph.formulas import convolutions, interpolation, pooling, sequences, window_dot, window_taps
from ktir.lowering.inductor.graph.formulas.exponents import E8M0
from ktir.lowering.inductor.running import calls
from ktir.lowering.inductor.running.fallback import Refusals
from ktir.lowering.inductor.running.origins import shares_weight

aten = torch.ops.aten

Entries = tuple[tuple[Any, Callable[..., Any]], ...]

ASSERTIONS = (aten._assert_async.default, aten._assert_async.msg, aten._functional_assert_async.msg)
_AS_THEY_ARE = (aten.mm, aten.bmm, aten.addmm, aten.baddbmm, aten.max_pool2d_with_indices, aten.max_pool3d_with_indices)


class Table(dict[Any, Any]):
    """A decomposition table that pickles as a reference; a plain dict switches Inductor's caches off."""

    def __reduce__(self) -> Any:
        return (decompositions, ())


def decompositions() -> Table:
    """Inductor's table with ours, and without those for what our lowerings want to see: matmuls, of which small ones would be sums."""
    return _with_ours(tuple(select_decomp_table().items()), tuple(groups.of_libraries().items()), tuple(calls.implementations.items()))


@functools.lru_cache(maxsize=2)  # to make a table takes longer than to lower a small graph, and tables of Inductor seldom change
def _with_ours(inductors: Entries, of_libraries: Entries, kernels: tuple[tuple[Any, calls.Implementation], ...]) -> Table:
    theirs = dict(inductors)
    before = edges.before(theirs), interpolation.before(theirs), sequences.before(theirs)
    table = theirs | DECOMPOSITIONS | before[0] | before[1] | before[2] | groups.DECOMPOSITIONS | dict(of_libraries)
    for packet in _AS_THEY_ARE:
        for overload in packet.overloads():
            table.pop(getattr(packet, overload), None)
    table = operands.of_their_type(floats.with_numbers(table))
    table |= calls.decompositions(kernels, table)
    laid = {op: strides.as_eager(op, decomposition) for op, decomposition in table.items()}
    return Table({op: rounding.as_one(op, decomposition) for op, decomposition in laid.items()} | operands.of_each())


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


def _plus(bias: Any, product: Any, dtype: torch.dtype, beta: float, alpha: float, *, by_blas: bool = True) -> Any:
    """beta * bias + alpha * product, on the accumulator; a bias with beta = 0 is not read, nor a product with alpha = 0 where PyTorch's
    kernel calls BLAS. Both are numbers of the type.
    """
    multiply, kind = builtin.lowerings[aten.mul.Tensor], _accumulator(dtype)
    shape = list(V.graph.current_node.meta["val"].shape)
    if not dtype.is_floating_point:
        beta, alpha = int(beta), int(alpha)
    if alpha == 0 and by_blas and kind == dtype:
        if beta == 0:
            return builtin.full(shape, 0, dtype=kind, device=product.get_device())
        return builtin.clone(builtin.expand(bias if beta == 1 else multiply(bias, beta), shape))
    if alpha != 1:
        product = multiply(product, alpha)
    if beta != 0:
        bias = builtin.to_dtype(bias, kind)
        product = builtin.lowerings[aten.add.Tensor](bias if beta == 1 else multiply(bias, beta), product)
    elif list(product.get_size()) != shape:
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


_SMALL_BATCHED = 400
"""Products per batch below which PyTorch has loops of its own in place of BLAS."""


def _baddbmm(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    products = sympy.prod([*a.get_size()[1:], b.get_size()[2]])
    by_blas = alpha == 0 and V.graph.sizevars.guard_int(products) >= _SMALL_BATCHED
    return _plus(bias, _dot(a, b, 1), a.get_dtype(), beta, alpha, by_blas=by_blas)


def _rounded(x: Any) -> Any:
    """The values as their type holds them; what lies in memory is that already."""
    place = x
    while isinstance(place, (ir.MutableBox, ir.BaseView)) and not isinstance(place, ir.ReinterpretView):
        place = place.data
    if ir.IRNode.is_realized_node(place):
        return x
    return builtin.make_pointwise(lambda value: ops.to_dtype(value, x.get_dtype(), use_compute_types=False))(x)


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
        y = y if steps else ops.to_dtype(y, _accumulator(dtype))  # one number keeps its digits
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


def _of_their_own(op: Any) -> Callable[..., Any]:
    """Inductor's lowering of `op`, a sort and slices of its results, as tensors of their own, as PyTorch's kernel makes them."""

    def lower(*args: Any, **kwargs: Any) -> Any:
        return [builtin.clone(part) for part in builtin.lowerings[op](*args, **kwargs)]

    return lower


def _asserted(op: Any) -> Callable[..., Any]:
    """An assertion is a call of PyTorch: it ends the program with the user's own words."""

    def lower(condition: Any, *message: Any) -> Any:
        builtin.fallback_handler(op, add_to_fallback_set=False)(condition, *message)
        return condition  # None, which the call gives, would mean that it is left to Inductor

    return lower


def _power(x: Any, exponent: Any) -> Any:
    """An exponent that is an integer of the call is a number of the program: Inductor has no other form for integers. PyTorch's kernels
    have roots for 0.5 and -0.5, but in float16.
    """
    if exponent in (0.5, -0.5) and x.get_dtype().is_floating_point:
        if x.get_dtype() == torch.float16:
            return builtin.pow_native(x, exponent)
        return builtin.lowerings[aten.sqrt.default if exponent > 0 else aten.rsqrt.default](x)
    if not isinstance(exponent, sympy.Expr):
        return None
    return builtin.lowerings[aten.pow.Tensor_Scalar](x, V.graph.sizevars.guard_int(exponent))


_WRITTEN_OUT = 25
"""Elements of a window that are compared one by one, for the chip reduces along whole sticks."""
Places = Callable[[Sequence[Any], Sequence[Any]], list[Any]]
"""Coordinates in the input, of a position of the result and one in its window."""


def _indices(x: Any, found: Any, window: Sequence[Any], places: Places) -> Any:
    """The index in an image of the element that is `found` in each window, by its number there."""
    number_of, n_dim = found.make_loader(), len(window)
    count: Any = sympy.prod(window)

    def index(position: Sequence[Any]) -> Any:
        number = ops.indirect_indexing(number_of(position), count)
        at = places(position[-n_dim:], _flattened_index_to_nd(number, window))
        return ops.index_expr(_flatten_index(at, x.get_size()[-n_dim:]), torch.int64)

    return ir.Pointwise.create(device=x.get_device(), dtype=torch.int64, inner_fn=index, ranges=found.get_size())


def _max_pool(n_dim: int, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: Any = False) -> Any:
    """Two reductions. Where no element is above the padding, that is what is found: the index is that of the first element."""
    kernel, stride, padding, dilation, _ = builtin.max_pool_checks(x, kernel, stride, padding, dilation, n_dim)
    with inductor_config.patch(unroll_reductions_threshold=_WRITTEN_OUT):
        values, found = builtin._max_pool_with_offsets(x, kernel, stride, padding, dilation, ceil_mode, n_dim=n_dim)
    batched = x if len(x.get_size()) > n_dim + 1 else builtin.lowerings[aten.unsqueeze](x, 0)
    if all(isinstance(n, (int, sympy.Integer)) for n in x.get_size()) and pooling.takes(batched.get_size(), x.get_dtype(), kernel):
        pads = pooling.pads_of([int(n) for n in batched.get_size()[2:]], kernel, stride, padding, dilation, ceil_mode=ceil_mode)
        values = window_taps.largest(batched, (kernel, stride, dilation), pads)
        values = values if batched is x else builtin.lowerings[aten.squeeze](values, 0)

    def places(position: Sequence[Any], inner: Sequence[Any]) -> list[Any]:
        at = [p * s + i * d - pad for p, s, i, d, pad in zip(position, stride, inner, dilation, padding, strict=True)]
        return [sympy.Max(a, PythonMod(a, sympy.Integer(d))) for a, d in zip(at, dilation, strict=True)]

    return values, _indices(x, found, kernel, places)


def _adaptive_max_pool(x: Any, output_size: Sequence[Any]) -> Any:
    """Two reductions, which find NaN too; windows that are shorter than the largest one are filled up."""
    sizes = x.get_size()[-2:]
    if any(not isinstance(n, (int, sympy.Integer)) or n == 0 for n in (*sizes, *output_size)):
        return None
    window = [(n + 2 * out - 2) // out for n, out in zip(sizes, output_size, strict=True)]
    x.realize_hint()
    load, dtype = x.make_loader(), x.get_dtype()

    def places(position: Sequence[Any], inner: Sequence[Any]) -> list[Any]:
        return [FloorDiv(p * n, out) + i for p, n, out, i in zip(position, sizes, output_size, inner, strict=True)]

    def element(position: Sequence[Any], inner: Sequence[Any]) -> Any:
        *outer, row, column = position
        at = places((row, column), inner)
        ends: list[Any] = [FloorDiv((p + 1) * n + out - 1, out) for p, n, out in zip((row, column), sizes, output_size, strict=True)]
        inside = [ops.lt(ops.index_expr(a, torch.int64), ops.index_expr(e, torch.int64)) for a, e in zip(at, ends, strict=True)]
        return ops.masked(ops.and_(*inside), lambda: load([*outer, *at]), -math.inf)

    def reduced(kind: ReductionType, result: torch.dtype) -> Any:
        ranges = [*x.get_size()[:-2], *output_size]
        options: Any = {"device": x.get_device(), "input_node": x, "inner_fn": element, "ranges": ranges, "reduction_ranges": window}
        made: Any = ir.Reduction.create(reduction_type=kind, dst_dtype=result, src_dtype=dtype, **options)
        if isinstance(made.data.data, ir.Reduction):
            made.realize()
        return made

    with inductor_config.patch(unroll_reductions_threshold=_WRITTEN_OUT):
        return reduced("max", dtype), _indices(x, reduced("argmax", torch.int64), window, places)


def _view_as(x: Any, dtype: torch.dtype) -> Any:
    """Of numbers that no program has, and as such, the same memory; what else is seen otherwise is left to Inductor."""
    if E8M0 not in (x.get_dtype(), dtype):
        return None
    return builtin.fallback_handler(aten.view.dtype, add_to_fallback_set=False)(ir.ExternKernel.require_contiguous(x), dtype)


def _scaled_mm(*args: Any, **named: Any) -> Any:
    """Of recipes that no formula has: a call, which PyTorch refuses or runs. Inductor has an assertion for some."""
    return builtin.fallback_handler(aten._scaled_mm_v2.default, add_to_fallback_set=False)(*args, **named)


_LOWERINGS = {
    aten.view.dtype: _view_as,
    aten._scaled_mm_v2.default: _scaled_mm,
    aten.max_pool2d_with_indices.default: functools.partial(_max_pool, 2),
    aten.max_pool3d_with_indices.default: functools.partial(_max_pool, 3),
    aten.adaptive_max_pool2d.default: _adaptive_max_pool,
    aten.pow.Tensor_Scalar: _power,
    **{op: _of_their_own(op) for op in (aten.topk.default, aten.kthvalue.default)},
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
    rounding.ROUNDED: _rounded,
    convolutions.WINDOW_DOT: window_dot.lowered,
    pooling.WINDOW_FILTER: window_taps.filtered,
    pooling.WINDOW_SUM: window_taps.total,
    **{op: _asserted(op) for op in ASSERTIONS},
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


def _in_thread(thread: int, ours: Callable[..., Any], theirs: Callable[..., Any] | None) -> Callable[..., Any]:
    """Our lowering in one thread, what was there before in all others."""

    def lower(*args: Any, **kwargs: Any) -> Any:
        chosen = ours if threading.get_ident() == thread else theirs
        return None if chosen is None else chosen(*args, **kwargs)

    return lower


@contextmanager
def user_lowerings(refused: Refusals) -> Iterator[None]:
    """Inside the block, matmuls lower to loops, divisions to steps that are rounded as in PyTorch, refused copies to calls. A lowering that
    returns None leaves the operator to Inductor.
    """
    theirs: dict[Any, Any] = {}
    here = threading.get_ident()

    def add(ours: Mapping[Any, Callable[..., Any]]) -> None:
        for op in (op for op in ours if op not in theirs):
            theirs[op] = builtin.user_lowerings.get(op)
            builtin.user_lowerings[op] = _in_thread(here, _real_numbers(ours[op]), theirs[op])

    add({**_LOWERINGS, aten.copy_.default: _copies(refused), **calls.lowerings()})
    token = _later.set(lambda: add(calls.lowerings()))
    try:
        yield
    finally:
        _later.reset(token)
        for op, before in theirs.items():
            if before is None:
                del builtin.user_lowerings[op]
            else:
                builtin.user_lowerings[op] = before


_later: ContextVar[Callable[[], None] | None] = ContextVar("ktir_later_lowerings", default=None)


def lower_new_operators() -> None:
    """Operators of kernels that have been made since `user_lowerings` began have their lowerings too: rewrites make their own when they are
    first needed."""
    add = _later.get()
    if add is not None:
        add()


@contextmanager
def values_once() -> Iterator[None]:
    """Inside the block, what is inlined into several places of a loop body is evaluated once for each index: a value that n steps read
    twice each would be evaluated 2^n times.

    Values belong to the handler of the body that is evaluated, so a masked part, which has its own, never lends one to what surrounds it.
    """
    theirs = ir.Pointwise.make_loader

    def make_loader(self: ir.Pointwise) -> Callable[..., Any]:
        load = theirs(self)

        def once(index: Sequence[Any]) -> Any:
            values = vars(V.get_ops_handler()).setdefault("_values_once", {})
            key = (load, *index)  # each reader of a node asks for a loader of its own
            if key not in values:
                values[key] = load(index)
            return values[key]

        return once

    ir.Pointwise.make_loader = make_loader
    try:
        yield
    finally:
        ir.Pointwise.make_loader = theirs
