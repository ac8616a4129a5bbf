"""The form of a metric file, and what stands in it.

As published (RFC 2676 of torch-spyre), little-endian, everything at multiples of 8 bytes: a header (magic, version, number of sections,
timestamp), the sizes of the sections, and the sections, each of them with a header (type, size, sequence, timestamp) before its values.
Sequences are odd while somebody writes. The numbers of types are ours, since none are published.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

from ktir.diagnostics import KtirError

MAGIC = b"SPYREMTR"
VERSION = 1
_HEADER = struct.Struct("<8sQQQ")
_SECTION = struct.Struct("<QQQQ")
_MOST = 64
"""Sections of a file."""


@dataclass(frozen=True)
class MetricDataType:
    """A metric: a count since the process began, or what holds at this moment. There is one object of each."""

    name: str
    unit: str
    meaning: str
    dtype: Literal["d", "Q"] = "d"
    """As `struct` has it."""


_SECTIONS: dict[int, tuple[MetricDataType, ...]] = {
    1: (MetricDataType("pwr", "W", "power"), MetricDataType("tempr", "degC", "temperature")),
    2: (
        MetricDataType("elapsed", "ns", "emulated time of all steps, one after the other, and of the host that gives them"),
        MetricDataType("busy", "ns", "emulated time of programs"),
        MetricDataType("pt", "ns", "of it, what the PT units work: the mean over those of the program"),
    ),
    3: (
        MetricDataType("rdmem", "KiB", "read from the card's memory"),
        MetricDataType("wrmem", "KiB", "written to the card's memory"),
        MetricDataType("rxpci", "KiB", "copied from the host"),
        MetricDataType("txpci", "KiB", "copied to the host"),
        MetricDataType("rdrdma", "KiB", "read from other cards"),
        MetricDataType("wrrdma", "KiB", "written to other cards"),
    ),
    4: (
        MetricDataType("n_launch", "", "programs that ran", "Q"),
        MetricDataType("n_rxpci", "", "copies from the host", "Q"),
        MetricDataType("n_txpci", "", "copies to the host", "Q"),
    ),
    5: (
        MetricDataType("actmem", "KiB", "memory that tensors take"),
        MetricDataType("avgmem", "KiB", "the mean of it over wall time"),
        MetricDataType("peakmem", "KiB", "the most of it"),
    ),
    6: (MetricDataType("pid", "", "the process", "Q"), MetricDataType("card", "", "its card", "Q")),
}
"""Number of a type -> what a section of it has, in order."""
METRICS: dict[str, MetricDataType] = {metric.name: metric for section in _SECTIONS.values() for metric in section}
"""All metrics by name."""


def _values(section: tuple[MetricDataType, ...]) -> struct.Struct:
    return struct.Struct("<" + "".join(metric.dtype for metric in section))


def write(values: dict[str, float], sequence: int, timestamp: int) -> bytes:
    """A file. values: of all metrics. timestamp: nanoseconds since the epoch."""
    bodies = []
    for number, section in _SECTIONS.items():
        form = _values(section)
        found = (int(values[m.name]) if m.dtype == "Q" else values[m.name] for m in section)
        bodies.append(_SECTION.pack(number, _SECTION.size + form.size, sequence, timestamp) + form.pack(*found))
    sizes = struct.pack(f"<{len(bodies)}Q", *map(len, bodies))
    return b"".join([_HEADER.pack(MAGIC, VERSION, len(bodies), timestamp), sizes, *bodies])


def read(data: bytes, name: str) -> tuple[dict[MetricDataType, float], int, set[int]]:
    """Values by metric, the timestamp, and the sequences. Sections of unknown types are left out, and so is what a later version has behind
    the values that are known. Raises KtirError for what is no metric file.
    """
    try:
        magic, version, count, timestamp = _HEADER.unpack_from(data)
        if magic != MAGIC:
            raise KtirError(f"{name}: expects a metric file, which begins with {MAGIC!r}, but got {magic!r}")
        if version != VERSION or count > _MOST:
            raise KtirError(f"{name}: expects version {VERSION} with at most {_MOST} sections, but got {version} with {count}")
        sizes = struct.unpack_from(f"<{count}Q", data, _HEADER.size)
        at, found, sequences = _HEADER.size + 8 * count, {}, set[int]()
        for size in sizes:
            number, own, sequence, _ = _SECTION.unpack_from(data, at)
            if own != size or at + size > len(data):
                raise KtirError(f"{name}: expects a section of {size} bytes at {at}, but got {own} of {len(data)}")
            sequences.add(sequence)
            if section := _SECTIONS.get(number):
                body = data[at + _SECTION.size : at + size]
                found |= zip(section, _values(section).unpack_from(body), strict=True)
            at += size
    except struct.error:
        raise KtirError(f"{name}: expects a metric file, but it ends after {len(data)} bytes") from None
    return found, timestamp, sequences
