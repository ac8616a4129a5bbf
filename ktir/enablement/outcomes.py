"""What came out of a run, and what that means: states of operators, regressions between runs, ids (RFC 2834)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ktir.diagnostics import KtirError

FORMAT = 1


class Status(StrEnum):
    """Of a variant: each is expected to fail, so one that passes says that the operator has come to work."""

    XPASS = "XPASS"
    XFAIL = "XFAIL"
    FALLBACK = "FALLBACK"

    @property
    def state(self) -> State:
        """Of an operator with this variant alone."""
        return state_of({self})


class State(StrEnum):
    """Of an operator or a module: the first that applies."""

    CPU_FALLBACK = "cpu_fallback"
    FAILED = "spyre_failed"
    ENABLED = "spyre_enabled"
    NOT_IMPLEMENTED = "not_implemented"


_RANKS = {State.ENABLED: 0, State.CPU_FALLBACK: 1, State.NOT_IMPLEMENTED: 2, State.FAILED: 99}
"""As RFC 2834's code has them, where `spyre_failed` has none of its own and so the last one."""


@dataclass(frozen=True)
class Variant:
    """One call of an operator or module of a model, held against the host."""

    operation: str
    classification: str
    """operator or module."""
    test_name: str
    status: Status
    input_shapes: list[Any] = field(default_factory=list)
    input_strides: list[Any] = field(default_factory=list)
    input_dtypes: list[str] = field(default_factory=list)
    arg_values: list[str] = field(default_factory=list)
    target_shape: list[Any] = field(default_factory=list)
    calls: int = 1
    reason: str = ""
    """Why it failed or fell back."""
    where: str = ""
    """What ran: chip, executor, PyTorch; nothing for what is a view."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Variant:
        """The variant that `asdict` made these of. Raises KeyError and ValueError for what is none."""
        fields: dict[str, Any] = {name: data[name] for name in cls.__dataclass_fields__}
        fields["status"] = Status(fields["status"])
        return cls(**fields)


@dataclass
class Suite:
    """All of a model. `exit_code` is 0 where every variant was run."""

    name: str
    variants: list[Variant] = field(default_factory=list)
    seconds: float = 0.0
    exit_code: int = 0
    left: dict[str, int] = field(default_factory=dict)
    """Calls that no variant stands for, by reason."""
    ended: str = ""
    """What was said last where the exit code is not 0."""

    def states(self) -> dict[tuple[str, str], State]:
        """State by classification and operation, in order of name."""
        seen: dict[tuple[str, str], set[Status]] = {}
        for v in self.variants:
            seen.setdefault((v.classification, v.operation), set()).add(v.status)
        return {key: state_of(seen[key]) for key in sorted(seen)}

    def ratio(self, classification: str) -> tuple[int, int]:
        """How many operators (or modules) are enabled, and of how many."""
        states = [state for (kind, _), state in self.states().items() if kind == classification]
        return states.count(State.ENABLED), len(states)

    def counts(self) -> dict[str, int]:
        """Operators and modules by state, variants by status."""
        return {**Counter(s.value for s in self.states().values()), **Counter(v.status.value for v in self.variants)}


@dataclass
class Run:
    """Suites that ran together, of one commit."""

    id: str
    commit: str = ""
    date: str = ""
    suites: list[Suite] = field(default_factory=list)


def state_of(statuses: set[Status]) -> State:
    """The state of an operation whose variants had these; at least one."""
    if Status.FALLBACK in statuses:
        return State.CPU_FALLBACK
    if len(statuses) > 1:
        return State.FAILED
    return State.ENABLED if Status.XPASS in statuses else State.NOT_IMPLEMENTED


def is_regression(before: State, after: State) -> bool:
    """Whether the rank rises."""
    return _RANKS[after] > _RANKS[before]


def identity(*parts: object) -> str:
    """SHA-256 of parts, with a byte of zeros between them."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def suite_id(run: Run, suite: Suite) -> str:
    """Names a suite of a run."""
    return identity(run.id, suite.name)


def variant_ids(run: Run, suite: Suite) -> Iterator[tuple[str, Variant]]:
    """Each variant with its id; the number tells equal ones apart. RFC 2834's `classification` is the state that a status stands for."""
    for sequence, v in enumerate(suite.variants):
        yield identity(run.id, suite.name, v.operation, v.status.state, v.test_name, sequence), v


@dataclass(frozen=True)
class Change:
    """What has another state than in an earlier run; one of both is None where only one of the runs has it."""

    suite: str
    classification: str
    operation: str
    before: State | None
    after: State | None

    @property
    def is_regression(self) -> bool:
        """As `is_regression`."""
        return self.before is not None and self.after is not None and is_regression(self.before, self.after)


def changes(before: Run, after: Run) -> list[Change]:
    """What differs between two runs, of the models that both have; regressions come first."""
    earlier = {suite.name: suite.states() for suite in before.suites}
    found = []
    for suite in after.suites:
        if suite.name in earlier:
            old, new = earlier[suite.name], suite.states()
            found += [Change(suite.name, *key, old.get(key), new.get(key)) for key in sorted(old | new) if old.get(key) != new.get(key)]
    return sorted(found, key=lambda c: not c.is_regression)


def write(run: Run, place: Path) -> None:
    """Write a run as JSON, with states, counts and ids beside what was found. Raises KtirError where it cannot be written."""
    suites = [
        asdict(suite)
        | {"id": suite_id(run, suite), "counts": suite.counts()}
        | {"states": [[kind, name, state] for (kind, name), state in suite.states().items()]}
        | {"variants": [asdict(v) | {"id": name} for name, v in variant_ids(run, suite)]}
        for suite in run.suites
    ]
    try:
        place.write_text(json.dumps(asdict(run) | {"format": FORMAT, "suites": suites}, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise KtirError(f"cannot write '{place}': {error.strerror or error}") from None


def read(place: Path) -> Run:
    """A run that was written. Raises KtirError for what is none."""
    try:
        data = json.loads(place.read_text(encoding="utf-8"))
    except OSError as error:
        raise KtirError(f"cannot open '{place}': {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise KtirError(f"'{place}' is no run of ktir-models: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise KtirError(f"'{place}' is no run of ktir-models in format {FORMAT}")
    try:
        return Run(data["id"], data["commit"], data["date"], [_suite(each) for each in data["suites"]])
    except (KeyError, TypeError, ValueError) as error:
        raise KtirError(f"'{place}' is no run of ktir-models: {type(error).__name__}: {error}") from None


def _suite(data: dict[str, Any]) -> Suite:
    return Suite(data["name"], [*map(Variant.of, data["variants"])], data["seconds"], data["exit_code"], data["left"], data["ended"])
