"""What Dynamo and Inductor ask of a device: told when they are imported, for that takes a second."""

from __future__ import annotations

import importlib.util
import sys
from collections import namedtuple
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ktir.device import spyre

_MODULE = "torch._dynamo.device_interface"
_Properties = namedtuple("_Properties", ["name", "multi_processor_count"])


def install() -> None:
    """Register the interface, now or with the import of the module that holds them all."""
    if (module := sys.modules.get(_MODULE)) is not None:
        _register(module)
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds the module as it would be found, with a loader that calls us once it is there."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                _register(module)

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def _register(module: Any) -> None:
    class Worker:
        current_device = staticmethod(spyre.current_device)
        set_device = staticmethod(spyre.set_device)
        get_device_properties = staticmethod(_properties)

    members = {
        "Worker": Worker,
        "device": spyre.device,
        "exchange_device": staticmethod(spyre._exchange_device),
        "maybe_exchange_device": staticmethod(lambda index: spyre._exchange_device(index) if index >= 0 else spyre.current_device()),
    }
    for name in ("current_device", "set_device", "device_count", "is_available", "synchronize", "is_bf16_supported"):
        members[name] = staticmethod(getattr(spyre, name))
    module.register_interface_for_device("spyre", type("SpyreInterface", (module.DeviceInterface,), members))


def _properties(device: Any = None) -> Any:
    from ktir import config

    return _Properties(spyre.get_device_name(device), config.current().machine().cores)
