"""Units of a core and the FIFOs between them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Unit(IntEnum):
    """A unit kind. The value is its id in instruction words. One program per kind serves all cores and both corelets."""

    MNIL = 0  # memory -> LX
    MNIS = 1  # LX -> memory
    LXLU = 2  # LX -> FIFOs, per corelet
    PT = 3  # systolic array, per corelet
    SFP = 4  # vector unit, per corelet
    LXSU = 5  # FIFOs -> LX, per corelet

    @property
    def per_corelet(self) -> bool:
        """Whether each corelet has its own instance; the others exist once per core."""
        return self >= Unit.LXLU


@dataclass(frozen=True)
class Fifo:
    """An ordered blocking queue of entries (64 lanes) between two units of one corelet, or of the core."""

    name: str
    code: int
    producer: Unit
    consumer: Unit
    crosses: bool = False
    """Whether entries come from other cores, each in a queue of its own: they say nothing of what this core's producer has done."""


FIFOS = {
    f.name: f
    for f in (
        Fifo("W", 0, Unit.LXLU, Unit.PT),  # weights
        Fifo("A", 1, Unit.LXLU, Unit.PT),  # activations
        Fifo("I0", 2, Unit.LXLU, Unit.SFP),
        Fifo("I1", 3, Unit.LXLU, Unit.SFP),
        Fifo("I2", 4, Unit.LXLU, Unit.SFP),
        Fifo("P", 5, Unit.PT, Unit.SFP),  # f32 accumulator rows
        Fifo("O", 6, Unit.SFP, Unit.LXSU),
        Fifo("Q", 7, Unit.SFP, Unit.LXSU),
        Fifo("R", 8, Unit.MNIS, Unit.MNIL, crosses=True),  # over the ring
    )
}
