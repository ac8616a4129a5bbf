"""The tools without their start-up, for suites of text tests: one process that has imported them forks for every run.

`ktir.testing` starts it and writes the commands that ask it; it ends when its standard input does. A run has the arguments, the folder, the
environment and the standard streams of the one who asks, and nothing of other runs.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

ROOMS = ("assembly", "dialects", "emulator", "isa", "lowering.ktir_to_spyre", "package", "passes")
"""What most runs load; imported once."""
STARTED = ("KTIR_", "PYTHON")
"""Variables that are read when a process starts: where they differ, the run gets a process of its own."""


def main() -> None:
    """Serve the listening socket whose descriptor is the only argument."""
    tools = {name.replace("_", "-"): f"ktir.tools.{name}" for _, name, _ in pkgutil.iter_modules([str(Path(__file__).parent)])}
    tools["FileCheck"] = "filecheck.main"
    for name in ("ktir_opt", "ktir_run"):
        importlib.import_module(f"ktir.tools.{name}")
    for room in ROOMS:
        load(importlib.import_module(f"ktir.{room}"))
    with suppress(ImportError):  # who has no FileCheck may check otherwise
        importlib.import_module(tools["FileCheck"])
    gc.collect()
    gc.freeze()  # the collector would touch it in each process, and so copy it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who serve
    with socket.socket(fileno=int(sys.argv[1])) as listening, selectors.DefaultSelector() as waiting:
        waiting.register(listening, selectors.EVENT_READ)
        waiting.register(0, selectors.EVENT_READ)
        while all(key.fileobj is listening for key, _ in waiting.select()):
            connection, _ = listening.accept()
            if not os.fork():
                listening.close()
                serve(connection, tools)
            connection.close()
        place = Path(listening.getsockname())
    place.unlink()
    place.parent.rmdir()


def load(room: ModuleType) -> None:
    """Import all modules of a room."""
    for found in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
        importlib.import_module(found.name)


def serve(connection: socket.socket, tools: dict[str, str]) -> None:
    """Run what a connection asks for and answer with the status; this process is for nothing else."""
    text, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    asked = json.loads(text)
    if started(asked["environment"]) != started(dict(os.environ)):
        connection.send(b"?")
        os._exit(0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if child := os.fork():
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.send(str(status).encode())
        os._exit(0)
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
    sys.stderr = open(2, "w", errors="backslashreplace", buffering=1, closefd=False)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.argv = asked["words"]
    try:
        sys.exit(importlib.import_module(tools[Path(sys.argv[0]).name]).main())
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(end.code or 0)  # the interpreter's own end would touch all that was forked, and so copy it


def started(environment: dict[str, str]) -> dict[str, str]:
    """What a process reads at its start."""
    return {name: value for name, value in environment.items() if name.startswith(STARTED)}


if __name__ == "__main__":
    main()
