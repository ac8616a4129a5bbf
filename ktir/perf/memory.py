"""The most memory that this process has had, since a moment of choice where the system lets one choose."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_SELF = Path("/proc/self")


def forget() -> None:
    """Let `most` be of what comes from here; on systems other than Linux it stays of the whole process."""
    try:
        (_SELF / "clear_refs").write_text("5")
    except OSError:
        return


def most() -> int:
    """Bytes."""
    try:
        lines = (_SELF / "status").read_text(encoding="utf-8").splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
