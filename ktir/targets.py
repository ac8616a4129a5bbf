"""Targets by name or file: presets, what installed packages offer (entry points `ktir.targets`), and descriptions in TOML.

    name = "wide"                                       # else the name of the file
    base = "datasheet"                                  # whose figures hold where none are given; this is the default
    cores = 64
    lx_bytes = { value = 4, unit = "MiB", status = "assumed", source = "our own wish" }

A figure is a number in its own unit (`ktir-explain --figures` lists them), or a table with another unit of the same kind, a status and
a source. Figures that follow from others (bytes per cycle from bytes per second and the clock) are computed and cannot be given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from ktir import registry
from ktir.diagnostics import KtirError, close_to
from ktir.target import DATASHEET, PRESETS, FigureError, Target

GROUP = "ktir.targets"
SUFFIX = ".toml"
STATUS = ("stated", "inferred", "fitted", "default", "unofficial", "assumed")
_FIGURES = {f.name: f.metadata for f in fields(Target) if f.metadata}
_WHOLE = {f.name for f in fields(Target) if f.metadata and f.type == "int"}
_BYTES: dict[str, float] = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_SCALES: dict[str, dict[str, float]] = {
    "bytes": _BYTES,
    "GHz": {"GHz": 1, "MHz": 1e-3},
    "GB/s": {"GB/s": 1, "MB/s": 1e-3, "TB/s": 1e3, "GiB/s": 2**30 / 1e9},
    "ns per byte": {"ns per byte": 1},
}
_TIMES = {"ns": 1.0, "us": 1e3}
"""Units of time for figures in cycles: the clock converts them."""


def find(text: str) -> Target:
    """The target that `text` names: a preset, a file that ends in `.toml`, or one that a plugin or an installed package offers.

    Raises KtirError for one that there is not, and for a file that describes none.
    """
    if text in PRESETS:
        return PRESETS[text]
    if text.endswith(SUFFIX):
        return read_file(text)
    if text in registry.plugin_targets():
        return checked(registry.plugin_targets()[text], f"target '{text}'")
    offered = registry.entries(GROUP)
    if text not in offered:
        names = [*PRESETS, *registry.plugin_targets(), *offered]
        raise KtirError(f"unknown target '{text}'{close_to(text, names)} (targets: {', '.join(names)}, or a file that ends in {SUFFIX})")
    found = registry.load_entry(GROUP, text)
    target = read_file(str(found)) if isinstance(found, str | Path) else found
    if not isinstance(target, Target):
        raise KtirError(f"target '{text}' of '{offered[text].value}' is neither a Target nor the path of a file, but {found!r}")
    return checked(target, f"target '{text}'")


def checked(target: Target, origin: str) -> Target:
    """A target that somebody else has made, if it can be."""
    if faults := target.faults():
        raise KtirError(f"{origin}: '{faults[0][0]}' {faults[0][1]}")
    return target


def read_file(path: str) -> Target:
    """The target that a TOML file describes. Raises KtirError, at the file and the key, for what is no description."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise KtirError(f"cannot read target '{path}': {getattr(error, 'strerror', None) or error}") from None
    return read_text(text, path)


def read_text(text: str, path: str) -> Target:
    """The same of a file's text."""
    return _Reader(text, path).target()


class _Reader:
    def __init__(self, text: str, path: str) -> None:
        self.text, self.path = text, path

    def target(self) -> Target:
        import tomllib

        try:
            keys = tomllib.loads(self.text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            at = re.search(r" \(at line (\d+), column (\d+)\)", str(error))
            place = f"{self.path}:{at[1]}:{at[2]}" if at else self.path
            if (at := at or re.search(r" \(at end of document\)", str(error))) and not at.groups():
                *before, last = self.text.split("\n")
                place = f"{self.path}:{len(before) + 1}:{len(last) + 1}"
            raise KtirError(f"is no TOML: {str(error)[: at.start()] if at else error}", place) from None
        base = self._base(keys)
        words = {"name": Path(self.path).stem} | {key: keys[key] for key in ("name", "dl16") if key in keys}
        figures: dict[str, Any] = {}
        sources: dict[str, tuple[str, str]] = {}
        clock = self._number("clock_ghz", keys["clock_ghz"], 1.0) if "clock_ghz" in keys else base.clock_ghz
        for key, given in keys.items():
            if key not in ("name", "base", "dl16"):
                figures[key] = self._number(key, given, clock) if key in _FIGURES and "compute" not in _FIGURES[key] else given
                sources[key] = self._source(key, given)
        for key, m in _FIGURES.items():
            if any(n in figures for n in m.get("needs", ())):
                sources[key] = ("derived", m["source"])
        try:
            target = base.changed(sources, **words, **figures)
        except FigureError as error:
            self._fail(error.figure, error.wrong)
        name = target.name
        if name in PRESETS and target != PRESETS[name]:
            self._fail("name", f"expects another name than that of the preset '{name}', whose figures are others")
        return target

    def _base(self, keys: dict[str, Any]) -> Target:
        name = keys.get("base", DATASHEET.name)
        if not isinstance(name, str) or name not in PRESETS:
            near = close_to(name, PRESETS) if isinstance(name, str) else ""
            self._fail("base", f"expects one of {', '.join(PRESETS)}, but got {name!r}{near}")
        return PRESETS[name]

    def _number(self, key: str, given: Any, clock: float) -> int | float:
        """A figure in its own unit."""
        unit = ""
        if isinstance(given, dict):
            for inner in given:
                if inner not in ("value", "unit", "status", "source"):
                    self._fail(key, f"has no '{inner}', only value, unit, status and source")
            if "value" not in given:
                self._fail(key, "expects a value")
            unit, given = given.get("unit", ""), given["value"]
        if isinstance(given, bool) or not isinstance(given, int | float):
            self._fail(key, f"expects a number, but got {given!r}")
        value = given * self._scale(key, unit, clock) if unit else given
        if key not in _WHOLE:
            return value
        if unit in _TIMES and value == value and abs(value) < 2**53:
            return round(value)
        if value != value or value in (float("inf"), float("-inf")) or value != int(value) or (isinstance(given, float) and not unit):
            self._fail(key, f"expects an integer, but got {value!r}")
        return int(value)

    def _scale(self, key: str, unit: Any, clock: float) -> float:
        own = _FIGURES[key]["unit"]
        scales = {own: 1.0} if own else {}
        for kind, known in _SCALES.items():
            if own.split(" ")[0] == kind or own == kind:
                scales |= known
        if own.split(" ")[0] == "cycles":
            scales |= {name: factor * clock for name, factor in _TIMES.items()}
        if not isinstance(unit, str) or unit not in scales:
            self._fail(key, f"expects a unit of {', '.join(scales) or 'none: it is a bare number'}, but got {unit!r}")
        return scales[unit]

    def _source(self, key: str, given: Any) -> tuple[str, str]:
        stated = given if isinstance(given, dict) else {}
        status, source = stated.get("status", "assumed"), stated.get("source", self.path)
        if status not in STATUS:
            self._fail(key, f"expects a status of {', '.join(STATUS)}, but got {status!r}")
        if not isinstance(source, str) or not source:
            self._fail(key, f"expects a source that is text, but got {source!r}")
        return status, source

    def _fail(self, key: str, wrong: str) -> NoReturn:
        at = re.search(rf"^[ \t]*\[?[ \t]*([\"']?{re.escape(key)}\b)", self.text, re.MULTILINE)
        place = f"{self.path}:{self.text.count(chr(10), 0, at.start(1)) + 1}:{at.start(1) - at.start() + 1}" if at else self.path
        raise KtirError(f"'{key}' {wrong}", place)


def description(target: Target) -> str:
    """A target as the text of a file that describes it whole: `read_text` gives an equal one."""
    return "".join(_lines(target))


def _lines(target: Target) -> Iterator[str]:
    yield f'name = "{target.name}"\n'
    if target.dl16 != DATASHEET.dl16:
        yield f'dl16 = "{target.dl16}"\n'
    for figure in target.figures():
        if "compute" not in _FIGURES[figure.name]:
            unit = [f"unit = {_quoted(figure.unit)}"] if figure.unit else []
            parts = [f"value = {figure.value!r}", *unit, f"status = {_quoted(figure.status)}", f"source = {_quoted(figure.source)}"]
            yield f"{figure.name} = {{ {', '.join(parts)} }}\n"


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
