"""How input is judged beyond what makes it invalid: old spellings, and programs that are legal but hardly meant.

By default the first are accepted in silence and the second reported as warnings; `parse_module` has the switches.
"""

from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ktir.diagnostics import Diagnostic, holding, location_text
from ktir.mlir import ir


@dataclass
class Judgement:
    """What verifiers that run inside of `judging` report. With `strict`, suspicions are errors instead.

    `facts` is theirs: what they found out about attributes, which live as long as the context.
    """

    strict: bool = False
    warnings: list[Diagnostic] = field(default_factory=list)
    facts: dict[ir.Attribute, Any] = field(default_factory=dict)

    def suspect(self, op: str, location: ir.Location, message: str) -> bool:
        """Reports something suspicious about an op; whether the op may pass."""
        text = f"'{op}' op {message}"
        if self.strict:
            location.emit_error(text)
            return False
        self.warnings.append(Diagnostic("warning", text, location_text(location)))
        return True


_current: ContextVar[Judgement | None] = ContextVar("judgement", default=None)


def current() -> Judgement | None:
    """The judgement that verifiers report to; None outside of `judging`, as when passes verify their results."""
    return _current.get()


def judging(strict: bool) -> AbstractContextManager[Judgement]:
    """Collects what verifiers find suspicious inside the block."""
    return holding(_current, Judgement(strict))
