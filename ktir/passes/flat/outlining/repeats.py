"""Parts of a function that come again and again, as the layers of a model do where nothing else says that they are layers.

A *round* is one of them. Rounds follow each other and have the same ops in the same order; which memory and which values of others
they work on may differ. Addresses belong to no round: they are what differs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np

from ktir.dialects.op_facts import ADDRESSES
from ktir.mlir import func, ir, is_a, operations

Round = Sequence[ir.Operation]
_CUTS = 8
"""Places at which rounds may begin that are looked at whole, those that separate the fewest bytes first."""


def repeats_in(ops: Sequence[ir.Operation], saved: int) -> Sequence[Round]:
    """The rounds among ops of one block, in order, that leave the fewest ops to look at; none where that saves less than `saved` ops.

    They begin where the fewest bytes go from one to the next.
    """
    ops = [op for op in ops if not _is_address(op)]
    numbers: dict[Hashable, int] = {}
    tokens = np.array([numbers.setdefault(token(op), len(numbers)) for op in ops], np.int64)
    first, period, length = _longest(tokens)
    if not period or (length // period - 1) * period < saved:
        return ()
    cost = _bytes_between(ops)
    most = length // period
    starts = [s for s in range(first, first + period) if (first + length - s) // period >= max(2, most - 1)]
    starts.sort(key=lambda s: (sum(cost[s : first + length : period]) / ((first + length - s) // period), s))
    for start in starts[:_CUTS]:
        rounds = [ops[i : i + period] for i in range(start, first + length - period + 1, period)]
        found = _agreeing(rounds)
        if (len(found) - 1) * period >= saved:
            return found
    return ()


def outer(op: ir.Operation) -> ir.Operation:
    """The op itself, or the one of the function's block in whose body it is."""
    while not isinstance(op.parent.opview, func.FuncOp):
        op = op.parent
    return op


def readers(value: ir.Value) -> Iterator[ir.Operation]:
    """The ops of the function's block that read a value, in bodies too."""
    return (outer(use.owner.operation) for use in value.uses)


def _is_address(op: ir.Operation) -> bool:
    return op.name in ADDRESSES and isinstance(op.results[0].type, ir.IndexType)


def token(op: ir.Operation, local: dict[ir.Value, int] | None = None) -> Hashable:
    """Equal for ops that compute the same of their operands: name, attributes, types, bodies but for what these read from outside."""
    local = {} if local is None else local
    parts: list[Hashable] = [
        op.name,
        *sorted((name, str(op.attributes[name])) for name in op.attributes),
        *(str(r.type) for r in op.results),
    ]
    if is_a(op, func.CallOp):
        parts.append(id(op))  # what was outlined once is not outlined again
    for block in (block for region in op.regions for block in region.blocks):
        for argument in block.arguments:
            local[argument] = len(local)
        for inner in (o.operation for o in block.operations):
            parts += [token(inner, local), *(local.get(v, -1) for v in inner.operands)]
            for result in inner.results:
                local[result] = len(local)
    return tuple(parts)


def _longest(tokens: np.ndarray) -> tuple[int, int, int]:
    """(first, period, length) of the stretch in which each token is that one period before; the one that saves the most tokens."""
    best, found = 0, (0, 0, 0)
    for period in range(1, len(tokens) // 2 + 1):
        differ = np.flatnonzero(tokens[:-period] != tokens[period:])
        ends = np.concatenate([[-1], differ, [len(tokens) - period]])
        run = int(np.argmax(np.diff(ends)))
        length = int(ends[run + 1] - ends[run]) - 1 + period
        if (again := (length // period - 1) * period) > best:
            best, found = again, (int(ends[run]) + 1, period, length)
    return found


def _bytes_between(ops: Sequence[ir.Operation]) -> list[int]:
    """Per op the bytes of tensors that are made before it and read by it or behind it."""
    place = {op: i for i, op in enumerate(ops)}
    change = [0] * (len(ops) + 2)
    for i, op in enumerate(ops):
        for result in op.results:
            last = max((place.get(reader, len(ops)) for reader in readers(result)), default=i)
            size = _bytes(result.type)
            change[i + 1] += size
            change[last + 1] -= size
    return list(accumulate(change))


def _bytes(type_: ir.Type) -> int:
    """Of a tensor. All else is nothing that memory can hold, so nowhere is worse to begin than between it and its readers."""
    if not isinstance(type_, ir.RankedTensorType):
        return 1 << 40
    bits = 64 if isinstance(type_.element_type, ir.IndexType) else getattr(type_.element_type, "width", 64)
    return int(np.prod(type_.shape, dtype=np.int64)) * max(bits, 8) // 8


def _agreeing(rounds: Sequence[Round]) -> Sequence[Round]:
    """The longest sequence of rounds that read results of their own at the same places."""
    own = [_own(ops) for ops in rounds]
    ends = [0, *(i for i in range(1, len(rounds)) if own[i] != own[i - 1]), len(rounds)]
    first, last = max(pairwise(ends), key=lambda part: part[1] - part[0])
    return rounds[first:last]


def _own(ops: Round) -> list[tuple[int, int] | None]:
    """Per operand of all ops of a round, bodies included, which result of the round it is, or None for what is made elsewhere."""
    made = {result: (k, j) for k, op in enumerate(ops) for j, result in enumerate(op.results)}
    return [made.get(value) for top in ops for op in operations(top) for value in op.operands if is_of_the_block(value)]


def is_of_the_block(value: ir.Value) -> bool:
    """Whether a value is made in the function's block, not in the body of one of its ops."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return isinstance(owner.owner, func.FuncOp)
    return isinstance(owner.operation.parent.opview, func.FuncOp)
