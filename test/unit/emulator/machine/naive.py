"""A second, slow emulator written from the text of the instruction table alone: entry by entry, each core and corelet on its own.

Units run in random order, one entry at a time, with real FIFOs and tokens. What a race-free program computes does not depend on that
order, so the result must equal that of the machine.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Generator
from math import prod

import numpy as np
from naive_scalars import IDENTITIES, combine, of_lanes

from ktir import numerics
from ktir.emulator.machine.machine import carrier_shape
from ktir.isa.descriptor import Descriptor
from ktir.isa.program import Kernel, Program, Word
from ktir.isa.units import FIFOS, Unit

PAD = {"zero": 0.0, "-inf": -np.inf, "+inf": np.inf}
DEPTH = 16
Run = Generator[None, None, None]


class Naive:
    """Runs a program on carriers; `run` writes outputs back."""

    def __init__(self, program: Program, corelets: int, seed: int) -> None:
        self.program, self.corelets, self.order = program, corelets, random.Random(seed)
        cores = max(k.cores for k in program.kernels)
        self.lx: list[dict[int, np.ndarray]] = [{} for _ in range(cores)]

    def run(self, arguments: list[np.ndarray]) -> None:
        """All kernels in order."""
        self.memory = [self._sticks(i, a) for i, a in enumerate(arguments)]
        for kernel in self.program.kernels:
            self._kernel(kernel)
        for i, a in enumerate(arguments):
            self._carrier(i, a)

    def _sticks(self, i: int, carrier: np.ndarray) -> list[np.ndarray]:
        spec = self.program.arguments[i]
        if spec.element_bytes == 4:
            return [row[h : h + 32].copy() for row in carrier for h in (0, 32)]
        return [row.copy() for row in carrier]

    def _carrier(self, i: int, carrier: np.ndarray) -> None:
        spec = self.program.arguments[i]
        if spec.role == "pool":
            return
        for row, values in enumerate(carrier):
            if spec.element_bytes == 4:
                values[:] = np.concatenate(self.memory[i][2 * row : 2 * row + 2])
            else:
                values[:] = self.memory[i][row]

    def _kernel(self, kernel: Kernel) -> None:
        self.tokens: dict[tuple, int] = {}
        self.fifos: dict[tuple, deque[np.ndarray]] = {}
        units = []
        for core in range(kernel.cores):
            for unit, words in kernel.units.items():
                for k in range(self.corelets if unit.per_corelet else 1):
                    units.append(_UnitRun(self, kernel, unit, words, core, k).run())
        idle = 0
        while units:
            u = self.order.choice(units)
            try:
                next(u)
                idle += 1
                assert idle < 2_000_000, "no end in sight"
            except StopIteration:
                units.remove(u)


class _UnitRun:
    def __init__(self, whole: Naive, kernel: Kernel, unit: Unit, words: list[Word], core: int, corelet: int) -> None:
        self.whole, self.kernel, self.unit, self.words, self.core, self.k = whole, kernel, unit, words, core, corelet
        self.counters = [0] * 8
        self.weights: list[np.ndarray] = []
        self.sums: list[np.ndarray] = []

    def run(self) -> Run:
        pc, stack = 0, []
        while True:
            w = self.words[pc]
            yield
            match w.op:
                case "halt":
                    return
                case "loop":
                    if w["trips"] == 0:
                        depth = 1
                        while depth:
                            pc += 1
                            depth += {"loop": 1, "endl": -1}.get(self.words[pc].op, 0)
                    else:
                        self.counters[w["level"]] = 0
                        stack.append((pc, w["trips"]))
                case "endl":
                    self.counters[w["level"]] += 1
                    start, trips = stack[-1]
                    if self.counters[w["level"]] < trips:
                        pc = start
                    else:
                        self.counters[w["level"]] = 0
                        stack.pop()
                case "par":
                    streams = [self._word(x, pc) for x in self.words[pc + 1 : pc + 1 + w["streams"]]]
                    while streams:
                        s = self.whole.order.choice(streams)
                        try:
                            next(s)
                        except StopIteration:
                            streams.remove(s)
                        yield
                    pc += w["streams"]
                case "rep":
                    yield from self._rep(w, self.words[pc + 1 : pc + 1 + w["body"]])
                    pc += w["body"]
                case _:
                    yield from self._word(w, pc)
            pc += 1

    # Addresses

    def _positions(self, d: Descriptor, core: int | None = None, dim: int = -1, indices: list[tuple[int, int]] | None = None):
        """Per entry (stick or element, live lanes); `indices` has an index and its live lanes per position of `dim`."""
        core = self.core if core is None else core
        k = self.k if self.unit.per_corelet else 0
        at = d.base + k * d.corelet_step + sum(s * c for s, c in zip(d.level_step, self.counters, strict=True))
        if d.core_table is not None:
            at += self.kernel.tables[d.core_table][core]
        at += sum(c for level, c in enumerate(self.counters) if d.rotate_levels >> level & 1) % d.buffers * d.rotate_step
        for n in range(prod(d.extent)):
            index = []
            for e in reversed(d.extent):
                index.insert(0, n % e)
                n //= e
            live = 64
            for b in d.bounds:
                limit = self.kernel.tables[b.table][core] if b.table is not None else b.limit
                position = (b.level_step * self.counters[b.level] if b.level is not None else 0) + k * b.corelet_step
                position += b.dim_step * index[b.dim] if b.dim is not None else 0
                room = limit - position
                live = min(live, max(0, min(64, room)) if b.lanes else 64 if room > 0 else 0)
            if indices is not None:
                index[dim], there = indices[index[dim]]
                live = min(live, 64 if there else 0)
            yield at + sum(i * s for i, s in zip(index, d.stride, strict=True)), live

    def _indices(self, w: Word) -> list[tuple[int, int]]:
        """Per position the index and whether it is there."""
        d = self.kernel.descriptors[w["idx"]]
        out = []
        for a, live in self._positions(d):
            x = self._load(d, a, 1)[:1] if live else np.zeros(1, np.float32)
            out.append((int(x.view(np.int32)[0]), live))
        return out

    def _load(self, d: Descriptor, at: int, live: int) -> np.ndarray:
        """An entry from memory."""
        store = self.whole.memory[d.arg or 0]
        if not d.element:
            return self._get(store, d, at, live)
        per = 128 // d.element_bytes
        x = np.full(64, PAD[d.pad], np.float32)
        for lane in range(live):
            e = at + lane * d.lane_stride
            x[lane : lane + 1] = store[e // per][e % per : e % per + 1]
        return x

    def _store(self, d: Descriptor, at: int, live: int, x: np.ndarray) -> None:
        """An entry to memory."""
        store = self.whole.memory[d.arg or 0]
        if not d.element:
            self._put(store, d, at, live, x)
            return
        per = 128 // d.element_bytes
        for lane in range(live):
            e = at + lane * d.lane_stride
            store[e // per][e % per : e % per + 1] = x[lane : lane + 1]

    def _get(self, store, d: Descriptor, stick: int, live: int) -> np.ndarray:
        if live == 0:
            return np.full(64, PAD[d.pad], np.float32)
        if d.element_bytes == 2:
            x = store[stick].copy()
        else:
            x = np.concatenate([store[stick], store[stick + 1] if live > 32 else np.zeros(32, np.float32)])
        x[live:] = PAD[d.pad]
        return np.full(64, x[0]) if d.splat else x

    def _put(self, store, d: Descriptor, stick: int, live: int, x: np.ndarray) -> None:
        width = 64 if d.element_bytes == 2 else 32
        for half in range(64 // width):
            n = min(max(live - half * width, 0), width)
            if n:
                old = store.get(stick + half) if isinstance(store, dict) else store[stick + half]
                new = np.full(width, np.nan, np.float32) if old is None or len(old) != width else old.copy()
                new[:n] = x[half * width : half * width + n]
                store[stick + half] = new

    # Words

    def _channel(self, sender: Unit, receiver: Unit, token: int) -> list[tuple]:
        if sender.per_corelet and receiver.per_corelet:
            return [(self.core, sender, receiver, token, self.k)]
        if sender.per_corelet or receiver.per_corelet:
            mine = self.unit.per_corelet
            return [(self.core, sender, receiver, token, k) for k in ([self.k] if mine else range(self.whole.corelets))]
        return [(self.core, sender, receiver, token, 0)]

    def _fifo(self, name: str) -> deque[np.ndarray]:
        return self.whole.fifos.setdefault((self.core, self.k, name), deque())

    def _pop(self, name: str) -> Generator[None, None, np.ndarray]:
        while not self._fifo(name):
            yield
        return self._fifo(name).popleft()

    def _push(self, name: str, x: np.ndarray) -> Run:
        while len(self._fifo(name)) >= DEPTH:
            yield
        self._fifo(name).append(np.broadcast_to(x, (64,)).astype(np.float32))

    def _word(self, w: Word, pc: int) -> Run:
        tokens, lx = self.whole.tokens, self.whole.lx[self.core]
        descriptors = self.kernel.descriptors
        match w.op:
            case "sig":
                for key in self._channel(self.unit, Unit[w["receiver"]], w["token"]):
                    tokens[key] = tokens.get(key, 0) + w["count"]
            case "wait":
                for key in self._channel(Unit[w["sender"]], self.unit, w["token"]):
                    while tokens.get(key, 0) < w["count"]:
                        yield
                    tokens[key] -= w["count"]
            case "xld" | "xldm" | "xldg":
                ddr, to = descriptors[w["ddr"]], descriptors[w["lx"]]
                leader = self.kernel.groups[w["group"]][self.core] if w.op == "xldm" else self.core
                indexed = {"dim": w["dim"], "indices": self._indices(w)} if w.op == "xldg" else {}
                for (a, live), (b, goal) in zip(self._positions(ddr, leader, **indexed), self._positions(to), strict=True):
                    self._put(lx, to, b, goal, self._load(ddr, a, live))
            case "xst" | "xsts":
                ddr, of = descriptors[w["ddr"]], descriptors[w["lx"]]
                indexed = {"dim": w["dim"], "indices": self._indices(w)} if w.op == "xsts" else {}
                for (a, live), (b, source) in zip(self._positions(ddr, **indexed), self._positions(of), strict=True):
                    if live:
                        self._store(ddr, a, live, self._get(lx, of, b, source))
            case "fill":
                to = descriptors[w["lx"]]
                for b, goal in self._positions(to):
                    self._put(lx, to, b, goal, np.full(64, w["value"], np.float32))
            case "ifill":
                to = descriptors[w["lx"]]
                for b, goal in self._positions(to):
                    self._put(lx, to, b, goal, np.full(64, w["value"], np.int32).view(np.float32))
            case "push":
                d = descriptors[w["lx"]]
                for a, live in self._positions(d):
                    yield from self._push(w["fifo"], self._get(lx, d, a, live))
            case "pusht":
                d = descriptors[w["lx"]]
                entries = [self._get(lx, d, a, live) for a, live in self._positions(d)]
                for block in range(0, len(entries), 64):
                    for x in np.stack(entries[block : block + 64]).T:
                        yield from self._push(w["fifo"], x)
            case "pull":
                d = descriptors[w["lx"]]
                for a, live in self._positions(d):
                    x = yield from self._pop(w["fifo"])
                    if live:
                        self._put(lx, d, a, live, x)
            case "rtx":
                d = descriptors[w["lx"]]
                to = [c for c, source in enumerate(self.kernel.groups[w["group"]]) if source == self.core]
                for a, live in self._positions(d):
                    x = np.broadcast_to(self._get(lx, d, a, live), (64,)).astype(np.float32)
                    for core in to:
                        arriving = self.whole.fifos.setdefault((core, self.core, "R"), deque())
                        while len(arriving) >= DEPTH:
                            yield
                        arriving.append(x)
            case "rrx":
                d = descriptors[w["lx"]]
                sender = self.kernel.groups[w["group"]][self.core]
                arriving = self.whole.fifos.setdefault((self.core, sender, "R"), deque())
                for a, live in self._positions(d):
                    while not arriving:
                        yield
                    self._put(lx, d, a, live, arriving.popleft())
            case "ldw":
                self.weights = []
                for _ in range(64):
                    x = yield from self._pop("W")
                    self.weights.append(x)
            case "mm":
                fresh = not self.sums
                for m in range(w["rows"]):
                    x = yield from self._pop("A")
                    y = numerics.matmul_block(x[None], np.stack(self.weights))[0]
                    if fresh:
                        self.sums.append(np.float32(0) + y)
                    else:
                        self.sums[m] = self.sums[m] + y
            case "pto":
                for x in self.sums:
                    yield from self._push("P", x)
                self.sums = []
            case _:
                raise AssertionError(w.op)

    def _rep(self, w: Word, body: list[Word]) -> Run:
        """The body in order for every stick; `start` ops only at the first, `end` ops only at the last."""
        last = w["sticks"] - 1
        for _ in range(w["groups"]):
            r: dict[int, np.ndarray] = {}
            for stick in range(w["sticks"]):
                for b in body:
                    phase = b.operands.get("phase", "stick")
                    if (phase == "start" and stick) or (phase == "end" and stick != last):
                        continue
                    yield from self._op(b, r, stick)

    def _op(self, b: Word, r: dict[int, np.ndarray], stick: int) -> Run:
        match b.op:
            case "vin":
                r[b["dst"]] = yield from self._pop(b["fifo"])
            case "vout":
                yield from self._push(b["fifo"], r[b["src"]])
            case "vconst":
                r[b["dst"]] = np.full(64, b["value"], np.float32)
            case "vacc":
                x = r[b["src"]]
                start = np.full(64, IDENTITIES[b["kind"]], np.int32).view(np.float32)
                r[b["dst"]] = combine(b["kind"], r[b["dst"]] if stick else start, x)
            case "vred":
                x, n = r[b["src"]], 32
                while n:
                    x, n = combine(b["kind"], x[:n], x[n:]), n // 2
                r[b["dst"]] = np.full(64, x[0])
            case "vmask":
                r[b["dst"]] = np.where(64 * stick + np.arange(64) < b["lanes"], r[b["src"]], np.float32(b["fill"]))
            case "viconst":
                r[b["dst"]] = np.full(64, b["value"], np.int32).view(np.float32)
            case "vlive":
                r[b["dst"]] = (64 * stick + np.arange(64) < b["lanes"]).astype(np.int32).view(np.float32)
            case _:
                x = of_lanes(b["kind"], *(r[b[f]] for f in ("src", "src2", "src3") if f in b.operands))
                r[b["dst"]] = numerics.round_f16(x) if b["round"] else x
        yield


__all__ = ["FIFOS", "Naive", "carrier_shape"]
