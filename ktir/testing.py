"""What a lit suite over KTIR needs: `ktir-opt` and the other tools on the path, and `FileCheck`. A suite's `lit.cfg.py`:

    import ktir.testing

    ktir.testing.configure(config, __file__)

`lit` and `filecheck` are to be installed beside ktir.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

_FILECHECK = """\
#!/bin/sh
# FileCheck by its usual name; the one that is installed is the Python package.
exec "$KTIR_TOOLS/filecheck" "$@"
"""


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
    path = [str(_shims(written)), str(tools), config.environment["PATH"]]
    config.environment["PATH"] = os.pathsep.join(path)
    config.environment["KTIR_TOOLS"] = str(tools)
    if "PYTHONPATH" in os.environ:
        config.environment["PYTHONPATH"] = os.environ["PYTHONPATH"]


def _shims(written: Path) -> Path:
    """A folder with `FileCheck`."""
    folder = written / "shims"
    folder.mkdir(parents=True, exist_ok=True)
    place, new = folder / "FileCheck", folder / f"FileCheck.{os.getpid()}"
    new.write_text(_FILECHECK)
    new.chmod(0o755)
    new.replace(place)  # another lit may be running it
    return folder
