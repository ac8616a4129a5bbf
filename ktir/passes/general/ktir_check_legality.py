"""KTIR that a compiler of the Spyre accelerator can take: known dialects, and exchanges between tiles that follow rules R1 to R14.

The rules are those of the inter-tile specification (docs/inter-tile-communication.md of ktir-mlir-frontend). P(g) and C(g) are the producer
and the consumer tiles of group g, dep(c, g) the producers that consumer c declares. A rule is checked where the sets are bounded by
constants; otherwise it is passed over, never failed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import ClassVar

from ktir.analysis.attributes.broken import Broken, refuse_broken
from ktir.dialects import ktdp
from ktir.dialects._ktdp.tile_sets import groups, members
from ktir.mlir import ir, is_a, named, operations
from ktir.pipeline import Pass

DIALECTS = ("arith", "builtin", "func", "ktdp", "linalg", "math", "memref", "scf", "spyreop", "tensor")
PRODUCERS, CONSUMERS, DEPENDENCY = "producer_tiles_per_group", "consumer_tiles_per_group", "producer_dependency_per_consumer"


@dataclass(frozen=True)
class CheckLegalityPass(Pass):
    """Refuse ops of other dialects and exchanges between tiles that break a rule.

    Expects: any level before the stream. Guarantees: nothing is changed. Every faulty op is reported, each with its first fault.
    """

    name: ClassVar[str] = "ktir-check-legality"
    description: ClassVar[str] = "refuse foreign ops and illegal exchanges between tiles (rules R1 to R14)"
    analysis: ClassVar[bool] = True

    def run(self, module: ir.Module) -> None:
        """Look at every op of the module."""
        refuse_broken(operations(module), _check)


def refuse_illegal_exchanges(module: ir.Module) -> None:
    """Raise KtirError for exchanges between tiles that break a rule; ops of other dialects are for whoever executes or compiles them."""
    refuse_broken(operations(module), _check_exchange)


def _check(op: ir.Operation) -> None:
    dialect = op.name.partition(".")[0]
    if dialect not in DIALECTS:
        raise Broken(f"is of dialect '{dialect}', which is no part of KTIR (dialects: {', '.join(DIALECTS)})")
    _check_exchange(op)


def _check_exchange(op: ir.Operation) -> None:
    if is_a(op, ktdp.InterTileProduceOp):
        _check_production(op)
    elif op.name in RULES:
        producer = op.operands[0].owner
        if is_a(producer, ktdp.InterTileProduceOp):
            exchange = Exchange.of(producer.operation, op)
            for rule in RULES[op.name]:
                rule(exchange)


def _check_production(op: ir.Operation) -> None:
    uses = len(list(op.results[0].uses))
    if uses != 1:  # R2
        raise Broken(f"future result must have exactly one use, but has {uses}")
    owner: dict[int, int] = {}
    for g in _group_range(op) or ():  # R1
        for tile in members(op.attributes[PRODUCERS], (g,)) or ():
            if owner.setdefault(tile, g) != g:
                raise Broken(f"{PRODUCERS} for groups {owner[tile]} and {g} are not disjoint: tile {tile} is in both")


def _group_range(produce: ir.Operation) -> list[int] | None:
    return groups(produce.results[0].type.groups)  # type: ignore[attr-defined]  # a tile future


@dataclass
class Group:
    """One independent exchange; a set that is not bounded by constants is None."""

    number: int
    producers: list[int] | None
    consumers: list[int] | None
    sources: dict[int, list[int] | None] = field(default_factory=dict)
    """dep(c, g) by consumer; empty without the attribute."""


@dataclass
class Exchange:
    """A delivery with its production."""

    op: ir.Operation
    partials: list[ir.RankedTensorType]
    results: list[ir.RankedTensorType]
    groups: list[Group]

    @classmethod
    def of(cls, produce: ir.Operation, op: ir.Operation) -> Exchange:
        last = list(produce.regions[0].blocks[0].operations)[-1]
        exchange = cls(op, [v.type for v in last.operands], [r.type for r in op.results], [])  # type: ignore[misc]  # tensors
        dependency = op.attributes[DEPENDENCY] if DEPENDENCY in op.attributes else None
        symbols = 0 if dependency is None else _symbols(dependency)
        if dependency is not None and symbols not in (1, 2):
            raise Broken(f"`{DEPENDENCY}` must have one symbol (c) or two symbols (c, g)")
        for g in _group_range(produce) or ():
            group = Group(g, members(produce.attributes[PRODUCERS], (g,)), members(op.attributes[CONSUMERS], (g,)))
            if dependency is not None:
                group.sources = {c: members(dependency, (c, g)[:symbols]) for c in group.consumers or ()}
            exchange.groups.append(group)
        return exchange

    @property
    def routed(self) -> bool:
        """Whether consumers declare their producers."""
        return DEPENDENCY in self.op.attributes

    def axes(self, name: str) -> list[int]:
        return list(ir.DenseI64ArrayAttr(self.op.attributes[name]))

    def cuts(self) -> list[int]:
        """Axes on which a contribution is split."""
        return next((self.axes(name) for name in ("scatter_dimensions", "split_dimensions") if name in self.op.attributes), [])

    def joins(self) -> list[int]:
        """Axes on which contributions are joined."""
        return next((self.axes(name) for name in ("gather_dimensions", "concat_dimensions") if name in self.op.attributes), [])


def _symbols(dependency: ir.Attribute) -> int:
    names = str(dependency).partition("[")[2].partition("]")[0] if "[" in str(dependency).partition(":")[0] else ""
    return len(names.split(",")) if names else 0


def declared_producers_produce(x: Exchange) -> None:
    """R3: every declared producer is in P(g)."""
    for group in x.groups:
        for consumer, sources in group.sources.items():
            for tile in sources or ():
                if group.producers is not None and tile not in group.producers:
                    raise Broken(
                        f"{DEPENDENCY} of consumer tile {consumer} in group {group.number} names tile {tile}, which is not in {PRODUCERS}"
                    )


def every_producer_is_claimed(x: Exchange) -> None:
    """R4: every producer of g is claimed by some consumer of g."""
    for group in x.groups:
        if not x.routed or group.producers is None or group.consumers is None or None in group.sources.values():
            continue
        claimed = {tile for sources in group.sources.values() for tile in sources or ()}
        for tile in group.producers:
            if tile not in claimed:
                raise Broken(
                    f"{DEPENDENCY} for group {group.number} does not cover producer tile {tile} (no consumer has it as a dependency)"
                )


def sources_are_disjoint(x: Exchange) -> None:
    """R5: dependency sets of different consumers are disjoint, or the same."""
    for group in x.groups:
        seen: dict[int, tuple[int, list[int]]] = {}
        for consumer, sources in group.sources.items():
            for tile in sources or ():
                other, known = seen.setdefault(tile, (consumer, sources or []))
                if known != sources:
                    raise Broken(
                        f"{DEPENDENCY} for group {group.number} gives consumer tiles {other} and {consumer} sets that overlap "
                        f"in tile {tile}"
                    )


def sources_are_as_many(x: Exchange) -> None:
    """R6: all consumers of a group declare the same number of producers."""
    for group in x.groups:
        counts = {c: len(sources) for c, sources in group.sources.items() if sources is not None}
        if len(set(counts.values())) > 1:
            first = next(iter(counts))
            other = next(c for c, n in counts.items() if n != counts[first])
            raise Broken(
                f"{DEPENDENCY} for group {group.number} gives consumer tile {first} {counts[first]} producers, "
                f"but tile {other} {counts[other]}"
            )


def groups_are_as_large(x: Exchange) -> None:
    """R7: |P(g)| is the same for all g."""
    sizes = [(group.number, len(group.producers)) for group in x.groups if group.producers is not None]
    for number, size in sizes:
        if size != sizes[0][1]:
            raise Broken(f"group {sizes[0][0]} has {sizes[0][1]} producers, but group {number} has {size}")


def one_source(x: Exchange) -> None:
    """R8 of consume: each consumer tile has exactly one source."""
    for group in x.groups:
        count = len(group.producers or ())
        if group.producers is None or (count == 1 and not x.routed):
            continue
        if not x.routed and count > 1:
            raise Broken(
                f"group {group.number} has {count} producers, so {DEPENDENCY} is required to name each consumer tile's single source"
            )
        for consumer in group.consumers or ():
            sources = group.sources.get(consumer, []) if x.routed else []
            if sources is not None and len(sources) != 1:
                raise Broken(
                    f"consumer tile {consumer} of group {group.number} depends on {len(sources)} producers; "
                    "inter_tile_consume delivers one contribution per consumer tile, so exactly one is required"
                )


def one_producer(x: Exchange) -> None:
    """R8 of scatter: exactly one producer per group."""
    for group in x.groups:
        if group.producers is not None and len(group.producers) != 1:
            raise Broken(f"group {group.number} has {len(group.producers)} producers; inter_tile_scatter takes exactly one")


def cut_fits(x: Exchange) -> None:
    """R9: the factors of a split multiply to the number of shares; that its axes are dims and divide is the verifier's part."""
    axes, name = x.cuts(), "split" if "split_dimensions" in x.op.attributes else "scatter"
    others = set(x.joins())
    for whole, part in zip(x.partials, x.results, strict=True):
        if others & set(axes):
            continue  # joined again: the extents do not tell the number of shares
        factors = [whole.shape[axis] // part.shape[axis] for axis in axes]
        for group in x.groups:
            if group.consumers and len(group.consumers) % prod(factors):
                raise Broken(
                    f"{name}_dimensions make {prod(factors)} shares, which {len(group.consumers)} consumer tiles of group "
                    f"{group.number} cannot hold evenly"
                )


def join_fits(x: Exchange) -> None:
    """R12: the factors of a join multiply to the number of contributions; that its axes are dims and multiples is the verifier's part."""
    axes, name = x.joins(), "concat" if "concat_dimensions" in x.op.attributes else "gather"
    others = set(x.cuts())
    for part, whole in zip(x.partials, x.results, strict=True):
        if others & set(axes):
            continue
        factors = [whole.shape[axis] // part.shape[axis] for axis in axes]
        for group in x.groups:
            counts = {len(s) for s in group.sources.values() if s is not None} if x.routed else {len(group.producers or ())}
            if group.producers is not None and counts and counts != {prod(factors)}:
                raise Broken(
                    f"{name}_dimensions assemble {prod(factors)} contributions, but group {group.number} delivers {max(counts)} "
                    "to a consumer"
                )


def combiner_is_pure(x: Exchange) -> None:
    """R10: the combiner touches no memory and calls nothing."""
    for op in operations(x.op)[1:]:
        dialect = op.name.partition(".")[0]
        on_memory = any(isinstance(v.type, ir.MemRefType | ir.UnrankedMemRefType) for v in (*op.operands, *op.results))
        if on_memory or dialect in ("func", "memref") or (dialect == "ktdp" and not is_a(op, ktdp.YieldReducedOp)):
            raise Broken(f"combiner must be pure, but has '{op.name}'")


def consumers_produce(x: Exchange) -> None:
    """R13: C(g) is a subset of P(g)."""
    for group in x.groups:
        if group.producers is None or group.consumers is None:
            continue
        if not set(group.consumers) <= set(group.producers):
            raise Broken(
                f"{CONSUMERS} for group {group.number} is not a subset of {PRODUCERS} (a consumer tile that did not produce is unsupported)"
            )


def all_or_one(x: Exchange) -> None:
    """R14: C(g) = P(g), or one tile."""
    for group in x.groups:
        if group.producers is None or group.consumers is None:
            continue
        if len(group.consumers) != 1 and set(group.consumers) != set(group.producers):
            raise Broken(
                f"{CONSUMERS} for group {group.number} has {len(group.consumers)} of {len(group.producers)} producer tiles: "
                "reduce-to-subset is unsupported; only all-reduce and reduce-to-one are supported"
            )


Rule = Callable[[Exchange], None]

_CLAIMS: tuple[Rule, ...] = (declared_producers_produce, every_producer_is_claimed)
_UNIFORM: tuple[Rule, ...] = (groups_are_as_large, sources_are_disjoint, sources_are_as_many)

RULES: dict[str, tuple[Rule, ...]] = named(
    {
        ktdp.InterTileConsumeOp: (one_source, *_CLAIMS),
        ktdp.InterTileReduceOp: (consumers_produce, all_or_one, *_CLAIMS, combiner_is_pure),
        ktdp.InterTileReduceScatterOp: (*_CLAIMS, combiner_is_pure, cut_fits),
        ktdp.InterTileGatherOp: (*_CLAIMS, *_UNIFORM, join_fits),
        ktdp.InterTileAllToAllOp: (*_CLAIMS, *_UNIFORM, cut_fits, join_fits),
        ktdp.InterTileScatterOp: (one_producer, cut_fits),
    }
)
"""The rules of each delivery, in the order in which they are checked. R1 and R2 are rules of the production, R11 is one of
types, which the verifier checks."""
