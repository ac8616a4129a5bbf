"""What an operator's schema says of its arguments and results."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch


@dataclass(frozen=True)
class Schema:
    """Names of the arguments in order, which are written, which of them only as `out=`, and what comes back."""

    names: tuple[str, ...]
    written: tuple[str, ...]
    out: tuple[str, ...]
    returned: tuple[str | None, ...]
    """Per result: the name of the written argument that it is, or None."""
    views: bool
    """Whether a result is a view of an argument."""

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """All arguments of a call by name."""
        return {**dict(zip(self.names, args, strict=False)), **kwargs}


@cache
def schema_of(op: Any) -> Schema:
    """What the schema of an overload says."""
    arguments = op._schema.arguments
    sets = {n: a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write for n in a.alias_info.before_set}
    written = tuple(dict.fromkeys(sets.values()))
    returned = tuple(
        next((sets[n] for n in r.alias_info.before_set | r.alias_info.after_set if n in sets), None) if r.alias_info is not None else None
        for r in op._schema.returns
    )
    return Schema(
        names=tuple(a.name for a in arguments),
        written=written,
        out=tuple(a.name for a in arguments if a.is_out),
        returned=returned,
        views=any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns),
    )


@cache
def functional(op: Any) -> Any | None:
    """The overload that computes what `op` writes, and writes nothing: same name but for the underscore or "_functional" at its end, same
    arguments but for `out=`, same types. It gives the results of `op` that are new, then what is written. None where there is none.
    """
    schema = op._schema
    name = schema.name.removeprefix("aten::")
    if not schema.name.startswith("aten::"):
        return None
    wanted = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
    for packet in (getattr(torch.ops.aten, n, None) for n in (name.removesuffix("_"), f"{name}_functional")):
        for overload in packet.overloads() if packet is not None else ():
            found = getattr(packet, overload)
            if found is op or any(a.alias_info is not None for a in (*found._schema.arguments, *found._schema.returns)):
                continue
            if [(a.name, str(a.type)) for a in found._schema.arguments] == wanted:
                return found
    return None
