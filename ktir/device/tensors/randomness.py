"""Generators of random numbers: one per card, which give what a generator of the host gives for the same seed."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from ktir.device.tensors import current

_HostGenerator: Any = torch._C.Generator


class CardGenerator(_HostGenerator):
    """A generator of the host that belongs to a card."""

    index: int

    @property
    def device(self) -> torch.device:
        """The card."""
        return torch.device("spyre", self.index)

    def clone_state(self) -> CardGenerator:
        """Another one in the same state."""
        other = generator_of(self.index)
        other.set_state(self.get_state())
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        return _with_state, (self.device, self.get_state())


def generator_of(index: int) -> Any:
    """A new generator of a card."""
    generator = _HostGenerator.__new__(CardGenerator, "cpu")
    generator.index = index
    device, keys = ctypes.c_uint16.from_address(generator._cdata + _DEVICE), ctypes.c_uint64.from_address(generator._cdata + _DEVICE + 8)
    if (device.value, keys.value) == (_HOST, torch._C.DispatchKeySet(torch._C.DispatchKey.CPU).raw_repr()):
        device.value = _PRIVATEUSE1 | index << 8
    return generator


_DEVICE, _HOST, _PRIVATEUSE1 = 56, 0xFF00, 20
"""Where c10::GeneratorImpl of torch 2.13 has its device, with its dispatch keys behind it, and what is there for the host and for us: the
host's kernels look there, and refuse a generator of another device.
"""


@contextmanager
def drawn_on_host(generator: Any, device: torch.device) -> Iterator[Any]:
    """A generator of the host, which goes on from where that of the card is, and takes it along."""
    if generator.device.type != device.type:
        raise RuntimeError(f"Expected a '{device.type}' device type for generator but found '{generator.device.type}'")
    if generator.device != device:
        raise RuntimeError(f"Expected a '{device}' generator device but found '{generator.device}'")
    host = _HostGenerator("cpu")
    host.set_state(generator.get_state())
    try:
        yield host
    finally:
        generator.set_state(host.get_state())


def _with_state(device: torch.device, state: torch.Tensor) -> Any:
    generator = generator_of(current.index_of(device))
    generator.set_state(state)
    return generator


_Kind: Any = type(_HostGenerator)


class _AnyGenerator(_Kind):
    """What `torch.Generator` is: it makes generators of the host and of cards, and both are of it."""

    def __call__(self, device: Any = "cpu") -> Any:
        if isinstance(device, int) or torch.device(device).type == "spyre":
            return generator_of(current.index_of(device))
        return _HostGenerator(device)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, _HostGenerator)

    def __subclasscheck__(self, subclass: Any) -> bool:
        return issubclass(subclass, _HostGenerator)


Generator = _AnyGenerator("Generator", (_HostGenerator,), {"__module__": "torch", "__doc__": _HostGenerator.__doc__})
"""What stands in the place of `torch.Generator`, which asks compiled code for one of a device."""


@cache
def default_generator(index: int) -> Any:
    """The generator of a card."""
    generator = generator_of(index)
    generator.manual_seed(torch.initial_seed())
    return generator


def manual_seed(seed: int) -> None:
    """Set the seed of this thread's card."""
    default_generator(current.get()).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Set the seed of all cards."""
    for index in range(current.count()):
        default_generator(index).manual_seed(int(seed))


def seed() -> None:
    """Set the seed of this thread's card to a random number."""
    default_generator(current.get()).seed()


def seed_all() -> None:
    """Set the seed of all cards to the same random number."""
    manual_seed_all(default_generator(0).seed())


def initial_seed() -> int:
    """The seed of this thread's card."""
    return default_generator(current.get()).initial_seed()


def get_rng_state(device: Any = "spyre") -> torch.Tensor:
    """The state of a card's generator, as a tensor of bytes on the host."""
    return default_generator(current.index_of(device)).get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = "spyre") -> None:
    """Set the state of a card's generator."""
    default_generator(current.index_of(device)).set_state(new_state.cpu())


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all generators."""
    return [get_rng_state(index) for index in range(current.count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the states of all generators."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
