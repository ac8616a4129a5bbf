"""Memory that tensors are windows of: new pools, and loads and stores of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from ktir.analysis.calls import text_attribute
from ktir.dialects import ktdp
from ktir.dialects.structured import element_of
from ktir.layout import LANES
from ktir.mlir import arith, ir, is_a
from ktir.passes.flat.memory.new_arguments import NewArguments
from ktir.passes.flat.memory.windows import Window, moved, shape, source, view_of


@dataclass(frozen=True)
class InMemory:
    """A tensor that is a window of a buffer, read where the program reads it: at the op `load`; None = anywhere from now on."""

    base: ir.Value
    window: Window
    element: ir.Type
    load: ir.Operation | None = None


@dataclass(frozen=True)
class Pools:
    """The memory of one function."""

    arguments: NewArguments
    loads: dict[tuple[ir.Value, Window, ir.Value | None], ir.Value] = field(default_factory=dict)
    """What is loaded already."""

    def new(self, like: ir.Value, sizes: Sequence[int] | None = None, collapse: ir.Operation | None = None) -> InMemory:
        """A new pool for the tensor `like`, or one of other `sizes` in its place, of the coarsest shape in which its uses need it: the last
        extents may have to be one, since only the last one of a pool is followed by a gap. What `collapse` makes of it is a window."""
        sizes = shape(like) if sizes is None else tuple(sizes)
        best: tuple[int, tuple[int, ...], Window] | None = None
        for cut in range(len(sizes) - 1, -1, -1):
            coarse = (*sizes[:cut], prod(sizes[cut:]))
            window = Window.dense(coarse, LANES).expand([*([d] for d in range(cut)), list(range(cut, len(sizes)))], sizes)
            if cut and collapse is not None and moved(collapse, window) is None:
                continue
            copies = _copies(like, window)
            if best is None or copies < best[0]:
                best = (copies, coarse, window)
            if not copies:
                break
        _, coarse, window = best or (0, (), Window(0, (), ()))
        return InMemory(self.arguments.add("pool", coarse, element_of(like), like.owner.location), window, element_of(like))

    def got(self, place: InMemory, user: ir.Operation) -> ir.Value:
        """A load of the window; a load of the program's own stays where it is."""
        key = (place.base, place.window, None if self.is_constant(place.base) else place.load and place.load.results[0])
        known = self.loads.get(key)
        if known is None or not known.owner.operation.is_before_in_block(user):
            with ir.InsertionPoint(place.load or user), (place.load or user).location:
                view = view_of(place.base, place.window, place.element)
                tile = ktdp.construct_access_tile(view, [0] * len(place.window.sizes), place.window.sizes)
                self.loads[key] = ktdp.load(tile, place.element)
        return self.loads[key]

    def own(self, value: ir.Value, place: InMemory, user: ir.Operation) -> ir.Value:
        """A load of the program's own, or an equal one that stands before `user`."""
        known = self.loads.setdefault((place.base, place.window, None), value) if self.is_constant(place.base) else value
        return known if known.owner.operation.is_before_in_block(user) else value

    def is_constant(self, base: ir.Value) -> bool:
        """Whether no op of the function writes to a buffer."""
        return self.role(base) in ("input", "iota") or (self.role(base) == "shared" and not self._is_stored_to(base))

    def _is_stored_to(self, base: ir.Value) -> bool:
        """Whether a store, also one through another view, goes to a buffer."""
        users = [use.owner.operation for use in base.uses]
        addresses = [user for user in users if is_a(user, arith.AddIOp)]
        tiles = [use.owner.operation for user in users if is_a(user, ktdp.ConstructMemoryViewOp) for use in user.results[0].uses]
        stores = any(is_a(use.owner, ktdp.StoreOp) for tile in tiles for result in tile.results for use in result.uses)
        return stores or any(self._is_stored_to(add.results[0]) for add in addresses)

    def role(self, base: ir.Value) -> str:
        return text_attribute(self.arguments.attributes[ir.BlockArgument(base).arg_number], "ktir.role")


def put(value: ir.Value, base: ir.Value, window: Window) -> ir.Operation:
    """Store a computed tensor; the view."""
    view = view_of(base, window, element_of(value))
    ktdp.store(value, ktdp.construct_access_tile(view, [0] * len(window.sizes), window.sizes))
    return view.owner.operation


def _copies(value: ir.Value, window: Window) -> int:
    """How many of the ops that move the elements of `value`, directly or in turn, would need a copy if it were `window`."""
    found = 0
    for use in value.uses:
        user = use.owner.operation
        if source(user) is None:
            continue
        then = moved(user, window)
        found += 1 if then is None else _copies(user.results[0], then)
    return found
