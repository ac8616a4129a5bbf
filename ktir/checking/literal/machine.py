"""The machine: memory and scratchpads as bytes, walks of descriptors, and units that run their words and wait for each other.

Each core has the units MNIL and MNIS, each of its corelets LXLU, PT, SFP and LXSU. A unit is a generator that yields between its steps and
while it is blocked; what a program without races computes does not depend on who runs when.
"""

from __future__ import annotations

import math
import random
import struct
from collections import defaultdict, deque
from collections.abc import Generator, Iterator, Sequence
from itertools import product
from typing import Any

from . import arithmetic
from .arithmetic import Entry
from .assembly import Kernel, Program, Word, read

LANES = 64
LX_BYTES = 2 << 20
CORELETS = 2
FIFO_ENTRIES = 16
CORE_UNITS = ("MNIL", "MNIS")
CORELET_UNITS = ("LXLU", "PT", "SFP", "LXSU")
PADS = {"zero": 0.0, "-inf": -math.inf, "+inf": math.inf}
FORMATS = {2: "<H", 4: "<I"}

Steps = Generator[None, None, Any]


class Fault(Exception):
    """A program that has no meaning on these arguments."""


def run(text: str, arguments: Sequence[bytearray], *, order: random.Random | None = None, unwritten: int = 0xFF) -> None:
    """Run the program that `text` describes on the contents of memory, one `bytearray` of sticks per argument, in place.

    `order` draws which unit runs next; `unwritten` is the byte that LX is full of before anything is written.
    """
    program = read(text)
    cores = max((k.cores for k in program.kernels), default=0)
    lx = [bytearray([unwritten]) * LX_BYTES for _ in range(cores)]
    for kernel in program.kernels:
        _Kernel(program, kernel, arguments, lx).run(order)


class _Kernel:
    """What lives as long as a kernel: tokens and FIFOs. Memory and LX outlive it."""

    def __init__(self, program: Program, kernel: Kernel, arguments: Sequence[bytearray], lx: list[bytearray]) -> None:
        self.kernel, self.lx = kernel, lx
        self.memory = dict(zip(program.arguments, arguments, strict=True))
        self.tokens: dict[tuple[Any, ...], int] = defaultdict(int)
        self.fifos: dict[tuple[Any, ...], deque[Entry]] = defaultdict(deque)
        self.progress = 0

    def run(self, order: random.Random | None) -> None:
        """Run all units until they have halted."""
        units = [
            _Unit(self, unit, core, corelet).run()
            for core in range(self.kernel.cores)
            for unit in self.kernel.units
            for corelet in range(CORELETS if unit in CORELET_UNITS else 1)
        ]
        while units:
            before, left = self.progress, []
            if order:
                order.shuffle(units)
            for unit in units:
                try:
                    next(unit)
                    left.append(unit)
                except StopIteration:
                    self.progress += 1
            if self.progress == before:
                raise Fault("deadlock")
            units = left

    def push(self, fifo: tuple[Any, ...], entry: Entry) -> Steps:
        """Wait for room in a FIFO and put an entry into it."""
        while len(self.fifos[fifo]) == FIFO_ENTRIES:
            yield
        self.fifos[fifo].append(entry)
        self.progress += 1
        yield

    def pop(self, fifo: tuple[Any, ...]) -> Generator[None, None, Entry]:
        """Wait for an entry of a FIFO and take it."""
        while not self.fifos[fifo]:
            yield
        self.progress += 1
        return self.fifos[fifo].popleft()


class _Unit:
    """A unit of a core, or of a corelet, in one kernel."""

    def __init__(self, whole: _Kernel, unit: str, core: int, corelet: int) -> None:
        self.whole, self.unit, self.core, self.corelet = whole, unit, core, corelet
        self.counters = [0] * 8
        self.weights: list[arithmetic.Numbers] = []
        self.sums: list[Entry] = []

    # --- control ---

    def run(self) -> Steps:
        """The unit's program."""
        words = self.whole.kernel.units[self.unit]
        at, open_loops = 0, []
        while words[at].op != "halt":
            w = words[at]
            if w.op == "loop":
                if w["trips"]:
                    open_loops.append(at)
                else:
                    at = _end_of_loop(words, at)
            elif w.op == "endl":
                start = open_loops[-1]
                self.counters[w["level"]] += 1
                if self.counters[w["level"]] < words[start]["trips"]:
                    at = start
                else:
                    self.counters[w["level"]] = 0
                    open_loops.pop()
            elif w.op == "par":
                yield from _together([self._word(x, []) for x in words[at + 1 : at + 1 + w["streams"]]])
                at += w["streams"]
            else:
                body = words[at + 1 : at + 1 + w["start"] + w["each"] + w["end"]] if w.op == "rep" else []
                yield from self._word(w, body)
                at += len(body)
            self.whole.progress += 1
            yield
            at += 1

    def _word(self, w: Word, body: list[Word]) -> Steps:
        match w.op:
            case "sig" | "wait":
                yield from self._token(w)
            case "move":
                yield from self._move(w)
            case "fill":
                self._fill(w)
            case "push":
                yield from self._push(w)
            case "pull":
                for place in self._places(w["lx"]):
                    self._write_lx(place, (yield from self._pop(w["fifo"])))
            case "ldw" | "mm" | "pto":
                yield from self._array(w)
            case "rep":
                yield from self._rep(w, body)
            case _:
                raise Fault(f"unknown instruction '{w.op}'")

    def _token(self, w: Word) -> Steps:
        """SIG and WAIT. A channel between a core unit and a corelet unit has a queue per corelet: the core unit uses both."""
        sender, receiver = (self.unit, w["receiver"]) if w.op == "sig" else (w["sender"], self.unit)
        corelets: Sequence[int] = (self.corelet,)
        if self.unit in CORE_UNITS and (sender in CORELET_UNITS or receiver in CORELET_UNITS):
            corelets = range(CORELETS)
        for k in corelets:
            queue = (self.core, k, sender, receiver, w["token"])
            if w.op == "sig":
                self.whole.tokens[queue] += w["count"]
                continue
            while self.whole.tokens[queue] < w["count"]:
                yield
            self.whole.tokens[queue] -= w["count"]

    def _group(self, w: Word) -> list[int]:
        return self.whole.kernel.groups[w["group"]]

    def _pop(self, fifo: str) -> Generator[None, None, Entry]:
        return self.whole.pop((fifo, self.core, self.corelet))

    def _put(self, fifo: str, entry: Entry) -> Steps:
        return self.whole.push((fifo, self.core, self.corelet), entry)

    # --- walks ---

    def _places(self, name: str, dim: int = -1, indices: Sequence[int] = ()) -> Iterator[_Place]:
        """The entries of a walk; `indices` replace the positions along inner dim `dim` in addresses, not in bounds."""
        d = self.whole.kernel.descriptors[name]
        tables = self.whole.kernel.tables
        start = d["base"] + self.corelet * d["corelet_step"]
        start += tables[d["core_table"]][self.core] if d["core_table"] else 0
        start += sum(step * counter for step, counter in zip(d["level_step"], self.counters, strict=False))
        start += sum(self.counters[level] for level in d["rotate_levels"]) % d["buffers"] * d["rotate_step"]
        for position in product(*map(range, d["extent"])):
            live = LANES
            for b in d["bounds"]:
                limit = b["limit"] if isinstance(b["limit"], int) else tables[b["limit"]][self.core]
                room = limit - self.corelet * b["corelet_step"]
                room -= 0 if b["dim"] is None else b["dim_step"] * position[b["dim"]]
                room -= 0 if b["level"] is None else b["level_step"] * self.counters[b["level"]]
                live = min(live, max(room, 0) if b["lanes"] else LANES if room > 0 else 0)
            chosen = [indices[p] if i == dim else p for i, p in enumerate(position)]
            at = start + sum(p * stride for p, stride in zip(chosen, d["stride"], strict=True))
            yield _Place(self, d, at, live)

    def _read_lx(self, place: _Place) -> Entry:
        """An entry of LX as lanes; f16 elements widen."""
        values = place.read()
        lanes = values if place.size == 4 else [arithmetic.widened(v) for v in values]
        return [lanes[0]] * LANES if place.d["splat"] else lanes

    def _write_lx(self, place: _Place, lanes: Entry) -> None:
        """Lanes to LX; into f16 elements they are rounded."""
        place.write(lanes if place.size == 4 else [arithmetic.half(arithmetic.number(x)) for x in lanes])

    # --- transfers ---

    def _move(self, w: Word) -> Steps:
        """Elements go as they are. Each core of a group reads for itself what its leader reads."""
        if "src" not in w.operands:
            for place in self._places(w["dst"]):
                self._write_lx(place, (yield from self.whole.pop(("R", self._group(w)[self.core], self.core))))
            return
        if "dst" not in w.operands:
            receivers = [r for r, sender in enumerate(self._group(w)) if sender == self.core]
            for place in self._places(w["src"]):
                for r in receivers:
                    yield from self.whole.push(("R", self.core, r), self._read_lx(place))
            return
        dim, indices = -1, []
        if "index" in w.operands:
            dim = w.operands.get("dim", 0)
            indices = [arithmetic.signed(p.read(1)[0]) if p.live else 0 for p in self._places(w["index"])]
            if not all(0 <= i < w["size"] for i in indices):
                raise Fault(f"an index is not below {w['size']}")
        source, target = (self._places(w[name], dim if self._in_memory(w[name]) else -1, indices) for name in ("src", "dst"))
        for a, b in zip(source, target, strict=True):
            b.write(a.read())

    def _in_memory(self, name: str) -> bool:
        return self.whole.kernel.descriptors[name]["space"] == "ddr"

    def _fill(self, w: Word) -> None:
        for place in self._places(w["lx"]):
            self._write_lx(place, [arithmetic.wrapped(w["value"])] * LANES)

    def _push(self, w: Word) -> Steps:
        """PUSH; where it transposes, lane n of 64 entries goes on as entry n."""
        block: list[Entry] = []
        for place in self._places(w["lx"]):
            entry = self._read_lx(place)
            if "transpose" not in w.operands:
                yield from self._put(w["fifo"], entry)
                continue
            block.append(entry)
            if len(block) == LANES:
                for column in zip(*block, strict=True):
                    yield from self._put(w["fifo"], list(column))
                block = []

    # --- PT ---

    def _array(self, w: Word) -> Steps:
        if w.op == "ldw":
            rows: list[Entry] = []
            for _ in range(LANES):
                rows.append((yield from self._pop("W")))
            self.weights = [arithmetic.numbers(column) for column in zip(*rows, strict=True)]
            return
        self.sums = self.sums or [[0] * LANES for _ in range(w["rows"])]
        for m in range(w["rows"]):
            if w.op == "pto":
                yield from self._put("P", self.sums[m])
                continue
            row = arithmetic.numbers((yield from self._pop("A")))
            for n, column in enumerate(self.weights):
                term = arithmetic.lane(arithmetic.sum_of_products(row, column))
                self.sums[m][n] = arithmetic.compute("add", self.sums[m][n], term)
        if w.op == "pto":
            self.sums = []

    # --- SFP ---

    def _rep(self, w: Word, body: list[Word]) -> Steps:
        """The lists of the body, for every group; registers keep what they hold, accumulators start anew."""
        start, each, end = body[: w["start"]], body[w["start"] : len(body) - w["end"]], body[len(body) - w["end"] :]
        registers: dict[str, Entry] = {}
        for _ in range(w["groups"]):
            for v in body:
                if v.op == "vacc":
                    registers[v["dst"]] = [arithmetic.START[v["kind"]]] * LANES
            for v in start:
                yield from self._lanes(v, 0, registers)
            for stick in range(w["sticks"]):
                for v in each:
                    yield from self._lanes(v, stick, registers)
            for v in end:
                yield from self._lanes(v, w["sticks"] - 1, registers)

    def _lanes(self, v: Word, stick: int, r: dict[str, Entry]) -> Steps:
        """One op of a body."""
        if v.op == "vout":
            yield from self._put(v["fifo"], r[v["src"]])
            return
        operands = [r[v[name]] for name in ("src", "src2", "src3") if name in v.operands]
        live = [LANES * stick + i < v.operands.get("lanes", 0) for i in range(LANES)]
        match v.op:
            case "vin":
                result = yield from self._pop(v["fifo"])
            case "vconst":
                result = [arithmetic.wrapped(v["value"])] * LANES
            case "vlive":
                result = [int(x) for x in live]
            case "vmask":
                result = [x if keep else arithmetic.wrapped(v["fill"]) for x, keep in zip(operands[0], live, strict=True)]
            case "vred":
                result = [arithmetic.reduced(v["kind"], operands[0])] * LANES
            case "vacc":
                result = [arithmetic.compute(v["kind"], *x) for x in zip(r[v["dst"]], operands[0], strict=True)]
            case _:
                result = [arithmetic.compute(v["kind"], *x) for x in zip(*operands, strict=True)]
        r[v["dst"]] = [arithmetic.rounded_to_half(x) for x in result] if v.operands.get("round") else result


class _Place:
    """An entry: address `at` of its lane 0, and how many of its lanes are live."""

    def __init__(self, unit: _Unit, d: dict[str, Any], at: int, live: int) -> None:
        self.d, self.live, self.size = d, live, d["element_bytes"]
        self.space = unit.whole.lx[unit.core] if d["space"] == "lx" else unit.whole.memory[d["arg"]]
        self.first = at
        self.step = self.size if d["lane_stride"] is None else d["lane_stride"]

    def _addresses(self, lanes: int = LANES) -> list[int]:
        """The bytes at which those of the first lanes that are live lie."""
        found = [self.first + lane * self.step for lane in range(min(self.live, lanes))]
        if found and (min(found) < 0 or max(found) + self.size > len(self.space)):
            raise Fault("an address outside of memory")
        return found

    def read(self, lanes: int = LANES) -> list[int]:
        """The bits of the elements of the first lanes; dead lanes give the pad value."""
        pad = PADS[self.d["pad"]]
        dead = arithmetic.half(pad) if self.size == 2 else arithmetic.lane(pad)
        found = [struct.unpack_from(FORMATS[self.size], self.space, at)[0] for at in self._addresses(lanes)]
        return found + [dead] * (lanes - len(found))

    def write(self, values: Sequence[int]) -> None:
        """Set the elements of the live lanes."""
        for at, value in zip(self._addresses(), values, strict=False):
            struct.pack_into(FORMATS[self.size], self.space, at, value)


def _end_of_loop(words: list[Word], at: int) -> int:
    """The ENDL of a loop."""
    depth = 0
    while True:
        depth += {"loop": 1, "endl": -1}.get(words[at].op, 0)
        if not depth:
            return at
        at += 1


def _together(streams: list[Steps]) -> Steps:
    """Run words concurrently until all are done."""
    while streams:
        for s in list(streams):
            try:
                next(s)
            except StopIteration:
                streams.remove(s)
        yield
