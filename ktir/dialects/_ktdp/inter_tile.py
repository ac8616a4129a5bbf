"""The `ktdp` ops by which tiles exchange tensors: one production, six deliveries.

A production names what each tile contributes and gives a future; exactly one delivery takes it. Productions are never merged or moved,
since each execution is an exchange of its own; a production that nobody takes may go. A delivery waits, so it counts as a read: it may go
if its results are unused. Both also have the effects of what stands in their regions.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Annotated, Any

from ktir.dialects._foundation import affine
from ktir.dialects._foundation.base import Operation, Pure, ReadEffect, Spread, WriteEffect, report
from ktir.dialects._ktdp import tile_sets
from ktir.dialects._ktdp.types import Ktdp, TileFutureType
from ktir.mlir import ext, ir

MOST_ROLES = 8

_ROLE_RESULTS = Annotated[Sequence[ext.Result[ir.RankedTensorType]], Spread(MOST_ROLES)]
_ROLE_OPERANDS = Annotated[Sequence[ext.Operand[ir.RankedTensorType]], Spread(MOST_ROLES)]


def _inner_effects(op: Any, effects: Any) -> None:
    """Adds what the ops in the regions of `op` do to memory."""
    found: set[Any] = set()

    def visit(inner: ir.Operation) -> ir.WalkResult:
        if inner != op.operation:
            found.update(_effects_of(inner))
        return ir.WalkResult.ADVANCE

    op.operation.walk(visit)
    for effect in (ir.MemoryEffect.Read, ir.MemoryEffect.Write):
        if effect in found:
            effects.append(effect)


def _effects_of(op: ir.Operation) -> tuple[Any, ...]:
    traits = getattr(type(op.opview), "_traits", None)
    if traits is not None:
        return tuple(e for t, e in ((ReadEffect, ir.MemoryEffect.Read), (WriteEffect, ir.MemoryEffect.Write)) if t in traits)
    touches = any(isinstance(v.type, ir.MemRefType | ir.UnrankedMemRefType) for v in (*op.operands, *op.results))
    return (ir.MemoryEffect.Read, ir.MemoryEffect.Write) if touches or op.name == "func.call" else ()


class ProduceEffect(ir.MemoryEffectsOpInterface):
    """The op makes something that is unlike any other, besides what its region does."""

    @staticmethod
    def get_effects(op: Any, effects: Any) -> None:
        effects.append(ir.MemoryEffect.Allocate, op.results[0])
        _inner_effects(op, effects)


class DeliverEffect(ir.MemoryEffectsOpInterface):
    """The op takes what other tiles have made, besides what its region does."""

    @staticmethod
    def get_effects(op: Any, effects: Any) -> None:
        effects.append(ir.MemoryEffect.Read)
        _inner_effects(op, effects)


class YieldPartialOp(Operation, dialect=Ktdp, name="yield_partial", traits=[ir.IsTerminatorTrait, Pure]):
    """Ends the region of `inter_tile_produce` with the executing tile's contributions, one per role."""

    values: Annotated[Sequence[ext.Operand[Any]], Spread(MOST_ROLES)]

    assembly = "($values `:` type($values))? attr-dict"

    def check(self) -> str | None:
        return _parent_fault(self, (InterTileProduceOp.OPERATION_NAME,))


class YieldReducedOp(Operation, dialect=Ktdp, name="yield_reduced", traits=[ir.IsTerminatorTrait, Pure]):
    """Ends a combiner with the combined values, one per role."""

    values: Annotated[Sequence[ext.Operand[Any]], Spread(MOST_ROLES)]

    assembly = "($values `:` type($values))? attr-dict"

    def check(self) -> str | None:
        return _parent_fault(self, (InterTileReduceOp.OPERATION_NAME, InterTileReduceScatterOp.OPERATION_NAME))


def _parent_fault(op: Any, parents: Sequence[str]) -> str | None:
    parent = op.operation.parent
    if parent is not None and parent.name in parents:
        return None
    return f"expects parent op {' or '.join(repr(name) for name in parents)}"


def _set_fault(op: Any, name: str) -> str | None:
    """What is wrong with a set of tiles `(i)[g]`."""
    dims, symbols = affine.set_counts(op.attributes[name])
    if dims != 1:
        return f"`{name}` must have exactly one dimension (the tile id i)"
    return None if symbols == 1 else f"`{name}` must have exactly one symbol (the group index g)"


_DEPENDENCY = "producer_dependency_per_consumer"


def _dependency_fault(op: Any) -> str | None:
    """What is wrong with the optional set `(p)[c]` or `(p)[c, g]`."""
    if _DEPENDENCY not in op.attributes:
        return None
    dependency = op.attributes[_DEPENDENCY]
    if not isinstance(dependency, ir.IntegerSetAttr):
        return f"attribute '{_DEPENDENCY}' must be an integer set, but got {dependency}"
    dims, symbols = affine.set_counts(dependency)
    if dims != 1:
        return f"`{_DEPENDENCY}` must have exactly one dimension (the producer tile p)"
    return None if symbols in (1, 2) else f"`{_DEPENDENCY}` must have one symbol (c) or two symbols (c, g)"


class InterTileProduceOp(Operation, dialect=Ktdp, name="inter_tile_produce", traits=[ProduceEffect]):
    """What each producer tile contributes; `%gid` is the group that the executing tile produces for.

    %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<1x64xf16>), groups = #one> {
    ^bb0(%gid: index):
      ktdp.yield_partial %x : tensor<1x64xf16>
    }
    """

    future: ext.Result[TileFutureType]
    body: ext.Region

    required = {"producer_tiles_per_group": ir.IntegerSetAttr}
    assembly = "`producer_tiles_per_group` `=` $producer_tiles_per_group attr-dict old_types() `->` stripped($future) region($body)"

    def check(self) -> str | None:
        producers = self.attributes["producer_tiles_per_group"]
        groups = self.results[0].type.groups
        dims, symbols = affine.set_counts(groups)
        if dims != 1 or symbols:
            return "tile_future `groups` must have exactly one dimension (g) and no symbols"
        return _set_fault(self, "producer_tiles_per_group") or _overlap_fault(producers, groups)

    @staticmethod
    def verify_region_invariants(op: Any) -> bool:
        roles = op.results[0].type.roles
        fault = _block_fault(op, [ir.IndexType.get(op.context)], YieldPartialOp.OPERATION_NAME)
        return report(op, fault) if fault else _check_yield(op, roles, "partial")


def _overlap_fault(producers: ir.Attribute, groups: ir.Attribute) -> str | None:
    owner: dict[int, int] = {}
    for g in tile_sets.groups(groups) or []:
        for tile in tile_sets.members(producers, (g,)) or []:
            if tile in owner:
                return f"producer_tiles_per_group for groups {owner[tile]} and {g} are not disjoint"
            owner[tile] = g
    return None


def _block_fault(op: Any, types: Sequence[ir.Type], terminator: str) -> str | None:
    blocks = list(op.regions[0].blocks)
    if len(blocks) != 1:
        return f"expects a region of one block, but got {len(blocks)}"
    arguments = [argument.type for argument in blocks[0].arguments]
    if arguments != list(types):
        return f"expects block arguments of types ({', '.join(map(str, types))}), but got ({', '.join(map(str, arguments))})"
    last = list(blocks[0].operations)[-1:]
    return None if last and last[0].operation.name == terminator else f"expects its region to end in '{terminator}'"


def _check_yield(op: Any, roles: Sequence[ir.Type], kind: str) -> bool:
    values = [value.type for value in list(op.regions[0].blocks[0].operations)[-1].operands]
    if len(values) != len(roles):
        return report(op, f"yield_{kind} yields {len(values)} values but the future carries {len(roles)} partial type(s)")
    for i, (value, role) in enumerate(zip(values, roles, strict=True)):
        if value != role:
            return report(op, f"yield_{kind} value #{i} has type '{value}' but the future carries '{role}'")
    return True


class _Delivery(Operation):
    """Base of the ops that take a future."""

    def check(self) -> str | None:
        return _set_fault(self, "consumer_tiles_per_group") or _dependency_fault(self) or self.check_types(self.operands[0].type.roles)

    def check_types(self, roles: Sequence[ir.Type]) -> str | None:
        """What is wrong with the types of the results, and of identities, for the types of the partials."""
        if [result.type for result in self.results] != list(roles):
            return "failed to verify that result types must match future partial types"
        return None

    def shares(self, name: str, roles: Sequence[Any], grow: bool) -> str | None:
        """What is wrong with results whose extents on the axes `name` are multiples (`grow`) or parts of those of the partials."""
        results = [result.type for result in self.results]
        if len(results) != len(roles):
            return f"expects one result per role, but got {len(results)} for {len(roles)}"
        axes = list(ir.DenseI64ArrayAttr(self.attributes[name]))
        for role, result in zip(roles, results, strict=True):
            if fault := _axes_fault(name, axes, role) or _kept_fault(axes, role, result):
                return fault
            for axis in axes:
                whole, part = (result.shape[axis], role.shape[axis]) if grow else (role.shape[axis], result.shape[axis])
                if part <= 0 or whole % part:
                    how = "a multiple of" if grow else "a part of"
                    return f"expects extent {result.shape[axis]} of '{result}' in dim {axis} to be {how} that of '{role}'"
        return None


def _axes_fault(name: str, axes: Sequence[int], role: Any) -> str | None:
    if not axes or any(b <= a for a, b in pairwise(axes)):
        return f"`{name}` must be non-empty, ascending and distinct, but got {list(axes)}"
    if axes[0] < 0 or axes[-1] >= len(role.shape):
        return f"`{name}` {list(axes)} must be dims of '{role}'"
    return None


def _kept_fault(axes: Sequence[int], role: Any, result: Any) -> str | None:
    """What is wrong with a result that may differ from a partial in `axes` only."""
    if result.element_type != role.element_type or len(result.shape) != len(role.shape):
        return f"expects a result of the rank and element type of '{role}', but got '{result}'"
    for axis, (before, after) in enumerate(zip(role.shape, result.shape, strict=True)):
        if axis not in axes and before != after:
            return f"expects extent {before} of '{role}' to stay in dim {axis}, but got '{result}'"
    return None


_CONSUMERS = "`(` $future `)` `consumer_tiles_per_group` `=` $consumer_tiles_per_group"
_DEPENDENCIES = f"(`,` `{_DEPENDENCY}` `=` ${_DEPENDENCY})?"
_COMBINED = (
    f"`,` (`{_DEPENDENCY}` `=` ${_DEPENDENCY} `,`)? `identity` `(` ($identities `:` type($identities))? `)`"
    " attr-dict `:` stripped($future) `->` role_types($values, $future) region($combiner)"
)
_DELIVERED = "attr-dict `:` stripped($future) `->` type($values)"


class InterTileConsumeOp(_Delivery, dialect=Ktdp, name="inter_tile_consume", traits=[DeliverEffect]):
    """One producer's values, unchanged, on each consumer tile.

    %y = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #all : <(tensor<1x64xf16>), groups = #one> -> tensor<1x64xf16>
    """

    future: ext.Operand[TileFutureType]
    values: _ROLE_RESULTS

    required = {"consumer_tiles_per_group": ir.IntegerSetAttr}
    assembly = f"{_CONSUMERS} {_DEPENDENCIES} {_DELIVERED}"


class _Reduction(_Delivery):
    """Base of the deliveries with a combiner, which is associative and commutative."""

    @staticmethod
    def verify_region_invariants(op: Any) -> bool:
        roles = op.operands[0].type.roles
        fault = _block_fault(op, [*roles, *roles], YieldReducedOp.OPERATION_NAME)
        return report(op, fault) if fault else _check_yield(op, roles, "reduced")


class InterTileReduceOp(_Reduction, dialect=Ktdp, name="inter_tile_reduce", traits=[DeliverEffect]):
    """The fold over the contributions of a group, on each consumer tile.

    %s = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #tiles, identity(%zero : tensor<1x64xf16>)
        : <(tensor<1x64xf16>), groups = #one> -> tensor<1x64xf16> {
    ^bb0(%a: tensor<1x64xf16>, %b: tensor<1x64xf16>):
      %c = arith.addf %a, %b : tensor<1x64xf16>
      ktdp.yield_reduced %c : tensor<1x64xf16>
    }
    """

    future: ext.Operand[TileFutureType]
    values: _ROLE_RESULTS
    identities: _ROLE_OPERANDS
    combiner: ext.Region

    required = {"consumer_tiles_per_group": ir.IntegerSetAttr}
    assembly = f"{_CONSUMERS} {_COMBINED}"

    def check_types(self, roles: Sequence[ir.Type]) -> str | None:
        if fault := super().check_types(roles):
            return fault
        if [identity.type for identity in list(self.operands)[1:]] != [result.type for result in self.results]:
            return "failed to verify that identity types must match result types"
        return None


class InterTileReduceScatterOp(_Reduction, dialect=Ktdp, name="inter_tile_reduce_scatter", traits=[DeliverEffect]):
    """A share of the fold on each consumer tile: the fold is cut on `scatter_dimensions`.

    %s = ktdp.inter_tile_reduce_scatter(%f) consumer_tiles_per_group = #tiles, scatter_dimensions = [1], identity(%z : tensor<1x64xf16>)
        : <(tensor<1x64xf16>), groups = #one> -> tensor<1x16xf16> { ... }
    """

    future: ext.Operand[TileFutureType]
    values: _ROLE_RESULTS
    identities: _ROLE_OPERANDS
    combiner: ext.Region

    required = {"consumer_tiles_per_group": ir.IntegerSetAttr, "scatter_dimensions": ir.DenseI64ArrayAttr}
    assembly = f"{_CONSUMERS} `,` `scatter_dimensions` `=` integers($scatter_dimensions) {_COMBINED}"

    def check_types(self, roles: Sequence[ir.Type]) -> str | None:
        if fault := self.shares("scatter_dimensions", roles, grow=False):
            return fault
        if [identity.type for identity in list(self.operands)[1:]] != list(roles):
            return "failed to verify that identity types must match future partial types"
        return None


class InterTileGatherOp(_Delivery, dialect=Ktdp, name="inter_tile_gather", traits=[DeliverEffect]):
    """The contributions of a group side by side on `gather_dimensions`, in ascending order of tiles, on each consumer tile.

    %y = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #all, gather_dimensions = [0]
        : <(tensor<1x64xf16>), groups = #one> -> tensor<4x64xf16>
    """

    future: ext.Operand[TileFutureType]
    values: _ROLE_RESULTS

    required = {"consumer_tiles_per_group": ir.IntegerSetAttr, "gather_dimensions": ir.DenseI64ArrayAttr}
    assembly = f"{_CONSUMERS} `,` `gather_dimensions` `=` integers($gather_dimensions) {_DEPENDENCIES} {_DELIVERED}"

    def check_types(self, roles: Sequence[Any]) -> str | None:
        if fault := self.shares("gather_dimensions", roles, grow=True):
            return fault
        count = _producer_count(self)
        axes = list(ir.DenseI64ArrayAttr(self.attributes["gather_dimensions"]))
        for role, result in zip(roles, self.results, strict=True):
            factor = prod(result.type.shape[axis] // role.shape[axis] for axis in axes)
            if count is not None and factor != count:
                return f"expects extents that grow by {count}, the number of producers, but got '{result.type}' from '{role}'"
        return None


def _producer_count(op: Any) -> int | None:
    """How many contributions one consumer assembles; None if that cannot be told here."""
    owner = op.operands[0].owner
    if _DEPENDENCY in op.attributes or isinstance(owner, ir.Block) or owner.name != InterTileProduceOp.OPERATION_NAME:
        return None
    groups = tile_sets.groups(op.operands[0].type.groups)
    producers = owner.attributes["producer_tiles_per_group"]
    if not groups or sum(affine.set_counts(producers)) != 2:
        return None
    tiles = tile_sets.members(producers, (groups[0],))
    return len(tiles) if tiles else None


class InterTileAllToAllOp(_Delivery, dialect=Ktdp, name="inter_tile_all_to_all", traits=[DeliverEffect]):
    """One share of every contribution on each consumer tile: each is cut on `split_dimensions`, the shares are joined on
    `concat_dimensions`.

    %y = ktdp.inter_tile_all_to_all(%f) consumer_tiles_per_group = #all, split_dimensions = [1], concat_dimensions = [0]
        : <(tensor<1x64xf16>), groups = #one> -> tensor<4x16xf16>
    """

    future: ext.Operand[TileFutureType]
    values: _ROLE_RESULTS

    required = {
        "consumer_tiles_per_group": ir.IntegerSetAttr,
        "split_dimensions": ir.DenseI64ArrayAttr,
        "concat_dimensions": ir.DenseI64ArrayAttr,
    }
    assembly = (
        f"{_CONSUMERS} `,` `split_dimensions` `=` integers($split_dimensions)"
        f" `,` `concat_dimensions` `=` integers($concat_dimensions) {_DEPENDENCIES} {_DELIVERED}"
    )

    def check_types(self, roles: Sequence[Any]) -> str | None:
        results = [result.type for result in self.results]
        if len(results) != len(roles):
            return f"expects one result per role, but got {len(results)} for {len(roles)}"
        split, concat = (list(ir.DenseI64ArrayAttr(self.attributes[name])) for name in ("split_dimensions", "concat_dimensions"))
        for role, result in zip(roles, results, strict=True):
            fault = _axes_fault("split_dimensions", split, role) or _axes_fault("concat_dimensions", concat, role)
            if fault := fault or _kept_fault([*split, *concat], role, result):
                return fault
            for axis in {*split} ^ {*concat}:
                before, after = role.shape[axis], result.shape[axis]
                whole, part = (before, after) if axis in split else (after, before)
                if part <= 0 or whole % part:
                    how = "a part of" if axis in split else "a multiple of"
                    return f"expects extent {after} of '{result}' in dim {axis} to be {how} that of '{role}'"
        return None


class InterTileScatterOp(_Delivery, dialect=Ktdp, name="inter_tile_scatter", traits=[DeliverEffect]):
    """A share of the only contribution of the group on each consumer tile.

    %y = ktdp.inter_tile_scatter(%f) consumer_tiles_per_group = #all, scatter_dimensions = [1]
        : <(tensor<1x64xf16>), groups = #one> -> tensor<1x16xf16>
    """

    future: ext.Operand[TileFutureType]
    values: _ROLE_RESULTS

    required = {"consumer_tiles_per_group": ir.IntegerSetAttr, "scatter_dimensions": ir.DenseI64ArrayAttr}
    assembly = f"{_CONSUMERS} `,` `scatter_dimensions` `=` integers($scatter_dimensions) {_DELIVERED}"

    def check_types(self, roles: Sequence[ir.Type]) -> str | None:
        if _DEPENDENCY in self.attributes:
            return f"takes no `{_DEPENDENCY}`: a group has one producer"
        count = _producer_count(self)
        if count is not None and count > 1:
            return f"expects one producer per group, but got {count}"
        return self.shares("scatter_dimensions", roles, grow=False)
