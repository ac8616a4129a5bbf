"""Options of the toolchain: typed fields, set by environment variables `KTIR_<FIELD>` or for a block by `patch`.

from ktir import config
with config.patch(cores=4, dump_dir="stages"):
    config.current().cores
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import ModuleType
from typing import Any

from ktir.target import DATASHEET, Target

_FALLBACKS = ("cpu", "error")
_ENGINES = ("spyre", "ktir")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")
_DIGITS = 20
"""Of numbers that are larger than any."""
_LARGEST = 2**63 - 1
"""Size of a dim."""


def _is_integer(value: Any, least: int = 0, most: int | None = None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value and (most is None or value <= most)


@dataclasses.dataclass(frozen=True)
class Config:
    """One set of options; immutable, so that it can be part of a cache key."""

    fallback: str = "cpu"
    """What torch.compile does with operators that are not supported: `cpu` = run them in PyTorch, with a warning, or `error`."""
    engine: str = "spyre"
    """What runs a program: `spyre` = compiled for the emulated chip, on the instruction emulator; `ktir` = as logical KTIR, on the KTIR
    executor. Under `spyre` a program that the chip's compiler does not support runs on the KTIR executor, with a warning."""
    cores: int | None = None
    """Cores that work is divided over, 1 to the target's number; None = all of them. `SENCORES` sets it too."""
    target: str = DATASHEET.name
    """The machine that programs are compiled for and run on: `datasheet`, `fitted`, a file that ends in `.toml` and describes one, or one
    that an installed package offers. A program that says its target itself (`ktir.target`) keeps to that."""
    buckets: tuple[int, ...] = ()
    """Sizes for which graphs with dynamic sizes are compiled: inputs are padded to the next one where that cannot change a result. Without
    them, and above the largest, each size is compiled on its own. In the environment: `16,64,256`."""
    frozen_weights: bool = False
    """Take it that parameters change only where PyTorch counts the writes: not through `.data`, NumPy or other memory that they share. Else
    each launch looks at the whole content of what it reads."""
    forms_bytes: int | None = None
    """Bytes of arranged copies of weights and inputs that the process keeps between launches; None = half of the machine's memory. The
    last compilation decides."""
    loaded_programs: int = 1024
    """Programs that stay loaded in the process, those launched last; one that is not is loaded again when it is launched. The last
    compilation decides."""
    dump_dir: str | None = None
    """Folder to which every stage is written; None = nothing is written."""
    explore: str | None = None
    """File to which a page is written that shows what becomes of a compiled graph, as `ktir-explore` does; None = no page."""
    spyre_instrument_ops: tuple[str, ...] = ()
    """Nodes of graphs (`mm` stands for `mm_1` too) whose IR after each pass is kept for `torch.spyre.instrument`, which limits its rows to
    them. In the environment: `mm,softmax`."""
    logical_passes: str = ""
    """Passes that each logical program goes through before it is compiled, as pipeline text: `acme-use-magnitudes,cse`. Those of installed
    packages are known by name, and others once `ktir.registry.add_plugin` has loaded their module."""
    verify_each: bool = False
    """Verify the module after every pass, not only at the end."""

    def __post_init__(self) -> None:
        if self.fallback not in _FALLBACKS:
            raise ValueError(f"fallback must be one of {', '.join(_FALLBACKS)}, but got {self.fallback!r}")
        if self.engine not in _ENGINES:
            raise ValueError(f"engine must be one of {', '.join(_ENGINES)}, but got {self.engine!r}")
        for name in ("frozen_weights", "verify_each"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, but got {getattr(self, name)!r}")
        for name, what in (("dump_dir", "a folder"), ("explore", "a file")):
            if (given := getattr(self, name)) is not None and not isinstance(given, (str, os.PathLike)):
                raise ValueError(f"{name} must be the path of {what}, but got {given!r}")
        most = self.machine().cores
        if self.cores is None:
            object.__setattr__(self, "cores", most)
        elif not _is_integer(self.cores, 1, most):
            raise ValueError(f"cores must be an integer from 1 to {most}, but got {self.cores!r}")
        if not isinstance(self.buckets, (tuple, list)) or not all(_is_integer(n, 1, _LARGEST) for n in self.buckets):
            raise ValueError(f"buckets must be positive integers, but got {self.buckets!r}")
        if self.forms_bytes is not None and not _is_integer(self.forms_bytes):
            raise ValueError(f"forms_bytes must be an integer of at least 0, but got {self.forms_bytes!r}")
        if not _is_integer(self.loaded_programs, 1):
            raise ValueError(f"loaded_programs must be an integer of at least 1, but got {self.loaded_programs!r}")
        object.__setattr__(self, "buckets", tuple(self.buckets))
        self._sources_of_passes()
        ops = self.spyre_instrument_ops
        if not isinstance(ops, (tuple, list)) or not all(isinstance(op, str) and op for op in ops):
            raise ValueError(f"spyre_instrument_ops must be names of ops, but got {ops!r}")
        object.__setattr__(self, "spyre_instrument_ops", tuple(ops))

    def machine(self) -> Target:
        """What `target` names. Raises ValueError for what names none."""
        if self.target == DATASHEET.name:
            return DATASHEET
        from ktir import targets  # knows files and plugins, which few ask for
        from ktir.diagnostics import KtirError

        if not isinstance(self.target, str):
            raise ValueError(f"target must be a name, but got {self.target!r}")
        try:
            return targets.find(self.target)
        except KtirError as error:
            raise ValueError(f"target: {error.location + ': ' if error.location else ''}{error.message}") from None

    def _sources_of_passes(self) -> str:
        """Hash of what `logical_passes` are made of. Raises ValueError for text that is no pipeline."""
        if not isinstance(self.logical_passes, str):
            raise ValueError(f"logical_passes must be pipeline text, but got {self.logical_passes!r}")
        if not self.logical_passes.strip():
            return ""
        return _sources_of(self.logical_passes)

    def fewer_cores(self) -> int | None:
        """The cores that work is divided over, where these are not all of the target's."""
        return None if self.cores == self.machine().cores else self.cores

    def key(self) -> tuple[tuple[str, Any], ...]:
        """The options that change generated code, for cache keys; of the target its figures, since a file may change."""
        names = ("cores", "engine", "fallback", "frozen_weights", "verify_each")
        passes = (self.logical_passes, self._sources_of_passes())
        return (*((name, getattr(self, name)) for name in names), ("target", repr(self.machine())), ("logical_passes", passes))


@cache
def _sources_of(pipeline: str) -> str:
    """Hash of the packages that passes come from. Raises ValueError for what is no pipeline."""
    from ktir.diagnostics import KtirError  # these load MLIR
    from ktir.pipeline import parse_pipeline
    from ktir.version import sources_hash

    try:
        steps = parse_pipeline(pipeline).steps
    except KtirError as error:
        raise ValueError(f"logical_passes: {error.message}") from None
    return ",".join(sources_hash(package) for package in sorted({type(s.item).__module__.partition(".")[0] for s in steps}))


NAMES = tuple(field.name for field in dataclasses.fields(Config))
VARIABLES = (
    *(f"KTIR_{name.upper()}" for name in NAMES),
    "KTIR_CACHE_DIR",
    "KTIR_DEVICE",
    "KTIR_METRICS",
    "KTIR_TEST_RESULTS",
    "KTIR_TEST_SECONDS",
)
"""All of the environment's variables that begin with `KTIR_` and that something of ours reads."""


def _parse(field: dataclasses.Field[Any], variable: str, text: str) -> Any:
    if "bool" in str(field.type):
        if text.lower() in _TRUE + _FALSE:
            return text.lower() in _TRUE
        raise ValueError(f"{variable} must be 0 or 1, but got {text!r}")
    if "tuple[str" in str(field.type):
        return tuple(text.split(","))
    if "int" in str(field.type):
        try:
            return tuple(map(int, text.split(","))) if "tuple" in str(field.type) else int(text)
        except ValueError:
            raise ValueError(f"{variable} must be {'integers' if ',' in text else 'an integer'}, but got {text!r}") from None
    return text or None


def from_environment(environment: Mapping[str, str] = os.environ) -> Config:
    """The options that the environment asks for; `KTIR_CORES` wins over `SENCORES`."""
    values: dict[str, Any] = {}
    variables: dict[str, str] = {}
    for field in dataclasses.fields(Config):
        names = [f"KTIR_{field.name.upper()}"] + (["SENCORES"] if field.name == "cores" else [])
        name = next((n for n in names if environment.get(n)), None)
        if name:
            variables[field.name] = name
            values[field.name] = _parse(field, name, environment[name])
    try:
        return Config(**values)
    except ValueError as error:  # which begins with the option's name
        option, _, rest = str(error).partition(" ")
        raise ValueError(f"{variables[option]} {rest}" if option in variables else str(error)) from None


def whole_number(variable: str, text: str, least: int, most: int, what: str = "") -> int:
    """A whole number that a variable of the environment holds. what: the numbers that it may hold, for the message. Raises RuntimeError."""
    plain = text.strip()
    if not (plain.isascii() and plain.isdigit() and len(plain) < _DIGITS and least <= int(plain) <= most):
        raise RuntimeError(f"{variable} must be {what or f'{least} to {most}'}, but got {text!r}")
    return int(plain)


_patched: ContextVar[Config | None] = ContextVar("ktir_config", default=None)


def current() -> Config:
    """The options in force: those of the innermost `patch`, else those of the environment."""
    _say_strangers()
    return _patched.get() or from_environment()


def strangers(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that begins with `KTIR_` and that nothing of ours reads: it may be misspelled, or the user's own."""
    names = sorted(name for name in environment if name.startswith("KTIR_") and name not in VARIABLES)
    if not names:
        return []
    from ktir.diagnostics import close_to

    return [f"the environment variable '{name}' is none that ktir reads{close_to(name, VARIABLES)}" for name in names]


@cache
def _say_strangers() -> None:
    """Once per process."""
    for sentence in strangers(os.environ):
        import logging

        logging.getLogger("ktir").warning("warning: %s", sentence)


@contextmanager
def patch(**fields: Any) -> Iterator[Config]:
    """Change options inside a block, in this thread. Unknown names and bad values raise ValueError."""
    if unknown := sorted(set(fields) - set(NAMES)):
        raise ValueError(unknown_option(unknown[0]))
    if "target" in fields and current().fewer_cores() is None:
        fields.setdefault("cores", None)  # of another target all as well
    token = _patched.set(dataclasses.replace(current(), **fields))
    try:
        yield current()
    finally:
        _patched.reset(token)


def unknown_option(name: str) -> str:
    """What is said of a name that no option has."""
    from ktir.diagnostics import close_to

    return f"unknown option '{name}'; the options are {', '.join(sorted(NAMES))}{close_to(name, NAMES)}"


class _Module(ModuleType):
    """This module refuses what looks like setting an option: options are of a block or of the environment, and nobody reads such names."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or name in vars(self):
            super().__setattr__(name, value)
            return
        if name not in NAMES:
            raise AttributeError(unknown_option(name))
        raise AttributeError(
            f"option '{name}' is not set as an attribute: a block has it by ktir.config.patch({name}={value!r}), "
            f"a process by the environment variable KTIR_{name.upper()}"
        )


sys.modules[__name__].__class__ = _Module
