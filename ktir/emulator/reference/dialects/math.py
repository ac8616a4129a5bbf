"""math: elementary functions, computed in f32."""

from __future__ import annotations

from ktir import numerics
from ktir.emulator.reference.compiler import OpReader
from ktir.emulator.reference.elementwise import elementwise
from ktir.emulator.reference.scalar import ScalarOp

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


@elementwise(*_FUNCTIONS)
def _function(op: OpReader) -> ScalarOp:
    kind = _FUNCTIONS[op.where.op]
    element = op.result_type().element
    return ScalarOp(element, numerics.PLAIN[kind], rounds=element == "f16" and kind not in _EXACT)
