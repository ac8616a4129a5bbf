"""Token channels of the control run: counting queues between two units, with time, its chain and the vector clock of each post."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ktir.emulator.machine.trace.clocks import Clock, both_corelets
from ktir.isa.resources import Chain
from ktir.isa.units import Unit

CAPACITY = 255
"""Tokens that one queue can hold."""

Key = tuple[Unit, Unit, int]
"""Sender, receiver, token."""


@dataclass
class Channel:
    """The queue of one channel. Both corelets run alike, so one queue stands for both where there are two."""

    key: Key
    posts: deque[tuple[int, Chain, Clock]] = field(default_factory=deque)
    most: int = 0
    posted: int = 0

    def post(self, count: int, time: int, chain: Chain, clock: Clock) -> bool:
        """Post tokens that are visible from cycle `time`; False if the queue overflows."""
        sender, receiver, _ = self.key
        if sender.per_corelet and not receiver.per_corelet:
            clock = both_corelets(clock)
        for _ in range(min(count, CAPACITY + 1)):
            self.posts.append((time, chain, clock))
        self.posted += count
        self.most = max(self.most, len(self.posts))
        return len(self.posts) <= CAPACITY


class Channels(dict[Key, Channel]):
    """All channels of a kernel, made on first use."""

    def __missing__(self, key: Key) -> Channel:
        self[key] = channel = Channel(key)
        return channel
