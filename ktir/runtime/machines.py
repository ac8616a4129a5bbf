"""What machines have found out about stored programs, kept beside these: a second process launches them at once.

A file is named by all that its content depends on: the program's hash, the sources of ktir, the versions of Python and NumPy. One that
cannot be read counts as missing, and is written again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np

from ktir.emulator.machine import Machine
from ktir.emulator.machine.kept import Kept, from_bytes, to_bytes
from ktir.runtime.store import folder
from ktir.version import sources_hash

log = logging.getLogger("ktir")

WORTH = 0.05
"""Seconds of CPU time that a program's control plane and tape take at least where they are kept: to read a file takes some, too."""
_MOST_BYTES = 1 << 30
"""Of all files; those used longest ago go."""


def load(key: str) -> Kept | None:
    """What is kept of the program of a content hash."""
    if (place := _place(key)) is None:
        return None
    try:
        data = place.read_bytes()
    except OSError:
        return None
    with suppress(OSError):  # of another user, in a folder that is shared
        os.utime(place)  # used now
    return from_bytes(data)


def keep(key: str, machine: Machine) -> None:
    """Keep what a machine has found out about the program of a content hash, where that took long. Where files cannot be written nothing is
    kept.
    """
    if machine.seconds < WORTH or (place := _place(key)) is None:
        return
    try:
        data = to_bytes(machine.kept())
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, ignore_cleanup_errors=True) as scratch:
            new = Path(scratch) / place.name
            new.write_bytes(data)
            os.replace(new, place)
        _make_room(place.parent)
    except (OSError, RecursionError) as error:  # a program may be deeper than Python's stack
        log.debug("what a machine has found out is not kept in %s: %s", place, error)


def _place(key: str) -> Path | None:
    within = folder()
    if within is None:
        return None
    parts = (key, sources_hash(), sys.version, np.__version__)
    return within / "machines" / hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _make_room(within: Path) -> None:
    files = sorted(((s.st_mtime, s.st_size, path) for path in within.iterdir() if path.is_file() for s in [path.stat()]), reverse=True)
    room = _MOST_BYTES
    for _, size, path in files:
        room -= size
        if room < 0:
            path.unlink(missing_ok=True)
