"""KTIR: a compiler toolchain for tile programs on the Spyre accelerator.

Importing this package loads nothing else. `ktir.execute` runs KTIR on NumPy arrays. Take what else you need from the submodules:
`ktir.assembly` reads and prints KTIR text, `ktir.pipeline` runs passes over it, `ktir.context` makes the MLIR context in which both
work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ktir.emulator.policy import Policy
    from ktir.emulator.reference.run import Execution
    from ktir.emulator.reference.run import run as execute
    from ktir.hints import hint
    from ktir.spyre_tensor_layout import DataFormats, SpyreTensorLayout

__version__ = "0.1.0"

__all__ = ["DataFormats", "Execution", "Policy", "SpyreTensorLayout", "__version__", "execute", "hint"]

_LAZY = {
    "execute": ("ktir.emulator.reference.run", "run"),
    "Execution": ("ktir.emulator.reference.run", "Execution"),
    "Policy": ("ktir.emulator.policy", "Policy"),
    "SpyreTensorLayout": ("ktir.spyre_tensor_layout", "SpyreTensorLayout"),
    "DataFormats": ("ktir.spyre_tensor_layout", "DataFormats"),
    "hint": ("ktir.hints", "hint"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'ktir' has no attribute '{name}'")
    from importlib import import_module

    module, attribute = _LAZY[name]
    return getattr(import_module(module), attribute)
