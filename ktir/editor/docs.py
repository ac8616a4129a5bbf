"""What there is to name in KTIR, each with its description: ops, types and attributes, from the classes that declare them."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from ktir import mlir, registry
from ktir.analysis.attributes.table import TABLE, Declared, On
from ktir.assembly import formats
from ktir.context import USUAL_DIALECTS

UPSTREAM = ("arith", "math", "scf", "tensor", "linalg", "func")
"""Dialects of MLIR that KTIR is written with."""


_BASES = ("builtins", mlir.ir.OpView.__module__, mlir.ext.__name__)


@dataclass(frozen=True)
class Entry:
    """An op, type or attribute: what kind it is, its text in words, how it is written, and, of an op, the names of its attributes."""

    name: str
    kind: str
    text: str
    syntax: str = ""
    attributes: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The first sentence."""
        return re.split(r"(?<=[.;]) |\n\n|:\n", self.text.strip(), maxsplit=1)[0].replace("\n", " ")

    def markdown(self) -> str:
        """What an editor shows."""
        head = f"```mlir\n{self.name} {self.syntax}\n```" if self.syntax else f"**`{self.name}`**"
        return f"{head}\n\n{self.text}".strip()


@cache
def ops() -> dict[str, Entry]:
    """Every op of our dialects, and of those of MLIR that KTIR uses, by name."""
    found: dict[str, Entry] = {}
    for dialect in UPSTREAM:
        for cls in vars(getattr(mlir, dialect)).values():
            name = cls.OPERATION_NAME if isinstance(cls, type) and issubclass(cls, mlir.ir.OpView) and cls is not mlir.ir.OpView else ""
            if name.startswith(f"{dialect}."):
                found[name] = Entry(name, "op", _text(cls))
    for dialect in registry.dialect_names():
        for cls in registry.dialect_class(dialect).operations:
            name = cls.OPERATION_NAME
            syntax = formats.OPS.get(name)
            found[name] = Entry(name, "op", _text(cls), syntax.assembly if syntax else "", _attributes(cls, syntax))
    return found


def _attributes(cls: Any, syntax: formats.OpSyntax | None) -> tuple[str, ...]:
    """The attributes that an op must have, but for those that its text has a place for."""
    assembly = re.sub(r"full_set\([^)]*\)", "", syntax.assembly if syntax else "")  # of old spellings, which leave the attribute out
    shown = set(re.findall(r"\$(\w+)", assembly))
    return tuple(name for name in getattr(cls, "required", {}) if name not in shown)


@cache
def parameters() -> dict[str, Entry]:
    """Every type and attribute of our dialects, by its name with the sigil."""
    found: dict[str, Entry] = {}
    for dialect in registry.dialect_names():
        declared = registry.dialect_class(dialect)
        for cls in declared.types:
            found[f"!{cls.type_name}"] = Entry(f"!{cls.type_name}", "type", _text(cls))
        for cls in declared.attributes:
            found[f"#{cls.attr_name}"] = Entry(f"#{cls.attr_name}", "attribute", _text(cls))
    return found


@cache
def declared() -> dict[str, Entry]:
    """The attributes by which passes tell each other what they decided, and `grid`."""
    return {name: Entry(name, "attribute", _said(of)) for name, of in TABLE.items()}


def carried_by(op: str) -> list[str]:
    """The declared attributes that an op may carry."""
    places: dict[str, set[Any]] = {"builtin.module": {On.MODULE}, "module": {On.MODULE}, "func.func": {On.FUNCTION, On.KERNEL, On.ARGUMENT}}
    at = places.get(op, {On.OP, op})
    return [name for name, of in TABLE.items() if any(at.intersection(each.on) for each in of)]


def lookup(name: str) -> Entry | None:
    """What a name, with its sigil and without quotes, stands for."""
    entry = ops().get(name) or parameters().get(name) or declared().get(name)
    return entry or (ops().get(f"func.{name}") if name in ("call", "return") else None)


def _said(of: list[Declared]) -> str:
    return "\n\n".join(f"{each.meaning} ({each.kind.what}; at {', '.join(_place(p) for p in each.on)})" for each in of)


def _place(place: Any) -> str:
    return f"`{place}`" if isinstance(place, str) else place.value


def _text(cls: type) -> str:
    """The docstring of a class; of those of MLIR that extend a generated one, its."""
    texts = (inspect.cleandoc(base.__dict__.get("__doc__") or "") for base in cls.__mro__ if base.__module__ not in _BASES)
    return next((text for text in texts if text and not text.startswith("Specialization")), "")


def dialects() -> tuple[str, ...]:
    """Names of all dialects whose ops a text of KTIR usually has."""
    return tuple(dict.fromkeys([*registry.dialect_names(), *UPSTREAM, *USUAL_DIALECTS]))
