"""Lazy tables of dialects and passes: names known from file names alone, code imported on first use.

A dialect `d` is the file `ktir/dialects/d.py` and in it the class declared with `Dialect, name="d"`; other files there are helpers.
A pass `a-b` is the file `a_b.py` in a folder of `ktir/passes/`, in `ktir/lowering/` or in `ktir/lowering/ktir_to_spyre/`, and in it the
class whose `name` is `a-b`. Named pipelines are found as passes are.
Plugins add to them: modules that `add_plugin` is given, and entry points of installed packages (`[project.entry-points."ktir.passes"]`,
`ktir.dialects`, `ktir.targets`). Nobody looks for these until a name is asked for that is not ours.
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ktir.diagnostics import KtirError
from ktir.target import PRESETS, Target
from ktir.version import sources_hash

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_ROOT = Path(__file__).parent
_DIALECT_FOLDER = "dialects"
_PASS_FILES = ("passes/**/ktir_*.py", "lowering/ktir_*.py", "lowering/ktir_to_spyre/convert_*.py")


def _stems(folder: str) -> list[str]:
    return sorted(p.stem for p in (_ROOT / folder).glob("*.py") if not p.stem.startswith("_"))


@cache
def dialect_names() -> tuple[str, ...]:
    """Names of our own dialects. Looks for the declaration in the text, so that helper modules are not imported."""
    folder = _ROOT / _DIALECT_FOLDER
    return tuple(d for d in _stems(_DIALECT_FOLDER) if f'Dialect, name="{d}"' in (folder / f"{d}.py").read_text())


def dialect_class(name: str) -> Any:
    """The `ext.Dialect` class of dialect `name`."""
    if name not in dialect_names():
        if (found := offered("ktir.dialects", name)) is None:
            raise LookupError(f"there is no dialect named '{name}'")
        return found
    module = importlib.import_module(f"ktir.{_DIALECT_FOLDER}.{name}")
    for value in vars(module).values():
        if isinstance(value, type) and getattr(value, "DIALECT_NAMESPACE", None) == name and hasattr(value, "load"):
            return value
    raise LookupError(f"{module.__name__} defines no dialect named '{name}'")


@cache
def pass_modules() -> dict[str, str]:
    """Pass name -> module path, from file names alone."""
    files = (p for glob in _PASS_FILES for p in sorted(_ROOT.glob(glob), key=lambda p: p.stem))
    return {p.stem.replace("_", "-"): ".".join(("ktir", *p.relative_to(_ROOT).with_suffix("").parts)) for p in files}


_plugins: dict[str, Any] = {}
"""Passes, pipelines and dialects of plugins, by name."""


_targets: dict[str, Target] = {}
"""Targets of plugins, by name."""


def add_plugin(module: str) -> None:
    """Make known what a Python module has: passes, pipelines, dialects, targets. KtirError for none, and for a name that is taken."""
    loaded = _module(module)
    own = [value for value in vars(loaded).values() if isinstance(value, type) and value.__module__ == loaded.__name__]
    dialects = _dialects_of(loaded)
    found = [(name, cls) for cls in own if (name := _name_of(cls)) and name not in dialects] + list(dialects.items())
    if nameless := next((cls for cls in own if _is_nameless(cls)), None):
        raise KtirError(f"plugin '{module}': class '{nameless.__name__}' has no 'name'")
    targets = {value.name: value for value in vars(loaded).values() if isinstance(value, Target) and value not in PRESETS.values()}
    if not found and not targets:
        raise KtirError(f"plugin '{module}' defines no pass, pipeline, dialect or target")
    if taken := next((name for name in targets if name in PRESETS), None):
        raise KtirError(f"plugin '{module}' defines target '{taken}', but there is one of that name")
    for k, (name, cls) in enumerate(found):
        if name not in dialects and not is_dataclass(cls):
            raise KtirError(
                f"plugin '{module}' gives '{cls.__name__}' the name '{name}' and a description, but it is no Pass or NamedPipeline"
            )
        if any(name == other for other, _ in found[:k]):
            raise KtirError(f"plugin '{module}' defines '{name}' twice")
        if name in pass_modules() or name in dialect_names() or _plugins.get(name, cls) is not cls:
            raise KtirError(f"plugin '{module}' defines '{name}', but there is one of that name")
    _plugins.update(found)
    _targets.update(targets)
    pass_class.cache_clear()


def plugin_targets() -> Mapping[str, Target]:
    """Targets that plugins have added so far, by name."""
    return _targets


def plugin_names() -> tuple[str, ...]:
    """Names of what plugins have added so far."""
    return tuple(_plugins)


def plugin_dialects() -> tuple[str, ...]:
    """Names of the dialects among them."""
    return tuple(name for name, cls in _plugins.items() if hasattr(cls, "DIALECT_NAMESPACE"))


def _dialects_of(module: Any) -> dict[str, Any]:
    """The dialects that a module of a plugin defines or imports, but for ours."""
    classes = [cls for cls in vars(module).values() if isinstance(cls, type) and getattr(cls, "DIALECT_NAMESPACE", None)]
    return {name: cls for cls in classes if (name := _name_of(cls)) and not cls.__module__.startswith("ktir.")}


def _name_of(cls: type) -> str:
    """The name of a class of a pass, pipeline or dialect; empty for others."""
    if hasattr(cls, "DIALECT_NAMESPACE") and hasattr(cls, "load"):
        return str(cls.DIALECT_NAMESPACE)
    return str(getattr(cls, "name", "")) if hasattr(cls, "description") else ""


def _is_nameless(cls: type) -> bool:
    """Whether a class is a pass or pipeline that cannot be asked for. One that others derive from in the same module may be so."""
    derived = any(base.__module__ == "ktir.pipeline" for base in cls.__mro__[1:])
    abstract = any(cls in other.__mro__[1:] for other in vars(sys.modules[cls.__module__]).values() if isinstance(other, type))
    return derived and not abstract and not _name_of(cls)


def offered(group: str, name: str) -> Any | None:
    """What an installed package offers by entry point under a name that is none of ours, or None."""
    if name not in _plugins and name in entries(group):
        cls = load_entry(group, name)
        if not isinstance(cls, type) or _name_of(cls) != name:
            raise KtirError(f"entry point '{name}' in '{group}' is no class of that name, but {cls!r}")
        _plugins.update(_dialects_of(sys.modules[cls.__module__]) | {name: cls})
        pass_class.cache_clear()
    return _plugins.get(name)


@cache
def pass_class(name: str) -> Any | None:
    """The Pass or NamedPipeline class registered as `name`, or None."""
    path = pass_modules().get(name)
    if path is None:
        return _plugins.get(name)
    for value in vars(importlib.import_module(path)).values():
        if isinstance(value, type) and value.__module__ == path and getattr(value, "name", None) == name:
            return value
    return None


def pass_classes() -> dict[str, Any]:
    """Name -> class of all our passes and named pipelines; imports their modules."""
    found = {name: pass_class(name) for name in pass_modules()}
    return {name: cls for name, cls in found.items() if cls is not None}


def outside_passes() -> dict[str, Any]:
    """Name -> class of the passes and pipelines that plugins have added, or that installed packages offer and can be loaded."""
    for name in entries("ktir.passes"):
        with suppress(KtirError):
            offered("ktir.passes", name)
    return {name: cls for name, cls in _plugins.items() if not hasattr(cls, "DIALECT_NAMESPACE")}


@cache
def entries(group: str) -> "dict[str, EntryPoint]":
    """Name -> entry point of a group, by name. Of several packages that offer a name the first one found counts."""
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        found.setdefault(entry.name, entry)
    return dict(sorted(found.items()))


@cache
def load_entry(group: str, name: str) -> Any:
    """What an entry point names. Raises KtirError if it cannot be imported."""
    entry = entries(group)[name]
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        owner = f" of package '{entry.dist.name}'" if entry.dist is not None else ""
        raise KtirError(f"entry point '{name}'{owner} in '{group}' cannot be loaded: {type(error).__name__}: {error}") from error


def _module(name: str) -> Any:
    """A module by its dotted name. Raises KtirError if it cannot be imported."""
    if name.endswith(".py") or "/" in name:
        raise KtirError(f"plugin '{name}': expected the dotted name of a module on PYTHONPATH, as in 'acme.passes', but got a path")
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        here = f"{name.partition('.')[0]}.py"
        lost = isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0] and Path(here).is_file()
        where = f"; {here} is in this folder, which PYTHONPATH does not name: PYTHONPATH=. does" if lost else ""
        raise KtirError(f"plugin '{name}' cannot be loaded: {type(error).__name__}: {error}{where}") from error


def known_passes() -> list[str]:
    """Names of our passes, of those of plugins, and of those that installed packages offer."""
    return [*pass_modules(), *plugin_names(), *entries("ktir.passes")]


_REWRITES = "ktir.rewrites"


def rewrites(operators: Set[str]) -> list[Callable[[Any], None]]:
    """What installed packages, ours among them, do to a graph that has one of these operators, before it is lowered: entry points of
    `ktir.rewrites`, whose names are operators, as `aten.bitwise_and`. Raises KtirError for one that cannot be loaded."""
    return list(dict.fromkeys(load_entry(_REWRITES, name) for name in entries(_REWRITES) if name in operators))


@cache
def outside_rewrites() -> tuple[str, ...]:
    """What tells the rewrites of other packages from others of these names: where they are, and a hash of the package's files."""
    found = []
    for name, entry in entries(_REWRITES).items():
        if (package := entry.module.partition(".")[0]) != "ktir":
            load_entry(_REWRITES, name)
            found.append(f"{name} = {entry.value} {sources_hash(package)}")
    return tuple(found)
