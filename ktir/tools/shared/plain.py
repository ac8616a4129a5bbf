"""Reports as JSON takes them."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any


def plain(value: Any) -> Any:
    """A report (or a part of one) as dicts and lists; units and resources by name."""
    if isinstance(value, Enum):
        return value.name
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    return {plain(k): plain(v) for k, v in value.items()} if isinstance(value, dict) else value
