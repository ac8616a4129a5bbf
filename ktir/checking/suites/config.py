"""A configuration of RFC 1287: which of PyTorch's tests run on the device, and what is expected of each."""

from __future__ import annotations

import glob
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import torch

from ktir.checking.suites import names
from ktir.checking.suites.inputs import Inputs, read_inputs
from ktir.checking.suites.source import Value, read

MODES = ("mandatory_success", "xfail", "xfail_strict", "skip")


class ConfigWarning(UserWarning):
    """Something in a configuration has no effect."""


@dataclass(frozen=True)
class Edit:
    """What a test has more and less than upstream: names of operators, classes or types, with the place of each."""

    include: dict[str, str] = field(default_factory=dict)
    exclude: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Rule:
    """Conditions on a test, all of which must hold; None where there is none."""

    has_ops: bool | None = None
    ops_in_supported: bool | None = None
    markers: tuple[str, ...] | None = None
    name_patterns: tuple[str, ...] | None = None
    module_patterns: tuple[str, ...] | None = None
    decorators: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Entry:
    """What holds for some tests of a file."""

    names: dict[str, str]
    """`Class::method`, with the place."""
    mode: str = MODES[0]
    tags: tuple[str, ...] = ()
    include: tuple[Rule, ...] = ()
    exclude: tuple[Rule, ...] = ()
    ops: Edit = field(default_factory=Edit)
    modules: Edit = field(default_factory=Edit)
    dtypes: Edit = field(default_factory=Edit)
    inputs: Inputs | None = None


@dataclass(frozen=True)
class File:
    """Test files and their entries."""

    paths: tuple[Path, ...]
    unlisted: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Operator:
    """What the device has of an operator: types with absolute and relative tolerance, None where the framework's holds."""

    place: str
    force_xfail: bool = False
    dtypes: dict[torch.dtype, tuple[float, float] | None] | None = None


@dataclass(frozen=True)
class Config:
    """A whole configuration. None: nothing is left out."""

    path: str
    files: tuple[File, ...]
    devices: tuple[str, ...] | None = None
    dtypes: tuple[torch.dtype, ...] | None = None
    ops: dict[str, Operator] | None = None
    modules: tuple[str, ...] | None = None

    def file(self, path: Path) -> File | None:
        """The first entry for a test file."""
        return next((f for f in self.files if path.resolve() in f.paths), None)


@cache
def load(path: str) -> Config:
    """Read and check a file. Raises KtirError at the line that is wrong."""
    root = read(path).fields(("test_suite_config",))["test_suite_config"].fields(("files",), ("global",))
    found = (
        root["global"].fields(optional=("devices", "supported_dtypes", "supported_ops", "supported_modules")) if "global" in root else {}
    )
    dtypes = found["supported_dtypes"].each(lambda v: names.dtype(v.fields(("name",))["name"])) if "supported_dtypes" in found else None
    files = root["files"].each(_file)
    if not files:
        raise root["files"].error("expects at least one file")
    return Config(
        path,
        files,
        found["devices"].each(names.device_type) if "devices" in found else None,
        dtypes,
        _operators(found["supported_ops"], dtypes) if "supported_ops" in found else None,
        found["supported_modules"].each(lambda v: _class_name(v.fields(("name",))["name"])) if "supported_modules" in found else None,
    )


def _file(value: Value) -> File:
    found = value.fields(("path",), ("unlisted_test_mode", "tests"))
    pattern = names.glob(found["path"])
    paths = tuple(Path(p).resolve() for p in sorted(glob.glob(names.with_tokens(found["path"]), recursive=True)) if p.endswith(".py"))
    if not paths:
        raise found["path"].error(f"matches no test file: '{pattern}'")
    return File(
        paths,
        found["unlisted_test_mode"].choice(MODES) if "unlisted_test_mode" in found else "skip",
        found["tests"].each(_entry) if "tests" in found else (),
    )


def _entry(value: Value) -> Entry:
    found = value.fields(("names",), ("mode", "tags", "selectors", "edits"))
    listed = dict(found["names"].each(_test_name))
    if not listed:
        raise found["names"].error("expects at least one test")
    selectors = found["selectors"].fields(optional=("include", "exclude")) if "selectors" in found else {}
    edits = found["edits"].fields(optional=("ops", "modules", "dtypes", "inputs")) if "edits" in found else {}
    return Entry(
        listed,
        found["mode"].choice(MODES) if "mode" in found else MODES[0],
        found["tags"].each(names.identifier) if "tags" in found else (),
        *(selectors[side].each(_rule) if side in selectors else () for side in ("include", "exclude")),
        ops=_edit(edits.get("ops"), Value.text),
        modules=_edit(edits.get("modules"), _class_name),
        dtypes=_edit(edits.get("dtypes"), lambda v: str(names.dtype(v))[6:]),
        inputs=read_inputs(edits["inputs"]) if "inputs" in edits else None,
    )


def _test_name(value: Value) -> tuple[str, str]:
    name = value.text()
    words = name.split("::")
    if len(words) != 2 or not all(word.isidentifier() for word in words):
        raise value.error(f"expects Class::method, but got '{name}'")
    return name, value.place


def _class_name(value: Value) -> str:
    found = names.class_path(value)
    return f"{found.__module__}.{found.__qualname__}"


def _edit(value: Value | None, name_of: Callable[[Value], str]) -> Edit:
    found = value.fields(optional=("include", "exclude")) if value else {}
    sides: dict[str, dict[str, str]] = {}
    for side, items in found.items():
        listed = [item.fields(("name",), ("description",)) for item in items.items()]
        for item in listed:
            if "description" in item:
                item["description"].text()
        sides[side] = {name_of(item["name"]): item["name"].place for item in listed}
    return Edit(**sides)


def _rule(value: Value) -> Rule:
    lists = {
        "markers": names.identifier,
        "name_patterns": names.glob,
        "module_patterns": names.glob,
        "decorators": names.identifier,
    }
    found = value.fields(optional=("has_ops", "ops_in_supported", *lists))
    if not found:
        raise value.error("expects at least one condition")
    return Rule(**{name: each.each(lists[name]) if name in lists else each.flag() for name, each in found.items()})  # type: ignore[arg-type]


def _operators(value: Value, supported: tuple[torch.dtype, ...] | None) -> dict[str, Operator]:
    result: dict[str, Operator] = {}
    for item in value.items():
        found = item.fields(("name",), ("force_xfail", "dtypes"))
        name = found["name"].text()
        if name in result:
            raise found["name"].error(f"is listed twice: '{name}'")
        dtypes = dict(found["dtypes"].each(lambda v: _operator_dtype(v, supported))) if "dtypes" in found else None
        if dtypes is not None and not dtypes:
            warnings.warn(f"{found['dtypes'].place}: warning: '{name}' has no type, so no test of it runs", ConfigWarning, stacklevel=2)
        result[name] = Operator(found["name"].place, "force_xfail" in found and found["force_xfail"].flag(), dtypes)
    return result


def _operator_dtype(value: Value, supported: tuple[torch.dtype, ...] | None) -> tuple[torch.dtype, tuple[float, float] | None]:
    found = value.fields(("name",), ("precision",))
    dtype = names.dtype(found["name"])
    if supported is not None and dtype not in supported:
        there = ", ".join(str(d)[6:] for d in supported)
        raise found["name"].error(f"expects one of global.supported_dtypes, {there}, but got {str(dtype)[6:]}")
    if "precision" not in found:
        return dtype, None
    precision = found["precision"].fields(optional=("atol", "rtol"))
    atol, rtol = (precision[side].number(0) if side in precision else 0.0 for side in ("atol", "rtol"))
    return dtype, (atol, rtol)


def matches_one(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a name fits one of some globs."""
    return any(fnmatch(name, pattern) for pattern in patterns)
