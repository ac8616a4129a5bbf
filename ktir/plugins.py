"""What installed packages add: passes, dialects and targets by entry point. Nobody looks until a name is asked for that is not ours.

A package declares them in its metadata:

    [project.entry-points."ktir.passes"]
    my-pass = "my_package.my_pass:MyPass"
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

from ktir.diagnostics import KtirError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUPS = ("ktir.passes", "ktir.dialects", "ktir.targets")


@cache
def entries(group: str) -> dict[str, EntryPoint]:
    """Name -> entry point of a group, by name. Of several packages that offer a name the first one found counts."""
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        found.setdefault(entry.name, entry)
    return dict(sorted(found.items()))


@cache
def load(group: str, name: str) -> Any:
    """What an entry point names. Raises KtirError if it cannot be imported."""
    entry = entries(group)[name]
    try:
        return entry.load()
    except Exception as error:
        owner = f" of package '{entry.dist.name}'" if entry.dist is not None else ""
        raise KtirError(f"entry point '{name}'{owner} in '{group}' cannot be loaded: {type(error).__name__}: {error}") from error


def load_module(name: str) -> Any:
    """A module by its dotted name. Raises KtirError if it cannot be imported."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise KtirError(f"plugin '{name}' cannot be loaded: {type(error).__name__}: {error}") from error
