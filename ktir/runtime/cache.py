"""What Inductor's generated wrapper loads its kernels from: packages by content hash (`ktir.runtime.store`), loaded once per process.

A loaded kernel goes with the last weight that it was launched with, or the last compiled function that launched it (`owner`); of all
that are loaded, the ones launched longest ago go where there are too many. Who launches a kernel that is gone loads it again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from itertools import count
from threading import Lock
from typing import Any

from ktir.config import Config
from ktir.runtime import stamps
from ktir.runtime.kernel import Kernel
from ktir.runtime.store import files, folder, store

__all__ = ["files", "folder", "kernel", "load", "owner", "set_limit", "store", "uses", "watch"]

_loaded: dict[str, Kernel] = {}
"""By key."""
_holders: dict[tuple[str, str], dict[int, weakref.ref[Any]]] = {}
"""By kind and key of a kernel: the weights that it was launched with, or the functions that launched it, and that are still there."""
owner: ContextVar[Any] = ContextVar("ktir_owner", default=None)
"""What launches: the kernels go when it goes, unless others launch them too."""
uses = count()
"""Of kernels, to be numbered (`Kernel.used`); who holds one that is loaded, and by no more than a weak reference, need not ask for it."""
_lock = Lock()
_most = Config.loaded_programs


def set_limit(most: int) -> None:
    """How many kernels may be loaded at the same time."""
    global _most
    _most = most


def load(key: str) -> Kernel:
    """The kernel of a stored package, loaded once per process."""
    with _lock:
        found = _loaded.get(key)
        if found is None:
            found = _loaded[key] = Kernel(files(key), key)
        found.used = next(uses)
        while len(_loaded) > _most:
            _loaded.pop(min(_loaded, key=lambda k: _loaded[k].used))
        return found


def kernel(key: str, *, frozen_weights: bool = False, strict: bool = False) -> Callable[..., Any]:
    """What generated code calls: the package is loaded at the first call. The options are those of `Kernel`."""

    def launch(*tensors: Any) -> None:
        watch(key, tensors)
        load(key)(*tensors, frozen_weights=frozen_weights, strict=strict)

    return launch


def watch(key: str, tensors: Sequence[Any]) -> None:
    """Drop a kernel when the last weight that it was launched with is gone, as with its model, or the last function that launched it."""
    function = owner.get()
    if function is not None:
        _keep(("function", key), function)
    for tensor in tensors:
        if stamps.installed.is_weight(tensor):
            _keep(("weight", key), tensor)


def _keep(place: tuple[str, str], holder: Any) -> None:
    known, name = _holders.setdefault(place, {}), id(holder)
    if name not in known:
        known[name] = weakref.ref(holder, lambda _: _gone(place, name))


def _gone(place: tuple[str, str], holder: int) -> None:
    known = _holders.get(place, {})
    known.pop(holder, None)
    if not known:
        _holders.pop(place, None)
        _loaded.pop(place[1], None)
