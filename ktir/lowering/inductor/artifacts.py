"""Packages as cache artifacts of torch: `torch.compiler.save_cache_artifacts()` takes them along, `load_cache_artifacts()` puts them back.

Import `ktir.lowering.inductor` before loading artifacts in a new process: torch refuses kinds of artifact that it does not know.
"""

from __future__ import annotations

import io
import logging
import os
import struct
import zipfile
import zlib
from pathlib import Path

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

from ktir.diagnostics import KtirError
from ktir.lowering.inductor.running import faults
from ktir.package.files import MAX_BYTES, check_names

log = logging.getLogger("ktir")

KIND = "ktir_package"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal packages give equal bytes


def pack(files: dict[str, bytes]) -> bytes:
    """The files of a package as one zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), files[name], zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def unpack(content: bytes) -> dict[str, bytes]:
    """The inverse of `pack`; nothing is written to disk or executed. Raises KtirError for what `pack` cannot have made: no archive, names
    with folders in them, names twice, more bytes than a package has. All of that is known before anything is unpacked.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            check_names([m.filename for m in members])
            if (total := sum(m.file_size for m in members)) > MAX_BYTES:
                raise KtirError(f"an artifact expects at most {MAX_BYTES} bytes, but unpacks to {total}")
            if any(m.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for m in members):
                raise KtirError("an artifact expects files that are stored or deflated")
            return {m.filename: archive.read(m) for m in members}
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError, struct.error) as error:
        raise KtirError(f"an artifact expects a zip archive, but reading gave: {error}") from None


class PackageArtifact(CacheArtifact):
    """One package under its content hash."""

    def populate_cache(self) -> None:
        """Store the package where the runtime finds it, and beside Inductor's own files, which a saved artifact may consist of.

        What is no package is left out, with a warning: what needs it is compiled again.
        """
        from ktir.runtime import cache

        try:
            files = unpack(self.content)
            cache.store(self.key, files)
            if beside := _beside_inductor():
                cache.store(self.key, files, within=beside)
        except KtirError as error:
            log.warning("warning: the artifact of package '%.12s' is left out: %s", self.key, error)

    @staticmethod
    def type() -> str:
        """The name of this kind; `CacheInfo` lists the keys under it."""
        return KIND


def register() -> None:
    """Make the kind known to torch; may be called again."""
    if KIND not in CacheArtifactFactory._artifact_types:
        CacheArtifactFactory.register(PackageArtifact)


def record(key: str, files: dict[str, bytes]) -> None:
    """Remember a package for the next `save_cache_artifacts`."""
    register()
    CacheArtifactManager.record_artifact(KIND, key, pack(files))


def _beside_inductor() -> Path | None:
    """The folder for packages in Inductor's cache folder, where one is set; torch sets it while it writes or reads a saved artifact."""
    chosen = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return Path(chosen) / "ktir" if chosen else None


_missing: list[str] = []


def note(key: str) -> None:
    """Called by generated wrappers when they load: a package that came out of a cache is remembered too, and what the user must know of
    it is said; one that is gone is reported to the compilation that is going on, see `take_missing`.
    """
    from ktir.runtime import cache

    for place in (None, _beside_inductor()):
        try:
            files = cache.files(key, within=place)
        except KtirError:
            continue
        cache.store(key, files)
        record(key, files)
        faults.say(files)
        return
    _missing.append(key)


def take_missing() -> list[str]:
    """Keys noted since the last call for which there is no package."""
    found, _missing[:] = list(_missing), []
    return found
