"""Index values of a kernel as numbers, one per core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ktir.analysis.attributes.kernel import KernelFunction
from ktir.dialects import ktdp
from ktir.mlir import arith, ir, is_a, named

Numbers = NDArray[np.int64]


class Address(NamedTuple):
    """A number per core, from the begin of an argument of the kernel where it is an address."""

    numbers: Numbers
    argument: int | None = None


class Unknown(Exception):
    """Why a number is not known."""


_RULES: Mapping[str, Callable[[Numbers, Numbers], Numbers]] = named(
    {
        arith.AddIOp: np.add,
        arith.SubIOp: np.subtract,
        arith.MulIOp: np.multiply,
        arith.MinSIOp: np.minimum,
        arith.DivUIOp: np.floor_divide,
        arith.RemUIOp: np.remainder,
    }
)


class CoreNumbers:
    """Evaluates index values of one kernel; counters of loops are 0."""

    def __init__(self, kernel: ir.Operation) -> None:
        self.kernel = KernelFunction(kernel)
        self.cores = self.kernel.cores
        arguments = kernel.regions[0].blocks[0].arguments
        self.known = {a: Address(np.zeros(self.cores, np.int64), i) for i, a in enumerate(arguments)}

    def __call__(self, value: int | ir.Value) -> Address:
        """The number of each core. Raises Unknown for what is not computed from constants, arguments and the core's number."""
        if isinstance(value, int):
            return Address(np.full(self.cores, value, np.int64))
        if value not in self.known:
            self.known[value] = self._evaluated(value)
        return self.known[value]

    def _evaluated(self, value: ir.Value) -> Address:
        if isinstance(value.owner, ir.Block):
            return self(0)
        op = value.owner.operation
        if is_a(op, arith.ConstantOp):
            return self(ir.IntegerAttr(op.attributes["value"]).value)
        if is_a(op, ktdp.GetComputeTileIdOp):
            return Address(np.array(self.kernel.coordinate(ir.OpResult(value).result_number)))
        if op.name not in _RULES:
            raise Unknown(f"its address is computed by '{op.name}'")
        a, b = (self(v) for v in op.operands)
        return Address(_RULES[op.name](a.numbers, b.numbers), a.argument if b.argument is None else b.argument)
