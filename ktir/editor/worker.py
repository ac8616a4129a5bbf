"""The check in a process of its own: text that ends or halts MLIR's reader costs that process alone."""

from __future__ import annotations

import multiprocessing
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from threading import Lock

from ktir.editor.check import Analysis, Finding, check, check_changed

SECONDS = 20.0
"""How long one text may take."""
_FATAL = "this text ends MLIR's reader: what it has to say is not known"
_SLOW = f"reading this text takes more than {SECONDS:.0f} s"


def _serve(asked: Connection) -> None:
    with suppress(EOFError):  # who asks has gone
        while True:
            text, whole = asked.recv()
            asked.send(check(text) if whole else check_changed(text))


class Worker:
    """Checks one text after the other. Its process starts when it is needed, and again where it has ended."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._lock = Lock()
        self._process: SpawnProcess | None = None
        self._asked: Connection | None = None

    def check(self, text: str, *, whole: bool = True) -> Analysis:
        """As `ktir.editor.check.check`, or `check_changed`."""
        with self._lock:
            asked = self._connection()
            try:
                asked.send((text, whole))
                if asked.poll(self.seconds):
                    return asked.recv()
                said = _SLOW
            except (EOFError, OSError):
                said = _FATAL
            self.stop()
            return Analysis([Finding("error", said, 1, 1)])

    def _connection(self) -> Connection:
        if self._asked is None or self._process is None or not self._process.is_alive():
            spawn = multiprocessing.get_context("spawn")
            self._asked, other = spawn.Pipe()
            self._process = spawn.Process(target=_serve, args=(other,), daemon=True)
            self._process.start()
            other.close()
        return self._asked

    def stop(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._asked is not None:
            self._asked.close()
        self._process = self._asked = None
