"""The error of a package, and JSON that is read with care."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from ktir.diagnostics import Diagnostic, KtirError


class PackageError(KtirError, ValueError):
    """A package that cannot be read. `problems` lists everything that is wrong in one file, `diagnostics` as well."""

    def __init__(self, name: str, problems: list[str]) -> None:
        where = f"{name}: " if name else ""
        super().__init__(where + problems[0])
        self.problems = problems
        self.diagnostics = [Diagnostic("error", where + p, None) for p in problems]


def load_json(data: bytes, name: str) -> Any:
    """The value of a JSON file. Raises PackageError on anything that is not strict JSON, doubled keys included."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not a JSON value")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            raise ValueError("an object has a key twice")
        return found

    try:
        return json.loads(data, parse_constant=refuse, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as e:
        raise PackageError(name, [f"is not valid JSON: {e}"]) from None


def dump_json(value: Any) -> bytes:
    """The bytes of a JSON file: the same for equal values."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
