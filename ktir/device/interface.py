"""What Dynamo and Inductor ask of a device: told when they are imported, for that takes a second. Inductor by itself is told that it has no
code for the device.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ktir.device import spyre

_NOT_BY_INDUCTOR = (
    "Inductor alone has no code for the device 'spyre', so it exports no packages and standalone artifacts of graphs on it; "
    "torch.compile has, and torch.compiler.save_cache_artifacts keeps what it compiled"
)


def install() -> None:
    """Register with the modules that ask, now or when they are imported."""
    for name, told in (("torch._dynamo.device_interface", _register), ("torch._inductor.codegen.common", _refuse)):
        if (module := sys.modules.get(name)) is not None:
            told(module)
        else:
            sys.meta_path.insert(0, _Finder(name, told))


class _Finder(MetaPathFinder):
    """Finds a module as it would be found, with a loader that calls us once it is there."""

    def __init__(self, name: str, told: Callable[[Any], None]) -> None:
        self._name, self._told = name, told

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_tell(module: ModuleType) -> None:
                execute(module)
                self._told(module)

            spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec


def _refuse(module: Any) -> None:
    """Where Inductor asks what it has for a device; for our graphs it asks for the host."""
    for name in ("get_backend_features", "get_device_op_overrides"):
        setattr(module, name, _refused(getattr(module, name)))


def _refused(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def asked(device: Any) -> Any:
        if (device if isinstance(device, str) else getattr(device, "type", None)) == "spyre":
            from ktir.diagnostics import KtirError

            raise KtirError(_NOT_BY_INDUCTOR)
        return stock(device)

    return asked


def _register(module: Any) -> None:
    class Worker:
        current_device = staticmethod(spyre.current_device)
        set_device = staticmethod(spyre.set_device)
        get_device_properties = staticmethod(spyre.get_device_properties)

    members = {
        "Worker": Worker,
        "device": spyre.device,
        "exchange_device": staticmethod(spyre._exchange_device),
        "maybe_exchange_device": staticmethod(lambda index: spyre._exchange_device(index) if index >= 0 else spyre.current_device()),
    }
    for name in ("current_device", "set_device", "device_count", "is_available", "synchronize", "is_bf16_supported"):
        members[name] = staticmethod(getattr(spyre, name))
    module.register_interface_for_device("spyre", type("SpyreInterface", (module.DeviceInterface,), members))
