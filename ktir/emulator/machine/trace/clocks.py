"""Vector clocks: who has seen which accesses.

A component counts the accesses of one *stream*: MNIL and MNIS by word, the FIFOs of LXLU and LXSU by entry. Streams of a PAR group are
unordered, so each FIFO is its own component; PT and SFP touch no memory and need none.

Both corelets run the same programs, so their clocks are equal up to a change of names. One corelet is run, with clocks in *relative* order:
MNIL, MNIS, the own corelet's seven streams, the other corelet's seven. Accesses are recorded for each corelet in *absolute* order: MNIL,
MNIS, corelet 0, corelet 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ktir.isa.units import FIFOS, Unit

Clock = NDArray[np.int64]
"""One clock [WIDTH], or one per row [.., WIDTH]."""

MNIL, MNIS, OWN, OTHER, WIDTH = 0, 1, 2, 9, 16
STREAMS = ("W", "A", "I0", "I1", "I2", "O", "Q")
"""FIFOs whose LXLU or LXSU end is a stream, in component order."""

SWAP = np.array([MNIL, MNIS, *range(OTHER, WIDTH), *range(OWN, OTHER)])
"""Relative -> absolute order for corelet 1, and back; corelet 0 needs no change."""

ABSOLUTE = np.stack([np.arange(WIDTH), SWAP])
"""Per corelet the place in a clock of its own of each absolute component, and the other way round."""

_PUSHED = [s for s in STREAMS if FIFOS[s].producer is Unit.LXLU]
READERS = np.array([MNIS, *(base + STREAMS.index(s) for base in (OWN, OTHER) for s in _PUSHED)])
"""Components (absolute) that read LX; the shadow keeps one row for each."""
READER_ROW = np.full(WIDTH, -1)
READER_ROW[READERS] = np.arange(len(READERS))


def component(fifo: str) -> int:
    """The relative component of a stream of the own corelet."""
    return OWN + STREAMS.index(fifo)


def party(absolute: int) -> tuple[Unit, int | None]:
    """Unit and corelet of an absolute component."""
    if absolute < OWN:
        return Unit(absolute), None
    fifo = FIFOS[STREAMS[(absolute - OWN) % len(STREAMS)]]
    return (fifo.producer if fifo.producer is Unit.LXLU else fifo.consumer), int(absolute >= OTHER)


def both_corelets(clock: Clock) -> Clock:
    """What a core unit knows after it took a token from each corelet, given the clock that one of them sent."""
    merged = clock.copy()
    merged[OWN:OTHER] = merged[OTHER:] = np.maximum(clock[OWN:OTHER], clock[OTHER:])
    return merged
