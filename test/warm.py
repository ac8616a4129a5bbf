"""Python processes that start with torch loaded: one process, which has imported it and compiled something, forks for every script.

`run` is `subprocess.run([sys.executable, *arguments], ...)` for tests that need a process of their own, but not its start. What torch reads
of the environment when it is imported is what this process had, but for what it logs.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType


class Started:
    """A script that runs, or has run."""

    def __init__(self, arguments: tuple[str, ...], env: Mapping[str, str], cwd: Path | None) -> None:
        self.arguments = arguments
        self._folder = tempfile.TemporaryDirectory(prefix="ktir-warm-")
        os.mkfifo(Path(self._folder.name) / "status")
        server = _server()
        assert server.stdin is not None
        asked = {"arguments": arguments, "env": dict(env), "cwd": str(cwd or Path.cwd()), "folder": self._folder.name}
        print(json.dumps(asked), file=server.stdin, flush=True)

    def result(self) -> subprocess.CompletedProcess[str]:
        """Wait for it: its status and what it wrote."""
        with self._folder as folder:
            status, out, err = (Path(folder, name).read_text() for name in ("status", "out", "err"))
        return subprocess.CompletedProcess(self.arguments, int(status), out, err)


def start(*arguments: str, env: Mapping[str, str] = os.environ, cwd: Path | None = None) -> Started:
    """Start `python *arguments`: `-c` and a text, or a file, and what the script is given."""
    return Started(arguments, env, cwd)


def run(*arguments: str, env: Mapping[str, str] = os.environ, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The same, and wait for it."""
    return start(*arguments, env=env, cwd=cwd).result()


@functools.cache
def _server() -> subprocess.Popen[str]:
    """It ends with this process, when its standard input does."""
    return subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, text=True)


def main() -> None:
    """Serve the requests of standard input."""
    import torch

    from ktir.lowering.inductor.capture import capture

    capture(lambda x: (x @ x).softmax(-1), torch.ones(5, 5).half())
    gc.freeze()  # as in ktir.tools.shell.served
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who serve
    for line in sys.stdin:
        if not os.fork():
            serve(**json.loads(line))


def serve(arguments: list[str], env: dict[str, str], cwd: str, folder: str) -> None:
    """Run a script and write its status; this process is for nothing else."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if child := os.fork():
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        Path(folder, "status").write_text(str(status))
        os._exit(0)
    for number, name, flags in ((0, os.devnull, os.O_RDONLY), (1, "out", os.O_CREAT | os.O_WRONLY), (2, "err", os.O_CREAT | os.O_WRONLY)):
        os.dup2(os.open(Path(folder, name), flags), number)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    if "TORCH_LOGS" in env or "TORCH_TRACE" in env:
        from torch._logging import _internal as logs

        logs.LOG_TRACE_HANDLER = None
        logs._init_logs()
    status = 0
    try:
        execute(arguments)
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        status = end.code or 0
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status)


def execute(arguments: list[str]) -> None:
    """What the interpreter does with its arguments."""
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path[0] = ""
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(compile(arguments[1], "<string>", "exec"), vars(main))
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).parent)
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
