"""What a lit suite over KTIR needs: `ktir-opt` and the other tools on the path, and `FileCheck`. A suite's `lit.cfg.py`:

    import ktir.testing

    ktir.testing.configure(config, __file__)

`lit` and `filecheck` are to be installed beside ktir.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SHIM = """\
#!{python} -IS
# Asks the process that has the tools loaded (shell/served.py); without it the tool itself runs. It imports little: `socket` and `json`
# take longer to load than most tools run.
import _socket, marshal, os, sys
try:
    served = _socket.socket(_socket.AF_UNIX)
    served.connect({place!r})
    streams = b"".join(n.to_bytes(4, sys.byteorder) for n in range(3))
    asked = marshal.dumps((sys.argv, os.getcwd(), dict(os.environ)))
    served.sendmsg([asked], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    status = int(served.recv(64))
except (OSError, ValueError):
    os.execv({tool!r}, sys.argv)
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""
_served: list[subprocess.Popen[bytes]] = []  # each ends with this process, when its standard input does


def configure(config: Any, file: str, *, name: str | None = None, output: str | Path | None = None) -> None:
    """Set up lit's `config` for the tests, `.mlir` and `.test`, beside the configuration file `file`.

    Folders `Inputs` hold no tests. `name`: of the suite, else its folder's. `output`: where lit writes, else `Output` beside the file.
    """
    import lit.formats

    root = Path(file).resolve().parent
    written = Path(output) if output is not None else root / "Output"
    config.name = name or root.name
    config.test_format = lit.formats.ShTest()
    config.suffixes = [".mlir", ".test"]
    config.excludes = ["Inputs", "Output"]
    config.test_source_root, config.test_exec_root = str(root), str(written)
    tools = Path(sys.executable).parent
    shims = written / "shims"
    config.environment["PATH"] = os.pathsep.join([str(shims), str(tools), config.environment["PATH"]])
    if "PYTHONPATH" in os.environ:
        config.environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    serve_tools(shims, config.environment)


def serve_tools(folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Write `FileCheck` and the tools to `folder`, as commands that ask one process, which has them loaded and starts here, in this
    environment; that of the caller by default."""
    _write_shims(folder, Path(sys.executable).parent, _serve(os.environ if environment is None else environment))


def _write_shims(folder: Path, tools: Path, place: str) -> None:
    """The commands, which ask the process that listens at `place`."""
    folder.mkdir(parents=True, exist_ok=True)
    shims = {"FileCheck": tools / "filecheck"} | {tool.name: tool for tool in tools.glob("ktir-*")}
    for name, tool in shims.items():
        new = folder / f"{name}.{os.getpid()}"
        new.write_text(_SHIM.format(python=sys.executable, place=place, tool=str(tool)))
        new.chmod(0o755)
        new.replace(folder / name)  # another lit may be running it


def _serve(environment: Mapping[str, str]) -> str:
    """Start the process that has the tools loaded; where it listens."""
    place = str(Path(tempfile.mkdtemp(prefix="ktir-tools-")) / "socket")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen(64)
        command = [sys.executable, "-P", "-m", "ktir.tools.shell.served", str(listening.fileno())]
        _served.append(subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listening.fileno()], env=environment))
    return place
