"""The base class that makes tests for the device as a configuration says.

torch makes a test's variants (one per operator, module and type) by a function that stands on the test. While a test is instantiated, ours
stands there: it widens the lists of torch's own, and leaves out, marks or changes what comes.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from ktir.checking.suites import replaced
from ktir.checking.suites.config import Config, Entry, load
from ktir.checking.suites.selection import Facts, chosen, leave_out
from ktir.device.autoload import register
from ktir.diagnostics import KtirError

Variant = tuple[Callable[..., Any], str, dict[str, Any], Callable[[dict[str, Any]], Any]]
_UNLISTED_WITHOUT_OPS = "test has no @ops decorator (filtered: global.supported_ops is there)"

instantiated: set[str] = set()
"""`Class::method` of the tests that were seen."""


def config() -> Config:
    """What `PYTORCH_TEST_CONFIG` names."""
    path = os.environ.get("PYTORCH_TEST_CONFIG")
    if not path:
        raise KtirError("the environment variable PYTORCH_TEST_CONFIG names no configuration")
    register()
    return load(path)


def steered(bases: list[Any], stock: Any) -> Any:
    """The class for the device, in place of torch's own one; those of other devices that the configuration lists are steered too."""
    wanted = config().devices or ()
    bases.remove(stock)
    bases[:] = [type(base.__name__, (Steered, base), {}) if base.device_type in wanted else base for base in bases]
    return type("SpyreTestBase", (Steered, stock), {})


class Steered:
    """What stands before one of torch's base classes."""

    bypass_device_restrictions = True  # @onlyCUDA and the like ask for what a device has

    @classmethod
    def instantiate_test(cls, name: str, test: Any, *, generic_cls: Any = None) -> None:
        """Make the variants of a test."""
        steering = Steering(config(), cls, test, generic_cls)
        before = test.__dict__.get("parametrize_fn")
        test.parametrize_fn = steering.variants
        try:
            super().instantiate_test(name, test, generic_cls=generic_cls)  # type: ignore[misc]
        finally:
            del test.parametrize_fn
            if before is not None:
                test.parametrize_fn = before

    @classmethod
    def _get_dtypes(cls, test: Any) -> None:
        """None to torch's own instantiation: we make the variants of `@dtypes` with the others."""


class Steering:
    """How one test is instantiated for one class."""

    def __init__(self, config: Config, cls: Any, test: Any, generic: Any) -> None:
        self.config, self.cls, self.test = config, cls, test
        self.parametrize: Any = getattr(test, "parametrize_fn", None)
        self.name = f"{generic.__name__}::{test.__name__}"
        instantiated.add(self.name)
        path = Path(inspect.getfile(generic))
        self.unlisted, self.entries = _entries(config, path, self.name)
        self.lists = list(_lists(self.parametrize))
        own = [op.name for each in self.lists if hasattr(each, "op_list") for op in each.op_list]
        self.facts = Facts(config, test, path, self.name, has_ops=any(hasattr(e, "op_list") for e in self.lists), ops=frozenset(own))

    def variants(self, test: Any, generic_cls: Any, device_cls: Any) -> Iterator[Variant]:
        """What torch makes of the test, and what is included besides."""
        added = dict.fromkeys(_dtype(name) for entry in self.entries for name in entry.dtypes.include)
        with self._widened():
            seen: set[tuple[Any, ...]] = set()
            for only in (None, list(added)) if added else (None,):
                for variant in self._torch_variants(test, generic_cls, device_cls, only):
                    key = (variant[1], str(variant[2].get("dtype", variant[2].get("dtypes"))))
                    if key not in seen:
                        seen.add(key)
                        yield from self._steer(variant)

    def _steer(self, variant: Variant) -> Iterator[Variant]:
        test, suffix, params, decorators = variant
        listed = self.entries or (Entry({}, self.unlisted),)
        fitting = [e for e in listed if not leave_out(self.config, e, self.facts, params)]
        if not fitting:
            return
        entry = fitting[0]
        op, dtype = params.get("op"), params.get("dtype")
        operator = (self.config.ops or {}).get(op.name) if op is not None else None
        if operator and dtype is not None and (tolerance := (operator.dtypes or {}).get(dtype)):
            decorators = _with_tolerance(decorators, dtype, tolerance)
        if entry.inputs is not None:
            test, params = replaced.inputs(test, params, entry.inputs)
        yield test, suffix, params, decorators
        mode = "xfail" if operator and operator.force_xfail and entry.mode == "mandatory_success" else entry.mode
        reason = chosen(entry, self.facts)
        if not self.entries and not self.facts.has_ops and self.config.ops is not None and not self.lists:
            reason = reason or _UNLISTED_WITHOUT_OPS
        made = next(reversed(vars(self.cls).values()))  # torch has just put it there
        _mark(made, mode, reason or _of_mode(self.name, self.entries), bool(reason))
        made.pytestmark = [
            *getattr(made, "pytestmark", ()),
            *(getattr(pytest.mark, t) for t in dict.fromkeys(sum((e.tags for e in fitting), ()))),
        ]

    def _torch_variants(self, test: Any, generic_cls: Any, device_cls: Any, only: list[torch.dtype] | None) -> Iterator[Variant]:
        """What torch makes of the test; with `only`, for these types alone, whatever the test allows."""
        from torch.testing._internal.common_utils import compose_parametrize_fns

        parametrize = self.parametrize or _one
        base: Any = super(Steered, self.cls)
        dtypes = base._get_dtypes(test)
        if dtypes is not None:
            parametrize = compose_parametrize_fns(functools.partial(_of_dtypes, dtypes=dtypes if only is None else only), parametrize)
        elif only is not None and not self.lists:
            return
        with self._of_types(only):
            yield from parametrize(test, generic_cls, device_cls)

    @contextmanager
    def _widened(self) -> Iterator[None]:
        """The lists of `@ops` and `@modules` with what is included."""
        with self._as_before():
            for each in self.lists:
                if hasattr(each, "op_list"):
                    each.op_list = [*each.op_list, *replaced.missing_ops(each.op_list, self.entries)]
                else:
                    each.module_info_list = [*each.module_info_list, *replaced.missing_modules(each.module_info_list, self.entries)]
            yield

    @contextmanager
    def _as_before(self) -> Iterator[None]:
        before = [dict(vars(each)) for each in self.lists]
        try:
            yield
        finally:
            for each, attributes in zip(self.lists, before, strict=True):
                vars(each).update(attributes)

    @contextmanager
    def _of_types(self, only: list[torch.dtype] | None) -> Iterator[None]:
        from torch.testing._internal.common_device_type import OpDTypes

        with self._as_before():
            for each in self.lists if only else ():
                each.allowed_dtypes = set(only or ())
                if hasattr(each, "op_list"):
                    each.opinfo_dtypes = OpDTypes.supported
                else:
                    each.module_info_list = [replaced.module_of_types(info, only or []) for info in each.module_info_list]
            yield


def steer_plain(item: pytest.Function) -> None:
    """Let a test of a class that torch makes no variants of, which runs on the host, be what its first entry says."""
    name = f"{item.cls.__name__}::{item.function.__name__}" if item.cls else item.function.__name__
    instantiated.add(name)
    unlisted, entries = _entries(config(), item.path, name)
    entry = entries[0] if entries else Entry({}, unlisted)
    reason = chosen(entry, Facts(config(), item.function, item.path, name, has_ops=False, ops=frozenset()))
    if not entries and config().ops is not None:
        reason = reason or _UNLISTED_WITHOUT_OPS
    if reason or entry.mode == "skip":
        item.add_marker(pytest.mark.skip(reason=reason or _of_mode(name, entries)))
    elif entry.mode != "mandatory_success":
        item.add_marker(pytest.mark.xfail(strict=entry.mode == "xfail_strict", reason=entry.mode))
    for tag in dict.fromkeys(sum((e.tags for e in entries), ())):
        item.add_marker(tag)


def _entries(config: Config, path: Path, name: str) -> tuple[str, tuple[Entry, ...]]:
    """The mode of what is not listed in a test's file, and the entries that name the test."""
    file = config.file(path)
    return (file.unlisted, tuple(e for e in file.entries if name in e.names)) if file else ("skip", ())


def _of_mode(name: str, entries: tuple[Entry, ...]) -> str:
    return f"{name} has mode skip" if entries else f"{name} is not listed"


def _mark(made: Any, mode: str, reason: str, skipped: bool) -> None:
    """Let pytest expect of a test what its mode says."""
    if skipped or mode == "skip":
        made.__unittest_skip__, made.__unittest_skip_why__ = True, reason
        return
    expects_failure = made.__dict__.pop("__unittest_expecting_failure__", False)
    marks: list[Any] = list(getattr(made, "pytestmark", ()))
    if mode != "mandatory_success":
        marks.append(pytest.mark.xfail(strict=mode == "xfail_strict", reason=mode))
    elif expects_failure:  # upstream expects it of other devices: here it may pass
        marks.append(pytest.mark.xfail(strict=False, reason="upstream expects a failure"))
    made.pytestmark = marks


def _lists(parametrize: Any) -> Iterator[Any]:
    """The `@ops` and `@modules` of a test, which stand in the functions that torch has composed."""
    owner = getattr(parametrize, "__self__", None)
    if hasattr(owner, "op_list") or hasattr(owner, "module_info_list"):
        yield owner
    for part in getattr(parametrize, "__defaults__", None) or ():
        yield from _lists(part)


def _one(test: Any, generic_cls: Any, device_cls: Any) -> Iterator[Variant]:
    yield test, "", {}, lambda _: []


def _of_dtypes(test: Any, generic_cls: Any, device_cls: Any, dtypes: Any) -> Iterator[Variant]:
    for each in dtypes:
        yield test, "", {"dtypes" if isinstance(each, list | tuple) else "dtype": each}, lambda _: []


def _dtype(name: str) -> torch.dtype:
    return getattr(torch, name)


def _with_tolerance(decorators: Callable[..., Any], dtype: torch.dtype, tolerance: tuple[float, float]) -> Callable[..., Any]:
    from torch.testing._internal.common_device_type import tol, toleranceOverride

    atol, rtol = tolerance
    return lambda params: [*decorators(params), toleranceOverride({dtype: tol(atol=atol, rtol=rtol)})]
