"""Where torch 2.13's profiler is told of the device: methods of its class that are wrapped, if they take what they are known to take."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from torch._C._profiler import ProfilerState
from torch.autograd import profiler

_KNOWN = {
    "_start_trace": ["self"],
    "__exit__": ["self", "exc_type", "exc_val", "exc_tb"],
    "_parse_kineto_results": ["self", "result", "timeout_s"],
    "export_chrome_trace": ["self", "path", "metadata", "use_python_export"],
}
"""Methods of `torch.autograd.profiler.profile` -> what they take."""
_SESSION = "_spyre"


def install() -> None:
    """Wrap the methods, all of them or none."""
    kind: Any = profiler.profile
    kind.__init__ = _made(kind.__init__)
    if (reason := _unknown(kind)) is not None:
        logging.getLogger("ktir").warning("warning: profiles have no rows of the device 'spyre': %s", reason)
        return
    for name, wrapper in (
        ("_start_trace", _started),
        ("__exit__", _ended),
        ("_parse_kineto_results", _parsed),
        ("export_chrome_trace", _exported),
    ):
        setattr(kind, name, wrapper(getattr(kind, name)))


def _unknown(kind: type) -> str | None:
    """Why a class is not torch 2.13's profiler; None where it is."""
    for name, expected in _KNOWN.items():
        method = getattr(kind, name, None)
        if method is None:
            return f"torch's profiler has no '{name}'"
        if (found := list(inspect.signature(method).parameters)) != expected:
            return f"'{name}' of torch's profiler takes {', '.join(found)}"
    return None


def _made(original: Callable[..., None]) -> Callable[..., None]:
    """Without compiled hooks of a device, torch would complain at each operator of a profile of it: it profiles the host."""

    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if getattr(self, "use_device", None) == "spyre":
            self.profiler_kind = ProfilerState.KINETO

    return init


def _started(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def start(self: Any) -> None:
        if self.use_device != "spyre":
            original(self)
            return
        from ktir.device.profiler.session import Session  # before torch records: it may miss the names of modules imported after that

        session = Session(memory=self.profile_memory)
        setattr(self, _SESSION, session)
        original(self)
        session.begin()

    return start


def _ended(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def end(self: Any, *error: Any) -> Any:
        if (session := getattr(self, _SESSION, None)) is not None:
            session.end()
        return original(self, *error)

    return end


def _parsed(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def parse(self: Any, result: Any, timeout_s: float | None = None) -> Any:
        events = original(self, result, timeout_s)
        if (session := getattr(self, _SESSION, None)) is None:
            return events
        from ktir.device.profiler.events import add_device

        return add_device(events, session, result.trace_start_ns(), flops=self.with_flops)

    return parse


def _exported(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def export(self: Any, path: str, *args: Any, **kwargs: Any) -> None:
        original(self, path, *args, **kwargs)
        if (session := getattr(self, _SESSION, None)) is not None:
            from ktir.device.profiler.chrome import add_device

            add_device(path, session)

    return export
