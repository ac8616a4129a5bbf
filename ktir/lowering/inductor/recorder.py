"""Bodies of Inductor's loop nests as records: a handler of Inductor's ops that writes down what is called. No torch._inductor here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import sympy
import torch

from ktir.lowering.region_to_ktir.indices import Index, call, variable
from ktir.lowering.region_to_ktir.region import Record

_RESULTS = {"welford_reduce": 3, "welford_combine": 3, "argmax_with_value": 2, "argmin_with_value": 2, "online_softmax_reduce": 2}
"""Reductions of more than one result."""
_HALVES = (torch.float16, torch.bfloat16)
_INDIRECT = "ind"
_LARGEST = 2**31 - 1
_DIVISIONS = ("FloorDiv", "CleanDiv", "Mod", "PythonMod", "ModularIndexing")


def index_of(expression: Any) -> Index:
    """A sympy index expression as a tree of ours; ValueError for what has none, such as a division by a variable."""
    expression = sympy.sympify(expression)
    name = type(expression).__name__
    if expression.is_Integer:
        return Index(int(expression))
    if expression.is_Symbol:
        return variable(expression.name)
    nested = [index_of(a) for a in expression.args]
    if name == "Add":
        return functools.reduce(Index.__add__, nested)
    if name == "Mul":
        return functools.reduce(_times, nested)
    if name == "Identity":
        return nested[0]
    if name in ("Max", "Min"):
        return call("max" if name == "Max" else "min", *nested)
    if name == "Abs":
        return call("abs", nested[0])
    if name in ("Pow", "PowByNatural") and not nested[1].terms and 0 < nested[1].constant < 8:
        return functools.reduce(_times, [nested[0]] * nested[1].constant)
    if name in _DIVISIONS and all(not n.terms and n.constant > 0 for n in nested[1:]):
        inner, numbers = nested[0], [n.constant for n in nested[1:]]
        if name == "ModularIndexing":
            return inner.divided(numbers[0]).modulo(numbers[1])
        return inner.divided(numbers[0]) if name in ("FloorDiv", "CleanDiv") else inner.modulo(numbers[0])
    raise ValueError("a comparison of positions" if expression.is_Relational else "a position")


def _times(a: Index, b: Index) -> Index:
    if not a.terms:
        return b.scaled(a.constant)
    return a.scaled(b.constant) if not b.terms else call("mul", a, b)


def dtype_name(dtype: torch.dtype) -> str:
    """`float16` for torch.float16."""
    return str(dtype).removeprefix("torch.")


class _Typed:
    """Stands for a value in Inductor's rules of types."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype


class Recorder:
    """V.ops handler that replays a LoopBody into records. Values are their names, `%0`, `%1`, ..."""

    def __init__(
        self, rules: Any, loops: Collection[str], buffer_dtype: Callable[[str], torch.dtype], refuse: Callable[..., Exception]
    ) -> None:
        """`rules`: Inductor's dtype propagation; `loops`: names of the loop variables; `buffer_dtype`: element type by buffer; `refuse`:
        makes the error of this nest.
        """
        self.records: list[Record] = []
        self._rules = rules
        self._loops = frozenset(loops)
        self._buffer_dtype = buffer_dtype
        self._refuse = refuse
        self._types: dict[str, torch.dtype] = {}
        self._count = 0

    # -------------------------------------------------------------------------------------------------------- helpers

    def _name(self) -> str:
        self._count += 1
        return f"%{self._count - 1}"

    def _typed(self, name: str, dtype: torch.dtype) -> None:
        """Remember a value's type: half precision is computed in float32."""
        self._types[name] = torch.float32 if dtype in _HALVES else dtype

    def _emit(self, op: str, args: Sequence[str] = (), dtype: torch.dtype | None = None, **fields: Any) -> str:
        out = self._name()
        if dtype is not None:
            self._typed(out, dtype)
            fields["dtype"] = dtype_name(dtype)
        self.records.append(Record(op, out, tuple(args), **fields))
        return out

    def _several(self, op: str, args: Sequence[str], dtypes: Sequence[torch.dtype], **fields: Any) -> tuple[str, ...]:
        outs = [self._name() for _ in dtypes]
        for name, dtype in zip(outs, dtypes, strict=True):
            self._typed(name, dtype)
        names = tuple(map(dtype_name, dtypes))
        more = {"outs": tuple(outs), "dtypes": names} if len(outs) > 1 else {}
        self.records.append(Record(op, outs[0], tuple(args), dtype=names[0], **more, **fields))
        return tuple(outs)

    def _value(self, value: Any) -> str:
        """The name of an operand; numbers and index expressions become records of their own."""
        value = getattr(value, "value", value)  # OpsValue
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return self.constant(value, torch.bool)
        if isinstance(value, int):
            return self.constant(value, torch.int64)
        if isinstance(value, float):
            return self.constant(value, torch.float32)
        if isinstance(value, sympy.Basic):
            return self.index_expr(value, torch.int64)
        raise self._refuse(f"operand {value!r}")

    def _index(self, expression: Any) -> Index:
        try:
            index = index_of(expression)
        except ValueError as error:
            raise self._refuse(str(error), "places in a tensor are sums, products and divisions by constants of positions") from None
        unknown = [v for v in sorted(index.variables) if v not in self._loops and not v.startswith(_INDIRECT)]
        return index.substituted({v: variable(self._integer(v)) for v in unknown}) if unknown else index

    def _integer(self, name: str) -> str:
        """The symbol for an integer that is known only at run time: an argument, loaded and used like an index from data."""
        value = self._emit("load", (), torch.int64, buffer=name)
        return self.indirect_indexing(value, _LARGEST, check=False, wrap_neg=False).name

    # ------------------------------------------------------------------------------------------------- pointwise operations

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return functools.partial(self._pointwise, name)

    def _pointwise(self, op: str, *args: Any, **kwargs: Any) -> Any:
        rule = getattr(self._rules, op, None)
        if rule is None:
            raise self._refuse(f"'{op}' op")
        dtype = next((a for a in (*args, *kwargs.values()) if isinstance(a, torch.dtype)), None)
        operands = [self._value(a) for a in (*args, *kwargs.values()) if not isinstance(a, torch.dtype)]
        if dtype is None:
            dtype = rule(*(_Typed(self._types[o]) for o in operands))
        if isinstance(dtype, tuple):
            return self._several(op, operands, dtype)
        return self._emit(op, operands, dtype)

    def dot(self, x: Any, y: Any) -> str:
        """A product of a matmul, in the operands' type; Inductor's rule is that of an instruction that gives float32."""
        operands = (self._value(x), self._value(y))
        return self._emit("dot", operands, self._types[operands[0]])

    def constant(self, value: Any, dtype: torch.dtype) -> str:
        """A number."""
        if isinstance(value, sympy.Expr):
            value = int(value) if value.is_Integer else float(value)
        if isinstance(value, complex):
            raise self._refuse(f"complex constant {value}")
        return self._emit("constant", (), dtype, value=value)

    def index_expr(self, expr: Any, dtype: torch.dtype) -> str:
        """An index as a value."""
        return self._emit("index_expr", (), dtype, index=self._index(expr))

    value_expr = index_expr

    def to_dtype(self, x: Any, dtype: torch.dtype, src_dtype: torch.dtype | None = None, use_compute_types: bool = True) -> str:
        """A conversion; to half precision it rounds only where the value is stored, or where rounding is asked for."""
        if dtype in _HALVES and not use_compute_types:
            return self._emit("round_to", (self._value(x),), dtype)
        return self._emit("to_dtype", (self._value(x),), dtype, source=dtype_name(src_dtype) if src_dtype else "")

    def to_dtype_bitcast(self, x: Any, dtype: torch.dtype, src_dtype: torch.dtype) -> str:
        """The same bits in another type."""
        return self._emit("to_dtype_bitcast", (self._value(x),), dtype, source=dtype_name(src_dtype))

    def inline_asm_elementwise(
        self,
        *inputs: Any,
        asm: str,
        constraints: str | None = None,
        dtype: torch.dtype = torch.float32,
        is_pure: bool = True,
        pack: int = 1,
        input_dtypes: tuple[torch.dtype, ...] | None = None,
    ) -> str:
        """The call of a kernel, see `running.calls`. Operands that stand for further results are written, not read; others may be both."""
        symbol, count, *order = (constraints or "").split()
        operands = [self._value(x) for x in inputs]
        made = [r for r in self.records if r.out in operands[int(count) :]]
        self.records = [r for r in self.records if r not in made]
        options = (("program", asm), ("order", " ".join(order)))
        out = self._emit("call", operands[: int(count)], dtype, kind=symbol, options=options)
        written = {operands[int(place.removeprefix("written:"))] for place in order if place.startswith("written:")}
        made += [r for r in self.records if r.out in written]
        self.records += [Record("store", "", (out,), buffer=r.buffer, index=r.index) for r in made]
        return out

    # ------------------------------------------------------------------------------------------------------------ memory

    def load(self, name: str, index: Any) -> str:
        """A read from memory."""
        return self._emit("load", (), self._buffer_dtype(name), buffer=name, index=self._index(index))

    def store(self, name: str, index: Any, value: Any, mode: Any = None) -> None:
        """A write to memory."""
        if mode not in (None, "atomic_add"):
            raise self._refuse(f"'store' op with mode {mode!r}")
        self.records.append(Record("store", "", (self._value(value),), buffer=name, index=self._index(index), mode=mode or ""))

    def store_reduction(self, name: str, index: Any, value: Any) -> None:
        """A write of a reduction's result."""
        self.store(name, index, value)

    def load_seed(self, name: str, offset: Any) -> str:
        """A read of a seed of random numbers."""
        return self._emit("load_seed", (), self._buffer_dtype(name), buffer=name, index=self._index(offset))

    def indirect_indexing(self, x: Any, size: Any, check: bool = True, wrap_neg: bool = True) -> sympy.Symbol:
        """A value as an index."""
        symbol = sympy.Symbol(f"{_INDIRECT}{self._count}", integer=True, nonnegative=True)
        self._count += 1
        self.records.append(Record("indirect", symbol.name, (self._value(x),), size=self._index(size), wrap=wrap_neg, check=check))
        return symbol

    def check_bounds(self, expr: Any, size: Any, lower: bool, upper: bool) -> None:
        """An assertion on an index."""
        options = (("lower", lower), ("upper", upper))
        self.records.append(Record("check_bounds", index=self._index(expr), size=self._index(size), options=options))

    def masked(self, mask: Any, body: Callable[[], Any], other: Any) -> str:
        """A body that is evaluated only where the mask holds."""
        outer, self.records = self.records, []
        result = self._value(body())
        inner, self.records = self.records, outer
        number = getattr(other, "value", other)
        if isinstance(number, str):
            raise self._refuse("masked access with a computed value elsewhere")
        return self._emit("masked", (self._value(mask),), self._types[result], body=tuple(inner), yields=(result,), value=number)

    # ----------------------------------------------------------------------------------------------- operations along loops

    def reduction(self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: str, value: Any) -> Any:
        """A fold over the reduction loops."""
        args = [self._value(v) for v in (value if isinstance(value, (tuple, list)) else [value])]
        count = _RESULTS.get(reduction_type, 1)
        dtypes = [dtype] * count if "with_value" not in reduction_type else [dtype, torch.int64]
        outs = self._several("reduction", args, dtypes, kind=reduction_type, source=dtype_name(src_dtype))
        return outs if count > 1 else outs[0]

    def scan(self, dtypes: Sequence[torch.dtype], combine_fn: Callable[..., Any], values: Sequence[Any]) -> tuple[str, ...]:
        """An inclusive scan along the reduction loop."""
        args = [self._value(v) for v in values]
        operands = [tuple(f"%{side}{i}" for i in range(len(args))) for side in "ab"]
        for name, dtype in zip(operands[0] + operands[1], [*dtypes, *dtypes], strict=True):
            self._typed(name, dtype)
        outer, self.records = self.records, []
        results = tuple(self._value(r) for r in combine_fn(*operands))
        inner, self.records = self.records, outer
        return self._several("scan", args, dtypes, body=tuple(inner), yields=results)

    def sort(self, dtypes: Sequence[torch.dtype], values: Sequence[Any], stable: bool, descending: bool) -> tuple[str, ...]:
        """A sort along the reduction loop; the first value is the key."""
        options = (("stable", bool(stable)), ("descending", bool(descending)))
        return self._several("sort", [self._value(v) for v in values], dtypes, options=options)

    def bucketize(
        self,
        values: Any,
        boundaries: tuple[str, Any, Any, Any],
        boundary_indices: Any,
        indexing_dtype: torch.dtype,
        right: bool,
        sorter: Any = None,
        sorter_indices: Any = None,
    ) -> str:
        """The place of a value among sorted boundaries."""
        if sorter is not None:
            raise self._refuse("'bucketize' op with a sorter", "", "sorted boundaries")
        name, length, _, stride = boundaries
        step = self._index(stride)
        if step.terms:
            raise self._refuse(f"'bucketize' op with boundaries of stride {stride}")
        args = (self._value(values), self._value(boundary_indices))
        options = (("right", bool(right)), ("stride", step.constant))
        return self._emit("bucketize", args, indexing_dtype, buffer=name, size=self._index(length), options=options)
