"""Places in torch 2.13 that ask compiled code for what a device in Python cannot register; each is replaced by a function that asks us."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import _tensor_str
from torch._C._dynamo import eval_frame as frames

from ktir.device.tensors import current, statistics, streams
from ktir.device.tensors.storage import allocate


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
    for name, function in _ACCELERATOR.items():
        setattr(torch._C, f"_accelerator_{name}", function)


_ACCELERATOR: dict[str, Callable[..., Any]] = {
    "getDeviceIndex": current.get,
    "setDeviceIndex": current.put,
    "exchangeDevice": lambda index: current.put(index) if index >= 0 else current.get(),
    "maybeExchangeDevice": lambda index: current.put(index) if index >= 0 else current.get(),
    "synchronizeDevice": streams.synchronize,
    "getStream": streams.current_stream,
    "setStream": streams.set_stream,
    "isAllocatorInitialized": lambda: True,
    "getDeviceStats": statistics.memory_stats_as_nested_dict,
    "emptyCache": statistics.empty_cache,
    "resetAccumulatedStats": statistics.reset_accumulated_memory_stats,
    "resetPeakStats": statistics.reset_peak_memory_stats,
    "getMemoryInfo": statistics.mem_get_info,
}
"""What `torch.accelerator` asks."""


def _content_as_text(original: Any, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """The numbers of a tensor are looked at on the host, not by a dozen of programs on the device."""
    return original(self.detach().cpu() if self.device.type == "spyre" else self, *args, **kwargs)


def _new_storage(original: Any, cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """`torch.UntypedStorage(n, device="spyre")`, which otherwise takes an allocator that is not there, and crashes."""
    if device is None or torch.device(device).type != "spyre":
        return original(cls, *args, **kwargs) if device is None else original(cls, *args, device=device, **kwargs)
    index = current.index_of(device)
    content = args[0] if args else 0
    if isinstance(content, int):
        return allocate(content, torch.uint8, index).untyped_storage()
    return torch.tensor(list(content), dtype=torch.uint8, device=f"spyre:{index}").untyped_storage()
