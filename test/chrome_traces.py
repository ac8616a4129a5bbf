"""What a Chrome trace must be, by the description of its format: fields of each kind of event, arrows, rows without overlap."""

from collections import Counter, defaultdict
from fractions import Fraction
from itertools import pairwise
from typing import Any

FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "X": {"name": (str,), "cat": (str,), "ts": (int, float, Fraction), "dur": (int, float, Fraction)},
    "M": {"name": (str,), "args": (dict,)},
    "C": {"name": (str,), "ts": (int, float, Fraction), "args": (dict,)},
    "i": {"name": (str,), "ts": (int, float, Fraction)},
    "s": {"name": (str,), "cat": (str,), "id": (int,), "ts": (int, float, Fraction)},
    "f": {"name": (str,), "cat": (str,), "id": (int,), "ts": (int, float, Fraction)},
    "b": {"name": (str,), "cat": (str,), "id": (str, int), "ts": (int, float, Fraction)},
    "e": {"name": (str,), "cat": (str,), "id": (str, int), "ts": (int, float, Fraction)},
}


def check(trace: dict[str, Any], *, nested: tuple[str, ...] = ("cpu_op", "user_annotation", "python_function")) -> None:
    """Raise AssertionError for what is no trace, or has slices of a row that overlap. nested: categories whose slices contain others."""
    assert isinstance(trace["traceEvents"], list)
    for e in trace["traceEvents"]:
        for name, kinds in FIELDS[e["ph"]].items():
            assert isinstance(e[name], kinds), (name, e)
        assert {"pid", "tid"} <= e.keys(), e
        assert e.get("dur", 0) >= 0, e
    _arrows(trace["traceEvents"])
    rows = defaultdict(list)
    for e in trace["traceEvents"]:
        if e["ph"] == "X" and e["cat"] not in nested:
            rows[e["pid"], e["tid"]].append((exact(e["ts"]), exact(e["ts"]) + exact(e["dur"]), e["name"]))
    for row in rows.values():
        for a, b in pairwise(sorted(row)):
            assert a[1] <= b[0], (a, b)
    named = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name"}
    assert rows.keys() <= named, "rows without a name"


def exact(number: float | Fraction) -> Fraction:
    """A time as it is written."""
    return number if isinstance(number, Fraction) else Fraction(repr(number))


def _arrows(events: list[dict[str, Any]]) -> None:
    """Each has one begin and one end, not before it, and both lie in slices."""
    ends = {ph: {(e["cat"], e["id"]): e for e in events if e["ph"] == ph} for ph in "sf"}
    counts = Counter((e["ph"], e["cat"], e["id"]) for e in events if e["ph"] in "sf")
    assert set(counts.values()) <= {1}
    assert ends["s"].keys() == ends["f"].keys()
    rows = defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            rows[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for key, begin in ends["s"].items():
        end = ends["f"][key]
        assert begin["ts"] <= end["ts"], key
        for e in (begin, end):
            assert any(a <= e["ts"] <= b for a, b in rows[e["pid"], e["tid"]]), e
