"""Launches from generated code whose arguments are tensors on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ktir.device.operators.kernels import is_ours
from ktir.device.tensors.storage import on_card
from ktir.runtime import cache


def kernel(key: str, *, frozen_weights: bool = False, strict: bool = False) -> Callable[..., Any]:
    """What generated code calls; see `ktir.runtime.cache.kernel`."""
    launch = cache.kernel(key, frozen_weights=False, strict=strict)

    def on_device(*tensors: Any) -> None:
        written = cache.load(key).written
        launch(*[on_card(t) if is_ours(t) else t for t in tensors])
        for k in written:
            if is_ours(tensors[k]) and not tensors[k].is_inference():
                torch.autograd.graph.increment_version(tensors[k])

    return on_device
