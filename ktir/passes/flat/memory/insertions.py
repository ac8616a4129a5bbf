"""Chains of insertions that begin alike, apart.

A tensor that is made part by part is one buffer that its insertions fill. Where CSE has found two chains to begin with the same insertions,
a second buffer would have to begin as a copy of the first, also of what nothing has been inserted into yet.
"""

from __future__ import annotations

from ktir.mlir import func, ir, is_a, tensor


def insertions_apart(function: func.FuncOp) -> None:
    """Repeat what an insertion inserts for each user that inserts into its result, where there are other users besides."""
    for view in reversed(list(function.regions[0].blocks[0].operations)):
        op = view.operation
        if is_a(op, tensor.InsertSliceOp):
            uses = list(op.results[0].uses)
            later = [u.owner.operation for u in uses if is_a(u.owner, tensor.InsertSliceOp) and u.operand_number == 1]
            later.sort(key=lambda user: sum(user.is_before_in_block(other) for other in later), reverse=True)
            for user in later[len(later) == len(uses) :]:
                with ir.InsertionPoint(user):
                    user.operands[1] = op.clone().results[0]
