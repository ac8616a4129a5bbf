"""What Inductor's generated wrapper loads its kernels from: packages by content hash (`ktir.runtime.store`), loaded once per process."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from ktir.runtime import stamps
from ktir.runtime.kernel import Kernel
from ktir.runtime.store import files, folder, store

__all__ = ["files", "folder", "kernel", "load", "store"]

_loaded: dict[str, Kernel] = {}
_weights: dict[str, dict[int, weakref.ref[Any]]] = {}
"""By key of a kernel: the weights that it was launched with and that are still there."""
_lock = Lock()


def load(key: str) -> Kernel:
    """The kernel of a stored package, loaded once per process."""
    with _lock:
        found = _loaded.get(key)
        if found is None:
            found = _loaded[key] = Kernel(files(key))
        return found


def kernel(key: str, *, frozen_weights: bool = False, strict: bool = False) -> Callable[..., Any]:
    """What generated code calls: the package is loaded at the first call. The options are those of `Kernel`."""

    def launch(*tensors: Any) -> None:
        _watch(key, tensors)
        load(key)(*tensors, frozen_weights=frozen_weights, strict=strict)

    return launch


def _watch(key: str, tensors: Sequence[Any]) -> None:
    """Drop the kernel when the last weight that it was launched with is gone, as with its model; who launches it again loads it again."""
    known = _weights.setdefault(key, {})
    for tensor in tensors:
        name = id(tensor)
        if name not in known and stamps.installed.is_weight(tensor):
            known[name] = weakref.ref(tensor, lambda _, name=name: _gone(key, name))


def _gone(key: str, weight: int) -> None:
    known = _weights.get(key, {})
    known.pop(weight, None)
    if not known:
        _loaded.pop(key, None)
