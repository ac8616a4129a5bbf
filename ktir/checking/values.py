"""The values of a program while it runs, as text: what they are called in the source, and what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.assembly.names import LOOPS, TextNames
from ktir.emulator.findings import Where
from ktir.emulator.reference.compile.program import BlockPlan, OpPlan, Program
from ktir.emulator.reference.record.recorder import Recorder
from ktir.emulator.reference.tape.values import AccessTile, Distributed, Future, IndirectTile, Overlay, Pointer, Tensor, View

__all__ = ["Names", "array_of", "brief", "describe", "place_of"]

_TILES = 4
"""Tiles that are shown where they differ."""
_ELEMENTS = 6


def place_of(where: Where | None) -> tuple[str, int, int] | None:
    """File, line and column of an op."""
    if where is None or where.location is None:
        return None
    file, line, column = where.location.rsplit(":", 2)
    return file, int(line), int(column)


class Names:
    """Names of the slots of a program's functions, as `text` (the file `source`) has them; `v7` for slot 7 where it has none."""

    def __init__(self, text: str, source: str) -> None:
        self.text, self.source = text, source
        self.lines = text.split("\n")
        self._program: Program | None = None
        self._text_names = TextNames("")
        self._of: dict[int, tuple[str, dict[int, str]]] = {}
        """Op -> its function, and the names of all slots of that function."""
        self.slots: dict[str, dict[str, list[int]]] = {}
        """Function -> name -> slots, in order of definition."""

    def bind(self, program: Program) -> None:
        """Finds the names of the slots of `program`."""
        if program is self._program:
            return
        self._program = program
        self._text_names = TextNames(self.text)
        for function in program.functions.values():
            names: dict[int, str] = {}
            for i, argument in enumerate(function.arguments):
                names[argument.slot] = argument.alias or argument.name or f"arg{i}"
            if function.body is not None:
                self._block(function.name, function.body, names)
            by_name = self.slots[function.name] = {}
            for slot in sorted(names):
                by_name.setdefault(names[slot], []).append(slot)

    def _block(self, function: str, block: BlockPlan, names: dict[int, str]) -> None:
        for op in block.ops:
            self._of[id(op)] = function, names
            place = place_of(op.where)
            here = place is not None and place[0] == self.source
            found = self._text_names.at(*place[1:]) if place is not None and here else []
            for i, slot in enumerate(op.results):
                names[slot] = found[i] if i < len(found) else f"v{slot}"
            inside = self._text_names.bound(*place[1:]) if place is not None and here and op.where.op in LOOPS else []
            for inner in op.blocks:
                for i, slot in enumerate(inner.arguments):
                    names.setdefault(slot, inside[i] if i < len(inside) else f"v{slot}")
                self._block(function, inner, names)

    def function(self, op: OpPlan) -> str:
        """The function that `op` is in."""
        return self._of[id(op)][0]

    def name(self, op: OpPlan, slot: int) -> str:
        """What `op` calls the value in `slot`."""
        return self._of[id(op)][1].get(slot, f"v{slot}")

    def find(self, op: OpPlan, name: str, values: Sequence[Any]) -> int | None:
        """The slot that has `name` where `op` stands: of several the one defined last that holds a value."""
        candidates = self.slots[self.function(op)].get(name, [])
        return next((slot for slot in reversed(candidates) if values[slot] is not None), None)

    def line(self, where: Where | None) -> str:
        """The source line of an op, or nothing."""
        place = place_of(where)
        if place is None or place[0] != self.source or not 1 <= place[1] <= len(self.lines):
            return ""
        return self.lines[place[1] - 1].strip()


def array_of(rec: Recorder, value: Any) -> tuple[NDArray[Any], str, bool] | None:
    """`value` as an array [tiles or 1, ...], its element type, and whether it differs between tiles; None for what is no data."""
    if isinstance(value, bool | int | float):
        return np.asarray([value]), "bool" if isinstance(value, bool) else "index" if isinstance(value, int) else "float", False
    if isinstance(value, np.ndarray):
        return value, "index", True
    if isinstance(value, Tensor | Overlay):
        tensor = rec.plain(value)
        found = rec.binder.array(tensor)
        return np.broadcast_to(found, (found.shape[0], *tensor.shape)), tensor.element, found.shape[0] > 1
    return None


def brief(array: NDArray[Any]) -> str:
    """A number, or the first elements of an array and what they range over."""
    if array.ndim == 0:
        return _number(array[()])
    flat = array.reshape(-1)
    shown = " ".join(_number(x) for x in flat[:_ELEMENTS])
    text = f"[{shown}{' ...' if flat.size > _ELEMENTS else ''}]"
    if flat.size <= _ELEMENTS or array.dtype.kind not in "fiu":
        return text
    bad = int(np.isnan(flat).sum()) if array.dtype.kind == "f" else 0
    if bad < flat.size:
        text += f" min {_number(np.nanmin(flat))} max {_number(np.nanmax(flat))} mean {float(np.nanmean(flat, dtype=np.float64)):.6g}"
    return text + (f" nan {bad}" if bad else "")


def _number(x: Any) -> str:
    if isinstance(x, np.bool_ | bool):
        return str(bool(x)).lower()
    return f"{float(x):.6g}" if isinstance(x, float | np.floating) else str(x)


def describe(rec: Recorder, value: Any) -> list[str]:
    """What a value is, on one line, followed by a line for each tile (the first few) where tiles differ."""
    data = array_of(rec, value)
    if data is None:
        return [_handle(rec, value)]
    array, element, differs = data
    is_tensor = isinstance(value, Tensor | Overlay)
    kind = f"tensor<{'x'.join([*map(str, array.shape[1:]), element])}>" if is_tensor and array.ndim > 1 else element
    if not differs:
        return [f"{kind} = {brief(array[0])}"]
    lines = [f"{kind}, by tile:"]
    lines += [f"  tile {tile}: {brief(array[tile])}" for tile in range(min(_TILES, len(array)))]
    if len(array) > _TILES:
        lines.append(f"  and {len(array) - _TILES} more tiles")
    return lines


def _handle(rec: Recorder, value: Any) -> str:
    """An address, a view or a tile."""

    def known(x: Any) -> str:
        return brief(np.asarray(x)) if isinstance(x, np.ndarray) else str(x)

    if isinstance(value, Pointer):
        return f"address {known(value.offset)} of '{value.buffer.name}'"
    if isinstance(value, View):
        where = "LX" if value.buffer is None else f"'{value.buffer.name}'"
        sizes = ", ".join(known(s) for s in value.sizes)
        return f"view of {where} from element {known(value.offset)}, sizes [{sizes}], strides {list(value.strides)}, {value.element}"
    if isinstance(value, Distributed):
        return f"view of {len(value.parts)} partitions, {value.element}"
    if isinstance(value, AccessTile):
        return f"tile {'x'.join(map(str, value.shape))} at [{', '.join(known(a) for a in value.anchor)}]"
    if isinstance(value, IndirectTile):
        return f"indirect tile {'x'.join(map(str, value.shape))}"
    if isinstance(value, Future):
        return f"future of {len(value.values)} values"
    return "nothing yet" if value is None else type(value).__name__
