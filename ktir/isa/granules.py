"""What element descriptors cost: memory moves granules of 32 bytes, and LX takes one fragment per cycle.

The emulator and the cost model agree on these functions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ktir.target import LANES, Target

from .descriptor import Descriptor

Ints = NDArray[np.int64]


def granules(elements: Ints, live: Ints, d: Descriptor, target: Target) -> Ints:
    """Per core the granules that a walk touches; each once, however many of its elements are used.

    `elements` has the element of lane 0 of each entry [cores, entries], `live` how many lanes of it are live.
    """
    per = target.dram_granule_bytes // d.element_bytes
    if abs(d.lane_stride) == 1:
        last = elements + (live - 1) * d.lane_stride
        first, last = np.minimum(elements, last) // per, np.maximum(elements, last) // per
        at = first[..., None] + np.arange(LANES // per + 1)
        keep = (at <= last[..., None]) & (live > 0)[..., None]
    else:
        lane = np.arange(LANES)
        at = (elements[..., None] + lane * d.lane_stride) // per
        keep = live[..., None] > lane
    core = np.broadcast_to(np.arange(len(at))[:, None, None], at.shape)[keep]
    at = at[keep]
    if not at.size:
        return np.zeros(len(elements), np.int64)
    low = int(at.min())
    span = int(at.max()) - low + 1
    return np.bincount(np.unique(core * span + (at - low)) // span, minlength=len(elements))


def fragments(live: Ints, d: Descriptor) -> Ints:
    """Per core the pieces in which LX sends or takes a walk's entries: the sticks of adjacent lanes, single lanes otherwise."""
    if d.lane_stride in (0, 1):
        return (live > 0).sum(-1) * d.sticks_per_entry
    return live.sum(-1)
