"""Counts of writes: what says, without a look at its content, that a weight holds what it held, for those who freeze their weights.

The runtime knows no tensors of torch: who launches on them installs how to tell.
"""

from __future__ import annotations

from typing import Any, Protocol


class Stamps(Protocol):
    """What launches on tensors of one kind ask."""

    def of(self, tensor: Any) -> object | None:
        """Equal to an earlier one only if it is the same weight and no write was counted since; None for what is no weight."""
        ...

    def is_weight(self, tensor: Any) -> bool:
        """Whether a tensor belongs to a model."""
        ...

    def changed(self, tensor: Any) -> None:
        """A launch has written the tensor."""
        ...


class NoStamps:
    """Knows no weights."""

    def of(self, tensor: Any) -> object | None:
        """Nothing is a weight."""
        return None

    def is_weight(self, tensor: Any) -> bool:
        """Nothing is a weight."""
        return False

    def changed(self, tensor: Any) -> None:
        """Nothing to count."""


installed: Stamps = NoStamps()
"""What the launches of generated code ask."""


def install(stamps: Stamps) -> None:
    """Let launches ask `stamps` from now on."""
    global installed
    installed = stamps
