"""What Dynamo and Inductor have to know of a device besides the host."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._dynamo.device_interface import CpuInterface, register_interface_for_device
from torch._inductor.codegen.common import DeviceOpOverrides, register_backend_for_device, register_device_op_overrides
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.scheduler import BaseScheduling

HOST = torch.device("cpu")


def device_of(gm: fx.GraphModule, inputs: Any) -> torch.device:
    """The device that a graph is on: another one than the host where anything in it is there."""
    values = (*inputs, *(node.meta.get("example_value") for node in gm.graph.nodes))
    return next((v.device for v in values if isinstance(v, torch.Tensor) and v.device != HOST), HOST)


def placed(compiled: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """The same, with its results on a device of several: generated code names the type alone."""
    if device == HOST or getattr(torch, device.type).device_count() == 1:
        return compiled

    @functools.wraps(compiled)
    def call(*inputs: Any) -> Any:
        with getattr(torch, device.type).device(device):
            return compiled(*inputs)

    return call


@functools.cache
def know(device: str) -> None:
    """Tell Dynamo and Inductor about a device, once."""
    if device == "cpu":
        return
    module = getattr(torch, device)

    class Overrides(DeviceOpOverrides):
        def import_get_raw_stream_as(self, name: str) -> str:
            return f"def {name}(index): return 0\n"

        def set_device(self, device_idx: int) -> str:
            return f"torch.{device}.set_device({device_idx})"

        def synchronize(self) -> str:
            return f"torch.{device}.synchronize()"

        def device_guard(self, device_idx: int) -> str:
            return f"torch.{device}.device({device_idx})"

    class Interface(CpuInterface):
        device = module.device  # type: ignore[assignment]
        device_count = staticmethod(module.device_count)
        current_device = staticmethod(module.current_device)
        set_device = staticmethod(module.set_device)
        exchange_device = staticmethod(module._exchange_device)
        maybe_exchange_device = staticmethod(module._exchange_device)
        get_raw_stream = staticmethod(lambda device_idx: 0)
        is_triton_capable = staticmethod(lambda device=None: False)

        class Worker(CpuInterface.Worker):
            set_device = staticmethod(module.set_device)
            current_device = staticmethod(module.current_device)

    class Unasked(BaseScheduling):
        def __init__(self, scheduler: Any) -> None:
            raise RuntimeError(f"graphs on the device '{device}' are compiled by torch.compile without a backend name, or by ktir")

    register_device_op_overrides(device, Overrides())
    register_interface_for_device(device, Interface)
    register_backend_for_device(device, Unasked, PythonWrapperCodegen)
