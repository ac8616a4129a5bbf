"""Whether a host tensor still holds what it held at an earlier launch, so that its device form can be kept.

The runtime knows no tensors of torch: who launches on them installs how to tell.
"""

from __future__ import annotations

from typing import Any, Protocol


class Versions(Protocol):
    """What launches on tensors of one kind ask."""

    def of(self, tensor: Any) -> object | None:
        """The identity of the tensor and of its content now: equal to an earlier one only if nothing has changed. None: it cannot tell."""
        ...

    def changed(self, tensor: Any) -> None:
        """A launch has written the tensor."""
        ...


class Unknown:
    """Takes every content for new."""

    def of(self, tensor: Any) -> object | None:
        """Nothing is known."""
        return None

    def changed(self, tensor: Any) -> None:
        """Nothing to remember."""


installed: Versions = Unknown()
"""What the launches of generated code ask."""


def install(versions: Versions) -> None:
    """Let launches ask `versions` from now on."""
    global installed
    installed = versions
