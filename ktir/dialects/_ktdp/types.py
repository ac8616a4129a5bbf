"""The `ktdp` dialect: its types and attributes."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from ktir.assembly.parameters import Dimensions, IntegerSet, OptionalInteger, TypeList
from ktir.dialects._foundation.base import Attribute, Dialect, Type
from ktir.mlir import ir


class Ktdp(Dialect, name="ktdp"):
    """Kernel-tile data-parallel programs: every compute tile runs the same function body."""


class MemorySpaceAttr(Attribute, dialect=Ktdp, name="memory_space"):
    """Where a view lies: `#ktdp.memory_space<global>`, or `<ct_local>`, the scratchpad of the executing tile or of tile `ct_id`."""

    kind: Literal["global", "ct_local"]
    ct_id: int

    positional = ("kind",)
    defaults = {"ct_id": -1}
    elided = ("ct_id",)

    @staticmethod
    def check(values: Mapping[str, Any]) -> str | None:
        if values["ct_id"] < -1:
            return "ct_id must be non-negative"
        if values["kind"] == "global" and values["ct_id"] != -1:
            return "ct_id is only legal for memory space 'ct_local'"
        return None


SUCCESSORS = {"HBM": "global", "LX": "ct_local"}
"""Old kinds of memory spaces -> new ones. The others have no successor."""


class SpyreMemorySpaceAttr(Attribute, dialect=Ktdp, name="spyre_memory_space"):
    """The old spelling of a memory space: `#ktdp.spyre_memory_space<LX, core = 3>`. It stays as it is written; `ktir-upgrade` renews it."""

    kind: Literal["unspecified", "LX", "HBM", "L0"]
    core: int

    positional = ("kind",)
    defaults = {"core": -1}
    elided = ("core",)

    @property
    def ct_id(self) -> int:
        """What `core` is called today."""
        return self.core

    @staticmethod
    def check(values: Mapping[str, Any]) -> str | None:
        kind, core = values["kind"], values["core"]
        if core < -1:
            return f"core affinity must be non-negative, but got: {core}"
        if core != -1 and kind not in ("LX", "L0"):
            return f"core affinity is only valid for LX or L0 memory spaces, but got memory space '{kind}' with core = {core}"
        return None

    @staticmethod
    def successor(values: Mapping[str, Any]) -> str | None:
        kind = SUCCESSORS.get(values["kind"])
        if kind is None:
            return f"memory space '{values['kind']}' has no successor"
        ct_id = "" if values["core"] < 0 else f", ct_id = {values['core']}"
        return f"write '#ktdp.memory_space<{kind}{ct_id}>'"


class AccessTileType(Type, dialect=Ktdp, name="access_tile"):
    """A set of coordinates arranged as a tile of `shape`: `!ktdp.access_tile<32x64xindex>`."""

    shape: Annotated[list[int], Dimensions()]

    positional = ("shape",)


_SCALAR = re.compile(r"index|[su]?i\d+|bf16|tf32|f\d\w*")


class RuntimeArgType(Type, dialect=Ktdp, name="runtime_arg"):
    """An argument known at launch: a multiple of `granularity`, at most `upperbound`.

    !ktdp.runtime_arg<index, granularity=64, upperbound=4096>
    """

    underlying: ir.Type
    granularity: Annotated[int | None, OptionalInteger()]
    upperbound: Annotated[int | None, OptionalInteger()]

    positional = ("underlying",)
    defaults = {"granularity": None, "upperbound": None}
    elided = ("granularity", "upperbound")
    joint = "="

    @staticmethod
    def check(values: Mapping[str, Any]) -> str | None:
        underlying = str(values["underlying"])
        if not _SCALAR.fullmatch(underlying) and underlying[0] != "!":
            return f"runtime_arg underlying type must be a builtin type (index, integer, or float), but got: {underlying}"
        for name in ("granularity", "upperbound"):
            if values[name] is not None and values[name] <= 0:
                return f"runtime_arg {name} must be positive, but got: {values[name]}"
        return None


class TileFutureType(Type, dialect=Ktdp, name="tile_future"):
    """What the tiles of each group have promised: one tensor per role, from each producer.

    !ktdp.tile_future<(tensor<1x64xf16>), groups = affine_set<(g) : (g >= 0, -g + 7 >= 0)>>
    """

    roles: Annotated[list[ir.Type], TypeList()]
    groups: Annotated[ir.Attribute, IntegerSet()]

    positional = ("roles",)

    @staticmethod
    def check(values: Mapping[str, Any]) -> str | None:
        for role in map(str, values["roles"]):
            if role[0] != "!" and (not role.startswith("tensor") or "<*" in role.replace(" ", "")):
                return (
                    f"invalid kind of type specified: expected builtin.tensor, but found '{role}'\n"
                    "failed to parse KTDP_TileFutureType parameter 'partialTypes'"
                )
        if not values["roles"]:
            return "tile_future must carry at least one partial type"
        counts = IntegerSet.counts(str(values["groups"]))
        if counts and counts[0] != 1:
            return "tile_future `groups` must have exactly one dimension (g)"
        if counts and counts[1]:
            return "tile_future `groups` must have no symbols"
        return None
