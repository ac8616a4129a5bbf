"""`torch.spyre`: the module of the device, as torch and its users expect one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ktir.device.tensors import current, layouts, randomness, statistics, streams

_initialized = True
"""What `torch.utils.checkpoint` asks before it keeps the states of generators."""


def is_available() -> bool:
    """Whether there is a card: always, since it is emulated."""
    return True


def is_initialized() -> bool:
    """Whether the device can be used without further ado."""
    return True


def init() -> None:
    """Nothing has to be started."""


_lazy_init = init


def _is_in_bad_fork() -> bool:
    return False  # a child gets a copy of the emulated memory


def _is_compiled() -> bool:
    return True


def device_count() -> int:
    """Cards of this process."""
    return current.count()


def current_device() -> int:
    """The card of this thread."""
    return current.get()


def set_device(device: Any) -> None:
    """Choose the card of this thread."""
    current.put(current.index_of(device))


def _exchange_device(index: int) -> int:
    """Choose another card, unless the number is negative; the one before."""
    return current.put(index)


class device(contextlib.ContextDecorator):
    """Inside the block, another card is the one of this thread."""

    def __init__(self, device: Any) -> None:
        self.idx = current.index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = current.put(self.idx)

    def __exit__(self, *_: Any) -> None:
        current.put(self.prev_idx)


class device_of(device):
    """Inside the block, the card of a tensor is the one of this thread."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.device.index if tensor.device.type == "spyre" else current.get())


def get_device_name(device: Any = None) -> str:
    """What the card is called."""
    current.index_of(device)
    return "Spyre (emulated)"


class DeviceProperties(NamedTuple):
    """What a card is."""

    name: str
    total_memory: int
    multi_processor_count: int


def get_device_properties(device: Any = None) -> DeviceProperties:
    """What the card is: its memory for tensors, its cores."""
    from ktir import config

    return DeviceProperties(get_device_name(device), statistics.mem_get_info(device)[1], config.current().machine().cores)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Types that autocast may compute in."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether programs of the chip compute in bfloat16."""
    return True


def instrument(metrics: Sequence[str] = ("execution_time", "dma_latency", "pe_util"), ops: Sequence[str] = ()) -> Any:
    """A context manager that measures inside of the kernels that its block launches; it gives a report, which `print` shows.

    metrics: of `execution_time`, `dma_latency`, `pe_util`, `stalls`, `hot_areas` and `scratchpad`. ops: nodes of the graph to which rows
    are limited; without them, those of the option `spyre_instrument_ops`, else all.
    """
    from ktir.device.profiler import instrument as module

    return module.instrument(metrics, ops)


def get_diagnostic_report(output_dir: str | None = None) -> dict[str, Any] | None:
    """The newest report of something that failed, in this process or another; None where nothing did. output_dir: where reports are,
    instead of `failures` in `KTIR_CACHE_DIR`.
    """
    from ktir.runtime import failures

    return failures.latest(output_dir)


Stream = streams.Stream
Event = streams.Event
stream = streams.stream
current_stream = streams.current_stream
default_stream = streams.default_stream
set_stream = streams.set_stream
synchronize = streams.synchronize
trace = streams.trace

get_spyre_tensor_layout = layouts.get_spyre_tensor_layout
set_spyre_tensor_layout = layouts.set_spyre_tensor_layout
empty_with_layout = layouts.empty_with_layout
spyre_empty_with_layout = layouts.spyre_empty_with_layout
to_with_layout = layouts.to_with_layout
require_layout = layouts.require_layout

memory_allocated = statistics.memory_allocated
max_memory_allocated = statistics.max_memory_allocated
memory_reserved = statistics.memory_reserved
max_memory_reserved = statistics.max_memory_reserved
memory_stats = statistics.memory_stats
memory_stats_as_nested_dict = statistics.memory_stats_as_nested_dict
reset_peak_memory_stats = statistics.reset_peak_memory_stats
reset_accumulated_memory_stats = statistics.reset_accumulated_memory_stats
empty_cache = statistics.empty_cache
mem_get_info = statistics.mem_get_info
memory_summary = statistics.memory_summary

manual_seed = randomness.manual_seed
manual_seed_all = randomness.manual_seed_all
seed = randomness.seed
seed_all = randomness.seed_all
initial_seed = randomness.initial_seed
get_rng_state = randomness.get_rng_state
set_rng_state = randomness.set_rng_state
get_rng_state_all = randomness.get_rng_state_all
set_rng_state_all = randomness.set_rng_state_all
