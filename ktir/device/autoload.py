"""The first contact with torch: whether the device "spyre" is ours to register, and its registration.

`import torch` calls `autoload` for every program of the environment, so it never raises, and the heavy parts come with the first tensor.
"""

from __future__ import annotations

import logging
import os
from threading import Lock

import torch

log = logging.getLogger("ktir")

NAME = "spyre"
_OFF, _ON = ("0", "false", "no", "off"), ("1", "true", "yes", "on", "")
_lock = Lock()
_registered = False


def autoload() -> None:
    """Register the device at `import torch`, unless `KTIR_DEVICE=0`, or the name or the place is another's."""
    if (asked := os.environ.get("KTIR_DEVICE", "1").lower()) in _OFF:
        return
    if asked not in _ON:
        log.warning("warning: KTIR_DEVICE must be 0 or 1, but got %r; the device is there", asked)
    try:
        if obstacle() is None:
            register()
    except Exception as error:  # whatever it is: `import torch` must not fail for it
        log.warning("warning: ktir does not register the device 'spyre': %s: %s", type(error).__name__, error)


def obstacle() -> str | None:
    """Why the device cannot be registered; None if it can, or already is."""
    from ktir.version import torch_spyre_is_installed

    if _registered:
        return None
    if torch_spyre_is_installed():
        return "torch_spyre is installed, whose device 'spyre' is"
    if not torch.__version__.startswith("2.13."):
        return f"torch 2.13 is needed, but this is {torch.__version__}"
    taken = torch._C._get_privateuse1_backend_name()
    if taken != "privateuseone":
        return f"torch has one place for devices from outside, which '{taken}' has taken"
    return None


def register() -> None:
    """Register the device, once; RuntimeError where that cannot be."""
    global _registered
    with _lock:
        if _registered:
            return
        if (reason := obstacle()) is not None:
            raise RuntimeError(f"the device 'spyre' of ktir cannot be registered: {reason}")
        from ktir.device import registration
        from ktir.device.tensors import processes

        registration.register()
        processes.install(register)
        _registered = True
