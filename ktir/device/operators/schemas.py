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
    writing = [a for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    sets = {n: a.name for a in writing for n in a.alias_info.before_set}
    written = tuple(a.name for a in writing)  # lists of tensors among them, which have no names of sets
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
    if not schema.name.startswith("aten::") or any("[]" in str(a.type) and a.name in schema_of(op).written for a in schema.arguments):
        return None
    pure = f"__{name[3:]}" if name.startswith("__i") else name.removesuffix("_")  # __ilshift__ writes what __lshift__ gives
    wanted = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
    for packet in (getattr(torch.ops.aten, n, None) for n in (pure, f"{name}_functional")):
        for overload in packet.overloads() if packet is not None else ():
            found = getattr(packet, overload)
            if found is op or any(a.alias_info is not None for a in (*found._schema.arguments, *found._schema.returns)):
                continue
            if [(a.name, str(a.type)) for a in found._schema.arguments] == wanted:
                return found
    return None


def as_given(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The overload that takes these arguments. Where torch makes a tensor of a number to call `op` with it (`x.fmod_(2)`), the number comes
    here as a number again; most of arithmetic takes numbers for tensors, and then stays as it is.
    """
    if not kwargs and not any(isinstance(a, (int, float, complex)) for a in args):
        return op
    if torch._C._should_allow_numbers_as_tensors(op._schema.name.removeprefix("aten::")):
        return op
    named = schema_of(op).named(args, kwargs)
    return _with_numbers(op, tuple(n for n, v in named.items() if isinstance(v, (int, float, complex))))


@cache
def _with_numbers(op: Any, numbers: tuple[str, ...]) -> Any:
    wanted = [(str(a.type) if str(a.type) != "Tensor" or a.name not in numbers else "number", a.is_out) for a in op._schema.arguments]
    if "number" not in (kind for kind, _ in wanted):
        return op
    overloads = (getattr(op.overloadpacket, name) for name in op.overloadpacket.overloads())
    return next((o for o in overloads if [(str(a.type), a.is_out) for a in o._schema.arguments] == wanted), op)
