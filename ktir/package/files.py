"""`Package`: a program with its launch spec, to and from files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from ktir.diagnostics import KtirError
from ktir.isa.binary.encoding import decode, encode
from ktir.isa.problem import EncodingError
from ktir.isa.program import Program, Source
from ktir.package import launch_spec, manifest
from ktir.package.errors import PackageError, dump_json, load_json
from ktir.package.launch_spec import LaunchSpec
from ktir.target import DATASHEET, Target
from ktir.targets import read_text

DEBUG = "debug.json"
DEBUG_VERSION = 1
ALLOCATED = "allocated.ktir.mlir"
TARGET = "target.toml"
REQUIRED = (manifest.NAME, manifest.PROGRAM, launch_spec.NAME, DEBUG)
OPTIONAL = (ALLOCATED, TARGET)
_NAME = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
MAX_BYTES = 1 << 28
"""No package is larger than 256 MiB."""
MAX_TARGET = 1 << 16
MAX_TEXT = 1 << 26
"""No text in it is larger than 64 MiB."""


@dataclass
class Package:
    """A program, how to launch it, and further files by name. The sources are `program.sources`."""

    program: Program
    launch_spec: LaunchSpec
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def sources(self) -> list[Source]:
        """Where instructions come from, by the id that they carry."""
        return self.program.sources

    @property
    def target(self) -> Target:
        """The machine that the program was compiled for. Raises KtirError for a file that describes none."""
        text = self.files.get(TARGET)
        return DATASHEET if text is None else read_text(text.decode("utf-8", "replace"), TARGET)

    def to_files(self) -> dict[str, bytes]:
        """Name and bytes of every file; equal packages give equal bytes. Raises KtirError where spec and program disagree."""
        problems = self.launch_spec.disagreements(self.program)
        problems += [f"{name!r} is no file of a package" for name in self.files if name not in OPTIONAL]
        missing = _missing_source(self.program, self.program.sources)
        if problems or missing:
            raise PackageError("", problems or [missing or ""])
        out = {
            manifest.PROGRAM: encode(self.program),
            launch_spec.NAME: self.launch_spec.to_bytes(),
            DEBUG: _debug_bytes(self.program.sources),
            **self.files,
        }
        LaunchSpec.from_bytes(out[launch_spec.NAME])
        return {manifest.NAME: manifest.make(out), **out}

    def write(self, folder: str | Path) -> None:
        """Write the files into a folder, which is made if missing."""
        write_folder(Path(folder), self.to_files())


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a package into a folder, which is made if missing, over a package that is there. Raises PackageError, and writes
    nothing, where the folder has something else, with which it would be no package."""
    folder.mkdir(parents=True, exist_ok=True)
    there = sorted(place.name for place in folder.iterdir())
    strange = [f"{name!r:.200} is no file of a package" for name in there if name not in (*REQUIRED, *OPTIONAL)]
    if strange:
        raise PackageError(f"{folder}: a package has a folder of its own", strange)
    for name in set(there) - set(files):
        (folder / name).unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)


def check_names(names: Collection[str]) -> None:
    """Raises PackageError unless each name is one of a file in the package's own folder, and none comes twice."""
    problems = [f"{name!r:.200} is no name of a file in a package" for name in names if not _NAME.fullmatch(name)]
    if len(set(names)) != len(names):
        problems.append("a file comes twice")
    if problems:
        raise PackageError("", problems)


def content_hash(files: Mapping[str, bytes]) -> str:
    """SHA-256 over the sorted names and bytes, each with its length."""
    total = sha256()
    for name in sorted(files):
        for part in (name.encode(), files[name]):
            total.update(len(part).to_bytes(8, "little"))
            total.update(part)
    return total.hexdigest()


def read(source: str | Path | Mapping[str, bytes]) -> Package:
    """The package in a folder, or in files by name. Raises PackageError, which names the folder; nothing of the package is executed."""
    if isinstance(source, Mapping):
        return _read(dict(source))
    folder = Path(source)
    if folder.is_dir() and not any((folder / name).is_file() for name in REQUIRED):
        raise PackageError(str(folder), ["is no package: it has none of the files " + ", ".join(REQUIRED)])  # whatever it is, it stays
    if not folder.is_dir():
        raise PackageError(str(folder), ["is no package: it is no folder" if folder.exists() else "cannot read it: no such folder"])
    try:
        return _read(read_folder(folder))
    except PackageError as error:
        raise error.within(folder) from None


def _read(files: dict[str, bytes]) -> Package:
    problems = [f"file {name!r} is missing" for name in REQUIRED if name not in files]
    problems += [f"{name!r:.200} is no file of a package" for name in files if name not in (*REQUIRED, *OPTIONAL)]
    problems += [f"{name!r} has more than {MAX_TEXT} bytes" for name in OPTIONAL if len(files.get(name, b"")) > MAX_TEXT]
    if sum(map(len, files.values())) > MAX_BYTES:
        problems.append(f"the files have more than {MAX_BYTES} bytes")
    if problems:
        raise PackageError("", problems)
    manifest.check(files)
    try:
        program = decode(files[manifest.PROGRAM])
    except EncodingError as e:
        raise PackageError(manifest.PROGRAM, [e.message]) from e
    spec = LaunchSpec.from_bytes(files[launch_spec.NAME])
    problems = spec.disagreements(program)
    if problems:
        raise PackageError(launch_spec.NAME, problems)
    program.sources = _read_sources(files[DEBUG], program)
    for name in OPTIONAL:
        if name in files:
            _check_text(files[name], name)
    _check_target(files.get(TARGET))
    return Package(program, spec, {name: files[name] for name in OPTIONAL if name in files})


def read_folder(folder: Path, *, foreign: bool = False) -> dict[str, bytes]:
    """The files in a folder, by name. Links are not followed, and nothing but plain files is opened. `foreign`: what cannot be a file of
    a package by its name, such as a `.DS_Store`, is left out. Raises PackageError.
    """
    found: dict[str, bytes] = {}
    total = 0
    try:
        for place in sorted(folder.iterdir()):
            if foreign and not _NAME.fullmatch(place.name):
                continue
            data = _read_file(place, MAX_BYTES - total)
            if data is None:
                raise PackageError("", [f"{place.name!r:.200} is no plain file"])
            total += len(data)
            if total > MAX_BYTES:
                raise PackageError("", [f"the files have more than {MAX_BYTES} bytes"])
            found[place.name] = data
    except OSError as e:
        raise PackageError("", [f"cannot read {folder}: {e.strerror or e}"]) from e
    return found


def _read_file(place: Path, most: int) -> bytes | None:
    """The content of a file, not much more than `most` bytes of it; None for what is no plain file: a link, a folder, a device, a pipe."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        if stat.S_ISREG(place.lstat().st_mode):
            raise
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with open(descriptor, "rb") as file:
        return file.read(most + 1)


def _check_text(data: bytes, name: str) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise PackageError(name, [f"is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}"]) from None


def _check_target(data: bytes | None) -> None:
    if data is not None and len(data) > MAX_TARGET:
        raise PackageError(TARGET, [f"has more than {MAX_TARGET} bytes"])
    try:
        read_text((data or b"").decode(), TARGET)
    except KtirError as error:
        raise PackageError(TARGET, [error.message]) from None


def _debug_bytes(sources: list[Source]) -> bytes:
    rows = [{"op": s.op, "location": s.location} | ({"nodes": s.nodes} if s.nodes else {}) for s in sources]
    return dump_json({"version": DEBUG_VERSION, "sources": rows})


def _read_sources(data: bytes, program: Program) -> list[Source]:
    value: Any = load_json(data, DEBUG)
    if not isinstance(value, dict) or value.get("version") != DEBUG_VERSION:
        raise PackageError(DEBUG, [f"expects an object of version {DEBUG_VERSION}"])
    rows = value.get("sources")
    good = isinstance(rows, list) and all(
        isinstance(r, dict) and r.keys() - {"nodes"} == {"op", "location"} and all(isinstance(v, str) for v in r.values()) for r in rows
    )
    if not good or not rows or rows[0] != {"op": "", "location": ""}:
        raise PackageError(DEBUG, ["expects 'sources' to be a list of objects with op, location and perhaps nodes, the first one empty"])
    sources = [Source(**r) for r in rows]
    problem = _missing_source(program, sources)
    if problem:
        raise PackageError(DEBUG, [problem])
    return sources


def _missing_source(program: Program, sources: list[Source]) -> str | None:
    last = max((w.source for k in program.kernels for words in k.units.values() for w in words), default=0)
    return f"an instruction carries source id {last}, but there are {len(sources)} sources" if last >= len(sources) else None
