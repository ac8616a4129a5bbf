"""Packages by content hash: what Inductor's generated wrapper loads its kernels from.

A package lives in a folder named by its hash under `KTIR_CACHE_DIR`, or `ktir` in the user's cache folder. Folders appear whole: they are
written beside their place and renamed.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

from ktir.diagnostics import KtirError
from ktir.package import content_hash, read
from ktir.runtime import versions
from ktir.runtime.executable import Executable
from ktir.runtime.logical import PROGRAM, LogicalExecutable

_loaded: dict[str, Executable | LogicalExecutable] = {}
_lock = Lock()
_KEY = re.compile(r"[0-9a-f]{64}")


def folder() -> Path:
    """Where packages are kept."""
    chosen = os.environ.get("KTIR_CACHE_DIR")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ktir"


def store(key: str, files: dict[str, bytes], within: Path | None = None) -> None:
    """Keep a package's files under its content hash, `within` another folder than the usual one where that is given; raises KtirError
    where they do not have that hash.
    """
    if content_hash(files) != key:
        raise KtirError(f"package '{key[:12]}' expects files of that content hash, but got {content_hash(files)[:12]}")
    within = within or folder()
    place = within / key
    if place.is_dir():
        return
    within.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=within) as scratch:
        part = Path(scratch) / "package"
        part.mkdir()
        for name, data in files.items():
            (part / name).write_bytes(data)
        try:
            part.rename(place)
        except OSError:
            if not place.is_dir():  # another process was faster, with the same content
                raise


def files(key: str, within: Path | None = None) -> dict[str, bytes]:
    """The files of a stored package; raises KtirError where it is missing."""
    within = within or folder()
    place = within / key
    if not _KEY.fullmatch(key) or not place.is_dir():
        raise KtirError(f"package '{key[:12]}' is not in {within}; compile the model again")
    return {p.name: p.read_bytes() for p in sorted(place.iterdir())}


def load(key: str) -> Executable | LogicalExecutable:
    """The executable of a stored package, loaded once per process."""
    with _lock:
        found = _loaded.get(key)
        if found is None:
            contents = files(key)
            if content_hash(contents) != key:
                raise KtirError(f"package '{key[:12]}' in {folder()} does not have the content of its name; remove it and compile again")
            found = _loaded[key] = LogicalExecutable(contents) if PROGRAM in contents else Executable(read(contents))
        return found


def kernel(key: str) -> Callable[..., Any]:
    """What generated code calls: the package is loaded at the first call."""

    def launch(*tensors: Any) -> None:
        executable, contents = load(key), versions.installed
        try:
            executable(*tensors, versions=[contents.of(t) for t in tensors])
        finally:
            for i in executable.written:
                if i < len(tensors):
                    contents.changed(tensors[i])

    return launch
