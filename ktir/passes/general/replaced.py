"""A function in the place of another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ktir.analysis.attributes.table import copy_kept
from ktir.mlir import func, ir


@contextmanager
def replaced(source: func.FuncOp) -> Iterator[tuple[func.FuncOp, dict[ir.Value, ir.Value]]]:
    """A kernel with the name, the arguments and the kept attributes of `source`, and what each argument has become.

    What is built inside of `with` is its body; then `source` goes.
    """
    old = source.regions[0].blocks[0]
    with ir.InsertionPoint(source), source.location:
        function = func.FuncOp(source.name.value, ([a.type for a in old.arguments], []))
    copy_kept(source, function)
    block = function.add_entry_block([source.location] * len(old.arguments))
    with ir.InsertionPoint(block), source.location:
        yield function, dict(zip(old.arguments, block.arguments, strict=True))
    source.operation.erase()
