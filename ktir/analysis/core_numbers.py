"""Index values of a kernel as numbers, one per core."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ktir.analysis.attributes.kernel import KernelFunction
from ktir.analysis.points import function_of
from ktir.dialects import ktdp
from ktir.mlir import arith, ir, is_a

Numbers = NDArray[np.int64]


class Address(NamedTuple):
    """A number per core, from the begin of an argument of the kernel where it is an address."""

    numbers: Numbers
    argument: int | None = None


class Unknown(Exception):
    """Why a number is not known."""


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
        function = function_of(op)
        if function is None:
            raise Unknown(f"its address is computed by '{op.name}'")
        operands = [self(v) for v in op.operands]
        with np.errstate(divide="ignore"):
            numbers = np.asarray(function(*(a.numbers for a in operands))).astype(np.int64)
        return Address(numbers, next((a.argument for a in operands if a.argument is not None), None))
