"""Damaged packages: what may happen to files on their way, and what a wrong producer may write."""

from __future__ import annotations

import json
import random
import signal
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ktir.diagnostics import KtirError
from ktir.package import launch_spec, manifest, read
from ktir.runtime.executable import Executable

Files = dict[str, bytes]
SECONDS = 30
"""What reading, checking and launching a damaged package may take."""

VALUES: tuple[Any, ...] = (
    0,
    -1,
    1,
    2,
    63,
    65,
    2**31,
    2**40,
    2**48 + 1,
    True,
    None,
    "",
    "x",
    "float32",
    "int32",
    "pool",
    "iota",
    [],
    [1],
    {},
    1.5,
)


def damaged(files: Files, r: random.Random) -> tuple[str, Files]:
    """What was done, and the files after it: damage in transit, which hashes and sizes must show."""
    out, name = dict(files), r.choice(sorted(files))
    data = bytearray(files[name])
    kind = r.choice(["bit", "bit", "bits", "truncated", "longer", "shifted", "swapped", "missing", "more", "empty", "version"])
    if kind in ("bit", "bits"):
        for _ in range(1 if kind == "bit" else r.randint(2, 40)):
            data[r.randrange(len(data))] ^= 1 << r.randrange(8)
        if bytes(data) == files[name]:
            return damaged(files, r)
    elif kind == "truncated":
        del data[r.randrange(len(data)) :]
    elif kind == "longer":
        data += r.randbytes(r.choice([1, 128, 1 << 20]))
    elif kind == "shifted":
        data.insert(r.randrange(len(data)), r.randrange(256))
    elif kind == "empty":
        data.clear()
    elif kind == "version":
        return _versions(files, r)
    out[name] = bytes(data)
    if kind == "swapped":
        other = r.choice([n for n in sorted(files) if n != name])
        out[name], out[other] = files[other], files[name]
    elif kind == "missing":
        del out[name]
    elif kind == "more":
        out[r.choice(["code.py", "../x", "", "program.bin.bak"])] = b"x"
    return f"{kind} in {name}", out


def _versions(files: Files, r: random.Random) -> tuple[str, Files]:
    """Files of another version, whose hashes fit."""
    name = r.choice([manifest.NAME, manifest.PROGRAM, launch_spec.NAME, "debug.json"])
    version = r.choice([0, 3, 99, 65535])
    if name == manifest.PROGRAM:
        data = bytearray(files[name])
        data[4:6] = version.to_bytes(2, "little")
        return f"version {version} of {name}", repaired(files, {name: _checked(data)})
    value = json.loads(files[name])
    if name == manifest.NAME:
        value["Package"]["version"] = str(version)
        return f"version {version} of {name}", {**files, name: json.dumps(value).encode()}
    value["version"] = version
    return f"version {version} of {name}", repaired(files, {name: json.dumps(value).encode()})


def misproduced(files: Files, r: random.Random) -> tuple[str, Files]:
    """What was done, and files whose hashes fit: some of them are correct programs, just others."""
    if r.random() < 0.6:
        data = bytearray(files[manifest.PROGRAM])
        at = r.choice([r.randrange(len(data)), r.randrange(16, 128)])
        piece = r.choice([bytes([data[at] ^ 1 << r.randrange(8)]), r.randbytes(1), r.randbytes(4), b"\xff" * 4, bytes(4)])
        data[at : at + len(piece)] = piece
        return f"{piece.hex()} at {at:#x} of {manifest.PROGRAM}", repaired(
            files, {manifest.PROGRAM: _checked(data[: len(files[manifest.PROGRAM])])}
        )
    value = json.loads(files[launch_spec.NAME])
    place, key = r.choice(list(_places(value)))
    old, place[key] = place[key], r.choice(VALUES)
    return f"{key} {old!r} -> {place[key]!r}", repaired(files, {launch_spec.NAME: json.dumps(value).encode()})


def _checked(data: bytearray) -> bytes:
    """A program with its checksum made right."""
    data[8:12] = bytes(4)
    data[8:12] = zlib.crc32(data).to_bytes(4, "little")
    return bytes(data)


def repaired(files: Files, changes: Files) -> Files:
    """The files with some replaced and a manifest that fits."""
    rest = {n: d for n, d in {**files, **changes}.items() if n != manifest.NAME}
    return {manifest.NAME: manifest.make(rest), **rest}


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every key of every object and every place of every list inside."""
    for key, inside in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from _places(inside)


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raises TimeoutError after so many seconds."""

    def ring(*_: Any) -> None:
        raise TimeoutError(f"takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def use(files: Files) -> str | None:
    """Read, check and launch a package; the error that it gives, None if it runs. Whatever is no KtirError goes through."""
    with limited(SECONDS):
        try:
            executable = Executable(read(files))
            executable(*_arrays(executable))
        except KtirError as error:
            return error.message
    return None


def _arrays(executable: Executable) -> list[np.ndarray]:
    """Host arrays as large as the launch spec says, up to a million elements."""
    sizes = [1] * executable.hosts
    kinds: list[type] = [np.float16] * executable.hosts
    for a in executable.spec.args:
        if a.host is not None:
            last = a.host.offset + sum((n - 1) * s for n, s in zip(a.host.size, a.host.strides, strict=True))
            sizes[a.host.arg] = max(sizes[a.host.arg], min(last + 1, 1 << 20))
            kinds[a.host.arg] = np.int64 if a.dtype == "int32" else np.float16
    return [np.zeros(n, kind) for n, kind in zip(sizes, kinds, strict=True)]
