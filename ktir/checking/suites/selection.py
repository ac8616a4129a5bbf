"""Which variants of a test a configuration has, and which of the tests its selectors choose."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ktir.checking.suites.config import Config, Entry, Rule, matches_one


@dataclass(frozen=True)
class Facts:
    """What selectors ask of a test."""

    config: Config
    test: Any
    path: Path
    name: str
    has_ops: bool
    ops: frozenset[str]
    """Names of the operators that the test has upstream."""

    @cached_property
    def marks(self) -> set[str]:
        """Its marks of pytest; torch's own slow tests have `slow`."""
        marks = {mark.name for mark in getattr(self.test, "pytestmark", ())}
        return marks | ({"slow"} if getattr(self.test, "slow_test", False) else set())

    @cached_property
    def decorators(self) -> set[str]:
        """Names of the decorators in its source, without modules."""
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(self.test))))
        except (OSError, TypeError, SyntaxError):
            return set()
        found = set()
        for node in tree.body[0].decorator_list if isinstance(tree.body[0], ast.FunctionDef) else ():
            call = node.func if isinstance(node, ast.Call) else node
            found.add(call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", ""))
        return found


def chosen(entry: Entry, facts: Facts) -> str:
    """Why the selectors of an entry do not choose a test; empty where they do."""
    if entry.include:
        reasons = [_contradicts(rule, facts) for rule in entry.include]
        if all(reasons):
            return f"{reasons[0]} (filtered by selectors)"
    if any(not _contradicts(rule, facts) for rule in entry.exclude):
        return f"{facts.name} is excluded (filtered by selectors)"
    return ""


def _contradicts(rule: Rule, facts: Facts) -> str:
    """The first condition that does not hold; empty where all do."""
    supported = facts.config.ops is None or bool(facts.ops & set(facts.config.ops))
    method = facts.name.partition("::")[2]
    if rule.has_ops is not None and rule.has_ops != facts.has_ops:
        return f"test has {'no' if rule.has_ops else 'an'} @ops decorator"
    if rule.ops_in_supported is not None and rule.ops_in_supported != (facts.has_ops and supported):
        return f"test ops {sorted(facts.ops)[:4]} are {'not ' if rule.ops_in_supported else ''}in supported ops"
    if rule.markers is not None and not facts.marks & set(rule.markers):
        return f"test has none of the marks {', '.join(rule.markers)}"
    if rule.name_patterns is not None and not matches_one(method, rule.name_patterns):
        return f"name fits none of {', '.join(rule.name_patterns)}"
    if (
        rule.module_patterns is not None
        and not matches_one(facts.path.name, rule.module_patterns)
        and not matches_one(str(facts.path), rule.module_patterns)
    ):
        return f"file fits none of {', '.join(rule.module_patterns)}"
    if rule.decorators is not None and not facts.decorators & set(rule.decorators):
        return f"test has none of the decorators {', '.join(rule.decorators)}"
    return ""


def leave_out(config: Config, entry: Entry, facts: Facts, params: dict[str, Any]) -> bool:
    """Whether an entry does not have a variant."""
    operator = None
    if (op := params.get("op")) is not None:
        if op.name in entry.ops.exclude:
            return True
        if op.name not in entry.ops.include and (op.name not in facts.ops or (config.ops is not None and op.name not in config.ops)):
            return True
        operator = (config.ops or {}).get(op.name)
    if (info := params.get("module_info")) is not None:
        name = class_name(info.module_cls)
        if name in entry.modules.exclude:
            return True
        if name not in entry.modules.include and config.modules is not None and name not in config.modules:
            return True
    return any(_without(config, entry, operator, dtype) for dtype in _dtypes(params))


def _without(config: Config, entry: Entry, operator: Any, dtype: torch.dtype) -> bool:
    name = str(dtype)[6:]
    if name in entry.dtypes.exclude:
        return True
    if name in entry.dtypes.include:
        return False
    return any(listed is not None and dtype not in listed for listed in (config.dtypes, operator.dtypes if operator else None))


def _dtypes(params: dict[str, Any]) -> Iterable[torch.dtype]:
    found = params.get("dtypes", params.get("dtype"))
    return [d for d in (found if isinstance(found, list | tuple) else [found]) if isinstance(d, torch.dtype)]


def class_name(module: type) -> str:
    """A class with its module."""
    return f"{module.__module__}.{module.__qualname__}"
