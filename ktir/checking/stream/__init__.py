"""An instruction stream against the allocated KTIR that its instructions name: what no check of the stream alone can show.

`expected` reads the KTIR as a tree of actions in plain data, `alignment` gives each action its words, `rules` holds the words of an action
against it: addresses as functions of core, corelet and loop counters (`footprint`), bodies as expressions with their rounding points
(`expressions`). `order` sees that LX is read and written in the order of the KTIR, and that as many sticks are written in vain. With
these, and race-free as the emulator has found it, a stream computes what the KTIR says.
"""

from ktir.checking.stream.compare import check_package, check_stream

__all__ = ["check_package", "check_stream"]
