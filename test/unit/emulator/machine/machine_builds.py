"""Words and kernels of hand-written instruction streams."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ktir.arithmetic import numerics
from ktir.isa.descriptor import LEVELS, Descriptor
from ktir.isa.program import Argument, Channel, Kernel, Program, Source, Word, word
from ktir.isa.units import Unit

MNIL, MNIS, LXLU, PT, SFP, LXSU = Unit


F32 = np.ndarray

ADDRESSES = ("base", "rotate_step", "corelet_step", "lane_stride")


@dataclass
class Case:
    """A program, its arguments and what its outputs must be (None = not an output)."""

    program: Program
    arguments: list[np.ndarray | None]
    expected: list[np.ndarray | None]
    tolerance: float = 0.0

    def fresh(self) -> list[np.ndarray | None]:
        """Arguments for a launch: inputs copied, outputs full of a pattern."""
        out: list[np.ndarray | None] = []
        for spec, a in zip(self.program.arguments, self.arguments, strict=True):
            out.append(None if a is None else np.full_like(a, -77) if spec.role == "output" else a.copy())
        return out


@dataclass
class Build:
    """A kernel under construction."""

    name: str
    cores: int
    descriptors: list[Descriptor] = field(default_factory=list)
    tables: list[list[int]] = field(default_factory=list)
    groups: list[list[int]] = field(default_factory=list)
    channels: list[Channel] = field(default_factory=list)
    units: dict[Unit, list[Word]] = field(default_factory=lambda: {u: [] for u in Unit})
    top: int = 0
    corelets: int = 2

    def table(self, values: list[int]) -> int:
        """A core table."""
        if values not in self.tables:
            self.tables.append(values)
        return self.tables.index(values)

    def take(self, sticks: int) -> int:
        """Room in LX."""
        at = self.top
        self.top += sticks
        return at

    def lx(self, extent, stride, **more) -> int:
        """An LX descriptor; `steps` maps levels to steps. Addresses count sticks, here and below."""
        return self._descriptor("lx", extent, stride, **more)

    def ddr(self, arg: int, extent, stride, **more) -> int:
        """A memory descriptor; with `lane_stride`, an element descriptor, its addresses count elements."""
        return self._descriptor("ddr", extent, stride, arg=arg, **more)

    def _descriptor(self, space, extent, stride, steps=None, element_bytes: Literal[1, 2, 4] = 2, core_table=None, **more) -> int:
        if self.corelets == 1:
            more.pop("corelet_step", None)
        unit = 128 if more.get("lane_stride") is None else element_bytes
        scaled: dict[str, Any] = {n: v * unit if n in ADDRESSES and v is not None else v for n, v in more.items()}
        if core_table is not None:
            scaled["core_table"] = self.table([v * unit for v in self.tables[core_table]])
        level_step = tuple((steps or {}).get(level, 0) * unit for level in range(LEVELS))
        d = Descriptor(space, element_bytes, tuple(extent), tuple(s * unit for s in stride), level_step=level_step, **scaled)
        self.descriptors.append(d)
        return len(self.descriptors) - 1

    def add(self, unit: Unit, op: str, **operands) -> None:
        """Append a word."""
        self.units[unit].append(word(op, int(unit) + 1, **operands))

    def loop(self, trips: int, level: int, *units: Unit) -> None:
        """Open a loop in the units."""
        for u in units or tuple(Unit):
            self.add(u, "loop", trips=trips, level=level, region=level + 1 if not units else 0)

    def end(self, level: int, *units: Unit) -> None:
        """Close it."""
        for u in units or tuple(Unit):
            self.add(u, "endl", level=level)

    def credits(self, sender: Unit, receiver: Unit, token: int, count: int) -> None:
        """Initial credits from the sender's prologue, which stay at the end."""
        if count:
            self.add(sender, "sig", token=token, receiver=receiver, count=count)
            self.channels.append(Channel(sender, receiver, token, count))

    def sig(self, sender: Unit, receiver: Unit, token: int = 0, count: int = 1) -> None:
        """Post."""
        self.add(sender, "sig", token=token, receiver=receiver, count=count)

    def wait(self, receiver: Unit, sender: Unit, token: int = 0, count: int = 1) -> None:
        """Take."""
        self.add(receiver, "wait", token=token, sender=sender, count=count)

    def rep(self, groups: int, sticks: int, *body: tuple[str, dict]) -> None:
        """A vector loop; words go into the list that their `phase` names."""
        parts = {"start": [], "stick": [], "end": []}
        for op, operands in body:
            rest = dict(operands)
            parts[rest.pop("phase", "stick")].append((op, rest))
        start, each, end = parts.values()
        self.add(SFP, "rep", groups=groups, sticks=sticks, start=len(start), each=len(each), end=len(end))
        for op, operands in (*start, *each, *end):
            self.add(SFP, op, **operands)

    def kernel(self) -> Kernel:
        """The finished kernel."""
        for u in Unit:
            self.add(u, "halt")
        return Kernel(self.name, self.cores, self.units, self.descriptors, self.tables, self.groups, self.channels)


SOURCES = [
    Source("", ""),
    *(
        Source(op, f"model.py:{10 + i}:5")
        for i, op in enumerate(("ktdp.load", "ktdp.store", "ktdp.read", "linalg.matmul", "linalg.generic", "ktdp.write"))
    ),
]


def program(name: str, arguments: list[Argument], *kernels: Kernel) -> Program:
    """A program of finished kernels."""
    return Program(name, arguments, list(kernels), list(SOURCES))


def vin(dst, fifo, phase="stick"):
    """VIN."""
    return "vin", {"dst": dst, "fifo": fifo, "phase": phase}


def vout(src, fifo, phase="stick"):
    """VOUT."""
    return "vout", {"src": src, "fifo": fifo, "phase": phase}


def v1(kind, dst, src, rounded=False, phase="stick"):
    """V1."""
    return "v1", {"kind": kind, "dst": dst, "src": src, "round": rounded, "phase": phase}


def v2(kind, dst, a, b, rounded=False, phase="stick"):
    """V2."""
    return "v2", {"kind": kind, "dst": dst, "src": a, "src2": b, "round": rounded, "phase": phase}


def v3(kind, dst, a, b, c, rounded=False, phase="stick"):
    """V3."""
    return "v3", {"kind": kind, "dst": dst, "src": a, "src2": b, "src3": c, "round": rounded, "phase": phase}


def vlive(dst, lanes):
    """VLIVE."""
    return "vlive", {"dst": dst, "lanes": lanes}


def vacc(kind, dst, src):
    """VACC."""
    return "vacc", {"kind": kind, "dst": dst, "src": src}


def vred(kind, dst, src, phase="end"):
    """VRED."""
    return "vred", {"kind": kind, "dst": dst, "src": src, "phase": phase}


def vmask(dst, src, lanes, fill):
    """VMASK."""
    return "vmask", {"dst": dst, "src": src, "lanes": lanes, "fill": fill}


def vconst(dst, value, phase="start"):
    """VCONST."""
    return "vconst", {"dst": dst, "value": value, "phase": phase}


def half(rng: np.random.Generator, *shape: int) -> F32:
    """Random values on the f16 grid."""
    return numerics.round_f16(rng.standard_normal(shape).astype(np.float32))


def on_halves(p: Program, half: str) -> Program:
    """The program on another float of 16 bits in place of f16."""

    def changed(w: Word) -> Word:
        named = "half" in w.operands and w.operands.get("round", True)
        return replace(w, operands=w.operands | ({"half": half} if named else {}))

    def held(of: Any) -> Any:
        return replace(of, half=half) if of.element_bytes == 2 else of

    kernels = [
        replace(k, descriptors=list(map(held, k.descriptors)), units={u: list(map(changed, words)) for u, words in k.units.items()})
        for k in p.kernels
    ]
    return replace(p, arguments=list(map(held, p.arguments)), kernels=kernels)


def case_in_bf16(case: Case) -> Case:
    """A case on bf16; what its outputs must be is not known."""
    given: list[np.ndarray | None] = [
        None if x is None else numerics.round_to("bf16", x) if a.element_bytes == 2 else x
        for a, x in zip(case.program.arguments, case.arguments, strict=True)
    ]
    return Case(on_halves(case.program, "bf16"), given, [None] * len(given))


def pack(x: F32) -> F32:
    """[P, N] -> entries [ceil(N/64) * P, 64], padded with zeros."""
    p, n = x.shape
    s = -(-n // 64)
    out = np.zeros((p, s * 64), np.float32)
    out[:, :n] = x
    return np.ascontiguousarray(out.reshape(p, s, 64).transpose(1, 0, 2)).reshape(-1, 64)


def column(x: F32) -> F32:
    """[P] -> entries [P, 64] with the value in lane 0 and rubbish elsewhere."""
    out = np.full((len(x), 64), 13.0, np.float32)
    out[:, 0] = x
    return out
