"""Programs of many small kernels that hand on through memory: what one has written the next ones read, and what one has read they write.

Some buffers are read and written all along, in parts that overlap; weights are read by several kernels; a value now and then stays for a
later step, so that it lies in LX between kernels.
"""

from __future__ import annotations

from campaign.graph_blocks import PRODUCT
from campaign.graph_draws import Draws
from campaign.graph_text import Value

_ROWS, _WIDTHS = (1, 3, 16, 33, 64), (64, 64, 96, 128, 200)


class _Rows:
    """The buffers of a program and the values that are still to be used."""

    def __init__(self, g: Draws) -> None:
        self.g = g
        rows, width = g.random.choice(_ROWS), g.random.choice(_WIDTHS)
        self.buffers = [
            g.buffer("input_output", (rows + g.random.choice((0, 0, 1, 64)), width), "f16") for _ in range(g.random.choice((1, 2, 3)))
        ]
        self.weights = [g.buffer("input", (width, width), "f16") for _ in range(g.random.choice((1, 2)))]
        self.shape = rows, width
        self.kept: list[Value] = []

    def loaded(self, buffer: Value, *, whole: bool = False) -> Value:
        """Rows of a buffer, or all of it."""
        shape = buffer.shape if whole else self.shape
        start = self.g.random.choice((0, 0, buffer.shape[0] - shape[0]))
        tile = self.g.tile(buffer, shape, (buffer.shape[1], 1), start * buffer.shape[1])
        return self.g.define(f"ktdp.load {tile} : <{self.g.extents(shape)}> -> {Value('', shape, 'f16').type}", shape, "f16")

    def stored(self, value: Value) -> None:
        """The value to rows of one of the buffers, or to an output."""
        g = self.g
        g.unused.pop(value.name, None)
        if g.random.random() < 0.15:
            g.store(value)
            return
        buffer = g.random.choice(self.buffers)
        start = g.random.choice((0, 0, buffer.shape[0] - value.shape[0])) * buffer.shape[1]
        tile = g.tile(buffer, value.shape, (buffer.shape[1], 1), start)
        g.lines.append(f"    ktdp.store {value.name}, {tile} : {value.type}, <{g.extents(value.shape)}>")

    def value(self) -> Value:
        """What a step works on: what was kept, or rows of a buffer."""
        g = self.g
        if self.kept and g.random.random() < 0.4:
            return g.random.choice(self.kept[-3:])
        return self.loaded(g.random.choice(self.buffers))

    def step(self) -> None:
        """A kernel: a product, a norm by rows, a sum of two, or a copy."""
        g = self.g
        x = self.value()
        kind = g.random.choice(("product", "product", "rows", "both", "copy"))
        g.drawn.append(kind)
        match kind:
            case "product":
                weight = self.loaded(g.random.choice(self.weights), whole=True)
                loops = g.random.choice(((2, 1), (1, 2)))
                y = g.generic([(x, (0, 2)), (weight, loops)], (self.shape, "f32"), "ppr", PRODUCT, "0.0")
                body = ["%s = arith.constant 0.125 : f32", "%p = arith.mulf %i0, %s : f32", "%r = arith.truncf %p : f32 to f16"]
                y = g.pointwise(y, "f16", body)
            case "rows":
                body = ["%w = arith.extf %i0 : f16 to f32", "%r = arith.maximumf %o, %w : f32"]
                most = g.generic([(x, (0, 1))], (self.shape[:1], "f32"), "pr", body, "0xFF800000")
                body = ["%w = arith.extf %i0 : f16 to f32", "%d = arith.subf %w, %i1 : f32", "%r = arith.truncf %d : f32 to f16"]
                y = g.generic([(x, (0, 1)), (most, (0,))], (self.shape, "f16"), "pp", body)
            case "both":
                y = g.generic([(x, (0, 1)), (self.value(), (0, 1))], (self.shape, "f16"), "pp", ["%r = arith.subf %i0, %i1 : f16"])
            case _:
                y = x
        if g.random.random() < 0.3:
            self.kept.append(y)
        if y is x or g.random.random() < 0.8:
            self.stored(y)


def in_a_row(g: Draws, steps: int) -> None:
    """So many steps."""
    rows = _Rows(g)
    for _ in range(steps):
        rows.step()
