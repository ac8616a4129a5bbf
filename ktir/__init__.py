"""KTIR: a compiler toolchain for tile programs on the Spyre accelerator.

Importing this package loads nothing else; what is named in it is loaded when it is asked for, submodules too. `ktir.execute` runs KTIR on
NumPy arrays; `ktir.capture` gives the KTIR of a PyTorch model, `ktir.nested` marks its repeated layers (both need PyTorch). Take what else
you need from the submodules: `ktir.config` has the options, `ktir.assembly` reads and prints KTIR text, `ktir.pipeline` runs passes over
it, `ktir.context` makes the MLIR context in which both work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ktir import config
    from ktir.emulator.policy import Policy
    from ktir.emulator.reference.run import Execution
    from ktir.emulator.reference.run import run as execute
    from ktir.hints import hint
    from ktir.lowering.inductor.backend import standalone_compile
    from ktir.lowering.inductor.capture import capture
    from ktir.lowering.inductor.nested import nested
    from ktir.spyre_tensor_layout import DataFormats, SpyreTensorLayout
    from ktir.version import __version__

__all__ = [
    "DataFormats",
    "Execution",
    "Policy",
    "SpyreTensorLayout",
    "__version__",
    "capture",
    "config",
    "execute",
    "hint",
    "nested",
    "standalone_compile",
]

_LAZY = {
    "__version__": ("ktir.version", "__version__"),
    "execute": ("ktir.emulator.reference.run", "run"),
    "Execution": ("ktir.emulator.reference.run", "Execution"),
    "Policy": ("ktir.emulator.policy", "Policy"),
    "SpyreTensorLayout": ("ktir.spyre_tensor_layout", "SpyreTensorLayout"),
    "DataFormats": ("ktir.spyre_tensor_layout", "DataFormats"),
    "hint": ("ktir.hints", "hint"),
    "capture": ("ktir.lowering.inductor.capture", "capture"),
    "nested": ("ktir.lowering.inductor.nested", "nested"),
    "standalone_compile": ("ktir.lowering.inductor.backend", "standalone_compile"),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _LAZY:
        module, attribute = _LAZY[name]
        return getattr(import_module(module), attribute)
    if not name.startswith("_"):
        try:
            return import_module(f"ktir.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"ktir.{name}":
                raise
    raise AttributeError(f"module 'ktir' has no attribute '{name}'")
