"""What has no KTIR form runs on the CPU, through Inductor's own calls of ATen, with one warning per operator and reason.

A nest that cannot be translated is traced back to the nodes that it came from; they are marked, and the graph is lowered again. So a
program is never empty or partial.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence

from ktir import config
from ktir.diagnostics import KtirError, Unsupported
from ktir.lowering.inductor.region import NestRefused, Origin

log = logging.getLogger("ktir")

Refusals = dict[tuple[str, str], NestRefused]
"""By name and operator of a node: why it is no part of a KTIR program."""

_VIEWS = """
    view reshape _unsafe_view permute t transpose unsqueeze squeeze expand slice select split split_with_sizes unbind alias detach
    as_strided diagonal unfold getitem
""".split()

_NUMBERS = re.compile(r"\[[\d, ]*\]|\d+")
_warned: set[tuple[str, str]] = set()


class Refused(Exception):
    """Ends a lowering: the nests that were refused."""

    def __init__(self, errors: Sequence[NestRefused]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = list(errors)

    def to_run_elsewhere(self, known: Refusals) -> Refusals:
        """The nodes that must run elsewhere, beyond those known; none where no node stands for what was refused. Raises the error itself
        where nothing may.
        """
        if config.current().fallback == "error":
            raise self.errors[0] from None
        return {(o.node, o.target): error for error in self.errors for o in _guilty(error.origins) if (o.node, o.target) not in known}


def _guilty(origins: Sequence[Origin]) -> list[Origin]:
    """The nodes that compute: views have no calls of their own unless nothing else is there."""
    calls = [o for o in origins if "." in o.target]
    return [o for o in calls if o.target.split(".")[1] not in _VIEWS] or calls


def refusals_in(error: BaseException) -> Refused | None:
    """The refusals that an error of Inductor's wraps."""
    return next((e for e in chain(error) if isinstance(e, Refused)), None)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and everything that it wraps."""
    seen: set[int] = set()
    pending = [error]
    while pending:
        current = pending.pop(0)
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        pending += [getattr(current, "inner_exception", None), current.__cause__, current.__context__]


def warn_of_extern(name: str, error: Unsupported, reason: str) -> None:
    """Say once per operator and reason that an operator runs on the CPU; an error where the option `fallback` says so."""
    if config.current().fallback == "error":
        raise error
    warn_once(name, error, reason, "it runs on the CPU")


def warn_once(name: str, error: KtirError, reason: str, consequence: str) -> None:
    """One warning per name and reason, whatever the numbers in it."""
    key = (name, _NUMBERS.sub("", reason))
    if key not in _warned:
        _warned.add(key)
        log.warning("%s\n%s", error, consequence)
