"""Packages on disk by content hash, and in memory where there is no place on disk.

A package lives in a folder named by its hash. Folders appear whole: they are written beside their place and renamed. One that does not have
the content of its name any more is taken away, so that what needs it is compiled again.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
from pathlib import Path

from ktir.diagnostics import KtirError
from ktir.package import content_hash
from ktir.package.errors import PackageError
from ktir.package.files import check_names, read_folder

log = logging.getLogger("ktir")

_MOST_REPRODUCERS = 50
_KEY = re.compile(r"[0-9a-f]{64}")
_in_memory: dict[str, dict[str, bytes]] = {}
"""Packages for which there was no place on disk."""
_warned: set[str] = set()


def folder() -> Path | None:
    """Where packages are kept: `KTIR_CACHE_DIR`, or `ktir` in the user's cache folder; None where there is no such place."""
    if chosen := os.environ.get("KTIR_CACHE_DIR"):
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(caches):  # by its specification it is to be ignored else
        return Path(caches) / "ktir"
    try:
        return Path.home() / ".cache" / "ktir"
    except RuntimeError:
        return None


def store(key: str, files: dict[str, bytes], within: Path | None = None) -> None:
    """Keep a package's files under its content hash, `within` another folder than the usual one where that is given, else in memory if
    there is no place on disk. Raises KtirError where they do not have that hash, or names that are not those of files in one folder.
    """
    check_names(files)
    if content_hash(files) != key:
        raise KtirError(f"package '{key[:12]}' expects files of that content hash, but got {content_hash(files)[:12]}")
    place = within or folder()
    try:
        if place is None:
            raise OSError("the user has no home folder")
        _write(key, files, place)
    except OSError as error:
        _warn_once(f"warning: packages cannot be kept in {place}: {error.strerror or error}; they are kept in memory")
        _in_memory[key] = files


def _write(key: str, files: dict[str, bytes], within: Path) -> None:
    place = within / key
    if _sound(key, place) is not None:
        return
    within.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=within, ignore_cleanup_errors=True) as scratch:
        part = Path(scratch) / "package"
        part.mkdir()
        for name, data in files.items():
            (part / name).write_bytes(data)
        if place.is_symlink() or place.exists():
            place.rename(Path(scratch) / "damaged")
        try:
            part.rename(place)
        except OSError:
            if _sound(key, place) is None:  # else another process was faster, with the same content
                raise


def new_reproducer() -> Path:
    """A new folder for what shows a fault again: in `reproducers` beside the packages, where the newest 50 stay, else among the system's
    temporary files.
    """
    place = folder()
    try:
        if place is None:
            raise OSError("the user has no home folder")
        place = place / "reproducers"
        place.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=place))
        kept = sorted((path for path in place.iterdir() if path != new), key=lambda path: path.lstat().st_mtime)
        for old in kept[: 1 - _MOST_REPRODUCERS]:
            shutil.rmtree(old, ignore_errors=True)
        return new
    except OSError:
        return Path(tempfile.mkdtemp(prefix="ktir-"))


def _sound(key: str, place: Path) -> dict[str, bytes] | None:
    """The files in a place if they are those of the package. What others have put there, as file managers do, does not count."""
    if not place.is_dir() or place.is_symlink():
        return None
    try:
        files = read_folder(place, foreign=True)
    except PackageError:
        return None
    return files if content_hash(files) == key else None


def files(key: str, within: Path | None = None) -> dict[str, bytes]:
    """The files of a stored package. Raises KtirError where it is missing; one that is damaged is taken away, with a warning."""
    where = within or folder()
    if _KEY.fullmatch(key):
        found = _sound(key, where / key) if where is not None else None
        if found is None and within is None:
            found = _in_memory.get(key)
        if found is not None:
            return found
        if where is not None and os.path.lexists(where / key):
            _warn_once(f"warning: package '{key[:12]}' in {where} is damaged; it is compiled again")
            _remove(where / key)
    raise KtirError(f"package '{key[:12]}' is not in {where}; compile the model again")


def _remove(place: Path) -> None:
    """Take a damaged entry away; where that is not allowed it stays, and is not read."""
    try:
        with tempfile.TemporaryDirectory(dir=place.parent, ignore_cleanup_errors=True) as scratch:
            place.rename(Path(scratch) / "damaged")
    except OSError as error:
        log.debug("%s cannot be removed: %s", place, error)


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        log.warning("%s", message)
