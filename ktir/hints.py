"""What a user wants of the planning, with the names of the published `spyre_hint`.

with ktir.hint(work_div={"m": 4, "n": 8}):
    ...
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass

from ktir.diagnostics import KtirError, holding


class HintRefused(KtirError):
    """A wish that cannot be honoured; the message says why."""


@dataclass(frozen=True)
class Hint:
    """Wishes by loop name: `work_div` = parts over cores, `num_tiles_per_dim` = tiles in time. Order is nesting, outermost first."""

    work_div: tuple[tuple[str, int], ...] = ()
    num_tiles_per_dim: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        """Text that `parse` reads."""
        parts = (("work_div", self.work_div), ("num_tiles_per_dim", self.num_tiles_per_dim))
        return ", ".join(f"{name} = {{{', '.join(f'{k} = {v}' for k, v in pairs)}}}" for name, pairs in parts if pairs)


_KINDS = ("work_div", "num_tiles_per_dim")
_SPELLED = dict.fromkeys(("tiles", "slices"), "num_tiles_per_dim")
"""Old names of the published hints."""
_NAME = re.compile(r"[A-Za-z_]\w*\Z")


def make(**kinds: Mapping[str, int]) -> Hint:
    """A hint from mappings of loop names to counts. Raises KtirError for unknown kinds, bad names and counts below one."""
    for kind, wishes in kinds.items():
        if kind not in _KINDS:
            spelled = f"; it is spelled '{_SPELLED[kind]}'" if kind in _SPELLED else ""
            raise KtirError(f"unknown hint '{kind}'{spelled}; the hints are {', '.join(_KINDS)}")
        for name, count in wishes.items():
            if not _NAME.match(name):
                raise KtirError(f"hint '{kind}' names a loop '{name}', which is no identifier")
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise KtirError(f"hint '{kind}' wants {count!r} parts of '{name}', but expects a positive integer")
    return Hint(**{kind: tuple(wishes.items()) for kind, wishes in kinds.items()})


_PART = re.compile(r"\s*(\w+)\s*=\s*\{([^{}]*)\}\s*(,|\Z)")
_WISH = re.compile(r"\s*(\w+)\s*=\s*(-?\d+)\s*\Z")


def parse(text: str) -> Hint:
    """The hint that `work_div = {m = 4, n = 8}` spells. Raises KtirError."""
    kinds: dict[str, dict[str, int]] = {}
    at = 0
    while text[at:].strip():
        part = _PART.match(text, at)
        if part is None:
            raise KtirError("expected a hint such as 'work_div = {m = 4}'", f"hint:1:{at + 1}")
        kind, inside, _ = part.groups()
        if kind in kinds:
            raise KtirError(f"hint '{kind}' is given twice", f"hint:1:{at + 1}")
        kinds[kind] = {}
        for wish in inside.split(",") if inside.strip() else []:
            found = _WISH.match(wish)
            if found is None:
                raise KtirError(f"expected 'name = number', but got '{wish.strip()}'", f"hint:1:{part.start(2) + 1}")
            kinds[kind][found.group(1)] = int(found.group(2))
        at = part.end()
    return make(**kinds)


_current: ContextVar[Hint | None] = ContextVar("ktir_hint", default=None)


def current() -> Hint:
    """The hint of the innermost `hint` block; without one, no wishes."""
    return _current.get() or Hint()


def hint(**kinds: Mapping[str, int]) -> AbstractContextManager[Hint]:
    """Inside the block the planning follows these wishes, or refuses with a reason. An inner block's kinds replace the outer one's.

    It is for all kernels of the programs that are compiled inside the block; under torch.compile it stands around the first call.
    """
    made = make(**kinds)
    outer = current()
    return holding(_current, Hint(made.work_div or outer.work_div, made.num_tiles_per_dim or outer.num_tiles_per_dim))


# Dynamo's own marks of a function that it must not trace: a hint inside of what is compiled would be gone before anything is planned.
vars(hint).update(
    _torchdynamo_disable=True,
    _torchdynamo_disable_msg="a ktir.hint is for whole programs: it stands around the call, not inside of the function that is compiled",
)
