"""Programs that move tensors through LX by element descriptors: relayouts, gathers and scatters of any rank, on uneven cores."""

from __future__ import annotations

import random
from math import prod

import numpy as np
from machine_builds import MNIL, MNIS, Build, Case, half, program

from ktir.emulator.machine.machine import carrier_shape
from ktir.isa.descriptor import Bound
from ktir.isa.program import Argument, Program

Strides = tuple[int, ...]


def linear(name: str, role: str, elements: int, element_bytes: int) -> Argument:
    """An argument of whole entries of linear memory."""
    return Argument(name, role, -(-elements // 64) * (element_bytes // 2), element_bytes)


def carrier(argument: Argument, values: np.ndarray) -> np.ndarray:
    """The carrier whose first elements are `values`, int32 as bits."""
    out = np.zeros(carrier_shape(argument), np.float32)
    out.reshape(-1).view(values.dtype)[: values.size] = values.ravel()
    return out


def dense(r: random.Random, shape: tuple[int, ...]) -> tuple[Strides, int]:
    """Strides of a tensor whose dims lie in random order, some with gaps; and the elements it spans."""
    order = list(range(len(shape)))
    r.shuffle(order)
    strides, step = [0] * len(shape), 1
    for d in order:
        strides[d] = step
        step *= shape[d] + (r.choice([0, 0, 1, 5]) if r.random() < 0.3 else 0)
    return tuple(strides), step


class Mover:
    """A kernel that moves a tensor [rows.., columns], the columns in sticks, in blocks of the last row dim; `cores` share its blocks."""

    def __init__(self, r: random.Random, shape: tuple[int, ...], cores: int, element_bytes: int) -> None:
        self.r, self.shape, self.element_bytes = r, shape, element_bytes
        self.b = Build("move", cores)
        self.sticks = -(-shape[-1] // 64)
        self.rows = shape[-2]
        self.share = -(-self.rows // cores)
        self.block = r.randint(1, self.share)
        self.trips = -(-self.share // self.block)
        self.extent = (self.sticks, *shape[:-2], self.block)
        self.starts = [min(c * self.share, self.rows) for c in range(cores)]
        self.limits = [max(0, min(self.share, self.rows - c * self.share)) for c in range(cores)]

    def row_bound(self, dim: int) -> Bound:
        """Rows of the core's share; `dim` is that of the block."""
        return Bound(table=self.b.table(self.limits), dim=dim, level=0, level_step=self.block)

    def view(self, arg: int, base: int, strides: Strides, *, rows: bool = True, **more) -> int:
        """The descriptor of the block that the trip moves; without `rows`, of what indices choose."""
        dim = len(self.extent) - 1
        bounds = [self.row_bound(dim)]
        if self.shape[-1] % 64:
            bounds.append(Bound(limit=self.shape[-1], dim=0, dim_step=64, lanes=True))
        place = {"core_table": self.b.table([s * strides[-2] for s in self.starts]), "steps": {0: self.block * strides[-2]}} if rows else {}
        return self.b.ddr(
            arg, self.extent, (64 * strides[-1], *strides[:-1]), base=base, lane_stride=strides[-1],
            element_bytes=self.element_bytes, bounds=tuple(bounds), **place, **more,
        )  # fmt: skip

    def indices(self, arg: int) -> int:
        """The descriptor of the indices of the trip's rows."""
        bounds = (self.row_bound(0),) if self.r.random() < 0.5 else ()
        table = self.b.table(self.starts)
        return self.b.ddr(
            arg, (self.block,), (1,), lane_stride=1, element_bytes=4, core_table=table, steps={0: self.block}, bounds=bounds
        )  # fmt: skip

    def program(self, arguments: list[Argument], load: dict, store: dict) -> Program:
        """Load, store, again and again."""
        b = self.b
        entries = prod(self.extent)
        lx = b.lx(self._lx(), self._dense(), base=b.take(entries * self.element_bytes // 2), element_bytes=self.element_bytes)
        b.loop(self.trips, 0, MNIL, MNIS)
        b.add(MNIL, "move", dst=lx, **load)
        b.sig(MNIL, MNIS)
        b.wait(MNIS, MNIL)
        b.add(MNIS, "move", src=lx, **store)
        b.sig(MNIS, MNIL, 1)
        b.wait(MNIL, MNIS, 1)
        b.end(0, MNIL, MNIS)
        return program("move", arguments, b.kernel())

    def _lx(self) -> tuple[int, ...]:
        return (prod(self.extent),)

    def _dense(self) -> tuple[int, ...]:
        return (self.element_bytes // 2,)


def sizes(r: random.Random) -> tuple[tuple[int, ...], int, int]:
    """A shape, cores, element bytes."""
    shape = (
        *(r.choice([1, 2, 3]) for _ in range(r.randint(0, 2))),
        r.choice([1, 2, 5, 8, 13]),
        r.choice([1, 7, 63, 64, 65, 100, 128, 150]),
    )
    return shape, r.choice([1, 2, 3, 7]), r.choice([2, 4])


def values(rng: np.random.Generator, n: int, element_bytes: int) -> np.ndarray:
    """Random data: halves, or any bits."""
    return half(rng, n) if element_bytes == 2 else rng.integers(-(2**31), 2**31, n, np.int32)


def strided(flat: np.ndarray, base: int, shape: tuple[int, ...], strides: Strides) -> np.ndarray:
    """A view of a flat array."""
    return np.lib.stride_tricks.as_strided(flat[base:], shape, [s * flat.itemsize for s in strides])


def relayout(seed: int) -> Case:
    """y = x with other strides."""
    r, rng = random.Random(seed), np.random.default_rng(seed)
    shape, cores, size = sizes(r)
    (of, n), (to, m) = dense(r, shape), dense(r, shape)
    base, goal = r.choice([0, 0, 64, 7]), r.choice([0, 0, 64, 3])
    x = values(rng, base + n, size)
    if r.random() < 0.3:  # a broadcast
        d = r.randrange(len(shape))
        of = (*of[:d], 0, *of[d + 1 :])
    elif r.random() < 0.3:  # backwards
        d = r.randrange(len(shape))
        base += (shape[d] - 1) * of[d]
        of = (*of[:d], -of[d], *of[d + 1 :])
    low = base + sum((e - 1) * min(s, 0) for e, s in zip(shape, of, strict=True))
    assert low >= 0
    arguments = [linear("x", "input", x.size, size), linear("y", "input_output", goal + m, size)]
    mover = Mover(r, shape, cores, size)
    p = mover.program(arguments, {"src": mover.view(0, base, of)}, {"dst": mover.view(1, goal, to)})
    y = np.full(prod(carrier_shape(arguments[1])), 5, x.dtype)
    start = y.copy()
    positions = base + sum(
        np.arange(e).reshape(-1, *(1,) * (len(shape) - d - 1)) * s for d, (e, s) in enumerate(zip(shape, of, strict=True))
    )
    strided(y, goal, shape, to)[...] = x[positions]
    return Case(p, [carrier(arguments[0], x), carrier(arguments[1], start)], [None, carrier(arguments[1], y)])


def indexed(seed: int, scatter: bool) -> Case:
    """Rows along the last row dim of a table, chosen by indices: y[.., i, :] = x[.., idx[i], :], or y[.., idx[i], :] = x[.., i, :]."""
    r, rng = random.Random(seed), np.random.default_rng(seed)
    shape, cores, size = sizes(r)
    places = r.choice([shape[-2], 20])
    table = (*shape[:-2], max(places, shape[-2] if scatter else 1), shape[-1])
    (of, n), (to, m) = dense(r, shape if scatter else table), dense(r, table if scatter else shape)
    x = values(rng, n, size)
    mover = Mover(r, shape, cores, size)
    index = rng.integers(0, table[-2], shape[-2]).astype(np.int32)
    if scatter:
        index = rng.permutation(table[-2])[: shape[-2]].astype(np.int32)
        for start, limit in zip(mover.starts, mover.limits, strict=True):
            if limit > 1 and r.random() < 0.7:  # of one place a core's last row stays
                index[start] = index[start + limit - 1]
    arguments = [linear("x", "input", n, size), linear("rows", "input", index.size, 4), linear("y", "input_output", m, size)]
    choose = {"index": mover.indices(1), "dim": len(mover.extent) - 1, "size": table[-2]}
    load = {"src": mover.view(0, 0, of, rows=scatter), **({} if scatter else choose)}
    store = {"dst": mover.view(2, 0, to, rows=not scatter), **(choose if scatter else {})}
    p = mover.program(arguments, load, store)
    y = np.full(prod(carrier_shape(arguments[2])), 5, x.dtype)
    given: list[np.ndarray | None] = [carrier(arguments[0], x), carrier(arguments[1], index), carrier(arguments[2], y)]
    source, target = strided(x, 0, shape if scatter else table, of), strided(y, 0, table if scatter else shape, to)
    for i, k in enumerate(index):
        if scatter:
            target[..., k, :] = source[..., i, :]
        else:
            target[..., i, :] = source[..., k, :]
    return Case(p, given, [None, None, carrier(arguments[2], y)])
