"""Places in torch 2.13 that ask compiled code for what a device in Python cannot register; each is replaced by a function that asks us."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import _tensor_str
from torch._C._dynamo import eval_frame as frames
from torch.nn.parameter import is_lazy

from ktir.device.profiler import hooks
from ktir.device.tensors import current, randomness, statistics, streams
from ktir.device.tensors.storage import allocate, dtypes, on_host, resize


def untraced(*modules: ModuleType) -> None:
    """Keep Dynamo, which looks at every frame that runs inside of `torch.compile`, away from functions that torch itself calls."""
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    for module in modules:
        own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
        members = [m for value in own if isinstance(value, type) for m in vars(value).values()]
        for value in (*own, *members):
            if isinstance(function := getattr(value, "fget", value), FunctionType):
                frames.set_code_exec_strategy(function.__code__, skip)


def install() -> None:
    """Put the functions in their places."""
    new: Any = torch.UntypedStorage.__new__
    torch.UntypedStorage.__new__ = functools.partial(_new_storage, new)  # type: ignore[method-assign]
    _tensor_str._tensor_str = functools.partial(_content_as_text, _tensor_str._tensor_str)
    torch.UntypedStorage.resize_ = functools.partialmethod(_resized, torch.UntypedStorage.resize_)  # type: ignore[method-assign]
    torch.Generator = randomness.Generator  # type: ignore[misc]
    hooks.install()
    torch.nn.Module._apply = _moved(torch.nn.Module._apply)  # type: ignore[method-assign]
    compiled: Any = torch._C
    compiled._get_tensor_metadata = functools.partial(_metadata, compiled._get_tensor_metadata)
    compiled._set_tensor_metadata = functools.partial(_set_metadata, compiled._set_tensor_metadata)
    for name, function in _ACCELERATOR.items():
        setattr(torch._C, f"_accelerator_{name}", function)


_ACCELERATOR: dict[str, Callable[..., Any]] = {
    "getDeviceIndex": current.get,
    "setDeviceIndex": current.put,
    "exchangeDevice": current.put,
    "maybeExchangeDevice": current.put,
    "synchronizeDevice": streams.synchronize,
    "getStream": streams.current_stream,
    "setStream": streams.set_stream,
    "isAllocatorInitialized": lambda: True,
    "getDeviceStats": statistics.memory_stats_as_nested_dict,
    "emptyCache": statistics.empty_cache,
    "resetAccumulatedStats": statistics.reset_accumulated_memory_stats,
    "resetPeakStats": statistics.reset_peak_memory_stats,
    "getMemoryInfo": statistics.mem_get_info,
    "getDeviceCapability": lambda index: {"supported_dtypes": dtypes()},
}
"""What `torch.accelerator` asks."""


def _content_as_text(original: Any, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """The numbers of a tensor are looked at on the host, not by a dozen of programs on the device."""
    return original(on_host(self.detach()) if self.device.type == "spyre" else self, *args, **kwargs)


def _new_storage(original: Any, cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """`torch.UntypedStorage(n, device="spyre")`, which otherwise takes an allocator that is not there, and crashes."""
    if device is None or torch.device(device).type != "spyre":
        return original(cls, *args, **kwargs) if device is None else original(cls, *args, device=device, **kwargs)
    index = current.index_of(device)
    content = args[0] if args else 0
    if isinstance(content, int):
        return allocate(content, torch.uint8, index).untyped_storage()
    return torch.tensor(list(content), dtype=torch.uint8, device=f"spyre:{index}").untyped_storage()


def _resized(self: torch.UntypedStorage, original: Any, nbytes: int) -> torch.UntypedStorage:
    if self.device.type != "spyre":
        return original(self, nbytes)
    resize(self, nbytes)
    return self


def _moved(original: Any) -> Any:
    """Parameters stay the same objects when a module comes to the device, so that shared ones stay shared and optimizers go on: torch
    exchanges the memory of tensors of one kind only, others it replaces where its flag does not say otherwise.
    """

    @functools.wraps(original)
    def apply(self: torch.nn.Module, fn: Callable[..., Any], recurse: bool = True) -> Any:
        own = [p for p in self._parameters.values() if p is not None]
        for p in own:
            if is_lazy(p):
                _lazily(p, fn)
        if torch.__future__.get_swap_module_params_on_conversion() or not any(_arrives(p, fn) for p in own):
            return original(self, fn, recurse)
        if recurse:
            for module in self.children():
                module._apply(fn)
        if not any(map(weakref.getweakrefcount, own)) and _exchanged(lambda: original(self, fn, False), fn, own):
            return self
        text = f"a parameter of {type(self).__name__} is held by a graph or a weak reference"
        warnings.warn(f"{text}, so the device gets a new one: other holders keep the old", stacklevel=2)
        return original(self, fn, False)

    return apply


def _lazily(param: Any, fn: Callable[..., Any]) -> None:
    """Let a parameter that has no size yet be one of the device, where a conversion brings it there."""
    moved = fn(param)
    if moved.device.type == "spyre" != param.device.type:
        new = type(param)(param.requires_grad, device=moved.device, dtype=moved.dtype)
        with torch._C.DisableTorchFunctionSubclass():  # such parameters refuse to be looked at
            torch.utils.swap_tensors(param, new)


def _exchanged(move: Callable[[], Any], fn: Callable[..., Any], own: list[torch.nn.Parameter]) -> bool:
    """Let a module's parameters get the memory of the moved ones; whether all could."""
    grads = [p.grad for p in own]
    for p in own:
        p.grad = None  # one that is there is held by its parameter, and cannot be exchanged
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        move()
    except RuntimeError as error:
        if not str(error).startswith("_apply(): Couldn't swap"):
            raise
        return False
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
        for p, grad in zip(own, grads, strict=True):
            if grad is not None:
                with torch.no_grad():
                    p.grad = fn(grad) if grad.device != p.device else grad
    return True


def _arrives(param: torch.Tensor, fn: Callable[..., Any]) -> bool:
    """Whether a conversion brings a parameter to the device."""
    if type(param) is not torch.nn.Parameter or param.device.type == "spyre" or param.layout != torch.strided:
        return False
    with torch.no_grad():
        converted = fn(torch.empty(0, dtype=param.dtype, device=param.device))
    return isinstance(converted, torch.Tensor) and converted.device.type == "spyre"


_METADATA = "_spyre_metadata"


def _metadata(original: Any, tensor: torch.Tensor) -> dict[str, bool]:
    """What a tensor is saved with besides its content."""
    return {**original(tensor), **(getattr(tensor, _METADATA, {}) if tensor.device.type == "spyre" else {})}


def _set_metadata(original: Any, tensor: torch.Tensor, metadata: dict[str, bool]) -> None:
    bits = {name: value for name, value in metadata.items() if name in ("conj", "neg")}
    original(tensor, bits)
    if tensor.device.type == "spyre" and len(bits) < len(metadata):
        rest = {name: value for name, value in metadata.items() if name not in bits}
        setattr(tensor, _METADATA, rest)
