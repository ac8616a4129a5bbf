"""What gathers and scatters check at a launch: that indices are in range, and that no two cores scatter to one element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.carriers import bits_of
from ktir.emulator.machine.memory.transfer import Indices
from ktir.emulator.machine.program.faults import IndexFault, MemoryHazard, Site
from ktir.isa.access import Ints
from ktir.isa.program import Argument

F32 = NDArray[np.float32]


class IndexReader:
    """Reads the indices of one execution of a gather or scatter at `site`."""

    def __init__(self, indices: Indices, argument: Argument, site: Site) -> None:
        self.indices, self.site = indices, site
        self.argument = "the places that a kernel before has computed" if argument.role == "pool" else f"argument '{argument.name}'"
        shape = np.broadcast_shapes(indices.at.shape, indices.live.shape)
        self._live = np.broadcast_to(indices.live, shape)
        self._at = np.where(self._live, indices.at, 0)

    def read(self, arguments: Sequence[F32]) -> Ints:
        """The indices [cores | 1, positions], 0 where none is needed. Raises IndexFault for one out of range."""
        memory = bits_of(arguments[self.indices.argument].reshape(-1))
        found = np.where(self._live, memory[self._at], 0).astype(np.int64)
        bad = (found < 0) | (found >= self.indices.size)
        if bad.any():
            core, position = (int(i) for i in np.argwhere(bad)[0])
            what = f"{self.site} reads index {int(found[core, position])} at element {int(self._at[core, position])}"
            raise IndexFault(f"{what} of {self.argument}, but expects 0 to {self.indices.size - 1}", self.site)
        return found


class Claims:
    """Which core has scattered to each element of an argument in the running kernel."""

    def __init__(self, argument: str) -> None:
        self.argument = argument
        self._core = np.zeros(0, np.int16)

    def start(self) -> None:
        """Begin a kernel."""
        self._core.fill(-1)

    def claim(self, size: int, elements: Ints, cores: Ints, site: Site) -> None:
        """Record that `cores` write `elements` of an argument of that size. Raises MemoryHazard for one that another core has written."""
        if not self._core.size:
            self._core = np.full(size, -1, np.int16)
        before = self._core[elements]
        self._core[elements] = cores
        shared = ((before >= 0) & (before != cores)) | (self._core[elements] != cores)
        if shared.any():
            at = int(elements[int(shared.argmax())])
            where = f"element {at} of argument '{self.argument}'"
            raise MemoryHazard(f"{site} scatters to {where}, to which another core scatters in this kernel", site)
