"""func: calls. A call of a kernel is a barrier; global memory and LX keep their contents."""

from __future__ import annotations

from ktir.diagnostics import KtirError
from ktir.emulator.reference.compile.op_reader import OpReader
from ktir.emulator.reference.compile.program import Action
from ktir.emulator.reference.compile.registry import executes
from ktir.emulator.reference.record.recorder import Recorder
from ktir.mlir import ir


@executes("func.call")
def _call(op: OpReader) -> Action:
    callee = ir.FlatSymbolRefAttr(op.attribute("callee")).value
    operands, results, where = op.operands, op.results, op.where

    def action(rec: Recorder) -> None:
        function = rec.program.functions.get(callee)
        if function is None:
            raise KtirError(f"{where} calls '{callee}', which is not defined", where.location)
        values = rec.call(function, [rec.get(slot) for slot in operands])
        rec.set_all(results, values)

    return action
