"""Damaged packages: what may happen to files on their way, and what a wrong producer may write."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ktir.checking.stream import check_package
from ktir.diagnostics import KtirError
from ktir.emulator.machine import Machine
from ktir.package import launch_spec, manifest, read
from ktir.package.files import ALLOCATED
from ktir.runtime.executable import Executable
from ktir.target import DATASHEET

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
    if name == manifest.PROGRAM:
        version = r.choice([v for v in (0, 1, 2, 3, 4, 99, 65535) if v != int.from_bytes(files[name][4:6], "little")])
        data = bytearray(files[name])
        data[4:6] = version.to_bytes(2, "little")
        return f"version {version} of {name}", repaired(files, {name: _checked(data)})
    value = json.loads(files[name])
    version = r.choice([v for v in (0, 3, 4, 99, 65535) if v != value.get("version")])
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


def restructured(files: Files, r: random.Random) -> tuple[str, Files]:
    """What was done, and files whose hashes fit, changed along their structure: parts dropped, exchanged, doubled, grown, nested deeply."""
    name = r.choice([launch_spec.NAME, "debug.json", ALLOCATED, manifest.PROGRAM])
    if name == manifest.PROGRAM:
        data = bytearray(files[name])
        at, size = r.randrange(16, len(data)), r.choice([1, 2, 4, 8, 64])
        other = r.randrange(16, len(data))
        data[at : at + size] = r.choice([bytes(size), b"\xff" * size, bytes(data[other : other + size])])
        return f"{size} bytes at {at:#x} of {name}", repaired(files, {name: _checked(data[: len(files[name])])})
    if name == ALLOCATED:
        what, text = _rewritten(files[name].decode(), r)
        return f"{what} in {name}", repaired(files, {name: text})
    value = json.loads(files[name])
    places = list(_places(value))
    (place, key), (there, other_key) = r.choice(places), r.choice(places)
    what = r.choice(["drop", "copy", "wrap", "grow", "nest"])
    if what == "nest":
        return f"nest in {name}", repaired(files, {name: b"[" * r.choice([40, 5000, 200_000]) + files[name]})
    if what == "drop":
        del place[key]
    else:
        copied = json.loads(json.dumps(there[other_key] if what == "copy" else place[key]))
        place[key] = copied if what == "copy" else [copied] * (1 if what == "wrap" else r.choice([2, 1000, 100_000]))
    return f"{what} {key!r} in {name}", repaired(files, {name: json.dumps(value).encode()})


def _rewritten(text: str, r: random.Random) -> tuple[str, bytes]:
    lines = text.split("\n")
    i, j = r.randrange(len(lines)), r.randrange(len(lines))
    what = r.choice(["drop", "double", "swap", "deep", "digits", "bytes", "big"])
    if what == "drop":
        del lines[i]
    elif what == "double":
        lines.insert(j, lines[i])
    elif what == "swap":
        lines[i], lines[j] = lines[j], lines[i]
    elif what == "deep":
        lines[i] += r.choice(["module {", "(", "[", "affine_map<(d0) -> (", "tuple<"]) * r.choice([100, 20_000])
    elif what == "digits":
        lines[i] = re.sub(r"\d+", lambda m: str(max(0, int(m.group()) + r.choice([0, 1, -1, 64]))), lines[i])
    data = "\n".join(lines).encode() * (r.choice([2, 50]) if what == "big" else 1)
    return what, data[:i] + b"\xff\xfe" + data[i:] if what == "bytes" else data


def outcome(files: Files) -> tuple[str, list[bytes]]:
    """What becomes of a package that is read, compared with its KTIR, and launched: `refused`, `reported` or `ran`, and the results."""
    try:
        package = read(files)
        if ALLOCATED in files and check_package(package, Machine(package.program, DATASHEET).trace):
            return "reported", []
        executable = Executable(package)
        arrays = arrays_for(executable)
        executable(*arrays)
    except KtirError:
        return "refused", []
    return "ran", [a.tobytes() for a in arrays]


def in_worker(files: Files, expected: list[bytes], seconds: float = 5, megabytes: int = 1024) -> str:
    """What becomes of a package in a process of its own: `refused`, `reported`, `same` results as `expected`, or a fault: `other` results,
    `crash`, `slow` (CPU time), `large` (growth of the process), or the name of an exception.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        said = "crash"
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
            before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
            said, results = outcome(files)
            if said == "ran":
                said = "same" if results == expected else "other"
            if time.process_time() - began > seconds:
                said = "slow"
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before > megabytes << 10:
                said = "large"
        except BaseException as error:
            said = type(error).__name__
        finally:
            os.write(writer, said.encode())
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said or "crash"


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
            executable(*arrays_for(executable))
        except KtirError as error:
            return error.message
    return None


_TYPES = {"f16": np.float16, "f32": np.float32, "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8, "i1": np.bool_}


def arrays_for(executable: Executable) -> list[np.ndarray]:
    """Host arrays as the launch spec declares them, of the same numbers each time; KtirError for more than a million elements."""
    r = np.random.default_rng(0)
    found = []
    for host in executable.spec.hosts:
        if host.reach > 1 << 20:
            raise KtirError("the campaign makes no larger arrays")
        values = r.standard_normal(host.size) if host.element.startswith("f") else r.integers(0, 2, host.size)
        found.append(np.asarray(values, _TYPES.get(host.element, np.float16)))
    return found
