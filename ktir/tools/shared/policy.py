"""Flags of the execution policy, made from its fields: name, values and help stand there alone."""

import ast
import inspect
import textwrap
import types
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ktir.emulator.policy import Policy
from ktir.tools.shared.flags import CommandLine, Flag, UsageError


def policy_flags() -> tuple[Flag, ...]:
    """One flag per field of Policy that a text can give."""
    hints, texts = get_type_hints(Policy), _texts()
    return tuple(_flag(f.name, hints[f.name], f.default, texts.get(f.name, "")) for f in fields(Policy) if _is_simple(hints[f.name]))


def _is_simple(hint: Any) -> bool:
    kind = _plain(hint)
    return kind in (bool, int, float) or get_origin(kind) is Literal


def policy_of(line: CommandLine) -> Policy:
    """The policy that the flags ask for. Raises UsageError."""
    hints = get_type_hints(Policy)
    changed: dict[str, Any] = {}
    for field in fields(Policy):
        name = field.name.replace("_", "-")
        if name in line.values:
            changed[field.name] = _value(name, hints[field.name], line.values[name])
    try:
        return Policy(**changed)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None


def _plain(hint: Any) -> Any:
    """The type without `| None`."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(h for h in get_args(hint) if h is not type(None))
    return hint


def _flag(name: str, hint: Any, default: Any, text: str) -> Flag:
    kind, shown = _plain(hint), str(default).lower() if isinstance(default, bool) else str(default)
    help = f"{_first_sentence(text)} (default: {shown})"
    name = name.replace("_", "-")
    if kind is bool:
        return Flag(name, help, "true|false", "true", ("true", "false"))
    if get_origin(kind) is Literal:
        choices = tuple(map(str, get_args(kind)))
        return Flag(name, help, "|".join(choices), choices=choices)
    return Flag(name, help, "number" if kind in (int, float) else "text")


def _value(name: str, hint: Any, text: str) -> Any:
    kind = _plain(hint)
    if kind is bool:
        return text == "true"
    if get_origin(kind) is Literal:
        return next(c for c in get_args(kind) if str(c) == text)
    if kind in (int, float):
        if kind is not hint and text == "none":
            return None
        try:
            value = kind(text)
        except ValueError:
            value = -1
        if value < 0:
            raise UsageError(f"'--{name}={text}': expected a number that is not negative")
        return value
    return text


def _texts() -> dict[str, str]:
    """Field -> the documentation under it."""
    (cls,) = ast.parse(textwrap.dedent(inspect.getsource(Policy))).body
    assert isinstance(cls, ast.ClassDef)
    found = {}
    for field, text in zip(cls.body, cls.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            found[field.target.id] = inspect.cleandoc(ast.literal_eval(text.value)).replace("\n", " ")
    return found


def _first_sentence(text: str) -> str:
    first = text.partition(". ")[0].removesuffix(".")
    return first[:1].lower() + first[1:] if first[1:2].islower() else first
