"""How many rows of a kernel's tensors the scratchpad of a core takes at once, as `ktir-tile` will find.

What is loaded is there twice, so that the next block comes while one is worked on; what is computed, as long as it lives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ktir.analysis.items import Contraction, Op, Tensor
from ktir.cost.tiles import BLOCK_BYTES, ROW_BUFFERS, ROW_STICKS, WEIGHT_BUFFERS
from ktir.passes.division.kernel_facts import KernelFacts
from ktir.passes.division.work import Work
from ktir.target import STICK_BYTES, Target

Step = tuple[Op, Op | None]
"""An op, and the one that is computed on each finished stick of it."""


@dataclass(frozen=True)
class BlockRoom:
    """Of a kernel under a division. What is `resident` takes no room of a block; windows, of which blocks share lines, are not counted."""

    facts: KernelFacts
    work: Work
    steps: Sequence[Step]
    resident: Collection[Tensor]
    target: Target

    def rows(self, share: int, *, streamed: bool, once: bool) -> int:
        """Rows of a block, of `share` rows at most, an even number; 0 if not even two fit.

        `streamed`: first operands of matmuls come stick by stick where nothing else reads them. `once`: a block of the whole share is all
        there is, and needs one buffer for each load.
        """
        loaded = sum(self._loads(streamed))
        live, room = self._most_live(streamed), self.target.lx_planned_bytes - self._fixed
        whole = share + share % 2
        if once and whole * (loaded + live) <= room:
            return whole
        found = next((rows for n in range(ROW_BUFFERS, 0, -1) if (rows := room // max(n * loaded + live, 1) // 2 * 2) > 0), 0)
        return min(found, whole)

    @cached_property
    def _streamable(self) -> set[Tensor]:
        """First operands of matmuls that nothing else reads."""
        read = [(value, isinstance(item, Contraction) and i == 0) for item in self.facts.ops for i, value in enumerate(item.sources)]
        others = {value for value, first in read if not first} | {store.value for store in self.facts.stores}
        return {value for value, first in read if first and value not in others and value not in self.facts.made}

    @cached_property
    def _seconds(self) -> set[Tensor]:
        return {item.sources[1] for item in self.facts.contractions}

    @cached_property
    def _windowed(self) -> set[Tensor]:
        return {item.sources[0] for item in self.facts.contractions if item.taps}

    def _row_bytes(self, tensor: Tensor, dealt: bool, depth: int = 0) -> int:
        """Of what a core has of a row; `depth`: sticks of it where the reduced loop is dealt out."""
        sticks = tensor.shape[0]
        own = depth or (-(-sticks // self.work.column_parts) if dealt else sticks)
        return tensor.row_bytes * own // sticks

    @cached_property
    def _fixed(self) -> int:
        """Bytes that do not grow with a block: weights in flight, and what has no rows."""
        found = len(self._seconds - set(self.resident)) * WEIGHT_BUFFERS * BLOCK_BYTES
        for tensor, names in self.facts.loads:
            if tensor not in self._seconds and tensor not in self.resident and "m" not in names:
                found += self._row_bytes(tensor, "n" in names)
        return found

    def _loads(self, streamed: bool) -> Iterator[int]:
        """Bytes of a row of what is loaded as a whole."""
        for tensor, names in self.facts.loads:
            first = tensor in self._streamable
            apart = tensor in self._seconds or tensor in self._windowed or (streamed and first)
            if "m" in names and tensor not in self.resident and not apart:
                yield self._row_bytes(tensor, "n" in names, self.work.depth_share if first else 0)

    def _most_live(self, streamed: bool) -> int:
        """Bytes of a row of what is there at once at most: computed tensors, and the sticks of a stream in flight."""
        number = {item: i for i, step in enumerate(self.steps) for item in step if item is not None}
        uses = {value: [i for item, i in number.items() if value in item.sources] for value in self.facts.made}
        taken = [0] * len(self.steps)
        walks = list(range(len(self.steps)))
        """Per step the last one that a loop over sticks of columns computes with it."""
        streams = [0] * len(self.steps)
        for i, (item, fused) in reversed(list(enumerate(self.steps))):
            value, product = (fused or item).value, isinstance(item, Contraction)
            together = product and self._computed_with_reader(value, uses[value])
            walks[i] = walks[uses[value][0]] if together else i
            if streamed and product and item.sources[0] in self._streamable:
                streams[walks[i]] += ROW_STICKS * STICK_BYTES
            if value in self.resident:
                continue
            bytes_ = self._row_bytes(value, bool(self.facts.columns))
            if together or (product and not uses[value]):
                bytes_ //= max(self.work.stick_share if self.facts.columns else value.shape[0], 1)
            last = max([i, *uses[value]])
            for at in range(i, last + 1):
                taken[at] += bytes_
        return max((bytes_ + streams[walk] for bytes_, walk in zip(taken, walks, strict=True)), default=0)

    def _computed_with_reader(self, value: Tensor, uses: Sequence[int]) -> bool:
        """Whether one stick of it is there at a time, since what is fused into a later matmul alone reads it."""
        if len(uses) != 1 or value in {store.value for store in self.facts.stores}:
            return False
        item, fused = self.steps[uses[0]]
        return isinstance(item, Contraction) and fused is not None and value in fused.sources and value not in item.sources
