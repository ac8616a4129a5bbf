"""Reductions, contractions, scans and sorts of one nest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ktir.lowering.region_to_ktir.dtypes import ELEMENTS, computed, highest, is_float, is_unsigned, literal, lowest
from ktir.lowering.region_to_ktir.indices import Index
from ktir.lowering.region_to_ktir.nodes import Node, Operand, constant_node, generic, tensor_node, tensor_of
from ktir.lowering.region_to_ktir.radix import Loops
from ktir.lowering.region_to_ktir.scalar_body import Body, NoScalarForm, Scalar
from ktir.lowering.region_to_ktir.text import Tensor, Writer, affine_map

_COMBINERS = {
    "sum": ("arith.addf", "arith.addi", "arith.addi", "arith.ori"),
    "dot": ("arith.addf", "arith.addi", "arith.addi", "arith.ori"),
    "prod": ("arith.mulf", "arith.muli", "arith.muli", "arith.andi"),
    "max": ("arith.maximumf", "arith.maxsi", "arith.maxui", "arith.ori"),
    "min": ("arith.minimumf", "arith.minsi", "arith.minui", "arith.andi"),
    "any": ("", "", "", "arith.ori"),
    "xor_sum": ("", "arith.xori", "arith.xori", "arith.xori"),
}
"""Kind -> op on floats, signed and unsigned integers, bools."""

_IDENTITIES: dict[str, Callable[[str], float]] = {
    "prod": lambda dtype: 1,
    "max": lowest,
    "min": highest,
}


_SIGNED = {"bool": "int32", "uint8": "int32", "uint16": "int32", "uint32": "int64"}
"""What orders numbers without sign as they are ordered."""


class Reductions:
    """Emits the reductions of a nest with these loops."""

    def __init__(self, writer: Writer, iteration: Loops, reduction: Loops) -> None:
        self._writer = writer
        self._iteration, self._reduction = list(iteration), list(reduction)
        self._loops = [*iteration, *reduction]
        self._labels = tuple(v for v, _ in iteration)

    def reduce(self, kind: str, args: Sequence[Node], source: str, dtype: str) -> list[Node]:
        """The results of a reduction, one value per point of the iteration. Raises NoScalarForm."""
        value = args[0]
        if kind in ("argmax", "argmin"):
            return self._extreme(kind, value, args[1] if len(args) > 1 else None)[1:]
        if kind in ("argmax_with_value", "argmin_with_value"):
            return self._extreme(kind, value, args[1] if len(args) > 1 else None)
        if kind == "welford_reduce":
            return self._welford(value, computed(dtype))
        if kind not in _COMBINERS:
            raise NoScalarForm(f"'{kind}' reduction")
        if kind == "any":
            dtype = "bool"
        elif kind in ("sum", "prod", "dot") or source == "bool":
            dtype = computed(dtype)  # sums accumulate in f32; maxima and minima, which do not round, in the type that Inductor gives
        if not self._reduction:
            return [Node("to_dtype", dtype, (value,))]
        if kind == "dot":
            named = self._matmul(value, dtype)
            if named is not None:
                return [named]
        return [self._reduced(kind, value, dtype)]

    def _node(self, tensor: Tensor, dtype: str) -> Node:
        return tensor_node(Operand(tensor, self._labels), dtype)

    def _filled(self, dtype: str, number: float) -> Tensor:
        return self._writer.filled([n for _, n in self._iteration], ELEMENTS[dtype], literal(number, dtype))

    def _reduced(self, kind: str, value: Node, dtype: str) -> Node:
        operation = _COMBINERS[kind][3 if dtype == "bool" else 0 if is_float(dtype) else 2 if is_unsigned(dtype) else 1]
        if not operation:
            raise NoScalarForm(f"'{kind}' reduction of {dtype}")
        init = self._filled(dtype, _IDENTITIES.get(kind, lambda _: 0)(dtype))

        def combine(body: Body, values: Sequence[Scalar], accumulators: Sequence[str]) -> Sequence[str]:
            mapped = body.convert(values[0], dtype)
            return [body.plain(operation, dtype, Scalar(dtype, accumulators[0]), mapped).name]

        (result,) = generic(self._writer, self._loops, [value], [init], [self._labels], combine)
        return self._node(result, dtype)

    def _extreme(self, kind: str, value: Node, index: Node | None) -> list[Node]:
        """The extreme, or NaN, and its first position: two reductions, one for the value and one for the place."""
        if not self._reduction:
            return [value, index or constant_node(0, "int64")]
        if value.dtype == "bool":
            value = Node("to_dtype", "uint8", (value,))
        elif computed(value.dtype) != value.dtype:  # the best one is rounded as it is kept, so each is before they are compared
            value = Node("round_to", value.dtype, (value,))
        best = self._reduced(kind[3:6], value, value.dtype)
        last = highest("int32")  # no position is beyond it
        if index is None:
            last = prod(n for _, n in self._reduction) - 1
            total, weight = Index(), 1
            for v, n in reversed(self._reduction):
                total, weight = total + Index(0, ((weight, v),)), weight * n
            index = Node("index", "int64", index=total)
        hit = Node("eq", "bool", (value, best))
        if is_float(value.dtype):
            both = Node("logical_and", "bool", (Node("isnan", "bool", (value,)), Node("isnan", "bool", (best,))))
            hit = Node("logical_or", "bool", (hit, both))
        place = Node("where", "int64", (hit, index, constant_node(last, "int64")))
        return [best, self._reduced("min", place, "int64")]

    def _welford(self, value: Node, dtype: str) -> list[Node]:
        """Mean, sum of squared differences and count."""
        count = constant_node(float(prod(n for _, n in self._reduction)), dtype)
        if not self._reduction:
            return [Node("to_dtype", dtype, (value,)), constant_node(0.0, dtype), count]
        mean = Node("truediv", dtype, (self._reduced("sum", value, dtype), count))
        mean = tensor_node(Operand(tensor_of(self._writer, mean, self._iteration, self._labels, dtype), self._labels), dtype)
        difference = Node("sub", dtype, (value, mean))
        return [mean, self._reduced("sum", Node("square", dtype, (difference,)), dtype), count]

    # Contractions

    def _matmul(self, product: Node, dtype: str) -> Node | None:
        """`linalg.matmul` or `batch_matmul`, where the operands are tensors with loops ([b,] m, k) and ([b,] k, n)."""
        if product.op not in ("dot", "mul") or len(product.args) != 2 or len(self._reduction) != 1:
            return None
        a, b = (node.operand for node in product.args)
        if a is None or b is None or product.args[0].dtype != product.args[1].dtype:
            return None
        k = self._reduction[0][0]
        rows = [v for v in self._labels if v in a.labels and v not in b.labels]
        columns = [v for v in self._labels if v in b.labels and v not in a.labels]
        batch = [v for v in self._labels if v in a.labels and v in b.labels]
        if len(rows) != 1 or len(columns) != 1 or len(batch) > 1 or self._labels != (*batch, *rows, *columns):
            return None
        loops = [*batch, *rows, *columns, k]
        natural = (*batch, *rows, k), (*batch, k, *columns)
        if any(set(o.labels) != set(n) or o.labels[: len(batch)] != tuple(batch) for o, n in zip((a, b), natural, strict=True)):
            return None
        maps = None
        if (a.labels, b.labels) != natural:
            maps = [affine_map(len(loops), [loops.index(v) for v in labels]) for labels in (a.labels, b.labels, self._labels)]
        op = "linalg.batch_matmul" if batch else "linalg.matmul"
        return self._node(self._writer.matmul(op, a.tensor, b.tensor, self._filled(dtype, 0), maps), dtype)

    # Along a dim

    def _whole(self, node: Node, dtype: str) -> Tensor:
        return tensor_of(self._writer, node, self._loops, [v for v, _ in self._loops], dtype)

    def _results(self, tensors: Sequence[Tensor], dtypes: Sequence[str]) -> list[Node]:
        labels = tuple(v for v, _ in self._loops)
        return [tensor_node(Operand(t, labels), d) for t, d in zip(tensors, dtypes, strict=True)]

    def sort(self, args: Sequence[Node], dtypes: Sequence[str], *, stable: bool, descending: bool) -> list[Node]:
        """Values sorted along the reduction loop by the first of them: numbers without sign, and truth values, as wider ones with it."""
        if not self._reduction:
            return list(args)
        flags = f"dimension = {self._axis()} : i64" + (", descending" if descending else "") + (", stable" if stable else "")
        types = [_SIGNED.get(dtype, dtype) for dtype in dtypes]
        if is_unsigned(types[0]):
            raise NoScalarForm(f"sort of {dtypes[0]}")
        found = self._writer.along("ktir.sort", [self._whole(a, t) for a, t in zip(args, types, strict=True)], flags)
        results = zip(self._results(found, types), types, dtypes, strict=True)
        return [node if wide == dtype else Node("to_dtype", dtype, (node,)) for node, wide, dtype in results]

    def scan(self, args: Sequence[Node], dtypes: Sequence[str], combine: Callable[[Body, list[Scalar]], list[Scalar]]) -> list[Node]:
        """Inclusive scan along the reduction loop. Narrow floats are combined in f32, as sums are."""
        dtypes = [computed(d) for d in dtypes]
        if not self._reduction:
            return [Node("to_dtype", d, (a,)) for a, d in zip(args, dtypes, strict=True)]
        values = [self._whole(node, dtype) for node, dtype in zip(args, dtypes, strict=True)]

        def body(names: Sequence[str]) -> Sequence[str]:
            scalars = Body(self._writer, {})
            results = combine(scalars, [Scalar(d, n) for d, n in zip([*dtypes, *dtypes], names, strict=True)])
            return [scalars.name(r, d) for r, d in zip(results, dtypes, strict=True)]

        return self._results(self._writer.along("ktir.scan", values, f"dimension = {self._axis()} : i64", body), dtypes)

    def _axis(self) -> int:
        if len(self._reduction) != 1:
            raise NoScalarForm(f"a scan or sort over {len(self._reduction)} loops")
        return len(self._iteration)
