"""Generators of random numbers: one per card, which give what a generator of the host gives for the same seed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch

from ktir.device.tensors import current


@cache
def default_generator(index: int) -> torch.Generator:
    """The generator of a card."""
    generator = torch.Generator()
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
