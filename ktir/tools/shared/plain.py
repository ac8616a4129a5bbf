"""Reports as JSON takes them."""

from __future__ import annotations

import dataclasses
from typing import Any

from ktir.isa.units import Unit


def plain(value: Any) -> Any:
    """A report (or a part of one) as dicts and lists; units by name."""
    if isinstance(value, Unit):
        return value.name
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value
