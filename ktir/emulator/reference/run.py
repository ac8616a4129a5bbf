"""`ktir.execute`: KTIR from text, a file or a module on NumPy arrays, with everything that comes out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import KtirError
from ktir.emulator import notebook
from ktir.emulator.policy import Policy
from ktir.emulator.reference.executor import Report
from ktir.emulator.reference.executor import execute as launch
from ktir.mlir import ir

__all__ = ["Execution", "run"]

Place = tuple[str, int] | tuple[str, int, int]
"""Where an array lies: `("global", offset)` or `("lx", tile, offset)`, in elements of the array."""


@dataclass(frozen=True)
class Execution:
    """Results of `ktir.execute`: the arrays given, which the program has updated, by name or position; those at addresses; the report."""

    arrays: Mapping[str | int, NDArray[Any]]
    memory: Mapping[Place, NDArray[Any]]
    report: Report

    def _repr_html_(self) -> str:
        places = ((" ".join(map(str, place)), array) for place, array in self.memory.items())
        return notebook.titled("execution", notebook.arrays([*self.arrays.items(), *places]), self.report._repr_html_())


def run(
    module: ir.Module | str | PathLike[str],
    func: str | None = None,
    args: Sequence[Any] | Mapping[str, Any] = (),
    *,
    policy: Policy | None = None,
    memory: Mapping[Any, Any] | None = None,
) -> Execution:
    """Execute function `func` of KTIR of any level on NumPy arrays, which are updated in place.

    module: KTIR text (with a line break), the path of a file, or an MLIR module. func: None takes the one function that no other
    calls. args: by position, or by `ktir.name` or, in text, by the name of the argument; arrays for base addresses, numbers for scalars
    and runtime arguments. An array is memory, its elements in C order; where the argument declares `ktir.strides`, one of the declared
    shape is the tensor, however it lies. memory: arrays at addresses that the program has as numbers, `("global", offset)` or
    `("lx", tile, offset)` in elements of the array.

    Raises a Finding (`ktir.emulator.findings`) for a fault of the program and KtirError for arguments that do not fit, in both cases
    with all arrays as they were.
    """
    source = "<text>"
    if not isinstance(module, ir.Module | str | PathLike):
        raise KtirError(f"expects KTIR text, a path or a module, but got {type(module).__name__}")
    if isinstance(module, PathLike) or (isinstance(module, str) and "\n" not in module):
        source = fspath(module)
        try:
            module = Path(module).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise KtirError(f"cannot read '{source}': {error}") from None
    report = launch(module, func, args, policy=policy, memory=memory, source=source)
    given = args.items() if isinstance(args, Mapping) else enumerate(args)
    arrays: dict[str | int, NDArray[Any]] = {name: value for name, value in given if isinstance(value, np.ndarray)}
    return Execution(arrays, dict(memory or {}), report)
