"""Commands end with a message where the machine's memory ends."""

import resource
from pathlib import Path

NOTHING_LEFT = "the machine has no memory for what this takes"


def at_most_what_there_is() -> None:
    """Let what the machine has no memory for fail where it is asked for: the kernel would end processes when it is used."""
    try:
        free, own = _bytes_of("/proc/meminfo", "MemAvailable"), _bytes_of("/proc/self/status", "VmData")
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (min(n for n in (own + free, soft, hard) if n != resource.RLIM_INFINITY), hard))
    except (OSError, ValueError, StopIteration):  # another system
        return


def _bytes_of(path: str, name: str) -> int:
    """A figure in KiB of a file of Linux."""
    return next(int(line.split()[1]) * 1024 for line in Path(path).read_text().splitlines() if line.startswith(f"{name}:"))
