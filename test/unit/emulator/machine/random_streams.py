"""Random instruction streams: odd walks, bounds, element sizes, bodies and core tables, synchronised so that most are free of races."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
from machine_builds import (
    LXLU,
    LXSU,
    MNIL,
    MNIS,
    PT,
    Build,
    Case,
    half,
    program,
    v1,
    v2,
    v3,
    vacc,
    vconst,
    vin,
    vlive,
    vmask,
    vout,
    vred,
)

from ktir.emulator.machine.machine import carrier_shape
from ktir.isa.descriptor import Bound
from ktir.isa.program import Argument

ARGUMENTS = [
    Argument("a", "input", 400, 2),
    Argument("b", "input", 400, 4),
    Argument("c", "input_output", 500, 2),
    Argument("y", "output", 4000, 2),
    Argument("z", "output", 8000, 4),
    Argument("pool", "pool", 4000, 2),
]


@dataclass
class Region:
    """Initialised LX: `entries` entries of `width` sticks from `base` on."""

    base: int
    entries: int
    width: int


@dataclass
class Maker:
    """Builds one kernel."""

    r: random.Random
    build: Build
    trips: int
    regions: list[Region] = field(default_factory=list)
    out: list[int] = field(default_factory=lambda: [0, 0])
    """First free stick of y and z."""

    def maybe(self, chance: float) -> bool:
        return self.r.random() < chance

    def extent(self, entries: int) -> tuple[int, ...]:
        """A shape with so many entries."""
        out = []
        while entries > 1 and len(out) < 2 and self.maybe(0.7):
            factors = [k for k in range(2, entries + 1) if entries % k == 0]
            f = self.r.choice(factors)
            out.append(f)
            entries //= f
        out.append(entries)
        self.r.shuffle(out)
        return tuple(out)

    def strides(self, extent: tuple[int, ...], width: int) -> tuple[int, ...]:
        """Strides of a dense walk in random order of the dimensions."""
        order = list(range(len(extent)))
        self.r.shuffle(order)
        out = [0] * len(extent)
        step = width
        for d in order:
            out[d] = step
            step *= extent[d]
        return tuple(out)

    def bounds(self, extent: tuple[int, ...], cores: int, most: int = 1, per_corelet: bool = False) -> tuple[Bound, ...]:
        """Up to `most` random bounds."""
        out = []
        for _ in range(self.r.randint(0, most)):
            d = self.r.randrange(len(extent))
            lanes = self.maybe(0.3)
            scale = 64 if lanes else 1
            table = None
            limit = self.r.randint(1, extent[d] * scale + scale)
            if self.maybe(0.4):
                table = self.build.table([limit] * (cores - 1) + [self.r.randint(0, limit)])
            dim = d if self.maybe(0.9) else None
            step = 1 if dim is None else scale if self.maybe(0.8) else self.r.choice([1, 32, 64])
            level, level_step = (0, self.r.choice([0, 1, scale])) if self.maybe(0.3) else (None, 0)
            corelet = self.r.choice([0, 0, 1, scale]) if per_corelet else 0
            out.append(Bound(0 if table is not None else limit, table, dim, step, level, level_step, corelet, lanes))
        return tuple(out)

    # Words

    def load(self, inside: bool = True) -> None:
        """A load or FILL of a new region, inside of the loop or before it."""
        b, r = self.build, self.r
        entries = r.choice([1, 4, 6, 12, 24, 64])
        width = r.choice([1, 1, 2])
        base = b.take(entries * width)
        self.regions.append(Region(base, entries, width))
        lx = b.lx((entries,), (width,), base=base, element_bytes=2 * width)
        if self.maybe(0.15):
            b.add(MNIL, "fill", lx=lx, value=r.choice([0.0, 1.5, -2.0]))
            return
        extent = self.extent(entries)
        strides = tuple(s * r.choice([1, 1, 2]) if self.maybe(0.3) else s for s in self.strides(extent, width))
        if self.maybe(0.2):
            strides = tuple(0 if self.maybe(0.3) else s for s in strides)
        table = None
        kind = r.randrange(4)
        if kind == 1:
            table = b.table([c * r.choice([3, 3, 5]) % 60 for c in range(b.cores)])
        elif kind == 2:
            table = b.table([c * 2 for c in range(b.cores)])
        multicast = kind == 3 and bool(b.groups)
        ddr = b.ddr(
            0 if width == 1 else 1, extent, strides, base=r.randrange(20 * width), element_bytes=2 * width, core_table=table,
            steps={0: r.choice([0, 1, 4])} if inside else {},
            bounds=self.bounds(extent, b.cores, 2) if inside and self.maybe(0.5) else (), pad=r.choice(["zero", "-inf", "+inf", "zero"]),
        )  # fmt: skip
        b.add(MNIL, "move", src=ddr, dst=lx, group=0 if multicast else None)

    def source(self, entries: int, width: int | None = None, splats: bool = True) -> tuple[int, bool]:
        """A descriptor that reads `entries` entries of some region, and whether they are f32."""
        b, r = self.build, self.r
        fits = [x for x in self.regions if width in (None, x.width)]
        x = r.choice(fits)
        extent = self.extent(entries)
        strides = list(self.strides(extent, x.width))
        room = x.entries * x.width
        while sum(s * (e - 1) for s, e in zip(strides, extent, strict=True)) + x.width > room:
            d = max(range(len(strides)), key=lambda k: strides[k] * (extent[k] - 1))
            strides[d] = 0 if self.maybe(0.5) else strides[d] // 2 // x.width * x.width
        if self.maybe(0.2):
            strides[r.randrange(len(strides))] = 0
        reach = sum(s * (e - 1) for s, e in zip(strides, extent, strict=True)) + x.width
        slack = room - reach
        offset = r.randint(0, slack) if slack else 0
        step = r.choice([0, r.randint(0, slack - offset)]) if slack else 0
        bounds = self.bounds(extent, b.cores, 2, True) if self.maybe(0.25) else ()
        pad = r.choice(["zero", "zero", "-inf", "+inf"])
        d = b.lx(
            extent, strides, base=x.base + offset, corelet_step=step, element_bytes=2 * x.width,
            bounds=bounds, pad=pad, splat=splats and self.maybe(0.2),
        )  # fmt: skip
        return d, x.width == 2

    def target(self, entries: int, width: int) -> int:
        """A descriptor that writes `entries` entries per corelet, to a new region or over an old one."""
        b, r = self.build, self.r
        old = [x for x in self.regions if x.entries == 2 * entries and x.width == width]
        if old and self.maybe(0.3):
            base = r.choice(old).base
        else:
            base = b.take(2 * entries * width)
            self.regions.append(Region(base, 2 * entries, width))
        extent = self.extent(entries)
        strides = self.strides(extent, width)
        bounds = self.bounds(extent, b.cores, 1, True) if self.maybe(0.2) else ()
        return b.lx(extent, strides, base=base, corelet_step=entries * width, element_bytes=2 * width, bounds=bounds)

    def vector(self, from_array: int = 0) -> None:
        """PUSHes, a REP and PULLs; `from_array`: so many entries come from PT."""
        b, r = self.build, self.r
        groups, sticks = (1, from_array) if from_array else (r.choice([1, 2, 3, 4]), r.choice([1, 2, 3, 6]))
        if from_array and self.maybe(0.5):
            groups, sticks = from_array, 1
        body, pushes = [], []
        counts = {"I0": 0, "I1": 0, "I2": 0}
        values: dict[str, list[int]] = {"stick": [], "start": [], "const": []}
        register = 0
        if from_array:
            body.append(vin(0, "P"))
            values["stick"].append(0)
            register = 1
        for fifo in r.sample(list(counts), r.randint(0 if from_array else 1, 3)):
            for _ in range(r.choice([1, 1, 1, 2])):
                phase = r.choice(["stick", "stick", "start"])
                body.append(vin(register, fifo, phase))
                values[phase].append(register)
                counts[fifo] += groups * (sticks if phase == "stick" else 1)
                register += 1
        body.append(vconst(register, r.choice([0.5, -1.0, 3.0])))
        values["const"].append(register)
        register += 1
        ends: list[int] = []
        for _ in range(r.randint(1, 6)):
            if register > 12:
                break
            phase = r.choice(["stick", "stick", "stick", "start", "end"])
            usable = values["const"] + values["start"] + (values["stick"] if phase == "stick" else ends if phase == "end" else [])
            a, c = r.choice(usable), r.choice(usable)
            kind = r.randrange(8)
            if kind == 6 and register < 11:
                body += chosen(r, register, a, c, phase)
                register += 1
            elif kind == 7 and register < 11:
                body += counted(r, register, a, phase)
                register += 1
            elif kind == 0 and phase == "stick":
                body.append(vmask(register, a, r.randint(0, sticks * 64 + 10), r.choice([0.0, -1.0, float("-inf")])))
            elif kind == 1 and phase == "stick" and len(ends) < 3:
                acc = 16 + len(ends)
                body.append(vacc(r.choice(["add", "max", "min"]), acc, a))
                ends.append(acc)
                continue
            elif kind == 2:
                body.append(vred(r.choice(["add", "max", "min"]), register, a, phase))
            elif kind == 3:
                body.append(v1(r.choice(["neg", "abs", "exp", "mov", "floor", "tanh", "rec", "erf"]), register, a, self.maybe(0.5), phase))
            else:
                body.append(v2(r.choice(["add", "sub", "mul", "max", "min"]), register, a, c, self.maybe(0.5), phase))
            (ends if phase == "end" else values[phase]).append(register)
            register += 1
        pulls = []
        for fifo in r.sample(["O", "Q"], r.choice([1, 1, 2])):
            phase = r.choice(["stick", "stick", "end"])
            usable = values["const"] + values["start"] + (values["stick"] if phase == "stick" else ends)
            width = r.choice([1, 1, 2])
            source = r.choice(usable[-3:])
            if width == 1:
                body.append(v1("mov", 14 if fifo == "O" else 15, source, True, phase))
                source = 14 if fifo == "O" else 15
            body.append(vout(source, fifo, phase))
            pulls.append((fifo, groups * (sticks if phase == "stick" else 1), width))
        pushes = [(f, n) for f, n in counts.items() if n]
        if len(pushes) > 1:
            b.add(LXLU, "par", streams=len(pushes))
        for fifo, n in pushes:
            b.add(LXLU, "push", lx=self.source(n)[0], fifo=fifo)
        b.rep(groups, sticks, *body)
        if len(pulls) > 1:
            b.add(LXSU, "par", streams=len(pulls))
        for fifo, n, width in pulls:
            b.add(LXSU, "pull", lx=self.target(n, width), fifo=fifo)
        if self.maybe(0.1):
            b.sig(LXSU, LXLU, 1)
            b.wait(LXLU, LXSU, 1)
            return
        b.sig(LXSU, MNIS, 2)  # a core unit between, so that each corelet may read what the other wrote
        b.wait(MNIS, LXSU, 2)
        b.sig(MNIS, LXLU, 2)
        b.wait(LXLU, MNIS, 2)

    def array(self) -> None:
        """Weights, products, and a REP on the sums."""
        b, r = self.build, self.r
        rows = r.choice([1, 2, 4, 6])
        for _ in range(r.randint(1, 3)):
            transpose = r.choice([False, False, True])
            b.add(LXLU, "push", lx=self.source(64, 1, not transpose)[0], fifo="W", transpose=transpose)
            b.add(PT, "ldw")
            for _ in range(r.choice([1, 1, 2])):
                b.add(LXLU, "push", lx=self.source(rows, 1)[0], fifo="A")
                b.add(PT, "mm", rows=rows)
        b.add(PT, "pto")
        self.vector(rows)

    def store(self) -> None:
        """A store of some region into rows of its own."""
        b, r = self.build, self.r
        x = r.choice(self.regions)
        n = r.randint(1, x.entries)
        extent = self.extent(n)
        which = 0 if x.width == 1 else 1
        size = n * x.width
        per_core = size * self.trips
        if self.out[which] + per_core * b.cores > ARGUMENTS[3 + which].sticks:
            return
        offset = r.randint(0, (x.entries - n) * x.width)
        lx = b.lx(extent, self.strides(extent, x.width), base=x.base + offset, element_bytes=2 * x.width)
        order = list(range(b.cores))
        if self.maybe(0.3):
            r.shuffle(order)
        ddr = b.ddr(
            3 + which, extent, self.strides(extent, x.width), base=self.out[which], element_bytes=2 * x.width, steps={0: size},
            core_table=b.table([c * per_core for c in order]), bounds=self.bounds(extent, b.cores) if self.maybe(0.4) else (),
        )  # fmt: skip
        self.out[which] += per_core * b.cores
        b.add(MNIS, "move", dst=ddr, src=lx)


def chosen(r: random.Random, register: int, a: int, c: int, phase: str) -> list[tuple[str, dict]]:
    """One of two values by a mask; takes two registers."""
    mask = v2(r.choice(["cmpf_olt", "cmpf_une", "cmpf_uge"]), register, a, c, False, phase)
    if phase == "stick" and r.random() < 0.5:
        mask = vlive(register, r.randint(0, 200))
    return [mask, v3("select", register + 1, register, c, a, False, phase)]


def counted(r: random.Random, register: int, a: int, phase: str) -> list[tuple[str, dict]]:
    """A value by way of integers; takes two registers."""
    kind = r.choice(["addi", "muli", "floordivsi", "xori", "minsi", "shrsi"])
    return [
        v1("fptosi", register, a, False, phase),
        vconst(register + 1, r.choice([-3, 0, 1, 7, 2**31 - 1, -(2**31)]), phase),
        v2(kind, register, register, register + 1, False, phase),
        v1("sitofp", register + 1, register, r.random() < 0.5, phase),
    ]


def make(seed: int, cores: tuple[int, ...] = (1, 2, 3, 7, 29)) -> Case:
    """A random program; about two thirds pass the checks."""
    r = random.Random(seed)
    rng = np.random.default_rng(seed)
    kernels = []
    top, regions = 0, []
    out = [0, 0]
    for k in range(r.choice([1, 1, 2])):
        b = Build(f"k{k}", r.choice(cores), top=top)
        if r.random() < 0.5:
            b.groups.append([c // 3 * 3 for c in range(b.cores)])
        trips = r.choice([1, 1, 2, 3])
        m = Maker(r, b, trips, regions if r.random() < 0.5 else [], out)
        if not m.regions:
            m.load(inside=False)
        b.loop(trips, 0)
        for _ in range(r.randint(1, 3)):
            m.load()
        b.sig(MNIL, LXLU)
        b.wait(LXLU, MNIL)
        for _ in range(r.randint(1, 4)):
            if any(x.width == 1 and x.entries >= 4 for x in m.regions) and m.maybe(0.3):
                m.array()
            else:
                m.vector()
        b.sig(LXSU, MNIS)
        b.wait(MNIS, LXSU)
        for _ in range(r.randint(1, 3)):
            m.store()
        b.sig(MNIS, MNIL, 5)
        b.wait(MNIL, MNIS, 5)
        b.sig(LXLU, MNIL, 6)
        b.wait(MNIL, LXLU, 6)
        b.sig(MNIS, LXSU, 7)
        b.wait(LXSU, MNIS, 7)
        b.end(0)
        kernels.append(b.kernel())
        top, regions = b.top, m.regions
    data: list[np.ndarray | None] = []
    for a in ARGUMENTS:
        shape = carrier_shape(a)
        data.append(
            None if a.role == "pool" else half(rng, *shape) if a.element_bytes == 2 else rng.standard_normal(shape).astype(np.float32)
        )
    return Case(program(f"random {seed}", ARGUMENTS, *kernels), data, [None] * len(ARGUMENTS))
