"""What happens around a call of a compiled model: RNNs are traced, what Dynamo leaves in eager PyTorch is said, and a line sums it up.

Dynamo calls a backend with graphs only. Of calls, and of code that it does not trace, we learn through the context manager that it enters
around each call of what a backend has compiled (`backend_ctx_ctor`), and through its own method that reports a graph break.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch
from torch._dynamo import eval_frame, graph_bytecode_inputs, symbolic_convert
from torch._dynamo.backends import registry
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.variables import script_object
from torch._dynamo.variables import torch as torch_variables
from torch._guards import TracingContext
from torch.fx import _symbolic_trace
from torch.nn.modules import transformer
from torch.utils import _pytree as pytree

from ktir import config
from ktir.diagnostics import Diagnostic, KtirError, Unsupported
from ktir.lowering.inductor.running import progress
from ktir.lowering.inductor.running.origins import TORCH, any_on_device
from ktir.runtime import metrics, notices

log = logging.getLogger("ktir")

_DYNAMOS_LIMIT = 8
_OUT = "what follows is another graph; torch.compile(..., fullgraph=True) shows Dynamo's own account"


@dataclass
class Call:
    """A call of a compiled model: whether errors are asked for, and what was compiled and found in it.

    `named`: its graphs are all for us. Else the backend is torch's own, which hands over the graphs on the device alone, and what is
    left out of them is on the device, too.
    """

    name: str
    strict: bool
    named: bool
    graphs: int = 0
    breaks: list[str] = field(default_factory=list)


_call: ContextVar[Call | None] = ContextVar("ktir_call", default=None)


def compiled_one() -> None:
    """Note that a graph was compiled."""
    call = _call.get()
    if call is not None:
        call.graphs += 1


def forget_stream() -> None:
    """Let Dynamo call the graph that it compiles now without the current stream, which it would look up each time: no graph of ours asks
    for it.
    """
    kept = graph_bytecode_inputs.index_to_bytecode_constructor
    if len(kept) == 1:  # else the function has streams of its own
        kept.clear()


class AroundCall:
    """What Dynamo enters around each call of a model that one of our backends compiles, or the default one where a device is in use."""

    def __init__(self, name: str, options: dict[str, Any], named: bool = True) -> None:
        self._name = name
        self._strict = named and (options.get("fallback") or config.current().fallback) == "error"
        self._named = named
        self._entered: tuple[Call, Token[Call | None], metrics.Launches, Any] | None = None
        self._handled: BaseException | None = None

    def __enter__(self) -> None:
        if _call.get() is not None:
            return
        call = Call(self._name, self._strict, self._named)
        limits = _limits(self._strict) if self._named else None  # graphs of the host are torch's own matter
        self._entered = call, _call.set(call), metrics.total(), limits
        self._handled = sys.exc_info()[1]
        if limits is not None:
            limits.__enter__()

    def __exit__(self, *_: object) -> None:
        if self._entered is None:
            return
        call, token, before, limits = self._entered
        if limits is not None:
            limits.__exit__(None, None, None)
        _call.reset(token)
        if call.graphs or call.breaks:
            progress.clear()
            if sys.exc_info()[1] is self._handled:  # else the call has failed; Dynamo gives us no exception
                progress.summarize(call.name, call.graphs, metrics.total() - before, len(call.breaks))


def _limits(strict: bool) -> Any:
    """A patch of Dynamo's options: how often a function may be compiled before Dynamo leaves it to eager PyTorch, which is off the chip: by
    default seldom, for eager is fast on what its own code runs on. What somebody has set stays. `strict`: it does not leave it, but raises.
    """
    of_torch = torch._dynamo.config
    most = of_torch.accumulated_recompile_limit if of_torch.recompile_limit == _DYNAMOS_LIMIT else of_torch.recompile_limit
    return _patched(most, strict or of_torch.fail_on_recompile_limit_hit)


@functools.cache
def _patched(limit: int, fail: bool) -> Any:
    """Such a patch may be entered again and again, by several threads."""
    return torch._dynamo.config.patch(allow_rnn=True, recompile_limit=limit, fail_on_recompile_limit_hit=fail)


def _report_break(translator: Any, code: Any, reason: str, exc: Any) -> None:
    """Say that Dynamo leaves something in eager PyTorch, once per place; an error where the option `fallback` says so."""
    call = _call.get()
    if call is None or exc.logged or not (call.named or _is_on_device(translator)):
        return
    stack = getattr(exc, "real_stack", None) or TracingContext.extract_stack()
    own = [frame for frame in stack if not frame.filename.startswith(TORCH)] or stack
    file, line = (own[-1].filename, own[-1].lineno) if own else (code["co_filename"], code["co_firstlineno"])
    lines = [text.strip() for text in reason.splitlines() if text.strip()]
    what = next((t.removeprefix("Explanation:").strip() for t in lines if t.startswith("Explanation:")), lines[0] if lines else "")
    error = Unsupported(f"Dynamo leaves this in eager PyTorch: {what}", f"{file}:{line}:1")
    if call.strict:
        error.diagnostics.append(Diagnostic("note", 'without fallback="error" PyTorch runs it'))
        raise failed(error) from error
    call.breaks.append(what)
    notices.warn_once(f"{file}:{line}", what, error, _OUT, *([notices.NOT_HERE] if call.named else []))


def _is_on_device(translator: Any) -> bool:
    """Whether anything that a frame is called with, or that is in its graph so far, is on the device."""
    scope = pytree.tree_leaves(list(translator.output.local_scope.values()))
    of_modules = (p for m in scope if isinstance(m, torch.nn.Module) for p in m.parameters())
    return any_on_device([*scope, *of_modules, *(node.meta.get("example_value") for node in translator.output.graph.nodes)])


def failed(error: KtirError) -> BackendCompilerFailed:
    """An error while a graph is compiled, as Dynamo tells it: it hands this on as it is. The user's line and the text say all that is to be
    known, so frames of torch and of ours are shown with `TORCHDYNAMO_VERBOSE=1` alone.
    """

    def backend() -> None: ...

    call = _call.get()
    backend.__name__ = call.name if call else "ktir"
    found = BackendCompilerFailed(backend, error, None)
    if not torch._dynamo.config.verbose:
        found.remove_dynamo_frames = lambda: found.with_traceback(None)  # type: ignore[method-assign]
    return found


_installed: list[bool] = []
_lock = Lock()


def install(backends: dict[str, Any]) -> None:
    """Let Dynamo tell us of calls and graph breaks, for these backends alone; once."""
    with _lock:
        if _installed:
            return
        _installed.append(True)
    _patch(_symbolic_trace.Tracer, "trace", _noting)
    _patch(_symbolic_trace, "is_fx_symbolic_tracing", _in_this_thread)
    _patch(eval_frame, "get_compiler_fn", functools.partial(_with_context, backends))
    _patch(script_object.TorchScriptObjectVariable, "is_matching_cls", _but_generators)
    _patch(transformer, "_detect_is_causal_mask", _without_data)
    _patch(torch.backends.mha, "get_fastpath_enabled", _without_kernels)
    _patch(symbolic_convert.InstructionTranslatorBase, "log_graph_break", _with_report)
    registry._COMPILER_FNS = _Registered(registry._COMPILER_FNS, backends)


def _patch(owner: Any, name: str, wrapped: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(wrapped(original)))


def _but_generators(original: Callable[[type], bool]) -> Callable[[type], bool]:
    """What Dynamo takes for an object without content while it traces. It takes generators of the host for what they are, and so it does
    those of a device, which are of a class of their own.
    """
    return lambda user_cls: not issubclass(user_cls, torch._C.Generator) and original(user_cls)


_tracer: ContextVar[bool] = ContextVar("ktir_tracer", default=False)
"""Whether a tracer of torch.fx is at work here."""


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    def trace(*args: Any, **kwargs: Any) -> Any:
        token = _tracer.set(True)
        try:
            return original(*args, **kwargs)
        finally:
            _tracer.reset(token)

    return trace


def _in_this_thread(original: Callable[[], bool]) -> Callable[[], bool]:
    """Torch's flag is one for all threads, and what is compiled refuses to be called while it is set: an operator of the device, which is
    traced at its first call, is no matter of other threads.
    """

    def is_fx_symbolic_tracing() -> bool:
        return _tracer.get() and original()

    torch_variables.tracing_state_functions()[is_fx_symbolic_tracing] = False  # what Dynamo takes it for where it traces a call
    return is_fx_symbolic_tracing


def _with_context(backends: dict[str, Any], original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def get_compiler_fn(compiler_fn: Any) -> Any:
        found = original(compiler_fn)
        function = getattr(compiler_fn, "compiler_fn", compiler_fn)
        name = function if isinstance(function, str) else next((n for n, b in backends.items() if b is function), None)
        if found is not None and name in backends:
            options = dict(getattr(compiler_fn, "kwargs", {}).get("options", {}))
            found.backend_ctx_ctor = functools.partial(AroundCall, name, options)
        return found

    return get_compiler_fn


def _with_report(original: Callable[..., Any]) -> Callable[..., Any]:
    def log_graph_break(translator: Any, code_options: Any, reason: str, exc: Any) -> Any:
        _report_break(translator, code_options, reason, exc)
        return original(translator, code_options, reason, exc)

    return log_graph_break


def _without_data(original: Callable[..., bool]) -> Callable[..., bool]:
    """nn.Transformer looks into a mask to see whether it is causal, for kernels of its own; a graph uses the mask as it is."""

    def detect(mask: torch.Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
        return bool(is_causal) if torch.compiler.is_compiling() else original(mask, is_causal, size)

    return detect


def _without_kernels(original: Callable[[], bool]) -> Callable[[], bool]:
    """Layers of nn.Transformer are traced as they are, not as kernels that only PyTorch has."""

    def get_fastpath_enabled() -> bool:
        return False if torch.compiler.is_compiling() else original()

    return get_fastpath_enabled


class _Registered(dict[str, Any]):
    """Torch's table of backends, in which ours may be registered again: threads that ask for a name first at the same time all do so."""

    def __init__(self, found: dict[str, Any], ours: dict[str, Any]) -> None:
        super().__init__(found)
        self._ours = ours

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) and self[str(name)] is not self._ours.get(str(name))
