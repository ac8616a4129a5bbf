"""What has no KTIR form runs in PyTorch, through Inductor's own calls of ATen, with one warning per operator and reason.

A nest that cannot be translated is traced back to the nodes that it came from; they are marked, and the graph is lowered again. So a
program is never empty or partial.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import fx
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.fx._lazy_graph_module import _LazyGraphModule

from ktir import config
from ktir.diagnostics import KtirError, Unsupported
from ktir.lowering.inductor.running.origins import any_on_device, values_of
from ktir.lowering.inductor.running.places import OnlyHost, hosted
from ktir.lowering.region_to_ktir.region import Nest, NestRefused, Origin, Region
from ktir.runtime import metrics, notices

Refusals = dict[tuple[str, str], NestRefused]
"""By name and operator of a node: why it is no part of a KTIR program."""

Place = tuple[str, ...]

_VIEWS = """
    view reshape _unsafe_view permute t transpose unsqueeze squeeze expand slice select split split_with_sizes unbind alias detach
    as_strided diagonal unfold getitem
""".split()


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
        return {(o.node, o.target): error for error in self.errors for o in _guilty(error, known)}


class Apart(Exception):
    """Nests of a region that the chip's compiler refuses, while it may well take the others.

    `places` are keys of the nests (`place_of`); under `key` the region as a whole is stored for the KTIR executor.
    """

    def __init__(self, places: Sequence[Place], key: str) -> None:
        super().__init__(f"the chip's compiler refuses {len(places)} nests")
        self.places = frozenset(places)
        self.key = key


def place_of(nest: Nest) -> Place:
    """What names a nest in every lowering of its graph."""
    return (nest.kind, *(o.node for o in nest.origins))


def refused_by_chip(error: KtirError, region: Region) -> list[Place]:
    """Keys of the nests at which the chip's compiler stopped; none where that is unknown, or all of the region."""
    places = {place_of(n) for n in nests_at(error, region)}
    return sorted(places) if any(place_of(n) not in places for n in region.nests) else []


def nests_at(error: KtirError, region: Region) -> list[Nest]:
    """The nests at which the chip's compiler stopped, by the nodes or else the source line of the op that it names; none if unknown."""
    named = [n for n in region.nests if n.origins and n.origins[0].node in error.names[:1]]
    named = named or [n for n in region.nests if any(o.node in error.names for o in n.origins)]
    return named or [n for n in region.nests if error.location and n.source == error.location]


def _guilty(error: NestRefused, known: Refusals) -> list[Origin]:
    """The nodes of a nest that PyTorch has to compute: those of the op that is named, where it is one of PyTorch's, else all that compute.

    Views have no calls of their own unless nothing else is there.
    """
    calls = [o for o in error.origins if "." in o.target and (o.node, o.target) not in known]
    named = [o for o in calls if error.message.startswith(f"'{o.target.split('.')[1]}' op")]
    return named or [o for o in calls if o.target.split(".")[1] not in _VIEWS] or calls


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


def say_of_extern(name: str, error: Unsupported, reason: str) -> str:
    """The line of generated code that says, once per operator and reason, that PyTorch runs an operator; an error where the option
    `fallback` says so. The line is in every cache with the code, so a warm start says the same.
    """
    if config.current().fallback == "error":
        raise error
    return f"ktir.lowering.inductor.running.fallback.say({name!r}, {reason!r}, {error.message!r}, {error.location!r})"


def say(name: str, reason: str, message: str, location: str | None) -> None:
    """Called by generated code when it is loaded."""
    notices.warn_once(name, reason, Unsupported(message, location), "it runs in PyTorch", notices.NOT_HERE)


def in_torch(gm: fx.GraphModule, error: Exception, note: Callable[[fx.GraphModule, Exception], str] | None = None) -> Callable[..., Any]:
    """The graph as PyTorch runs it, all of its operators counted, with a warning once it has run: what fails in PyTorch too is no matter
    of ours.
    """
    reason = error.message if isinstance(error, KtirError) else str(error)
    called = [node for node in gm.graph.nodes if node.op.startswith("call_") and node.target is not operator.getitem]
    on_device = any_on_device(values_of(gm))  # where each counts itself, wherever it runs
    on_host = hosted(gm) if isinstance(error, OnlyHost) else None
    operators = 0 if on_device and not on_host else len(called)

    def run(*inputs: Any) -> Any:
        _LazyGraphModule.force_recompile(gm)  # else its first `forward` is a call of the module, which prints a traceback of its own
        result = on_host(*inputs) if on_host else gm.forward(*inputs)
        metrics.count(torch=operators)
        if notices.is_new("graph", reason):
            notices.warn(in_words(error, gm), *([note(gm, error)] if note else []), "the whole graph runs in PyTorch", notices.NOT_HERE)
        return result

    return run


def in_words(error: Exception, gm: fx.GraphModule) -> Exception:
    """An error of PyTorch without the trace in its text, at the user's line; one without words names the operators of the graph."""
    text, tracing, trace = str(error).partition("\n\nWhile executing")
    nothing = text.strip().endswith(":") or not text.strip()
    if isinstance(error, KtirError) or not (tracing or nothing):
        return error
    if isinstance(error, DataDependentOutputException):
        text = f"the value of a tensor decides about the graph ('{text}'), which is traced without values"
    if nothing:
        targets = [n.target for n in gm.graph.nodes if n.op == "call_function" and n.target is not operator.getitem]
        named = [t for t in targets if isinstance(t, HigherOrderOperator)] or targets
        names = dict.fromkeys(getattr(t, "__name__", str(t)) for t in named[:4])
        text = f"{text.strip()} no words, for a graph with {', '.join(names)}".strip()
    places = re.findall(r'File "(.+)", line (\d+)', trace)
    return KtirError(f"{type(error).__name__}: {text}", "{}:{}:1".format(*places[-1]) if places else None)
