"""Registration of the device with torch: name, module, guard, kernels. What is heavy is imported by what needs it first."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_libraries: list[torch.library.Library] = []


def register() -> None:
    """Make `torch.device("spyre")`, `torch.spyre` and tensors on the device known to torch; once per process."""
    from ktir.device import compile, patches, spyre
    from ktir.device.attention import attention
    from ktir.device.kernels import KERNELS

    _setup_privateuseone_for_python_backend("spyre", backend_module=spyre)
    kernels = torch.library.Library("aten", "IMPL", "PrivateUse1")
    for name, kernel in KERNELS.items():
        kernels.impl(name, kernel)
    kernels.impl("scaled_dot_product_attention", attention)
    with_gradients = torch.library.Library("aten", "IMPL", "AutogradPrivateUse1")
    with_gradients.impl("scaled_dot_product_attention", attention)
    rest = torch.library.Library("_", "IMPL")
    rest.fallback(_otherwise, "PrivateUse1")
    _libraries.extend((kernels, with_gradients, rest))
    patches.install()
    compile.install()


def _otherwise(op: Any, *args: Any, **kwargs: Any) -> Any:
    from ktir.device.fallback import fallback

    return fallback(op, *args, **kwargs)
