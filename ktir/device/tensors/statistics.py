"""What the memory of a card is used for: the functions of `torch.spyre`, and those of `torch.accelerator` behind them."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from types import FunctionType
from typing import Any

import torch

from ktir.device.tensors import current


def _card(device: Any = None) -> Any:
    from ktir.runtime.memory.card import card

    return card(current.index_of(device))


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """All counts of a card, as CUDA has them."""
    return _card(device).statistics.nested()


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """All counts of a card, by names with dots: `allocated_bytes.all.current`, and so on."""
    found: dict[str, Any] = {}

    def flatten(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                flatten(f"{prefix}.{name}" if prefix else name, inner)
        else:
            found[prefix] = value

    flatten("", memory_stats_as_nested_dict(device))
    return OrderedDict(sorted(found.items()))


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of the counts of a card, CUDA's with ours in it."""
    theirs = {
        "memory_stats": lambda device: defaultdict(int, memory_stats(device)),
        "_get_device_index": lambda device, optional: current.index_of(device),
    }
    table = FunctionType(torch.cuda.memory.memory_summary.__code__, vars(torch.cuda.memory) | theirs)(device, abbreviated)
    for cudas, ours in ((" PyTorch CUDA", "PyTorch Spyre"), (" CUDA OOMs", "Spyre OOMs"), ("cudaMalloc", "allocation"), ("GPU", "   ")):
        table = table.replace(cudas, ours)
    return table


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors take on a card, in all of their forms, in whole granules."""
    return _card(device).used


def max_memory_allocated(device: Any = None) -> int:
    """The most that it was."""
    return memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["peak"]


def memory_reserved(device: Any = None) -> int:
    """The same as what is allocated: nothing is kept in reserve."""
    return memory_allocated(device)


def max_memory_reserved(device: Any = None) -> int:
    """The most that it was."""
    return max_memory_allocated(device)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Peaks begin anew with what is there."""
    _card(device).statistics.reset_peaks()


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Counts of what was allocated and freed begin anew."""
    _card(device).statistics.reset_accumulated()


def empty_cache() -> None:
    """Give memory of the host that stands behind free ranges back to the host."""
    for index in range(current.count()):
        _card(index).trim()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free bytes and all bytes for tensors of a card."""
    card = _card(device)
    return card.capacity - card.used, card.capacity
