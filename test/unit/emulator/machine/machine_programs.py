"""Hand-written instruction streams for the tests, each with its values by NumPy and `ktir.arithmetic.numerics`.

Row tensors have P rows and S sticks, stored stick-major: stick s of row p is entry s * P + p. Cores take `share` rows each, the last one
what is left; tiles of R rows are halved over the corelets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from machine_builds import (
    LXLU,
    LXSU,
    MNIL,
    MNIS,
    PT,
    Build,
    Case,
    column,
    half,
    pack,
    program,
    v1,
    v2,
    vacc,
    vconst,
    vin,
    vmask,
    vout,
    vred,
)

from ktir.arithmetic import numerics
from ktir.arithmetic.products import matmul_machine
from ktir.isa.descriptor import Bound
from ktir.isa.program import Argument


@dataclass
class Work:
    """How P rows are divided: `cores` cores of `share` rows, tiles of `tile` rows, `h` rows per corelet and tile."""

    rows: int
    share: int
    tile: int
    corelets: int = 2

    @property
    def cores(self) -> int:
        return -(-self.rows // self.share)

    @property
    def trips(self) -> int:
        return -(-self.share // self.tile)

    @property
    def h(self) -> int:
        return self.tile // self.corelets

    def starts(self, scale: int = 1) -> list[int]:
        """Core table: first row of each core."""
        return [c * self.share * scale for c in range(self.cores)]

    def limits(self) -> list[int]:
        """Core table: rows of each core."""
        return [min(self.share, self.rows - c * self.share) for c in range(self.cores)]

    def bound(self, b: Build, dim: int, level: int = 0) -> tuple[Bound, ...]:
        """Clips a tile to the core's rows; dimension `dim` of the walk counts rows."""
        return (Bound(table=b.table(self.limits()), dim=dim, dim_step=1, level=level, level_step=self.tile),)


def double(buffers: int, slot: int, levels: int = 1) -> dict:
    """Rotation over `buffers` slots."""
    return {"buffers": buffers, "rotate_levels": levels, "rotate_step": slot} if buffers > 1 else {}


def rotation_levels(*trips: int) -> int:
    """Levels of a nest over which two buffers alternate from each innermost trip to the next."""
    mask, inner = 0, 1
    for level in reversed(range(len(trips))):
        if inner % 2:
            mask |= 1 << level
        inner *= trips[level]
    return mask


def row_tile(b: Build, w: Work, arg: int, sticks: int, offset: int = 0, **more) -> int:
    """Memory descriptor of a tile of a row tensor, clipped to the core's rows."""
    return b.ddr(
        arg, (sticks, w.tile), (w.rows, 1), steps={0: w.tile}, core_table=b.table(w.starts()), base=offset, bounds=w.bound(b, 1), **more
    )


def elementwise(w: Work, sticks: int, buffers: int = 2, seed: int = 0) -> Case:
    """y = f16(f16(x * column) + row), then f16(exp(-|y|)) for a second output row tensor; column and row broadcast."""
    rng = np.random.default_rng(seed)
    b = Build("elementwise", w.cores, corelets=w.corelets)
    n, h = sticks * w.tile, w.h
    x, c, r, y = b.take(buffers * n), b.take(buffers * w.tile), b.take(sticks), b.take(buffers * n)
    rotate, rotate_c = double(buffers, n), double(buffers, w.tile)
    ddr_x, ddr_y = row_tile(b, w, 0, sticks), row_tile(b, w, 3, sticks)
    ddr_c = b.ddr(1, (w.tile,), (1,), steps={0: w.tile}, core_table=b.table(w.starts()), bounds=w.bound(b, 0))
    ddr_r = b.ddr(2, (sticks,), (1,))
    b.add(MNIL, "move", src=ddr_r, dst=b.lx((sticks,), (1,), base=r))
    b.sig(MNIL, LXLU, 1)
    b.wait(LXLU, MNIL, 1)
    b.credits(LXLU, MNIL, 0, buffers)
    b.credits(MNIS, LXSU, 0, buffers)
    b.loop(w.trips, 0)
    b.wait(MNIL, LXLU)
    b.add(MNIL, "move", src=ddr_x, dst=b.lx((n,), (1,), base=x, **rotate))
    b.add(MNIL, "move", src=ddr_c, dst=b.lx((w.tile,), (1,), base=c, **rotate_c))
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    b.add(LXLU, "par", streams=3)
    b.add(LXLU, "push", lx=b.lx((h, sticks), (1, w.tile), base=x, corelet_step=h, **rotate), fifo="I0")
    b.add(LXLU, "push", lx=b.lx((h,), (1,), base=c, corelet_step=h, splat=True, **rotate_c), fifo="I1")
    b.add(LXLU, "push", lx=b.lx((h, sticks), (0, 1), base=r), fifo="I2")
    b.sig(LXLU, MNIL)
    b.rep(
        h, sticks, vin(0, "I0"), vin(1, "I1", "start"), vin(2, "I2"), v2("mul", 3, 0, 1, True), v2("add", 3, 3, 2, True),
        v1("abs", 4, 3), v1("neg", 4, 4), v1("exp", 5, 4, True), vout(5, "O"),
    )  # fmt: skip
    b.wait(LXSU, MNIS)
    b.add(LXSU, "pull", lx=b.lx((h, sticks), (1, w.tile), base=y, corelet_step=h, **rotate), fifo="O")
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    b.add(MNIS, "move", dst=ddr_y, src=b.lx((n,), (1,), base=y, **rotate))
    b.sig(MNIS, LXSU)
    b.end(0)
    p = w.rows
    values, col, row = half(rng, p, sticks * 64), half(rng, p), half(rng, sticks * 64)
    t = numerics.round_f16(numerics.round_f16(values * col[:, None]) + row)
    want = numerics.round_f16(numerics.UNARY["exp"](-np.abs(t)))
    arguments = [
        Argument("x", "input", p * sticks, 2),
        Argument("c", "input", p, 2),
        Argument("r", "input", sticks, 2),
        Argument("y", "output", p * sticks, 2),
    ]
    data = [pack(values), column(col), pack(row[None]), pack(want)]
    return Case(program("elementwise", arguments, b.kernel()), list(data), [None, None, None, pack(want)])


def reduction(w: Work, columns: int, kind: str = "add", seed: int = 0) -> Case:
    """Reduce rows of `columns` values (a last partial stick is masked with the identity) to a column tensor of f16."""
    rng = np.random.default_rng(seed)
    sticks = -(-columns // 64)
    b = Build("reduction", w.cores)
    n, h = sticks * w.tile, w.h
    x, y = b.take(2 * n), b.take(2 * w.tile)
    ddr_y = b.ddr(1, (w.tile,), (1,), steps={0: w.tile}, core_table=b.table(w.starts()), bounds=w.bound(b, 0))
    b.credits(LXLU, MNIL, 0, 2)
    b.credits(MNIS, LXSU, 0, 2)
    b.loop(w.trips, 0)
    b.wait(MNIL, LXLU)
    b.add(MNIL, "move", src=row_tile(b, w, 0, sticks), dst=b.lx((n,), (1,), base=x, **double(2, n)))
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    b.add(LXLU, "push", lx=b.lx((h, sticks), (1, w.tile), base=x, corelet_step=h, **double(2, n)), fifo="I0")
    b.sig(LXLU, MNIL)
    fill = float(numerics.IDENTITY[kind])
    b.rep(
        h,
        sticks,
        vin(0, "I0"),
        vmask(1, 0, columns, fill),
        vacc(kind, 16, 1),
        vred(kind, 2, 16),
        v1("mov", 3, 2, True, "end"),
        vout(3, "Q", "end"),
    )
    b.wait(LXSU, MNIS)
    b.add(LXSU, "pull", lx=b.lx((h,), (1,), base=y, corelet_step=h, **double(2, w.tile)), fifo="Q")
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    b.add(MNIS, "move", dst=ddr_y, src=b.lx((w.tile,), (1,), base=y, **double(2, w.tile)))
    b.sig(MNIS, LXSU)
    b.end(0)
    values = half(rng, w.rows, columns)
    data = pack(values)
    if columns % 64:
        data[(sticks - 1) * w.rows :, columns % 64 :] = 99.0  # pad lanes hold rubbish
    want = numerics.round_f16(numerics.reduce_machine(kind, values))
    arguments = [Argument("x", "input", w.rows * sticks, 2), Argument("y", "output", w.rows, 2)]
    out = np.repeat(want[:, None], 64, 1)
    return Case(program("reduction", arguments, b.kernel()), [data, np.zeros_like(out)], [None, out])


def softmax(w: Work, sticks: int, seed: int = 0) -> Case:
    """Row softmax: maximum, exp and sum, product; e and the sum stay in LX as f32."""
    rng = np.random.default_rng(seed)
    b = Build("softmax", w.cores, corelets=w.corelets)
    n, h = sticks * w.tile, w.h
    x, y, top, e, total = b.take(2 * n), b.take(2 * n), b.take(w.tile), b.take(2 * n), b.take(2 * w.tile)
    push_x = b.lx((h, sticks), (1, w.tile), base=x, corelet_step=h, **double(2, n))
    lx_top = b.lx((h,), (1,), base=top, corelet_step=h)
    lx_e = b.lx((h, sticks), (2 * sticks, 2), base=e, corelet_step=2 * h * sticks, element_bytes=4)
    lx_sum = b.lx((h,), (2,), base=total, corelet_step=2 * h, element_bytes=4)
    b.credits(LXLU, MNIL, 0, 2)
    b.credits(LXLU, LXSU, 1, 1)
    b.credits(MNIS, LXSU, 0, 2)
    b.loop(w.trips, 0)
    b.wait(MNIL, LXLU)
    b.add(MNIL, "move", src=row_tile(b, w, 0, sticks), dst=b.lx((n,), (1,), base=x, **double(2, n)))
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    b.add(LXLU, "push", lx=push_x, fifo="I0")
    b.rep(h, sticks, vin(0, "I0"), vacc("max", 16, 0), vred("max", 1, 16), vout(1, "Q", "end"))
    b.add(LXSU, "pull", lx=lx_top, fifo="Q")
    b.sig(LXSU, LXLU, 1)
    b.wait(LXLU, LXSU, 1)
    b.add(LXLU, "par", streams=2)
    b.add(LXLU, "push", lx=push_x, fifo="I0")
    b.add(LXLU, "push", lx=lx_top, fifo="I1")
    b.rep(
        h, sticks, vin(0, "I0"), vin(1, "I1", "start"), v2("sub", 2, 0, 1), v1("exp", 3, 2), vout(3, "O"), vacc("add", 16, 3),
        vred("add", 4, 16), vout(4, "Q", "end"),
    )  # fmt: skip
    b.wait(LXSU, LXLU, 1)
    b.add(LXSU, "par", streams=2)
    b.add(LXSU, "pull", lx=lx_e, fifo="O")
    b.add(LXSU, "pull", lx=lx_sum, fifo="Q")
    b.sig(LXSU, LXLU, 2)
    b.wait(LXLU, LXSU, 2)
    b.sig(LXLU, MNIL)
    b.add(LXLU, "par", streams=2)
    b.add(LXLU, "push", lx=lx_e, fifo="I0")
    b.add(LXLU, "push", lx=lx_sum, fifo="I1")
    b.sig(LXLU, LXSU, 1)
    b.rep(h, sticks, vin(0, "I0"), vin(1, "I1", "start"), v1("rec", 2, 1, False, "start"), v2("mul", 3, 0, 2, True), vout(3, "O"))
    b.wait(LXSU, MNIS)
    b.add(LXSU, "pull", lx=b.lx((h, sticks), (1, w.tile), base=y, corelet_step=h, **double(2, n)), fifo="O")
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    b.add(MNIS, "move", dst=row_tile(b, w, 1, sticks), src=b.lx((n,), (1,), base=y, **double(2, n)))
    b.sig(MNIS, LXSU)
    b.end(0)
    values = half(rng, w.rows, sticks * 64) * 3
    values = numerics.round_f16(values)
    t = numerics.UNARY["exp"](values - values.max(1, keepdims=True))
    total_ = numerics.reduce_machine("add", t)
    want = numerics.round_f16(t * numerics.UNARY["rec"](total_)[:, None])
    arguments = [Argument("x", "input", w.rows * sticks, 2), Argument("y", "output", w.rows * sticks, 2)]
    return Case(program("softmax", arguments, b.kernel()), [pack(values), pack(want)], [None, pack(want)])


def matmul(w: Work, k: int, n: int, transposed: bool = False, multicast: bool = True, seed: int = 0) -> Case:
    """C = f16(max(A B + bias, 0)): loops over row tiles, n sticks, k blocks; B read by each core or by one for all; PUSHT if B is [n,k]."""
    rng = np.random.default_rng(seed)
    b = Build("matmul", w.cores, corelets=w.corelets)
    kb, nb, h, r = -(-k // 64), n // 64, w.h, w.tile
    a, wt, bias, y = b.take(kb * r), b.take(2 * 64), b.take(nb), b.take(2 * r)
    b.groups.append([0] * w.cores)
    b.add(MNIL, "move", src=b.ddr(2, (nb,), (1,)), dst=b.lx((nb,), (1,), base=bias))
    b.sig(MNIL, LXLU, 1)
    b.wait(LXLU, MNIL, 1)
    b.credits(LXLU, MNIL, 0, 2)
    b.credits(LXLU, MNIL, 2, 1)
    b.credits(MNIS, LXSU, 0, 2)
    b.loop(w.trips, 0)
    b.wait(MNIL, LXLU, 2)
    b.add(MNIL, "move", src=row_tile(b, w, 0, kb), dst=b.lx((kb * r,), (1,), base=a))
    b.sig(MNIL, LXLU, 2)
    b.wait(LXLU, MNIL, 2)
    b.loop(nb, 1)
    b.loop(kb, 2)
    b.wait(MNIL, LXLU)
    if transposed:  # stick block [k stick][n rows]
        ddr = b.ddr(1, (64,), (1,), steps={1: 64, 2: n})
    else:  # a masked view of k rows: rows beyond are zero
        ddr = b.ddr(1, (64,), (1,), steps={1: k, 2: 64}, bounds=(Bound(limit=k, dim=0, dim_step=1, level=2, level_step=64),))
    rotate = double(2, 64, rotation_levels(w.trips, nb, kb))
    lx_w = b.lx((64,), (1,), base=wt, **rotate)
    b.add(MNIL, "move", src=ddr, dst=lx_w, group=0 if multicast else None)
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    b.add(LXLU, "push", lx=lx_w, fifo="W", transpose=transposed)
    b.add(LXLU, "push", lx=b.lx((h,), (1,), base=a, corelet_step=h, steps={2: r}), fifo="A")
    b.sig(LXLU, MNIL)
    b.add(PT, "ldw")
    b.add(PT, "mm", rows=h)
    b.end(2)
    b.add(LXLU, "push", lx=b.lx((h,), (0,), base=bias, steps={1: 1}), fifo="I0")
    b.add(PT, "pto")
    b.rep(1, h, vin(0, "P"), vin(1, "I0"), vconst(5, 0.0), v2("add", 2, 0, 1), v2("max", 3, 2, 5, True), vout(3, "O"))
    b.wait(LXSU, MNIS)
    rotate_y = double(2, r, rotation_levels(w.trips, nb))
    b.add(LXSU, "pull", lx=b.lx((h,), (1,), base=y, corelet_step=h, **rotate_y), fifo="O")
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    ddr_y = b.ddr(3, (r,), (1,), steps={0: r, 1: w.rows}, core_table=b.table(w.starts()), bounds=w.bound(b, 0))
    b.add(MNIS, "move", dst=ddr_y, src=b.lx((r,), (1,), base=y, **rotate_y))
    b.sig(MNIS, LXSU)
    b.end(1)
    b.sig(LXLU, MNIL, 2)
    b.end(0)
    left, right, add = half(rng, w.rows, k), half(rng, k, n), half(rng, n)
    want = matmul_machine(left, right, np.zeros((w.rows, n), np.float32))
    want = numerics.round_f16(np.maximum(want + add, 0))
    data_b = pack(np.ascontiguousarray(right.T)) if transposed else pack(right)
    arguments = [
        Argument("a", "input", w.rows * kb, 2),
        Argument("b", "input", len(data_b), 2),
        Argument("bias", "input", nb, 2),
        Argument("c", "output", w.rows * nb, 2),
    ]
    return Case(program("matmul", arguments, b.kernel()), [pack(left), data_b, pack(add[None]), pack(want)], [None, None, None, pack(want)])


def _simple(
    b: Build, w: Work, sticks: int, source: int, target: int, body: Callable[[], None], *, load=True, store=True, keep: int = 0
) -> None:
    """One pass over a row tensor with one trip: load, compute, store; `keep` is where x lies in LX."""
    n, h = sticks * w.tile, w.h
    y = b.take(n)
    b.loop(1, 0)
    if load:
        b.add(MNIL, "move", src=row_tile(b, w, source, sticks), dst=b.lx((n,), (1,), base=keep))
        b.sig(MNIL, LXLU)
        b.wait(LXLU, MNIL)
    b.add(LXLU, "push", lx=b.lx((h, sticks), (1, w.tile), base=keep, corelet_step=h), fifo="I0")
    body()
    b.add(LXSU, "pull", lx=b.lx((h, sticks), (1, w.tile), base=y, corelet_step=h), fifo="O")
    if store:
        b.sig(LXSU, MNIS)
        b.wait(MNIS, LXSU)
        b.add(MNIS, "move", dst=row_tile(b, w, target, sticks), src=b.lx((n,), (1,), base=y))
    b.end(0)


def two_kernels(first: Work, second: Work, sticks: int, seed: int = 0) -> Case:
    """Kernel 1 squares x into the pool, kernel 2 (other cores) doubles the pool; kernel 3 reads the x that kernel 1 left in LX."""
    rng = np.random.default_rng(seed)
    assert first.rows == second.rows
    assert first.trips == second.trips == 1
    room = sticks * max(first.tile, second.tile)
    k1, k2, k3 = Build("square", first.cores, top=room), Build("double", second.cores, top=3 * room), Build("again", first.cores, top=room)
    _simple(k1, first, sticks, 0, 1, lambda: k1.rep(first.h, sticks, vin(0, "I0"), v2("mul", 1, 0, 0, True), vout(1, "O")))
    _simple(k2, second, sticks, 1, 2, lambda: k2.rep(second.h, sticks, vin(0, "I0"), v2("add", 1, 0, 0, True), vout(1, "O")), keep=2 * room)
    _simple(k3, first, sticks, 0, 3, lambda: k3.rep(first.h, sticks, vin(0, "I0"), v1("neg", 1, 0), vout(1, "O")), load=False)
    p = first.rows
    values = half(rng, p, sticks * 64)
    square = numerics.round_f16(values * values)
    want = [numerics.round_f16(square + square), -values]
    size = p * sticks
    arguments = [
        Argument("x", "input", size, 2),
        Argument("pool", "pool", size, 2),
        Argument("y", "output", size, 2),
        Argument("z", "output", size, 2),
    ]
    case = program("two_kernels", arguments, k1.kernel(), k2.kernel(), k3.kernel())
    return Case(case, [pack(values), None, pack(values), pack(values)], [None, None, pack(want[0]), pack(want[1])])


def all_cases() -> dict[str, Case]:
    """Small instances of every program."""
    return {
        "elementwise": elementwise(Work(57, 6, 2), 3),
        "elementwise even": elementwise(Work(64, 8, 4), 2, buffers=1),
        "elementwise 29 cores": elementwise(Work(200, 7, 8), 2),
        "sum": reduction(Work(57, 8, 4), 200),
        "max": reduction(Work(57, 8, 4), 129, "max"),
        "min": reduction(Work(30, 4, 2), 64, "min"),
        "softmax": softmax(Work(57, 8, 4), 3),
        "softmax long": softmax(Work(40, 16, 8), 5),
        "matmul": matmul(Work(57, 8, 4), 200, 192),
        "matmul own reads": matmul(Work(20, 4, 2), 128, 128, multicast=False),
        "matmul transposed": matmul(Work(40, 10, 10), 128, 128, transposed=True),
        "two kernels": two_kernels(Work(57, 8, 8), Work(57, 2, 2), 2),
    }
