"""Products of rows with matrices that indices choose, as tokens have with those of their experts, where there are more rows than matrices.

To load a matrix for each row moves it as often as it is chosen. Where that takes longer, all rows are multiplied with all matrices, of
which each is loaded once, and the results are chosen. What is chosen is looked up by the same indices, so one that is no matrix is the
error that it was. Few rows are multiplied with the matrices that they choose, rows first here too: so both read weights that lie alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from ktir.cost.estimate import kernel_start, multiply_cycles
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import (
    Generic,
    affine_map,
    element_of,
    elementwise,
    filled,
    generic,
    loop_extents,
    set_maps,
    sum_of_products,
)
from ktir.mlir import func, ir, is_a, linalg, tensor
from ktir.passes.flat.memory.addresses import loops_of
from ktir.passes.flat.memory.indirect import in_memory, shape_of_view
from ktir.passes.flat.memory.windows import groups_of, shape
from ktir.target import LANES, STICK_BYTES, Target

_RESULT_BYTES = 4


@dataclass(frozen=True)
class _Rows:
    """What is multiplied, before anything repeats its rows: by which loops of the product each of its dims is found."""

    value: ir.Value
    places: list[ir.AffineExpr]

    def __iter__(self) -> Iterator[tuple[int, ir.AffineExpr]]:
        """Size and place of each dim."""
        return zip(shape(self.value), self.places, strict=True)


@dataclass(frozen=True)
class _Choice:
    """A product of which the operand `matrix` is looked up in a dim of `base` by `index`, for each position of the loops `chosen`."""

    g: Generic
    matrix: int
    base: ir.Value
    dim: int
    index: ir.Value
    chosen: list[int]
    columns: list[int]
    """The loops of the result that walk the matrix."""
    walk: list[int]
    """The loops that walk the other dims of the base, in order."""

    @property
    def load(self) -> ir.Operation:
        """The load through the indices."""
        return self.g.inputs[self.matrix].owner.operation

    @property
    def tile(self) -> ir.Operation:
        """What it loads."""
        return self.load.operands[0].owner.operation

    @property
    def reduced(self) -> list[int]:
        """The loops that are summed."""
        return [i for i, kind in enumerate(self.g.iterators) if kind == "reduction"]

    @property
    def rows(self) -> _Rows:
        """The other operand."""
        return _unrepeated(_Rows(self.g.inputs[1 - self.matrix], [ir.AffineExpr.get_dim(i or 0) for i in self.g.walk(1 - self.matrix)]))

    @property
    def is_matmul(self) -> bool:
        """Whether all rows with one matrix are a matmul: each summed loop walks a dim of both, and the other ones walk one of them."""
        walks = [loops_of(place) for place in self.rows.places]
        summed = [place for place in self.rows.places if loops_of(place) & set(self.reduced)]
        return (
            set(self.reduced) <= set(self.walk)
            and sorted(_variable(place) or 0 for place in summed) == self.reduced
            and not set(self.columns) & set().union(*walks)
            and len(summed) < len(walks)
        )

    @property
    def has_rows_last(self) -> bool:
        """Whether each summed loop walks a dim of both, and the matrix stands first."""
        return self.matrix == 0 and bool(self.columns) and set(self.reduced) <= set(self.walk) & set(self.g.walk(1))


def multiply_with_all(function: func.FuncOp, target: Target) -> None:
    """Rewrite such products of `function` in place; tiles have their variables in the order of their dims by now."""
    for op in [o.operation for o in function.regions[0].blocks[0].operations]:
        choice = _choice(op) if is_a(op, linalg.GenericOp) else None
        if choice is None:
            continue
        if choice.is_matmul and _saves(choice, target):
            op.results[0].replace_all_uses_with(_of_all(choice))
            for gone in (op, choice.load, choice.tile):
                gone.erase()
        elif choice.has_rows_last:
            _rows_first(choice)


def _rows_first(choice: _Choice) -> None:
    """Exchange the factors of a product, with the row repeated for each matrix that it is multiplied with."""
    g, extents = choice.g, loop_extents(choice.g.op)
    matrix, row = g.inputs
    matrix_map, row_map, result = g.maps
    walk = [loop or 0 for loop in g.walk(1)]
    if missing := [loop for loop in choice.chosen if loop not in walk]:
        with ir.InsertionPoint(g.op), g.op.location:
            repeated = tensor.empty([extents[loop] for loop in (*missing, *walk)], element_of(row))
            row = elementwise([row], repeated, walks=[range(len(missing), len(missing) + len(walk))])
        row_map = affine_map(len(extents), [*missing, *walk])
    g.op.operands[0], g.op.operands[1] = row, matrix
    set_maps(g.op, [row_map, matrix_map, result])


def _choice(op: ir.Operation) -> _Choice | None:
    """A product with chosen matrices that nothing else reads."""
    g = Generic(op)
    if len(op.results) != 1 or len(g.inputs) != 2 or not g.sums_products or g.begins_elsewhere or any(None in g.walk(i) for i in range(3)):
        return None
    for i, value in enumerate(g.inputs):
        load = None if isinstance(value.owner, ir.Block) else value.owner.operation
        tile = load.operands[0].owner.operation if is_a(load, ktdp.LoadOp) and len(list(value.uses)) == 1 else None
        if not is_a(tile, ktdp.ConstructIndirectAccessTileOp) or tile.opview.captured or len(list(tile.results[0].uses)) > 1:
            continue
        found = None if _is_written(tile, op) else _looked_up(g, i, tile)
        if found is not None:
            return found
    return None


def _is_written(tile: ir.Operation, op: ir.Operation) -> bool:
    """Whether something is stored between a load and who reads it: indices are looked up later then."""
    ops = [o.operation for o in op.block.operations]
    return any(not list(o.results) for o in ops[ops.index(tile) : ops.index(op)])


def _looked_up(g: Generic, operand: int, tile: ir.Operation) -> _Choice | None:
    """The choice that a tile makes by one dim of whole memory; its other dims are walked from end to end."""
    subscripts, base = list(tile.opview.subscripts), tile.operands[0]
    looked_up = [d for d, (_, view) in enumerate(subscripts) if view is not None]
    if len(looked_up) != 1 or isinstance(base.owner, ir.Block) or not _is_known(base.owner.operation):
        return None
    variables = [_variable(e) for m, _ in subscripts for e in m.results]
    walk = g.walk(operand)
    if None in variables or len(set(variables)) < len(variables) or len(set(walk)) < len(walk):
        return None
    (dim,) = looked_up
    sizes, index = shape_of_view(base), subscripts[dim][1]
    others = {d: _variable(m.results[0]) or 0 for d, (m, _) in enumerate(subscripts) if d != dim}
    chosen = [walk[_variable(e) or 0] or 0 for e in subscripts[dim][0].results]
    if index is None or any(tile.opview.shape[v] != sizes[d] for d, v in others.items()):
        return None
    if any(g.iterators[loop] == "reduction" for loop in chosen):
        return None
    walked = [walk[v] or 0 for v in others.values()]
    return _Choice(g, operand, base, dim, index, chosen, [loop for loop in _result(g) if loop in walked], walked)


def _is_known(base: ir.Operation) -> bool:
    """Whether memory has a size that is a number."""
    return is_a(base, kt.MaterializeOp) or (
        is_a(base, ktdp.ConstructMemoryViewOp) and "masked" not in base.attributes and len(list(base.operands)) == 1
    )


def _result(g: Generic) -> list[int]:
    """The loops of a result, in order."""
    return [loop or 0 for loop in g.walk(-1)]


def _variable(e: ir.AffineExpr) -> int | None:
    return ir.AffineDimExpr(e).position if isinstance(e, ir.AffineDimExpr) else None


def _unrepeated(rows: _Rows) -> _Rows:
    """Rows before ops that only repeat them, as tokens for each of their experts, and join dims."""
    op = None if isinstance(rows.value.owner, ir.Block) else rows.value.owner.operation
    if is_a(op, tensor.CollapseShapeOp):
        places, sizes = [], shape(op.operands[0])
        for place, group in zip(rows.places, groups_of(op), strict=True):
            for d in group:
                inner, own = prod(sizes[group[-1] - n] for n in range(group[-1] - d)), place
                own = ir.AffineExpr.get_floor_div(own, inner) if inner > 1 else own
                places.append(ir.AffineExpr.get_mod(own, sizes[d]) if d != group[0] else own)
        before = _unrepeated(_Rows(op.operands[0], places))
        return rows if before.value == op.operands[0] else before
    if is_a(op, linalg.GenericOp) and len(Generic(op).inputs) == 1 and Generic(op).is_pointwise and not Generic(op).body_ops:
        g = Generic(op)
        place_of = dict(zip(_result(g), rows.places, strict=True))
        if None not in g.walk(0) and None not in g.walk(1) and len(g.walk(0)) < len(place_of):
            return _unrepeated(_Rows(g.inputs[0], [place_of[loop or 0] for loop in g.walk(0)]))
    return rows


def _saves(choice: _Choice, target: Target) -> bool:
    """Whether all products take less than loading a matrix for each row, as long as what they come to can be addressed."""
    extents, matrices = loop_extents(choice.g.op), shape_of_view(choice.base)[choice.dim]
    depth, columns = (-(-prod(extents[loop] for loop in loops) // LANES) for loops in (choice.reduced, choice.columns))
    rows = prod(size for size, place in choice.rows if _variable(place) not in choice.reduced)
    matrix = columns * depth * LANES * STICK_BYTES
    row = columns * LANES * _RESULT_BYTES
    if matrices == 1 or matrices * rows * row > target.span_bytes:  # dims of extent 1 are gone by now
        return False
    rate, corelets = target.dram_bytes_per_cycle, target.cores * target.corelets
    products = matrices * multiply_cycles(rows, columns * depth, target) / corelets
    chosen = prod(extents[loop] for loop in choice.chosen)
    with_all = max(products, matrices * (matrix + rows * row) / rate) + chosen * row / rate + 2 * kernel_start(target)
    return with_all < chosen * matrix / rate


def _of_all(choice: _Choice) -> ir.Value:
    """The products of all rows with all matrices, of which those of the chosen ones are read."""
    g, extents = choice.g, loop_extents(choice.g.op)
    matrices, result = shape_of_view(choice.base)[choice.dim], _result(g)
    with ir.InsertionPoint(choice.tile), choice.tile.location:
        weights = _whole(choice.base)
    with ir.InsertionPoint(g.op), g.op.location:
        rows = choice.rows
        own = [place for place in rows.places if _variable(place) not in choice.reduced]
        loops = [*choice.columns, *choice.reduced]
        row_walk = [len(own) + 1 + loops.index(_variable(p) or 0) if p not in own else 1 + own.index(p) for p in rows.places]
        weight_walk = [1 + len(own) + loops.index(loop) for loop in choice.walk]
        weight_walk.insert(choice.dim, 0)
        count = 1 + len(own) + len(loops)
        sizes = [matrices, *(size for size, place in rows if place in own), *(extents[loop] for loop in choice.columns)]
        repeated = tensor.empty([matrices, *shape(rows.value)], element_of(rows.value))
        every = elementwise([rows.value], repeated, walks=[range(1, 1 + len(rows.places))])
        products = generic(
            [every, weights],
            filled(sizes, element_of(g.init), 0.0),
            [affine_map(count, walk) for walk in ([0, *row_walk], weight_walk, range(len(sizes)))],
            ["reduction" if i >= len(sizes) else "parallel" for i in range(count)],
            sum_of_products,
            loc=g.op.location,
        )
        moved = [ir.AffineExpr.get_dim(result.index(loop) if loop in result else 0) for loop in range(len(extents))]
        in_result = ir.AffineMap.get(len(result), 0, moved)
        index = choice.index, [moved[loop] for loop in choice.chosen]
        subscripts = [index, *(place.compose(in_result) for place in own), *(moved[loop] for loop in choice.columns)]
        tile = ktdp.construct_indirect_access_tile(in_memory(products), subscripts, [extents[loop] for loop in result])
        return ktdp.load(tile, element_of(g.init))


def _whole(base: ir.Value) -> ir.Value:
    """All that memory holds."""
    if is_a(base.owner, kt.MaterializeOp):
        return base.owner.operands[0]
    sizes = shape_of_view(base)
    return ktdp.load(ktdp.construct_access_tile(base, [0] * len(sizes), sizes), ir.MemRefType(base.type).element_type)
