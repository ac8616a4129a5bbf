"""Addresses for buffers that live at different times: each gets the lowest free one, in an order that needs little."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator

from ktir.passes.scratchpad.buffer_plan import Buffer

_ORDERS: tuple[Callable[[Buffer], tuple[int, ...]], ...] = (
    lambda b: (b.start, b.end),
    lambda b: (-b.bytes, b.start, b.end),
    lambda b: (b.start - b.end, -b.bytes, b.start),
)
"""Orders in which buffers are placed: as they are defined, the largest first, the longest-lived first."""
_MOST_ORDERS, _MOST_PLACES = 500, 200_000
"""Further orders that are tried, at most, and places of one buffer that are compared with another one's for them."""


def first_fit(buffers: list[Buffer], budget: int, reuse: bool) -> int:
    """Give every buffer the lowest free address, in the order that needs the least; returns the bytes used, -1 if beyond the budget.

    Without `reuse` lifetimes are ignored; with it other orders are tried, always the same ones, until one needs no more than what lives at
    once. Buffers are whole sticks, so addresses are aligned.
    """
    best: tuple[int, list[int]] | None = None
    bound = live_at_once(buffers)
    for order in _orders(buffers) if reuse else [sorted(buffers, key=_ORDERS[0])]:
        top = _placed(order, reuse)
        if best is None or top < best[0]:
            best = top, [b.address for b in buffers]
        if best[0] == bound:
            break
    if best is None:
        return 0
    for buffer, address in zip(buffers, best[1], strict=True):
        buffer.address = address
    return best[0] if best[0] <= budget else -1


def _orders(buffers: list[Buffer]) -> Iterator[list[Buffer]]:
    """Orders to try: those of `_ORDERS`, then ones in which buffers of the last of them have moved."""
    order: list[Buffer] = []
    for key in _ORDERS:
        order = sorted(buffers, key=key)
        yield order
    draw = random.Random(1)
    for _ in range(min(_MOST_ORDERS, _MOST_PLACES // max(len(buffers), 1) ** 2)):
        order = list(order)
        order.insert(draw.randrange(len(order)), order.pop(draw.randrange(len(order))))
        yield order


def fit_twins(buffers: list[Buffer], budget: int) -> int:
    """Give every buffer an address of its own, or that of one of its kind which is no longer alive: bytes used, -1 if beyond the budget.

    Each corelet then finds its own rows where it has left its own, and no corelet waits for the other one.
    """
    free: dict[Hashable, list[Buffer]] = {}
    top = 0
    for buffer in sorted(buffers, key=_ORDERS[0]):
        kind = free.setdefault(buffer.kind, [])
        twin = next((b for b in kind if b.end <= buffer.start), None)
        if twin is None:
            buffer.address, top = top, top + buffer.bytes
        else:
            kind.remove(twin)
            buffer.address = twin.address
        kind.append(buffer)
        kind.sort(key=lambda b: b.end)
    return top if top <= budget else -1


def live_at_once(buffers: list[Buffer]) -> int:
    """Bytes that no placement can do without."""
    return max((sum(b.bytes for b in buffers if b.start <= at.start < b.end) for at in buffers), default=0)


def _placed(buffers: list[Buffer], reuse: bool) -> int:
    """Place buffers one after the other; the bytes used."""
    top = 0
    placed: list[Buffer] = []
    for buffer in buffers:
        alive = [p for p in placed if not reuse or (p.start < buffer.end and buffer.start < p.end)]
        address = 0
        for other in sorted(alive, key=lambda b: b.address):
            if address + buffer.bytes <= other.address:
                break
            address = max(address, other.address + other.bytes)
        buffer.address = address
        placed.append(buffer)
        top = max(top, address + buffer.bytes)
    return top
