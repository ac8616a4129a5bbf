"""`spyrecode.json`: the plans of a job with the public command names, all values text, and what files the package has.

Addresses follow the public convention: the program lies at the start of segment 7, everything aligned to 128 bytes. Arguments are bound at
launch, so no host computation precedes the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ktir.package.errors import PackageError, dump_json, load_json

NAME = "spyrecode.json"
PROGRAM = "program.bin"
VERSION = "1"
SEGMENT = 7 << 34


def _plans(program_bytes: int) -> dict[str, Any]:
    size, address = str(program_bytes), str(SEGMENT)
    return {
        "JobPreparationPlan": [
            {"command": "Allocate", "properties": {"size": size}},
            {"command": "InitTransfer", "properties": {"init_bin_file": PROGRAM, "size": size, "dev_ptr": address}},
        ],
        "JobExecPlan": [{"command": "ComputeOnDevice", "properties": {"job_bin_ptr": address}}],
    }


def _entry(data: bytes) -> dict[str, str]:
    return {"size": str(len(data)), "sha256": sha256(data).hexdigest()}


def make(files: Mapping[str, bytes]) -> bytes:
    """The manifest of all other files."""
    return dump_json(_plans(len(files[PROGRAM])) | {"Package": {"version": VERSION, "files": {n: _entry(d) for n, d in files.items()}}})


def check(files: Mapping[str, bytes]) -> None:
    """Raises PackageError with every way in which `files` (manifest included) do not fit their manifest."""
    if NAME not in files:
        raise PackageError(NAME, ["is missing"])
    value = load_json(files[NAME], NAME)
    package = value.get("Package") if isinstance(value, dict) else None
    if not isinstance(package, dict) or not isinstance(package.get("files"), dict):
        raise PackageError(NAME, ["expects an object with the key 'Package' and its 'files'"])
    if package.get("version") != VERSION:
        raise PackageError(NAME, [f"package version {package.get('version')!r} is not supported, only {VERSION!r}"])
    problems = []
    listed = package["files"]
    for name in sorted({*listed, *files} - {NAME}):
        if name not in files:
            problems.append(f"file {name!r} is missing")
        elif name not in listed:
            problems.append(f"file {name!r} is not listed")
        elif listed[name] != (actual := _entry(files[name])):
            size = listed[name].get("size") if isinstance(listed[name], dict) else None
            what = f"has {actual['size']} bytes, but the manifest says {size}" if size != actual["size"] else "is damaged: wrong sha256"
            problems.append(f"file {name!r} {what}")
    if PROGRAM in files and {k: v for k, v in value.items() if k != "Package"} != _plans(len(files[PROGRAM])):
        problems.append(f"the plans are not those of a {PROGRAM} of {len(files[PROGRAM])} bytes")
    if problems:
        raise PackageError(NAME, problems)
