"""The error of a package, and JSON that is read with care."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NoReturn

from ktir.diagnostics import Diagnostic, KtirError


class PackageError(KtirError, ValueError):
    """A package that cannot be read. `problems` lists everything that is wrong in one file, `diagnostics` as well."""

    def __init__(self, name: str, problems: list[str]) -> None:
        where = f"{name}: " if name else ""
        super().__init__(where + problems[0])
        self.name = name
        self.problems = problems
        self.diagnostics = [Diagnostic("error", where + p, None) for p in problems]

    def within(self, folder: Path) -> PackageError:
        """The same, of a package in a folder."""
        found = PackageError(f"{folder}: {self.name}" if self.name else str(folder), self.problems)
        found.diagnostics.append(Diagnostic("note", "remove the folder and compile again", None))
        return found


MAX_ITEMS = 1 << 22
"""No JSON of a package has more values; reading takes memory and time for each."""
MAX_NESTING = 32
MAX_BYTES = 1 << 26
_STRUCTURE = re.compile(rb'(?s)"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]+|[\]}]+')


def _check_size(data: bytes) -> None:
    """Raises ValueError for JSON that would take long, or much memory, to read."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_ITEMS:
        raise ValueError(f"it has more than {MAX_ITEMS} values")
    depth = 0
    for match in _STRUCTURE.finditer(data):
        token = match.group()
        depth += len(token) if token[:1] in b"[{" else -len(token) if token[:1] in b"]}" else 0
        if depth > MAX_NESTING:
            raise ValueError(f"it nests more than {MAX_NESTING} levels")


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
        _check_size(data)
        return json.loads(data, parse_constant=refuse, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as e:
        raise PackageError(name, [f"is not valid JSON: {e}"]) from None


def dump_json(value: Any) -> bytes:
    """The bytes of a JSON file: the same for equal values."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
