"""A model of power and temperature. The card's 75 W are public; everything else is assumed, and says how busy a card is, no more."""

IDLE = 20.0
PROGRAM = 15.0
MATRIX = 40.0
"""Watts: of a card that does nothing; what a program adds; what PT units at work add to that. Together the card's 75."""
AMBIENT = 25.0
DEGREES_PER_WATT = 0.5


def power(busy: float, pt: float) -> float:
    """Watts. busy, pt: the shares of the time in which programs run, and in which PT units work."""
    return IDLE + PROGRAM * busy + MATRIX * pt


def temperature(watts: float) -> float:
    """Degrees Celsius after a long time at that power."""
    return AMBIENT + DEGREES_PER_WATT * watts
