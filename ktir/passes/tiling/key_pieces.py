"""Matrices that stay in LX for a softmax over blocks of keys, put together piece by piece: as many keys as a block has at once.

So a block of rows waits for the keys that it sees alone. Where keys lie along the rows of a matrix, its pieces lie one after the other,
each with all of its sticks.
"""

from __future__ import annotations

from ktir.analysis.axes import k_in_stick
from ktir.cost.softmax import Sticks
from ktir.dialects import ktdp
from ktir.dialects.structured import element_of, index_constant
from ktir.mlir import arith, ir, is_a, tensor
from ktir.passes.tiling.blocks import Blocks, Part, insert_part, times
from ktir.passes.tiling.contractions import whole_shape
from ktir.passes.tiling.plan.tile_facts import Matmul
from ktir.passes.tiling.plan.tile_plan import Keys
from ktir.target import LANES


class Pieces:
    """The pieces of a kernel at a batch position."""

    def __init__(self, blocks: Blocks, keys: Keys) -> None:
        self.blocks, self.keys = blocks, keys
        self.loaded: set[int] = set()
        for op in keys.softmax.inside:
            if is_a(op, ktdp.LoadOp) and not blocks.facts.tensors[op.results[0]].has_rows:
                with op.location:
                    self._load_vector(op)

    def _load_vector(self, op: ir.Operation) -> None:
        """A row vector along the keys is small, and stays as a whole."""
        type_ = ir.RankedTensorType(op.results[0].type)
        tile = self.blocks.window(op, op.results[0]).tile(0, 0, [type_.shape[0], 1, type_.shape[-1]])
        self.blocks.vectors[op.results[0]] = ktdp.load(tile, type_.element_type)

    def load(self, seen: Sticks) -> None:
        """Load what is not there yet of the keys that are seen."""
        count, whole = self.keys.sticks, self.keys.softmax.sticks
        for number in range(seen.first // count, -(-seen.end // count)):
            if number not in self.loaded:
                self.loaded.add(number)
                for m in self.blocks.facts.matmuls:
                    if m.op in self.keys.in_pieces:
                        with m.op.location:
                            self._load(m, number, min(count, whole - number * count))

    def _load(self, m: Matmul, number: int, sticks: int) -> None:
        source = self.blocks.window(m.second.owner.operation, m.second)
        across, rows, _ = whole_shape(m)
        first = number * self.keys.sticks
        if keys_in_rows(m, self.keys):
            shape = [across * -(-self.keys.softmax.sticks // self.keys.sticks), self.keys.sticks * LANES, LANES]
            piece, at = source.tile(0, first * LANES, [across, sticks * LANES, LANES]), number * across
        else:
            shape = [across, rows, LANES]
            piece, at = source.tile(first, 0, [sticks, rows, LANES]), first
        if m.op not in self.blocks.whole:
            self.blocks.whole[m.op] = tensor.EmptyOp(shape, element_of(m.second)).result
        place = [index_constant(at)]
        self.blocks.whole[m.op] = insert_part(ktdp.load(piece, element_of(m.second)), self.blocks.whole[m.op], place)


def load_part(blocks: Blocks, m: Matmul, keys: Keys) -> None:
    """Load what a part of the keys, all of which there are, takes of a second operand."""
    part, (across, rows, _) = blocks.part, whole_shape(m)
    assert part is not None
    source = blocks.window(m.second.owner.operation, m.second, "rows" if keys_in_rows(m, keys) else "lanes")
    if keys_in_rows(m, keys):
        tile = source.tile(0, times(part.first, LANES), [across, part.count * LANES, LANES])
    else:
        tile = source.tile(part.first, 0, [part.count, rows, LANES])
    blocks.whole[m.op] = ktdp.load(tile, element_of(m.second))


def keys_in_rows(m: Matmul, keys: Keys) -> bool:
    """Whether keys lie along the rows of a second operand; else they are the columns of its sticks."""
    return k_in_stick(m.g) == (m.result in keys.softmax.keyed)


def in_piece(blocks: Blocks, m: Matmul, columns: Part, steps: Part) -> tuple[Part, Part]:
    """Where wanted columns and steps of a reduced loop lie in what is there of a second operand."""
    keys = blocks.plan.keys
    assert keys is not None
    if m.op in blocks.in_part:
        return Part(0, columns.count), Part(0, steps.count)
    if m.op not in keys.in_pieces or not keys_in_rows(m, keys):
        return columns, steps
    of_keys, others = (columns, steps) if k_in_stick(m.g) else (steps, columns)
    across = index_constant(whole_shape(m)[0])
    first = index_constant(of_keys.number) if isinstance(of_keys.number, int) else of_keys.number
    assert others.first == 0
    others = Part(arith.MulIOp(first, across).result, others.count)
    of_keys = Part(0, of_keys.count)
    return (of_keys, others) if k_in_stick(m.g) else (others, of_keys)
