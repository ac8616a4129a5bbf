"""The backend functions of `torch.compile`: `spyre` and `ktir`, two names of the same thing.

They are registered by the entry points of the distribution and by `import ktir.lowering.inductor`. Where a distribution `torch_spyre`
is installed, the name "spyre" is left to it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import fx
from torch._dynamo.exc import BackendCompilerFailed, TorchDynamoException

from ktir import config
from ktir.diagnostics import Diagnostic, KtirError
from ktir.lowering.inductor import lying, nested, required
from ktir.lowering.inductor.graph.shapes import DynamicShape, PerShape, dynamic_integers, dynamic_sizes
from ktir.lowering.inductor.running import calls, tracing
from ktir.lowering.inductor.running.direct import Direct
from ktir.lowering.inductor.running.fallback import chain, in_torch
from ktir.lowering.inductor.running.faults import Fault
from ktir.lowering.inductor.running.guarded import Guarded, written
from ktir.lowering.inductor.running.origins import refusal, source, type_text
from ktir.lowering.inductor.running.places import check_places
from ktir.lowering.inductor.running.products import check_products
from ktir.lowering.inductor.running.writes import EagerRefuses, OnlyEager, as_in_eager, check_views, check_writes
from ktir.runtime import cache, failures
from ktir.runtime.memory import forms
from ktir.version import torch_spyre_is_installed

log = logging.getLogger(__name__)

RegionCompiler = Callable[[Any], str]

NO_GRADIENTS = "the call under torch.no_grad() or torch.inference_mode()"
DEVICES = ("cpu", "spyre")
STATIC = "torch.compile(..., dynamic=False), which compiles once per shape"


def ktir(gm: fx.GraphModule, inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None) -> Any:
    """Compile a Dynamo graph for the emulated Spyre. `options` are fields of `ktir.config.Config`."""
    if mode not in (None, "default"):
        names = ", ".join(field.name for field in dataclasses.fields(config.Config))
        wrong = KtirError(f"mode {mode!r} is one of TorchInductor's own code; leave it out, or give options={{...}} instead: {names}")
        raise tracing.failed(wrong) from wrong
    try:
        wanted = required.take_marks(gm)
        compiled = _compiled(options, gm, inputs)
    except KtirError as error:
        raise tracing.failed(error) from error
    tracing.forget_stream()
    return required.placed(compiled, wanted) if wanted else compiled


def _compiled(options: Mapping[str, Any] | None, gm: fx.GraphModule, inputs: Sequence[Any], *, again: bool = False) -> Any:
    """`again`: the sizes of the graph have been made numbers; a symbol that is left depends on data."""
    with _reported(), _patched(options):
        forms.shared.set_limit(config.current().forms_bytes)
        cache.set_limit(config.current().loaded_programs)
        _check_kinds(gm)

        @functools.wraps(ktir)  # the name that Dynamo shows in errors
        def with_numbers(gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
            return _compiled(options, gm, inputs, again=True)

        for_each = functools.partial(PerShape, gm, with_numbers)
        if not again and (sizes := dynamic_sizes(gm)):
            return for_each(f"dynamic shapes: {', '.join(sizes)}", rungs=config.current().buckets)
        asked = config.current()
        cached = not (asked.dump_dir or asked.explore or asked.spyre_instrument_ops)  # who asks for the stages must get them
        strict = config.current().fallback == "error"
        try:
            tracing.compiled_one()
            return Guarded(compile_graph(gm, inputs, cached=cached), gm, strict=strict)
        except EagerRefuses as error:
            return as_in_eager(in_torch(gm, error), error)
        except (DynamicShape, OnlyEager) as error:
            if isinstance(error, DynamicShape) and not again and (integers := dynamic_integers(gm)):
                return for_each(f"dynamic shapes: {', '.join(integers)}", specialize=True)
            if strict:
                raise
            return in_torch(gm, error)
        except Exception as error:
            if isinstance(error, TorchDynamoException) and not isinstance(error, BackendCompilerFailed):
                raise  # how torch asks for another trace
            if strict or (isinstance(error, KtirError) and not isinstance(error, Fault)):
                raise
            return in_torch(gm, error, None if isinstance(error, Fault) else written)


def spyre(gm: fx.GraphModule, inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None) -> Any:
    """The same as `ktir`, under the name of the device."""
    if torch_spyre_is_installed():
        raise KtirError("the backend name 'spyre' is left to the installed torch_spyre; use backend='ktir'")
    return ktir(gm, inputs, mode=mode, options=options)


def compile_graph(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    compile_region: RegionCompiler | None = None,
    *,
    device: torch.device | None = None,
    cached: bool = True,
) -> Any:
    """Compile, with errors that reach the user as they are: Unsupported and KtirError, not Inductor's wrapping of them.

    Torch's caches are neither read nor written where not `cached`. `device`: where the graph will run, if not where the inputs are.
    """
    from ktir.lowering.inductor import adapter, devices, explored, instrumented, wrapper

    with _own_errors():
        nested.flatten(gm)
        check_call(gm)
        check_places(gm)
        check_products(gm)
        check_writes(gm)
        check_views(gm, [k for k, *_ in _shared_memory(inputs)])
        device = device or devices.device_of(gm, inputs)
        beside = beside_operators(gm, inputs)

        with instrumented.kept(compile_region or wrapper.compile_region) as kept, explored.shown(kept, _title(gm)) as compile_one:

            def compile_with(cached: bool) -> Any:
                return adapter.compile_graph(gm, inputs, compile_one, device=device.type, nonce=beside, cached=cached)

            compiled = _with_packages(compile_with) if cached else compile_with(cached)
        return compiled if device == devices.HOST else Direct(devices.placed(compiled, gm, device))


def _title(gm: fx.GraphModule) -> str:
    """What a page about a graph is called: the first line of the source that it has something from."""
    places = (source(node) for node in gm.graph.nodes)
    return next((str(place) for place in places if place), "a graph")


def beside_operators(gm: fx.GraphModule, inputs: Sequence[Any]) -> str:
    """A hash of what torch's cache keys leave out: source lines, so that no program names those of another script that computes the same;
    the values of Python floats, since what is compiled may hold them as constants, which only Dynamo's guards know; where inputs
    lie that share their memory, for one of them may be written; how those lie on the card that have been given a layout; and the kernels
    of operators.
    """
    nodes = [node for module in gm.modules() if isinstance(module, fx.GraphModule) for node in module.graph.nodes]
    floats = [v.node.hint for n in nodes if isinstance(v := n.meta.get("example_value"), torch.SymFloat)]
    beside = [source(node) for node in nodes], floats, _shared_memory(inputs), [lying.step_of(t) for t in inputs], _kernels(gm)
    return hashlib.sha256(repr(beside).encode()).hexdigest()


def _kernels(gm: fx.GraphModule) -> list[str]:
    modules = [module for module in gm.modules() if isinstance(module, fx.GraphModule)]
    beside = [f"{op}: {found.identity()}" for op, found in calls.implementations.items()]
    return beside + [calls.program_of(node, operator).text for m in modules for node, operator in calls.called_in(m)]


def _shared_memory(inputs: Sequence[Any]) -> list[tuple[int, int, int]]:
    """Number, first holder and offset of each input that shares its memory with an earlier one, or a later one with it."""
    plain = [(k, t) for k, t in enumerate(inputs) if isinstance(t, torch.Tensor) and t.layout == torch.strided]
    holders: dict[int, list[int]] = {}
    for k, tensor in plain:
        holders.setdefault(tensor.untyped_storage()._cdata, []).append(k)
    return [(k, group[0], int(inputs[k].storage_offset())) for group in holders.values() if len(group) > 1 for k in group]


def standalone_compile(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    dynamic_shapes: Any = "from_example_inputs",
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Compile an ATen graph, as `make_fx(f)(*inputs)` gives it, to an artifact that can be called and saved with `save(path=, format=)`.

    As torch._inductor.standalone_compile, whose `CompiledArtifact.load` reads what was saved; a process that loads must have imported
    `ktir.lowering.inductor` before. The packages travel inside. Options are fields of `ktir.config.Config`.
    """
    from ktir.lowering.inductor import adapter, wrapper

    def compile_with(cached: bool) -> Any:
        nonce = "" if cached else uuid.uuid4().hex  # what is saved are entries of torch's caches: a new one
        return adapter.standalone_compile(gm, example_inputs, wrapper.compile_region, dynamic_shapes, nonce)

    with _own_errors(), _patched(options):
        return _with_packages(compile_with)


def _with_packages(compile_with: Callable[[bool], Any]) -> Any:
    """What `compile_with` gives with torch's caches, or without them where they name packages that are gone."""
    from ktir.lowering.inductor import artifacts

    artifacts.take_missing()
    compiled = compile_with(True)
    if not (missing := artifacts.take_missing()):
        return compiled
    log.warning("torch's cache knows package %s, but it is gone from ktir's; compiling again", missing[0][:12])
    return compile_with(False)


@contextmanager
def _reported() -> Iterator[None]:
    """A report of what fails or is refused; how torch asks for another trace is neither."""
    try:
        yield
    except Exception as error:
        if isinstance(error, BackendCompilerFailed) or not isinstance(error, TorchDynamoException):
            failures.capture(error, "compile")
        raise


@contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        own = next((e for e in chain(error) if isinstance(e, KtirError)), None)
        if own is None:
            raise
        raise own from None


@contextmanager
def _patched(options: Mapping[str, Any] | None) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(config.patch(**(options or {})))
        except ValueError as error:
            raise KtirError(str(error)) from None
        yield


def check_call(gm: fx.GraphModule) -> None:
    """Refuse, before anything is compiled, calls that need gradients, dynamic shapes, tensors on other devices, and events of streams.

    Dynamo guards the mode of the call. Without gradients, views of parameters and what is written to them may still say that they want one.
    """
    gradients = torch.is_grad_enabled() or any(n.target is torch._C._set_grad_enabled and n.args[0] for n in gm.graph.nodes)
    for node in gm.graph.nodes:
        value = node.meta.get("example_value")
        if node.op == "placeholder":
            if isinstance(value, torch.Tensor):
                _check_input(node, value)
        elif str(node.target).startswith("streams."):
            reason = "a graph is for the stream in which it is called"
            raise OnlyEager(
                refusal(f"'{node.target}' op", reason, "events and streams outside of the compiled function").message, source(node)
            )
        elif node.op == "output" and gradients:
            for result in node.all_input_nodes:
                _check_result(result, gm)


def _check_kinds(gm: fx.GraphModule) -> None:
    for node in gm.graph.nodes:
        value = node.meta.get("example_value")
        if node.op == "placeholder" and isinstance(value, torch.Tensor) and value.is_nested:
            described = f"input '{node.name}' of dtype {str(value.dtype).removeprefix('torch.')}"
            raise refusal(described, "it is a nested tensor", "a padded tensor with a mask", source(node))


def _check_input(node: fx.Node, value: torch.Tensor) -> None:
    described = f"input '{node.name}' of {type_text(value.shape, value.dtype)}"
    if any(not isinstance(n, int) for n in value.shape):
        raise refusal(described, "the shape is dynamic", STATIC, source(node))
    if value.device.type not in DEVICES:
        nearest = "tensors on the host or on the device 'spyre': .cpu(), .to('spyre')"
        raise refusal(described, f"it is on device '{value.device}'", nearest, source(node))


def _check_result(node: fx.Node, gm: fx.GraphModule) -> None:
    value = node.meta.get("example_value")
    for tensor in value if isinstance(value, (tuple, list)) else [value]:
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            what = f"a call that needs gradients (result '{node.name}' of {type_text(tensor.shape, tensor.dtype)} requires grad)"
            nearest = NO_GRADIENTS if torch.is_grad_enabled() else "the call without torch.enable_grad() in it"
            error = refusal(what, "there is no backward pass", nearest, source(node))
            for name in dict.fromkeys(operator.name for _, operator in calls.called_in(gm)):
                text = f"in eager '{name}' has gradients once torch.library.register_autograd has given it a formula"
                error.diagnostics.append(Diagnostic("note", text))
            raise error


@functools.cache
def register() -> None:
    """Register both names with Dynamo, once; names that an entry point will register are left to it."""
    from torch._dynamo.backends import registry

    tracing.install({"ktir": ktir, "spyre": spyre})
    for name, function in (("ktir", ktir), ("spyre", spyre)):
        if name == "spyre" and torch_spyre_is_installed():
            log.warning("torch_spyre is installed: ktir does not register the backend 'spyre'; use backend='ktir'")
        elif name not in registry._BACKENDS:
            registry.register_backend(function, name=name)
