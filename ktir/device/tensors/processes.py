"""Tensors of the device on their way to other processes, through queues, pipes and loaders of data: they travel by value, and are made anew
on the card of the same number. A card is of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions


def install(register: Callable[[], None]) -> None:
    """Let tensors and parameters be sent so; those of other devices go as they went. register: registers the device where they arrive."""
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, _sent(reductions.reduce_tensor, register))


def _sent(stock: Callable[[torch.Tensor], Any], register: Callable[[], None]) -> Callable[[torch.Tensor], Any]:
    def reduce(tensor: torch.Tensor) -> Any:
        if tensor.device.type != "spyre" or tensor.is_nested or (tensor.requires_grad and not tensor.is_leaf):  # which it refuses
            return stock(tensor)
        torch.utils.hooks.warn_if_has_hooks(tensor)
        host = tensor.detach().cpu()
        content = host.contiguous().flatten().view(torch.uint8).numpy().tobytes()  # shared memory would end with the host's copy
        kind = type(tensor), tensor.dtype, tuple(host.size()), host.stride()
        return _received, (register, *kind, content, tensor.device.index, tensor.requires_grad)

    return reduce


def _received(
    register: Callable[[], None],
    kind: type[torch.Tensor],
    dtype: torch.dtype,
    size: Sequence[int],
    stride: Sequence[int],
    content: bytes,
    card: int,
    requires_grad: bool,
) -> torch.Tensor:
    register()
    host = torch.empty_strided(size, stride, dtype=dtype, device="cpu")
    if content:
        host.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8).view(dtype).view(size))
    tensor = host.to(f"spyre:{card}")
    if issubclass(kind, torch.nn.Parameter):
        return kind(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)
