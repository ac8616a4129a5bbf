"""Whether a module is what the design (docs/design/levels.md) says of its level.

A level is a set of ops and, per op, a list of rules. A rule raises `Broken`; each faulty op is reported with its first fault. Rules of
single ops stand in `level_rules`, those of functions, pads and data flow in `function_rules`, `pad_rules` and `flow_rules`, those of
addresses and lifetimes in the scratchpad in `scratchpad_rules`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ktir.analysis import flat_rules
from ktir.analysis.attributes.broken import Broken, refuse, refuse_broken
from ktir.analysis.attributes.kernel import is_authors, level_within
from ktir.analysis.attributes.levels import has_kernels
from ktir.analysis.attributes.verify import faults
from ktir.analysis.calls import callee
from ktir.analysis.flat_rules import Rule
from ktir.diagnostics import KtirError, location_text
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.module_level import KTIR_LEVELS, NAME, Level, since
from ktir.dialects.module_target import machine
from ktir.dialects.vector_kinds import is_scalar_op
from ktir.mlir import func, ir, is_a, linalg, named, names, operations, scf, tensor
from ktir.passes.general.intrinsics import INTRINSICS
from ktir.passes.general.statistics import STATISTICS
from ktir.passes.levels import flow_rules as flow
from ktir.passes.levels import function_rules as program
from ktir.passes.levels import level_rules as rules
from ktir.passes.levels.pad_rules import pads_kept_out
from ktir.passes.levels.scratchpad_rules import Scratchpad
from ktir.pipeline import Pass

_MEMORY = names(ktdp.ConstructMemoryViewOp, ktdp.ConstructAccessTileOp, ktdp.LoadOp, ktdp.StoreOp)
_GENERIC = names(func.FuncOp, func.ReturnOp, linalg.GenericOp, linalg.FillOp, linalg.IndexOp, linalg.YieldOp, tensor.EmptyOp)
_PADDED = names(tensor.PadOp, tensor.YieldOp, tensor.ExpandShapeOp)
_LOOPS = names(scf.ForOp, scf.YieldOp)
_SLICES = names(tensor.ExtractSliceOp, tensor.InsertSliceOp)
_INDIRECT = names(ktdp.ConstructIndirectAccessTileOp, ktdp.RegionTerminatorOp)
_LOGICAL = names(tensor.CollapseShapeOp, tensor.ConcatOp, *_INDIRECT, linalg.MatmulOp, linalg.BatchMatmulOp, linalg.TransposeOp,
                 linalg.BroadcastOp, kt.MaterializeOp, kt.ScanOp, kt.SortOp, kt.ScatterAddOp, kt.YieldOp)  # fmt: skip
_SUMS = names(ktdp.InterTileProduceOp, ktdp.YieldPartialOp, ktdp.InterTileReduceOp, ktdp.YieldReducedOp)
_EXCHANGE = names(ktdp.GetComputeTileIdOp, ktdp.InterTileProduceOp, ktdp.YieldPartialOp, ktdp.InterTileConsumeOp)
_PROGRAM = names(*_GENERIC, *_MEMORY, func.CallOp)

OPS: dict[Level, frozenset[str]] = {
    Level.LOGICAL: frozenset((*_PROGRAM, *_PADDED, *_SLICES, *_LOGICAL, *INTRINSICS, *STATISTICS)),
    Level.FLAT: flat_rules.OPS,
    Level.LAID_OUT: frozenset((*_PROGRAM, *_PADDED, *_INDIRECT)),
    Level.DIVIDED: frozenset((*_PROGRAM, *_PADDED, *_INDIRECT, *_SUMS, *_EXCHANGE)),
    Level.TILED: frozenset((*_PROGRAM, *_LOOPS, *_SLICES, *_INDIRECT, *_EXCHANGE)),
    Level.ALLOCATED: frozenset((*_PROGRAM, *_LOOPS, scf.IfOp.OPERATION_NAME, *_INDIRECT, *_EXCHANGE)),
}
"""Ops of each level besides the scalar ones, which every level has."""

_ALL: tuple[Rule, ...] = (rules.located, rules.static)
_PLAIN: tuple[Rule, ...] = (*_ALL, rules.without_layout)
_STICKS: tuple[Rule, ...] = (*_PLAIN, rules.in_sticks)

EVERY_OP: dict[Level, tuple[Rule, ...]] = {
    Level.LOGICAL: _PLAIN,
    Level.FLAT: (*_PLAIN, flat_rules.in_a_body, flat_rules.no_unit_dims),
    Level.LAID_OUT: (*_ALL, rules.laid_out),
    Level.DIVIDED: _STICKS,
    Level.TILED: (*_STICKS, rules.blocks, rules.even_rows),
    Level.ALLOCATED: (*_STICKS, rules.blocks, rules.even_rows),
}
"""Rules that every op of a level is held against."""

RULES: dict[Level, dict[str, tuple[Rule, ...]]] = {
    Level.LOGICAL: named(
        {
            func.FuncOp: (program.logical_function,),
            ktdp.ConstructMemoryViewOp: (rules.in_global_memory, rules.unmasked, rules.constant_offset),
            ktdp.ConstructAccessTileOp: (rules.whole_tile,),
            linalg.GenericOp: (rules.wide_sum,),
        }
    ),
    Level.FLAT: named(
        {
            **flat_rules.RULES,
            func.FuncOp: (program.logical_function,),
            ktdp.ConstructMemoryViewOp: (rules.in_global_memory, flat_rules.plain_view),
            linalg.GenericOp: (flat_rules.flat_generic, rules.wide_sum, rules.from_identity),
        }
    ),
    Level.LAID_OUT: named(
        {
            ktdp.ConstructMemoryViewOp: (rules.in_global_memory, rules.view_of_layout),
            ktdp.ConstructAccessTileOp: (rules.whole_tile,),
            linalg.GenericOp: (rules.projected, rules.wide_sum, pads_kept_out),
        }
    ),
    Level.DIVIDED: named(
        {
            ktdp.ConstructMemoryViewOp: (rules.in_memory_of_kernels, rules.masked_where_dynamic),
            linalg.GenericOp: (rules.projected, rules.wide_sum),
        }
    ),
    Level.TILED: named(
        {
            ktdp.ConstructMemoryViewOp: (rules.in_memory_of_kernels, rules.masked_where_dynamic),
            linalg.GenericOp: (rules.projected, rules.one_block),
            scf.ForOp: (rules.equal_trips, rules.carries_accumulators),
        }
    ),
    Level.ALLOCATED: named(
        {
            ktdp.ConstructMemoryViewOp: (rules.masked_where_dynamic,),
            ktdp.LoadOp: (flow.load_moves,),
            ktdp.StoreOp: (flow.store_moves,),
            linalg.GenericOp: (rules.projected, rules.one_block, flow.computes_on_scratchpad),
            scf.ForOp: (rules.equal_trips, rules.carries_declared),
            ktdp.InterTileProduceOp: (flow.sends_from_scratchpad,),
            ktdp.InterTileConsumeOp: (flow.received_once,),
            scf.IfOp: (flow.gives_nothing,),
        }
    ),
}
"""Rules of single kinds of op, per level."""


@dataclass(frozen=True)
class VerifyLevelPass(Pass):
    """Check that a module is what its level promises: ops, functions, layouts, maps, loops, addresses.

    Expects: a module at `level`; without the option, at the level that it declares. Guarantees: nothing is changed; every faulty op is
    reported, each with its first fault.
    """

    name: ClassVar[str] = "ktir-verify-level"
    description: ClassVar[str] = "check that a module is what its level promises"
    analysis: ClassVar[bool] = True
    level: str = ""
    """`logical`, `flat`, `laid-out`, `divided`, `tiled` or `allocated`; empty = what the module says."""
    cores: int | None = None
    """Most cores that a grid may have; else those of the target."""
    lx_bytes: int | None = None
    """Scratchpad of a core that addresses must stay within; else that of the target."""
    target: str = ""
    """The target, for a module that does not say."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.level and self.level not in KTIR_LEVELS:
            raise ValueError(f"unknown level '{self.level}' (levels: {', '.join(KTIR_LEVELS)})")

    def run(self, module: ir.Module) -> None:
        """Look at every op of the module."""
        refuse(faults(module, operations(module)))
        level = self._level(module)
        target = machine(module, self.target, self.cores, self.lx_bytes)
        functions = {op.name.value: op for op in module.body.operations if isinstance(op, func.FuncOp)}
        refuse_broken([module.operation], partial(program.one_entry, level=level, functions=functions))
        if not level.of_host:
            called = {callee(call) for f in functions.values() for call in operations(f) if is_a(call, func.CallOp)}
            check = partial(program.function_of, level=level, cores=target.cores, formed=has_kernels(module), called=called)
            refuse_broken([f.operation for f in functions.values()], check)
        _check_ops(module, level)
        calls = [op for op in operations(module) if is_a(op, func.CallOp)]
        refuse_broken(calls, partial(program.calls_what_is_there, functions=functions))
        pad = Scratchpad(functions, target.lx_planned_bytes)
        if level in since(Level.DIVIDED, Level.ALLOCATED):
            refuse_broken([f.operation for f in functions.values()], pad.check_residents)
            refuse_broken(operations(module), pad.check_resident_view)
        if level is Level.ALLOCATED:
            refuse_broken([f.operation for f in functions.values()], pad.check_size)
            refuse_broken(operations(module), pad.check_address)
            refuse_broken([op for op in operations(module) if is_a(op, ktdp.LoadOp)], pad.lifetimes().check)

    def _level(self, module: ir.Module) -> Level:
        attributes = module.operation.attributes
        found = ir.StringAttr(attributes[NAME]).value if NAME in attributes else None
        where = location_text(module.operation.location)
        wanted = f"'{self.level}'" if self.level else f"one of {', '.join(KTIR_LEVELS)}"
        if found is None:
            raise KtirError(f"'builtin.module' op expects 'ktir.level' to be {wanted}, but has no such attribute", where)
        if found not in KTIR_LEVELS or (self.level and found != self.level):
            raise KtirError(f"'builtin.module' op expects 'ktir.level' to be {wanted}, but got '{found}'", where)
        return Level(found)


def _check_ops(module: ir.Module, level: Level) -> None:
    """Hold each op against the level of its function. Kernels by hand are what their author wrote on the levels of the host."""
    held: dict[ir.Operation, Level] = {}
    for view in module.body.operations:
        if not (level.of_host and is_authors(view)):
            held |= dict.fromkeys(operations(view.operation), level_within(view, level) or level)
    refuse_broken([op for op in held if not _is_implied(op)], lambda op: _check(held[op], op))


def _is_implied(op: ir.Operation) -> bool:
    """Whether an op is the body that a named linalg op stands for: no text, so no place of its own either."""
    parent = op.parent.name
    return parent.startswith("linalg.") and parent != linalg.GenericOp.OPERATION_NAME


def _check(level: Level, op: ir.Operation) -> None:
    name = op.name
    if name not in OPS[level] and not is_scalar_op(op):
        levels = [other for other in KTIR_LEVELS if name in OPS[other]]
        raise Broken(f"is no part of the {level} level" + (f", only of: {', '.join(levels)}" if levels else ""))
    for rule in (*EVERY_OP[level], *RULES[level].get(name, ())):
        rule(op)
