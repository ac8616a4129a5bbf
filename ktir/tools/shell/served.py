"""The tools without their start-up, for suites of text tests: one process that has imported them forks for every run.

`ktir.testing` starts it and writes the commands that ask it; it ends when its standard input does. A run has the arguments, the folder, the
environment and the standard streams of the one who asks, and nothing of other runs.
"""

import atexit
import gc
import importlib
import marshal
import os
import pkgutil
import selectors
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from ktir import registry
from ktir.assembly import formats, parse_module, print_module
from ktir.context import context
from ktir.mlir import ir

ROOMS = ("analysis", "assembly", "dialects", "emulator", "isa", "lowering.ktir_to_spyre", "package", "passes")
"""What most runs load; imported once."""
STARTED = ("KTIR_", "PYTHON")
"""Variables that are read when a process starts: where they differ, the run gets a process of its own."""


def main() -> None:
    """Serve the listening socket whose descriptor is the only argument."""
    tools = {name.replace("_", "-"): f"ktir.tools.{name}" for _, name, _ in pkgutil.iter_modules([str(Path(__file__).parents[1])])}
    tools["FileCheck"] = "filecheck.main"
    for name in ("ktir_opt", "ktir_run"):
        importlib.import_module(f"ktir.tools.{name}")
    for room in ROOMS:
        load(importlib.import_module(f"ktir.{room}"))
    with suppress(ImportError):  # who has no FileCheck may check otherwise
        importlib.import_module(tools["FileCheck"])
    rehearse()
    gc.collect()
    gc.freeze()  # the collector would touch it in each process, and so copy it
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        listen(listening, tools)
        place = Path(listening.getsockname())
    place.unlink()
    place.parent.rmdir()


def rehearse() -> None:
    """Prepare what every run prepares: scanners, the formats of ops, dialects, the list of passes."""
    with context(), ir.Location.unknown():
        print_module(parse_module("module {}"))
    assert all(isinstance(syntax.hides, bool) for syntax in formats.OPS.values())
    registry.pass_modules()


def listen(listening: socket.socket, tools: dict[str, str]) -> None:
    """Fork for everyone who asks, and answer with the status when the run has ended; until standard input ends."""
    asking: dict[int, socket.socket] = {}
    ended, end = socket.socketpair()  # something can be read where a run has ended
    ended.setblocking(False)
    end.setblocking(False)
    signal.set_wakeup_fd(end.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as waiting:
        for each in (listening, ended, 0):
            waiting.register(each, selectors.EVENT_READ)
        while 0 not in (ready := [key.fileobj for key, _ in waiting.select()]):
            if ended in ready:
                ended.recv(1 << 12)
                answer(asking)
            if listening in ready:
                connection, _ = listening.accept()
                if not (run := os.fork()):
                    listening.close()
                    serve(connection, tools)
                asking[run] = connection


def answer(asking: dict[int, socket.socket]) -> None:
    """Send the status of each run that has ended to the one who asked for it."""
    while asking:
        run, status = os.waitpid(-1, os.WNOHANG)
        if not run:
            return
        with asking.pop(run) as connection, suppress(OSError):  # who asked may have gone
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def load(room: ModuleType) -> None:
    """Import all modules of a room."""
    for found in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
        importlib.import_module(found.name)


def serve(connection: socket.socket, tools: dict[str, str]) -> None:
    """Run what a connection asks for; this process is for nothing else."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    words, folder, environment = marshal.loads(asked)
    if started(environment) != started(dict(os.environ)):
        connection.send(b"?")
        os._exit(0)
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
    sys.stderr = open(2, "w", errors="backslashreplace", buffering=1, closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = words
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
