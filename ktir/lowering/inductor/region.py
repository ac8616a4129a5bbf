"""RegionIR: the ordered loop nests of one graph as plain data, the hand-over between TorchInductor and the emitter.

No torch and no MLIR here. Everything is a frozen dataclass and goes to JSON and back, so regions can be stored as test inputs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ktir.lowering.inductor.indices import Index

Role = Literal["input", "output", "temp", "constant"]


@dataclass(frozen=True)
class Buffer:
    """Storage with a name: `size` and `stride` are those of torch, in elements, unit dims included."""

    name: str
    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    role: Role

    @property
    def dims(self) -> tuple[tuple[int, int], ...]:
        """(size, stride) of the dims that are not of size 1, in torch's order."""
        return tuple((n, s) for n, s in zip(self.size, self.stride, strict=True) if n != 1)


@dataclass(frozen=True)
class Origin:
    """An FX node that a nest came from, and the user's source line."""

    node: str
    target: str
    file: str | None = None
    line: int = 0
    module: str = ""
    """Path of the nn.Module, such as `layers.0.fc1`; empty outside modules."""


@dataclass(frozen=True)
class Record:
    """One operation of a body in SSA form. `args` are names of earlier results; what else an op needs stands in the other fields.

    `load` has buffer and index; `store` has args (value), buffer and index; `constant` has value and dtype; `to_dtype` has dtype;
    `reduction` has kind and dtype. All other ops are pointwise functions of their args.
    """

    op: str
    out: str = ""
    args: tuple[str, ...] = ()
    buffer: str = ""
    index: Index = field(default_factory=Index)
    dtype: str = ""
    kind: str = ""
    value: float = 0.0


@dataclass(frozen=True)
class Nest:
    """A loop nest: `body` runs at each point of iteration x reduction; loops of one trip are left out."""

    name: str
    kind: str
    iteration: tuple[tuple[str, int], ...]
    reduction: tuple[tuple[str, int], ...]
    body: tuple[Record, ...]
    origins: tuple[Origin, ...] = ()

    @property
    def loops(self) -> tuple[tuple[str, int], ...]:
        """(variable, trips) of all loops, reductions last."""
        return self.iteration + self.reduction

    @property
    def source(self) -> str | None:
        """`file:line:1` of the first origin that has one."""
        return next((f"{o.file}:{o.line}:1" for o in self.origins if o.file), None)


@dataclass(frozen=True)
class Region:
    """The nests of a graph in program order. `arguments` are the kernel's: inputs and constants, then outputs."""

    name: str
    buffers: dict[str, Buffer]
    nests: tuple[Nest, ...]
    arguments: tuple[str, ...]

    def records(self) -> Iterator[Record]:
        """All records of all nests."""
        for nest in self.nests:
            yield from nest.body

    def to_json(self) -> str:
        """JSON text; `from_json` reads it back to an equal region."""
        return json.dumps(_plain(self), indent=1)

    @staticmethod
    def from_json(text: str) -> Region:
        """The region written by `to_json`."""
        data = json.loads(text)
        buffers = {name: Buffer(**{**b, "size": tuple(b["size"]), "stride": tuple(b["stride"])}) for name, b in data["buffers"].items()}
        return Region(data["name"], buffers, tuple(_nest(n) for n in data["nests"]), tuple(data["arguments"]))


def _plain(value: Any) -> Any:
    if isinstance(value, Index):
        return value.to_json()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no inf and nan
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (Region, Buffer, Nest, Record, Origin)):
        fields = {k: getattr(value, k) for k in value.__dataclass_fields__}
        if isinstance(value, Record):
            fields = {k: v for k, v in fields.items() if k == "op" or v != _EMPTY[k]}
        return {k: _plain(v) for k, v in fields.items()}
    return value


_EMPTY = vars(Record(""))


def _record(data: dict[str, Any]) -> Record:
    data = dict(data)
    if "args" in data:
        data["args"] = tuple(data["args"])
    if "index" in data:
        data["index"] = Index.from_json(data["index"])
    if "value" in data:
        data["value"] = float(data["value"])
    return Record(**data)


def _nest(data: dict[str, Any]) -> Nest:
    iteration, reduction = (tuple((v, n) for v, n in data[k]) for k in ("iteration", "reduction"))
    body = tuple(_record(r) for r in data["body"])
    return Nest(data["name"], data["kind"], iteration, reduction, body, tuple(Origin(**o) for o in data["origins"]))
