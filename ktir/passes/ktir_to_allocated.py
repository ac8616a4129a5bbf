"""The named pipeline `ktir-to-allocated`, and with it the list of stages of the compiler."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, NamedTuple

from ktir import registry
from ktir.analysis.attributes.levels import has_kernels
from ktir.dialects.module_level import Level
from ktir.mlir import ir
from ktir.passes.flat.ktir_outline_repeats import SAVED
from ktir.passes.levels.ktir_state_level import StateLevelPass
from ktir.passes.levels.ktir_verify_level import VerifyLevelPass
from ktir.passes.pinning.ktir_pin import PinPass
from ktir.passes.planning.plan_search import STEPS
from ktir.passes.tiling.tile_hints import OnlineSoftmax
from ktir.pipeline import AtLeast, MlirPass, NamedPipeline, Pass, Pipeline, steps_of

LIFT = "ktir-lift"
"""The pass that decides between the two ways of a kernel by hand; it prices both, so it stands above all other passes."""


Way = Literal["auto", "lift", "pin"]
"""What is made of a kernel by hand."""


class Stage(NamedTuple):
    """A pass, and the level that the module is at when it has run."""

    name: str
    level: Level


STAGES = (
    Stage("ktir-outline-repeats", Level.LOGICAL),
    Stage("ktir-separate-calls", Level.LOGICAL),
    Stage("cse", Level.LOGICAL),  # Inductor repeats cheap ops in each of their users: equal loads and bodies are one
    Stage("ktir-generalize", Level.LOGICAL),
    Stage("ktir-break-views", Level.FLAT),
    Stage("ktir-split-bodies", Level.FLAT),
    Stage("ktir-plan", Level.FLAT),
    Stage("ktir-assign-layouts", Level.LAID_OUT),
    Stage("ktir-form-kernels", Level.LAID_OUT),
    Stage("ktir-divide-work", Level.DIVIDED),
    Stage("ktir-keep-resident", Level.DIVIDED),
    Stage("ktir-tile", Level.TILED),
    Stage("ktir-allocate-scratchpad", Level.ALLOCATED),
)
"""Passes from the logical to the allocated level, in order."""

_EXPECTS = {stage.name: before.level for before, stage in pairwise((Stage("", Level.LOGICAL), *STAGES))}
"""The level that a pass goes on from."""


@dataclass(frozen=True)
class ToAllocated(NamedPipeline):
    """All stages from the level of the module to the allocated one, each followed by `ktir-verify-level` unless `verify` is false.

    A module may be at any level, and what it has behind it is left out; one that states no level is looked at first
    (`ktir-state-level`).

    Kernels by hand are lifted or pinned: `way`, `within` and `numbers` are those of `ktir-lift`.

    An option goes to every pass that has one of its name: `saved` ops at least that calls of equal layers must save (0: none is
    outlined), `cores` to divide over, `lx-bytes` of scratchpad per core, `work-div` as in
    `m=4,n=8`, `steps` of the plan's search, `rows` of a block or `num-tiles` as in `m=2`, `online-softmax` (auto, always, never), `reuse`
    of addresses even where all tensors fit at once, `resident=false` for no tensor that stays in the scratchpad between kernels,
    `exchange=false` for none that goes from core to core.

    Expects: any level of KTIR. Guarantees: the allocated level, or an error that names the op which stands in the way.
    """

    name: ClassVar[str] = "ktir-to-allocated"
    description: ClassVar[str] = "to the allocated level: all stages in order, verified after each"
    numbers: tuple[str, ...] = ()
    way: Way = "pin"
    within: Annotated[float, AtLeast(0)] = 0.0
    target: str = ""
    saved: Annotated[int, AtLeast(0)] = SAVED
    cores: int | None = None
    lx_bytes: int | None = None
    work_div: str = ""
    steps: Annotated[int, AtLeast(0)] = STEPS
    rows: Annotated[int, AtLeast(0)] = 0
    online_softmax: OnlineSoftmax = "auto"
    num_tiles: str = ""
    reuse: bool = False
    resident: bool = True
    exchange: bool = True
    verify: bool = True

    def text(self, until: str = STAGES[-1].name) -> str:
        """The stages as pipeline text, up to the last one that has the name or leaves the level `until`."""
        last = max(i for i, stage in enumerate(STAGES) if until in stage)
        items = [self._with_options(LIFT), self._with_options(PinPass.name), StateLevelPass.name, *self._verification(STAGES[0].level)]
        for stage in STAGES[: last + 1]:
            items += [self._with_options(stage.name), *self._verification(stage.level)]
        return ",".join(items)

    def up_to(self, until: str) -> Pipeline:
        """The stages up to that one, for a module at any level."""
        return Pipeline(steps_of(self, self.text(until)))

    def passes_over(self, item: Pass | MlirPass, module: ir.Module) -> bool:
        """A stage that the module has behind it, and what checks the level before it."""
        level = Level.of(module)
        if isinstance(item, VerifyLevelPass):
            return level != item.level
        if item.name in (StateLevelPass.name, LIFT, PinPass.name):
            return level is not None
        if item.name == "ktir-form-kernels" and has_kernels(module):
            return True
        return item.name in _EXPECTS and level != _EXPECTS[item.name]

    def _verification(self, level: Level) -> list[str]:
        return [str(VerifyLevelPass(level, self.cores, self.lx_bytes, self.target))] if self.verify else []

    def _with_options(self, name: str) -> str:
        cls = registry.pass_class(name)
        if cls is None:
            return name
        known = {f.name for f in fields(cls)}
        return str(cls(**{f.name: getattr(self, f.name) for f in fields(self) if f.name in known}))
