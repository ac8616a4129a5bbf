"""math: elementary functions.

Results of 32 bits or less are those of `transcendental`, computed in f64 and rounded once, the same on every host; in f64 they
are the host's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ktir.arithmetic import elementary, numerics
from ktir.emulator.reference.compile.op_reader import OpReader
from ktir.emulator.reference.compile.scalar_op import ScalarOp
from ktir.emulator.reference.dialects.scalar.arith import deliver, rounded
from ktir.emulator.reference.ops.elementwise import elementwise
from ktir.emulator.reference.tape.values import CARRIERS

_FUNCTIONS = {
    "math.exp": "exp",
    "math.log": "log",
    "math.sqrt": "sqrt",
    "math.rsqrt": "rsqrt",
    "math.tanh": "tanh",
    "math.erf": "erf",
    "math.absf": "abs",
    "math.floor": "floor",
}
_EXACT = ("abs", "floor")
"""Their results lie on the grid of their operands."""


_PEER: dict[str, Callable[..., Any]] = {
    "math.exp": np.exp,
    "math.log": np.log,
    "math.sqrt": np.sqrt,
    "math.rsqrt": lambda x: 1 / np.sqrt(x),
    "math.tanh": np.tanh,
    "math.sin": np.sin,
    "math.cos": np.cos,
    "math.log2": np.log2,
    "math.log1p": np.log1p,
}
_PEER_TYPES = {"f16": np.float16, "f32": np.float32}


def _peer(name: str, element: str) -> Callable[..., Any] | None:
    """What the public interpreter computes: NumPy's function in the type of the operand, where rsqrt rounds twice. Its erf, which is
    wrong in the third digit in f16, is not followed."""
    function, kind = _PEER.get(name), _PEER_TYPES.get(element)
    if function is None or kind is None:
        return None
    return deliver(lambda x: function(np.asarray(x).astype(kind)).astype(np.float32), 1)


@elementwise(*_FUNCTIONS)
def _function(op: OpReader) -> ScalarOp:
    kind = _FUNCTIONS[op.where.op]
    element = op.result_type().element
    compute = numerics.PLAIN[kind] if CARRIERS[element] is np.float32 else deliver(elementary.function(kind, CARRIERS[element]), 1)
    return ScalarOp(element, compute, rounds=element in numerics.NARROW and kind not in _EXACT, peer=_peer(op.where.op, element))


@elementwise(*(f"math.{name}" for name in elementary.UNARY))
def _unary(op: OpReader) -> ScalarOp:
    element = op.result_type().element
    compute = deliver(elementary.function(op.where.op.removeprefix("math."), CARRIERS[element]), 1)
    return ScalarOp(element, compute, rounds=element in numerics.NARROW, peer=_peer(op.where.op, element))


@elementwise(*(f"math.{name}" for name in elementary.BINARY))
def _binary(op: OpReader) -> ScalarOp:
    return rounded(op, elementary.function(op.where.op.removeprefix("math."), CARRIERS[op.result_type().element]))


@elementwise("math.fma")
def _fma(op: OpReader) -> ScalarOp:
    """a * b + c with one rounding."""
    element = op.result_type().element
    return ScalarOp(element, deliver(lambda a, b, c: elementary.fma(a, b, c, element), 3))


_SMALLEST_NORMAL = {
    "f16": 2.0**-14,
    "bf16": 2.0**-126,
    "f32": 2.0**-126,
    "f64": 2.0**-1022,
    "f8E4M3FN": 2.0**-6,
    "f8E5M2": 2.0**-14,
}
"""dl16 has no subnormals."""


@elementwise("math.isnan", "math.isinf", "math.isfinite", "math.isnormal")
def _classify(op: OpReader) -> ScalarOp:
    name = op.where.op
    least = _SMALLEST_NORMAL.get(op.operand_type(0).element, 0.0)
    functions: dict[str, Callable[..., Any]] = {
        "math.isnan": np.isnan,
        "math.isinf": np.isinf,
        "math.isfinite": np.isfinite,
        "math.isnormal": lambda x: np.isfinite(x) & (np.abs(x) >= least) & (x != 0),
    }
    return ScalarOp("i1", deliver(functions[name], 1))


@elementwise("math.absi", "math.ctpop", "math.ctlz", "math.cttz")
def _integer(op: OpReader) -> ScalarOp:
    element, name = op.result_type().element, op.where.op
    carrier = CARRIERS[element]

    def bits(x: Any) -> Any:
        wide = np.asarray(x, carrier)
        flat = wide.view(f"u{wide.dtype.itemsize}") if wide.dtype != np.bool_ else wide.astype(np.uint8)
        width = 1 if carrier is np.bool_ else 8 * wide.dtype.itemsize
        columns = [(flat >> np.array(i, flat.dtype)) & np.array(1, flat.dtype) for i in range(width)]
        if name == "math.ctpop":
            return sum(c.astype(np.int64) for c in columns)
        count, open_ = np.zeros(flat.shape, np.int64), np.ones(flat.shape, np.bool_)
        for column in columns if name == "math.cttz" else reversed(columns):
            open_ = open_ & (column == 0)
            count = count + open_
        return count

    def compute(x: Any) -> Any:
        with numerics.quiet():
            result = np.abs(np.asarray(x, carrier)) if name == "math.absi" else bits(x)
        return np.asarray(result).astype(carrier)

    def number(x: Any) -> Any:
        result = compute(x)
        return result if result.ndim else result.item()

    return ScalarOp(element, deliver(compute, 1), number=number)
