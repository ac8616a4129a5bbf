"""What an exchange is: a table of who receives which part of whose tensor, and where it goes. The ops differ by it alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects._ktdp import tile_sets
from ktir.mlir import ir, names

Box = tuple[tuple[int, int], ...]
"""Per dim the first position, and how many."""
FOLDS = names(ktdp.InterTileReduceOp, ktdp.InterTileReduceScatterOp)


@dataclass(frozen=True)
class Transfer:
    """The `number`-th part that a receiver gets: `source` of what the sender contributes becomes `target` of what is received."""

    sender: int
    source: Box
    receiver: int
    target: Box
    number: int


@dataclass(frozen=True)
class Members:
    """Per consumer whom it receives from in ascending order, its place among the consumers of its group, and their number; by cores."""

    sources: dict[int, list[int]]
    place: dict[int, int]
    size: dict[int, int]

    @staticmethod
    def of(op: ir.Operation, tiles: int, run: range, live: Sequence[bool]) -> Members:
        """Those of a delivery among the tiles that run at once; `live`: per tile whether it gets there. Raises Unsupported for sets of
        tiles that are not bounded by constants, and where one receives from a tile that runs at another time, or does not get there."""
        found = Members({}, {}, {})
        dependency = op.attributes["producer_dependency_per_consumer"] if "producer_dependency_per_consumer" in op.attributes else None
        for g in groups(op):
            producers = _tiles(producer(op), "producer_tiles_per_group", (g,), tiles)
            consumers = _tiles(op, "consumer_tiles_per_group", (g,), tiles)
            for place, tile in enumerate(consumers):
                symbols = () if dependency is None else (tile,) if "[s0]" in str(dependency).split(":")[0] else (tile, g)
                sources = _tiles(op, "producer_dependency_per_consumer", symbols, tiles) if symbols else producers
                if tile not in run or not live[tile]:
                    continue
                if gone := [s for s in sources if not live[s]]:
                    raise refused(op, f"lets tile {tile} receive from tile {gone[0]}, which does not get there")
                if other := [s for s in sources if s not in run]:
                    raise refused(op, f"lets tile {tile} receive from tile {other[0]}, which runs in another turn of the {len(run)} cores")
                core = tile - run.start
                found.sources[core] = [s - run.start for s in sources]
                found.place[core], found.size[core] = place, len(consumers)
        return found

    @property
    def most(self) -> int:
        """Contributions that a consumer gets at most."""
        return max((len(s) for s in self.sources.values()), default=0)


def groups(op: ir.Operation) -> list[int]:
    """The groups of a production or a delivery. Raises Unsupported."""
    future = op.operands[0] if len(op.operands) else op.results[0]
    found = tile_sets.groups(ktdp.TileFutureType(future.type).groups)
    if found is None:
        raise refused(op, "expects groups with constant bounds, others are not pinned yet")
    return found


def producer(op: ir.Operation) -> ir.Operation:
    """What makes the future of a delivery. Raises Unsupported."""
    owner = op.operands[0].owner
    if isinstance(owner, ir.Block) or owner.name != ktdp.InterTileProduceOp.OPERATION_NAME:
        raise refused(op, "expects a future that is made by 'ktdp.inter_tile_produce'")
    return owner.operation


def producing(op: ir.Operation, tiles: int) -> list[int]:
    """Per tile the group that it produces for, -1 for none."""
    found = [-1] * tiles
    for g in groups(op):
        for tile in _tiles(op, "producer_tiles_per_group", (g,), tiles):
            found[tile] = g
    return found


def _tiles(op: ir.Operation, name: str, symbols: Sequence[int], tiles: int) -> list[int]:
    found = tile_sets.members(op.attributes[name], symbols)
    if found is None:
        raise refused(op, f"expects a set '{name}' with constant bounds, others are not pinned yet")
    return [t for t in found if t < tiles]


def transfers(op: ir.Operation, members: Members, shape: Sequence[int], result: Sequence[int]) -> list[Transfer]:
    """The table of one role: contributions of a `shape`, and what each consumer has in the end, a part of a fold as it comes.

    Raises Unsupported where extents do not tell how many parts a dim has.
    """
    split = _dims(op, "split_dimensions", "scatter_dimensions")
    joined = _dims(op, "concat_dimensions", "gather_dimensions")
    if set(split) & set(joined) and (len(split) > 1 or len(joined) > 1):
        raise refused(op, "splits and joins one of several dims, which is not pinned yet")
    found = []
    for tile, sources in sorted(members.sources.items()):
        shares = [members.size[tile]] if len(split) == 1 else [shape[d] // result[d] for d in split]
        extents = [n // shares[split.index(d)] if d in split else n for d, n in enumerate(shape)]
        parts = [len(sources)] if len(joined) == 1 else [result[d] // extents[d] for d in joined]
        place = dict(zip(split, _digits(members.place[tile], shares), strict=True))
        source = tuple((place.get(d, 0) * n, n) for d, n in enumerate(extents))
        if prod(shares) not in (1, members.size[tile]):
            raise refused(op, f"cuts into {prod(shares)} shares, but a group has {members.size[tile]} consumers")
        for number, sender in enumerate(sources):
            at = dict(zip(joined, _digits(number, parts), strict=True))
            target = tuple((at.get(d, 0) * n, n) for d, n in enumerate(extents))
            found.append(Transfer(sender, source, tile, target, number))
    return found


def splits(op: ir.Operation) -> bool:
    """Whether each receiver gets a part of its own of what a tile sends."""
    return bool(_dims(op, "split_dimensions", "scatter_dimensions"))


def _dims(op: ir.Operation, *named: str) -> list[int]:
    """A list of dims by any of its names; none where the op has no such list."""
    for name in named:
        if name in op.attributes:
            held = op.attributes[name]
            if isinstance(held, ir.ArrayAttr):
                return [ir.IntegerAttr(i).value for i in held]
            return list(ir.DenseI64ArrayAttr(held))
    return []


def _digits(number: int, counts: Sequence[int]) -> list[int]:
    """The mixed-radix digits of a number, the first one slowest."""
    digits = []
    for n in reversed(counts):
        digits.append(number % n)
        number //= n
    return digits[::-1]
