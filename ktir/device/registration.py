"""Registration of the device with torch: name, module, guard, kernels. What is heavy is imported by what needs it first."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import sys
import weakref
from typing import Any

import torch
from torch.utils import backend_registration

log = logging.getLogger("ktir")


def _keep(*libraries: torch.library.Library) -> None:
    """Keep kernels to the very end: where torch takes them back before, tensors that are still used get its table of all its kernels."""
    for library in libraries:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
    for end in weakref.finalize._registry:  # type: ignore[attr-defined]
        if (found := end.peek()) is not None and found[0] in libraries:
            end.atexit = False


_compiled: Any = torch._C


class _Guard(_compiled._acc.DeviceGuard):
    """As torch's own, but for what it asks when the interpreter ends: nothing."""

    def type_(self, kind: Any = _compiled._autograd.DeviceType.PrivateUse1) -> Any:
        return kind


def register() -> None:
    """Make `torch.device("spyre")`, `torch.spyre` and tensors on the device known to torch; once per process."""
    from ktir.device import compile, environment, guard, interface, patches, spyre
    from ktir.device.operators import attention, cells, modules
    from ktir.device.operators import kernels as own
    from ktir.device.tensors import current, halves, layouts, pinned, randomness, statistics, storage, streams

    current.count()  # what the environment cannot say is refused before anything is registered
    backend_registration._setup_privateuseone_for_python_backend("spyre", backend_module=spyre, device_guard=_Guard())
    backend_registration.generate_methods_for_privateuse1_backend(False, False, False, True)  # of storages, which the line above leaves out
    kernels = torch.library.Library("aten", "IMPL", "PrivateUse1")
    for name, kernel in {**own.KERNELS, **attention.FUSED, **cells.CELLS, **modules.KERNELS}.items():
        kernels.impl(name, kernel)
    kernels.impl("scaled_dot_product_attention", attention.attention)
    with_gradients = torch.library.Library("aten", "IMPL", "AutogradPrivateUse1")
    with_gradients.impl("scaled_dot_product_attention", attention.attention)
    negated = torch.library.Library("aten", "IMPL", "Negative")
    for copy in ("_copy_from", "_copy_from_and_resize"):  # what resolves a sign that is noted apart copies by these
        negated.impl(copy, torch.library.fallthrough_kernel)
    rest = torch.library.Library("_", "IMPL")
    rest.fallback(_otherwise, "PrivateUse1")
    host = torch.library.Library("aten", "IMPL", "CPU")
    for name, kernel in own.PINNED.items():  # DataLoader pins what it loads wherever there is an accelerator
        host.impl(name, kernel)
    sparse = torch.library.Library("aten", "IMPL", "SparsePrivateUse1")
    for name in ("_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors"):
        sparse.impl(name, _no_sparse)
    nested, no_nested = torch.library.Library("aten", "IMPL", "NestedTensorPrivateUse1"), torch.library.Library("_", "IMPL")
    for name, kernel in own.NESTED.items():
        nested.impl(name, kernel)
    for name in ("linear", "matmul"):  # which PyTorch would take apart by their sizes
        nested.impl(name, functools.partial(_no_nested, f"aten.{name}"))
    no_nested.fallback(_no_nested, "NestedTensorPrivateUse1")
    quantized = torch.library.Library("_", "IMPL")
    quantized.fallback(_no_quantized, "QuantizedPrivateUse1")
    _keep(host, kernels, with_gradients, negated, sparse, nested, no_nested, quantized, rest)
    for sentence in environment.without_effect(os.environ):
        log.warning("warning: %s", sentence)
    if reason := guard.install():
        log.warning("warning: gradients on 'spyre:1' and above, and exceptions of hooks of gradients, will fail: %s", reason)
    if reason := pinned.install():
        log.warning("warning: pin_memory=True will fail: %s", reason)
    storage.before_first.append(register_operators)
    patches.install()
    streams.install()
    halves.install()
    layouts.install()
    _keep(layouts.operators())
    patches.untraced(sys.modules[__name__], own, patches, spyre, current, layouts, randomness, statistics, storage, streams, pinned)
    compile.install()
    interface.install()


def _no_sparse(*_: Any, **__: Any) -> None:
    """For sparse tensors, as gradients of `Embedding(sparse=True)` are."""
    raise NotImplementedError("the device 'spyre' holds no sparse tensors; sparse=False gives gradients that are dense")


def _no_nested(op: Any, *_: Any, **__: Any) -> None:
    raise NotImplementedError(
        f"{op}: the device 'spyre' computes nothing of nested tensors with strided layout; of layout=torch.jagged it does"
    )


def _no_quantized(*_: Any, **__: Any) -> None:
    raise TypeError("the device 'spyre' holds no quantized tensors; dequantize() gives numbers that it holds")


_FIRST = "new_ empty_ lift copy set resize sparse_ _nested_ _test_ _pin_memory _lazy_clone _fw_ _make_dual"
_LAST = "_like clone indices_copy values_copy _sparse fill zero"
"""How the names of operators begin and end that are left as PyTorch takes them apart: they fill, or are for other kinds of tensors."""


def register_operators() -> None:
    """Take what PyTorch would take apart into smaller steps as one program each; done when there are tensors on the device."""
    from ktir.device import patches
    from ktir.device.operators import autocast, eager
    from ktir.runtime.memory import allocation

    patches.untraced(autocast, allocation)
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    apart = ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd")
    library = torch.library.Library("aten", "IMPL", "PrivateUse1")
    _keep(library, *autocast.register())
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::") or not any(has(name, key) for key in apart) or has(name, "PrivateUse1"):
            continue
        base, _, overload = name.removeprefix("aten::").partition(".")
        if base.startswith(tuple(_FIRST.split())) or base.endswith(tuple(_LAST.split())):
            continue
        op = getattr(getattr(torch.ops.aten, base), overload or "default", None)
        if op is not None and eager.has_program(op) and torch.Tag.nondeterministic_seeded not in op.tags:
            library.impl(op, functools.partial(_otherwise, op))


_kernels: tuple[Any, Any, Any, Any] | None = None
"""What does calls that are known, the errors in which these end, what does such ones, and what does all others; once they are imported."""


def _otherwise(op: Any, *args: Any, **kwargs: Any) -> Any:
    global _kernels
    if _kernels is None or sys.is_finalizing():
        try:
            from ktir.device.operators.fallback import fallback, refused
            from ktir.device.operators.known import again
            from ktir.diagnostics import KtirError
        except ImportError:  # by finalizers, when modules are gone
            raise RuntimeError(f"{op}: Python is ending, and the device 'spyre' with it; let go of what uses it before that") from None
        _kernels = again, KtirError, refused, fallback
    again, errors, of_errors, rest = _kernels
    try:
        found = again(op, args, kwargs)
    except errors as error:
        return of_errors(op, args, kwargs, error)
    return rest(op, *args, **kwargs) if found is None else found
