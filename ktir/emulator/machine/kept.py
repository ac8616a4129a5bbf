"""What a machine has found out about a program, as bytes, so that the next process need not run the control plane again."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass

from ktir.emulator.machine.replay.emitter import Emitter
from ktir.emulator.machine.reports.report import MachineReport


@dataclass(frozen=True)
class Kept:
    """That a program is without fault, how long it takes, and the operations of its tape."""

    report: MachineReport
    operations: Emitter


def to_bytes(kept: Kept) -> bytes:
    """Its bytes, behind their hash. They are for the same sources of ktir alone: who keeps them names them by these."""
    data = pickle.dumps(kept, pickle.HIGHEST_PROTOCOL)
    return hashlib.sha256(data).digest() + data


def from_bytes(data: bytes) -> Kept | None:
    """What `to_bytes` was given; None for bytes that are not whole. As any file of Python's cache they are trusted: what may write them may
    do whatever the process may.
    """
    size = hashlib.sha256().digest_size
    body = memoryview(data)[size:]
    if hashlib.sha256(body).digest() != data[:size]:
        return None
    found = pickle.loads(body)
    return found if isinstance(found, Kept) else None
