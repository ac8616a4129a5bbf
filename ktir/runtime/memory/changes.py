"""Which forms on cards have changed: who holds some looks at what was noted since, not at each of them."""

from __future__ import annotations

_MOST = 1 << 12
"""Notes of a log."""


class Changes:
    """Forms that have changed or ended, by `id`, in order. Whoever holds a form finds its `id` here if it is not as it was; a log that is
    not the one of before tells nothing. Who changes a form holds its card, and so does who looks.
    """

    def __init__(self) -> None:
        self.log: list[int] = []

    def note(self, *forms: object) -> None:
        """Forms are not what they were."""
        if len(self.log) >= _MOST:
            self.log = []
        self.log.extend(map(id, forms))


changes = Changes()
"""Those of this process."""
