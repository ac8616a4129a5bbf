"""What the arguments of a program are for, and how far a view reaches into one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum


class Role(StrEnum):
    """What an argument is for: its attribute `ktir.role`, and the role of an argument of a package."""

    INPUT = "input"
    OUTPUT = "output"
    INPUT_OUTPUT = "input_output"
    POOL = "pool"
    """Memory of the program's own that its kernels share."""
    IOTA = "iota"
    """The numbers 0, 1, 2, .. in memory of the program's own."""
    SHARED = "shared"
    """Memory of the caller that other calls see too."""

    @property
    def of_host(self) -> bool:
        """Whether the host has a buffer for it."""
        return self in HOST_ROLES

    @property
    def own(self) -> bool:
        """Whether it is the program's own, so that no caller gives it."""
        return self in OWN_ROLES


HOST_ROLES = (Role.INPUT, Role.OUTPUT, Role.INPUT_OUTPUT)
OWN_ROLES = (Role.POOL, Role.IOTA)


def reach(offset: int, size: Sequence[int], strides: Sequence[int]) -> int:
    """Elements of memory up to the last one of a view, whose numbers are in elements too; none of an empty one."""
    return 1 + offset + sum((n - 1) * s for n, s in zip(size, strides, strict=True)) if 0 not in size else 0
