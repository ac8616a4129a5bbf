"""How a program is executed: numerics and checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Disturbance", "Policy"]


@dataclass(frozen=True)
class Disturbance:
    """By how much each sum of floats is to be off, up or down at random, to see what depends on it: by what another order may make of it
    (a rounding of the accumulator per term, of the sum of magnitudes), and further by once to twice these shares."""

    result: float
    """Of the sum itself, as it is rounded otherwise."""
    terms: float = 0.0
    """Of the sum of magnitudes, as each term is rounded otherwise."""
    seed: int = 0


@dataclass(frozen=True)
class Policy:
    """What an execution guarantees and which faults it reports. Hashable: plans are cached per policy."""

    numerics: Literal["machine", "fast", "peer"] = "machine"
    """`machine`: sums and matmuls in machine order (docs/design.md), bits equal to the machine's. `fast`: NumPy's own
    order and one f32 GEMM; the results differ in the last places. `peer`: as the public interpreter ktir-cpu does it: sums by
    pairwise folds that round each level, matmuls in order of k (of f32, in the order of NumPy's BLAS), rounded before `outs` is
    added, elementary functions in the type of the operand, where rsqrt rounds twice."""
    grid_order: Literal["last-fastest", "first-fastest"] = "last-fastest"
    """Which coordinate of a grid of several dims is fastest in the linear tile id; ktir-cpu has the first one fastest."""
    bounds: bool = True
    """Report accesses beyond a statically bounded view. Accesses beyond a buffer are always reported."""
    races: bool = True
    """Report elements of global memory that one tile of a kernel writes and another reads or writes."""
    uninitialized: bool = True
    """Report reads of LX, or of scratch in global memory, that nothing has written."""
    poison: bool = True
    """Memory without content reads as NaN (integers: -1), otherwise as zero. Seen only with `uninitialized=False`."""
    disturbance: Disturbance | None = None
    """Of sums that linalg ops take: the result of such an execution is no result, but says how sensitive one is."""
    most_steps: int = 1 << 25
    """Steps after which no loop of a run may go on: ops and trips, each once for all tiles together. A loop that takes more is refused, as
    soon as that can be told."""
    lx_bytes: int | None = None
    """Scratchpad of one tile, in bytes; `ct_local` views must lie inside. None: what the module's target has for programs, but no
    limit at the logical level, whose programs do not know the machine."""
