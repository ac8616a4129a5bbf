"""RegionIR: the ordered loop nests between two barriers of a graph as plain data, the hand-over between TorchInductor and the translator.

No torch and no MLIR here. Everything is a frozen dataclass and goes to JSON and back, so regions can be stored as test inputs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ktir.diagnostics import Unsupported
from ktir.lowering.region_to_ktir.indices import Index

Role = Literal["input", "constant", "output", "mutated", "temp", "mem", "pool"]


@dataclass(frozen=True)
class Buffer:
    """Storage with a name: `size` and `stride` are those of torch, in elements, unit dims included; `offset` is that of its first
    element from the base address that the kernel gets.

    Roles: `input` and `constant` are read; `output` is allocated for the region and written by it; `mutated` existed before and is written
    (and perhaps read) in place; `temp` lives inside the region as values; `mem` lives inside the region but in memory, because it is
    written through indices from data or by accumulating stores; `pool` lives inside the region in memory that calls share. All but `temp`
    are arguments of the kernel, and its caller gives all of these but `pool`.
    """

    name: str
    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    role: Role
    lies: int = 0
    """Elements from one to the next in a stick of the form that it lies in on the card, if somebody has chosen that."""

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
    """Path of the nn.Module, such as `layers.0.fc1`, or its class if it is the whole model; empty outside modules."""


@dataclass(frozen=True)
class Record:
    """One operation of a body in SSA form: `out = op(args)`; `args` are names of earlier results of the nest.

    `dtype` is the type of the result by Inductor's rules for half precision: pointwise results of float16 and bfloat16 operands are
    `float32`, because a chain is computed in float32 and rounded once, where it is stored; a `load` has the type of its buffer.

    | op | fields besides `out`, `args` (positional) and `dtype` |
    |---|---|
    | `load` | buffer, index |
    | `store` | args (value), buffer, index, mode: "" or "atomic_add" |
    | `constant` | value |
    | `index_expr` | index: its value |
    | `to_dtype`, `to_dtype_bitcast` | source: type of the operand, where Inductor gives it |
    | `round_to` | the value rounded to `dtype`, float16 or bfloat16, where it stands in a chain |
    | `indirect` | args (value); `out` is a symbol of later indices; size: exclusive bound; wrap: negatives count from the end; check |
    | `check_bounds` | index, size, options lower and upper: must 0, `size` bound the index; no result |
    | `masked` | args (mask), body, yields (the result in `body`), value: what stands where the mask is false |
    | `reduction` | args (value), kind, source: type of what is reduced; several results for some kinds |
    | `scan` | args, body of the combiner on `%a0`, ... and `%b0`, ..., yields; several results; along the only reduction loop |
    | `sort` | args (the first is the key), options stable and descending; several results; along the only reduction loop |
    | `bucketize` | args (value, start in the boundaries), buffer: the sorted boundaries, size: their number, options right, stride |
    | `load_seed` | buffer, index |
    | `call` | args (loads of its operands), kind: symbol of the function, options program: its text, order of its arguments |

    All other ops are pointwise functions, named as Inductor names them, of their args; numbers among the arguments are constants before.
    """

    op: str
    out: str = ""
    args: tuple[str, ...] = ()
    buffer: str = ""
    index: Index = field(default_factory=Index)
    dtype: str = ""
    kind: str = ""
    value: bool | int | float = 0.0
    outs: tuple[str, ...] = ()
    """All results where there are several, `out` first."""
    dtypes: tuple[str, ...] = ()
    """The types of `outs`."""
    source: str = ""
    mode: str = ""
    size: Index = field(default_factory=Index)
    wrap: bool = False
    check: bool = False
    body: tuple[Record, ...] = ()
    yields: tuple[str, ...] = ()
    options: tuple[tuple[str, bool | int | str], ...] = ()

    @property
    def results(self) -> tuple[str, ...]:
        """The names of all results."""
        return self.outs or ((self.out,) if self.out else ())

    def option(self, name: str) -> bool | int | str:
        """The value of an option; KeyError if there is none of that name."""
        return dict(self.options)[name]


@dataclass(frozen=True)
class Nest:
    """A loop nest: `body` runs at each point of iteration x reduction; loops of one trip are left out.

    What a `reduction` yields is stored once per point of the iteration; what a `scan` or `sort` yields, at every point of both.
    """

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

    @property
    def calls(self) -> bool:
        """Whether it is the call of a function: its loads and stores are of whole buffers then, and the loops say nothing."""
        return any(r.op == "call" for r in self.body)

    def records(self) -> Iterator[Record]:
        """All records, those of nested bodies too, each after what is nested in it."""
        yield from _walk(self.body)


class NestRefused(Unsupported):
    """A nest that has no form in KTIR. `nest` is its name, `origins` the nodes that it came from."""

    def __init__(self, message: str, location: str | None, nest: str, origins: Sequence[Origin]) -> None:
        super().__init__(message, location)
        self.nest = nest
        self.origins = tuple(origins)


@dataclass(frozen=True)
class Region:
    """The nests between two barriers in program order. `arguments` are the kernel's: inputs and constants first, then what is written.

    Integers that are known only at run time are inputs too, of dtype int64 and without dims: a nest loads them and uses them as values, or
    through `indirect` in indices.
    """

    name: str
    buffers: dict[str, Buffer]
    nests: tuple[Nest, ...]
    arguments: tuple[str, ...]

    @property
    def given(self) -> tuple[str, ...]:
        """The arguments that the caller of the kernel gives: all but memory of its own."""
        return tuple(name for name in self.arguments if self.buffers[name].role != "pool")

    def records(self) -> Iterator[Record]:
        """All records of all nests."""
        for nest in self.nests:
            yield from nest.records()

    def to_json(self) -> str:
        """JSON text; `from_json` reads it back to an equal region."""
        plain = _plain(self)
        for buffer in plain["buffers"].values():
            if not buffer["lies"]:
                del buffer["lies"]
        return json.dumps(plain, indent=1)

    @staticmethod
    def from_json(text: str) -> Region:
        """The region written by `to_json`."""
        data = json.loads(text)
        buffers = {name: Buffer(**{**b, "size": tuple(b["size"]), "stride": tuple(b["stride"])}) for name, b in data["buffers"].items()}
        return Region(data["name"], buffers, tuple(_nest(n) for n in data["nests"]), tuple(data["arguments"]))


def _walk(body: Sequence[Record]) -> Iterator[Record]:
    for record in body:
        yield from _walk(record.body)
        yield record


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
            fields = {k: v for k, v in fields.items() if k == "op" or v != _EMPTY[k] or type(v) is not type(_EMPTY[k])}
        return {k: _plain(v) for k, v in fields.items()}
    return value


_EMPTY = vars(Record(""))


def _record(data: dict[str, Any]) -> Record:
    data = dict(data)
    for key in ("args", "outs", "dtypes", "yields"):
        if key in data:
            data[key] = tuple(data[key])
    for key in ("index", "size"):
        if key in data:
            data[key] = Index.from_json(data[key])
    if isinstance(data.get("value"), str):
        data["value"] = float(data["value"])
    if "body" in data:
        data["body"] = tuple(map(_record, data["body"]))
    if "options" in data:
        data["options"] = tuple((name, value) for name, value in data["options"])
    return Record(**data)


def _nest(data: dict[str, Any]) -> Nest:
    iteration, reduction = (tuple((v, n) for v, n in data[k]) for k in ("iteration", "reduction"))
    body = tuple(_record(r) for r in data["body"])
    return Nest(data["name"], data["kind"], iteration, reduction, body, tuple(Origin(**o) for o in data["origins"]))
