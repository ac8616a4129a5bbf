"""The machine: memory and scratchpads as bytes, walks of descriptors, and units that run their words and wait for each other.

Each core has the units MNIL and MNIS, each of its corelets LXLU, PT, SFP and LXSU. A unit is a generator that yields after each step:
True if it has done something, False while it is blocked. What a program without races computes does not depend on who runs when.
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
from .assembly import Kernel, Word, read

LANES = 64
LX_BYTES = 2 << 20
CORELETS = 2
FIFO_ENTRIES = 16
CORE_UNITS = ("MNIL", "MNIS")
PADS = {"zero": 0.0, "-inf": -math.inf, "+inf": math.inf}
FORMATS = {1: "<B", 2: "<H", 4: "<I"}

Steps = Generator[bool, None, None]
Fifo = tuple[Any, ...]


class Fault(Exception):
    """A program that has no meaning on these arguments."""


def run(text: str, arguments: Sequence[bytearray], *, order: random.Random | None = None, unwritten: int = 0xFF) -> None:
    """Run the program that `text` describes on the contents of memory, one `bytearray` of sticks per argument, in place.

    `order` draws which unit runs next; `unwritten` is the byte that LX is full of before anything is written.
    """
    names, kernels = read(text)
    memory = dict(zip(names, arguments, strict=True))
    lx = [bytearray([unwritten]) * LX_BYTES for _ in range(max((k.cores for k in kernels), default=0))]
    of_kernels = [_units(_Shared(kernel, memory), lx) for kernel in kernels]
    for units, following in zip(of_kernels, [*of_kernels[1:], []], strict=True):
        _run_kernel(units, [u for u in following if u.unit == "MNIL"], order)


def _units(shared: _Shared, lx: list[bytearray]) -> list[_Unit]:
    """The units of a kernel."""
    return [
        _Unit(shared, lx[core], unit, core, corelet)
        for core in range(shared.kernel.cores)
        for unit in shared.kernel.units
        for corelet in range(1 if unit in CORE_UNITS else CORELETS)
    ]


def _run_kernel(units: list[_Unit], following: list[_Unit], order: random.Random | None) -> None:
    """Run all units until they have halted. The MNIL of a core goes on with what the next kernel lets it load ahead, as far as it gets."""
    running = {u: u.program() for u in units}
    loading = {u: u.ahead(order) for u in following}
    busy = {u.core: u for u in units if u.unit == "MNIL"}
    while running:
        free = {u: s for u, s in loading.items() if busy.get(u.core) not in running}
        ready = [*running.items(), *free.items()]
        if order:
            order.shuffle(ready)
        steps = [(unit, next(words, None)) for unit, words in ready]
        if not any(done is not False for unit, done in steps if unit in running):
            raise Fault("deadlock")
        for unit in (unit for unit, done in steps if done is None):
            (running if unit in running else loading).pop(unit)


class _Shared:
    """What the units of a kernel share: memory, which outlives it, tokens and FIFOs."""

    def __init__(self, kernel: Kernel, memory: dict[str, bytearray]) -> None:
        self.kernel, self.memory = kernel, memory
        self.tokens: dict[tuple[Any, ...], int] = defaultdict(int)
        self.fifos: dict[Fifo, deque[Entry]] = defaultdict(deque)

    def push(self, fifo: Fifo, entry: Entry) -> Steps:
        """Wait for room in a FIFO and put an entry into it."""
        while len(self.fifos[fifo]) == FIFO_ENTRIES:
            yield False
        self.fifos[fifo].append(entry)
        yield True

    def pop(self, fifo: Fifo) -> Generator[bool, None, Entry]:
        """Wait for an entry of a FIFO and take it."""
        while not self.fifos[fifo]:
            yield False
        yield True
        return self.fifos[fifo].popleft()


class _Unit:
    """A unit of a core, or of a corelet, in one kernel."""

    def __init__(self, shared: _Shared, lx: bytearray, unit: str, core: int, corelet: int) -> None:
        self.shared, self.lx, self.unit, self.core, self.corelet = shared, lx, unit, core, corelet
        self.counters = [0] * 8
        self.weights: list[Sequence[float]] = []
        self.sums: list[Entry] = []
        self.early: dict[int, int] = defaultdict(int)
        """Of each word that may be ahead of the kernel how many of its runs were, and are still to come in their place."""

    # --- control ---

    def program(self) -> Steps:
        """All its words."""
        self.counters = [0] * 8
        return self.words(self.shared.kernel.units[self.unit])

    def ahead(self, order: random.Random | None) -> Steps:
        """The first runs of the words that may be ahead of the kernel, or as many of them as happen to come to pass."""
        for w in self._first_runs(self.shared.kernel.units[self.unit], defaultdict(int)):
            if order and order.random() < 0.1:
                return
            yield from self._move(w)
            self.early[id(w)] += 1

    def _first_runs(self, words: Sequence[Word], seen: dict[int, int]) -> Iterator[Word]:
        for w in words:
            if w["op"] == "loop":
                for n in range(w["trips"]):
                    self.counters[w["level"]] = n
                    yield from self._first_runs(w["body"], seen)
                self.counters[w["level"]] = 0
            elif seen[id(w)] < w.get("ahead", 0):
                seen[id(w)] += 1
                yield w

    def words(self, words: Sequence[Word]) -> Steps:
        """Words one after the other."""
        for w in words:
            if w["op"] == "par":
                yield from _together([self.words([x]) for x in w["body"]])
            elif w["op"] == "loop":
                for n in range(w["trips"]):
                    self.counters[w["level"]] = n
                    yield from self.words(w["body"])
                self.counters[w["level"]] = 0
            elif self.early[id(w)]:
                self.early[id(w)] -= 1
            else:
                yield from getattr(self, "_" + w["op"])(w)
            yield True

    def _queues(self, sender: str, receiver: str, token: int) -> list[tuple[Any, ...]]:
        """Of a channel. Between a core unit and a corelet unit there is one per corelet: the core unit uses both."""
        between = (sender in CORE_UNITS) != (receiver in CORE_UNITS)
        corelets = range(CORELETS) if between and self.unit in CORE_UNITS else [self.corelet]
        return [(self.core, k, sender, receiver, token) for k in corelets]

    def _sig(self, w: Word) -> Steps:
        for queue in self._queues(self.unit, w["receiver"], w["token"]):
            self.shared.tokens[queue] += w["count"]
        yield True

    def _wait(self, w: Word) -> Steps:
        for queue in self._queues(w["sender"], self.unit, w["token"]):
            while self.shared.tokens[queue] < w["count"]:
                yield False
            self.shared.tokens[queue] -= w["count"]

    def _pop(self, fifo: str) -> Generator[bool, None, Entry]:
        return self.shared.pop((fifo, self.core, self.corelet))

    def _put(self, fifo: str, entry: Entry) -> Steps:
        return self.shared.push((fifo, self.core, self.corelet), entry)

    # --- walks ---

    def _places(self, name: str, dim: int = -1, indices: Sequence[int | None] = (), lanes: int = LANES) -> Iterator[_Place]:
        """The first lanes of the entries of a walk; `indices` replace the positions along inner dim `dim` in addresses, not in bounds, and
        where one is not there, as None, no entry is live."""
        d = self.shared.kernel.descriptors[name]
        space = self.lx if d["space"] == "lx" else self.shared.memory[d["arg"]]
        start = d.get("base", 0) + self.corelet * d.get("corelet_step", 0) + self._of_core(d.get("core_table", 0))
        start += sum(step * counter for step, counter in zip(d.get("level_step", []), self.counters, strict=False))
        start += sum(self.counters[level] for level in d.get("rotate_levels", [])) % d.get("buffers", 1) * d.get("rotate_step", 0)
        for position in product(*map(range, d["extent"])):
            live = min(lanes, *(self._live(b, position) for b in d.get("bounds", [])), LANES)
            chosen = list(position)
            if indices:
                index = indices[position[dim]]
                live, chosen[dim] = (0, 0) if index is None else (live, index)
            yield _Place(d, space, start + sum(p * stride for p, stride in zip(chosen, d["stride"], strict=True)), live)

    def _live(self, b: dict[str, Any], position: Sequence[int]) -> int:
        """How many lanes of the entry at a position a bound leaves live."""
        room = self._of_core(b["limit"]) - self.corelet * b.get("corelet_step", 0)
        room -= b.get("dim_step", 1) * position[b["dim"]] if "dim" in b else 0
        room -= b.get("level_step", 0) * self.counters[b["level"]] if "level" in b else 0
        return max(0, min(room, LANES)) if "lanes" in b else LANES if room > 0 else 0

    def _of_core(self, value: int | str) -> int:
        """A number, or that of the core in a table."""
        return value if isinstance(value, int) else self.shared.kernel.tables[value][self.core]

    # --- transfers ---

    def _move(self, w: Word) -> Steps:
        """Elements go as they are, but those of one byte, which widen, and to which others are rounded. Each core of a group reads for
        itself what its leader reads."""
        if "src" not in w or "dst" not in w:
            yield from self._exchange(w, self.shared.kernel.groups[w["group"]])
            return
        ends = {name: (w[name], -1, []) for name in ("src", "dst")}
        if "index" in w:
            indices = [arithmetic.signed(p.read()[0]) if p.live else None for p in self._places(w["index"], lanes=1)]
            if not all(0 <= i < w["size"] for i in indices if i is not None):
                raise Fault(f"an index is not below {w['size']}")
            memory = "src" if self.unit == "MNIL" else "dst"
            ends[memory] = (w[memory], w.get("dim", 0), indices)
        for source, target in zip(*(self._places(*end) for end in ends.values()), strict=True):
            if source.size == target.size:
                target.write(source.read())
            else:
                target.write_lanes(source.read_lanes())
        yield True

    def _exchange(self, w: Word, senders: list[int]) -> Steps:
        """What goes over the ring: `senders` has per core the one that it receives from."""
        if "dst" in w:
            for place in self._places(w["dst"]):
                place.write_lanes((yield from self.shared.pop(("ring", senders[self.core], self.core))))
            return
        for place in self._places(w["src"]):
            for receiver in (r for r, sender in enumerate(senders) if sender == self.core):
                yield from self.shared.push(("ring", self.core, receiver), place.read_lanes())

    def _fill(self, w: Word) -> Steps:
        for place in self._places(w["lx"]):
            place.write_lanes([arithmetic.wrapped(w["value"])] * LANES)
        yield True

    def _push(self, w: Word) -> Steps:
        """Where it transposes, lane n of 64 entries goes on as entry n."""
        block: list[Entry] = []
        for place in self._places(w["lx"]):
            block.append(place.read_lanes())
            if "transpose" not in w or len(block) == LANES:
                for entry in zip(*block, strict=True) if "transpose" in w else block:
                    yield from self._put(w["fifo"], list(entry))
                block = []

    def _pull(self, w: Word) -> Steps:
        for place in self._places(w["lx"]):
            place.write_lanes((yield from self._pop(w["fifo"])))

    # --- PT ---

    def _ldw(self, w: Word) -> Steps:
        rows: list[Entry] = []
        for _ in range(LANES):
            rows.append((yield from self._pop("W")))
        self.weights = [arithmetic.factors(column, w.get("half", "f16")) for column in zip(*rows, strict=True)]

    def _mm(self, w: Word) -> Steps:
        self.sums = self.sums or [[0] * LANES for _ in range(w["rows"])]
        for row in self.sums:
            a = arithmetic.factors((yield from self._pop("A")), w.get("half", "f16"))
            add = arithmetic.add_integers if w.get("half") == "i8x2" else arithmetic.add_block
            row[:] = [add(x, a, column) for x, column in zip(row, self.weights, strict=True)]

    def _pto(self, _w: Word) -> Steps:
        for row in self.sums:
            yield from self._put("P", row)
        self.sums = []

    # --- SFP ---

    def _rep(self, w: Word) -> Steps:
        """The lists of the body, for every group; registers keep what they hold, accumulators start anew."""
        registers: dict[str, Entry] = {}
        for _ in range(w["groups"]):
            for v in w["body"]["each"]:
                if v["op"] == "vacc":
                    registers[v["dst"]] = [arithmetic.START[v["kind"]]] * LANES
            for part, sticks in (("start", [0]), ("each", range(w["sticks"])), ("end", [w["sticks"] - 1])):
                for stick in sticks:
                    for v in w["body"][part]:
                        yield from self._lanes(v, stick, registers)

    def _lanes(self, v: Word, stick: int, r: dict[str, Entry]) -> Steps:
        """One op of a body."""
        operands = [r[v[name]] for name in ("src", "src2", "src3") if name in v]
        live = [LANES * stick + i < v.get("lanes", 0) for i in range(LANES)]
        match v["op"]:
            case "vout":
                yield from self._put(v["fifo"], operands[0])
                return
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
        if "round" in v:
            kind = v.get("half", "f16")
            result = [arithmetic.widened(arithmetic.narrowed(x, kind), kind) for x in result]
        r[v["dst"]] = result


class _Place:
    """An entry: `address` of its lane 0 in a space, and how many of its lanes are live."""

    def __init__(self, d: dict[str, Any], space: bytearray, address: int, live: int) -> None:
        self.d, self.space, self.live, self.size = d, space, live, d["element_bytes"]
        self.kind = d.get("half", "f16")
        self.addresses = [address + lane * d.get("lane_stride", self.size) for lane in range(live)]
        if live and (min(self.addresses) < 0 or max(self.addresses) + self.size > len(space)):
            raise Fault("an address outside of memory")

    def read(self) -> list[int]:
        """The bits of the elements; dead lanes give the pad value."""
        pad = PADS[self.d.get("pad", "zero")]
        dead = 0 if self.kind in arithmetic.PAIRS else arithmetic.lane(pad) if self.size == 4 else arithmetic.half(pad, self.kind)
        found = [struct.unpack_from(FORMATS[self.size], self.space, at)[0] for at in self.addresses]
        return found + [dead] * (LANES - self.live)

    def write(self, values: Sequence[int]) -> None:
        """Set the elements of the live lanes."""
        for at, value in zip(self.addresses, values, strict=False):
            struct.pack_into(FORMATS[self.size], self.space, at, value)

    def read_lanes(self) -> Entry:
        """The elements as lanes; floats of 16 bits widen."""
        lanes = self.read() if self.size == 4 else [arithmetic.widened(v, self.kind) for v in self.read()]
        return [lanes[0]] * LANES if "splat" in self.d else lanes

    def write_lanes(self, lanes: Entry) -> None:
        """Lanes as elements; into floats of 16 bits they are rounded."""
        self.write(lanes if self.size == 4 else [arithmetic.narrowed(x, self.kind) for x in lanes])


def _together(streams: list[Steps]) -> Steps:
    """Run words concurrently until all are done."""
    while streams:
        steps = [(s, next(s, None)) for s in streams]
        streams = [s for s, done in steps if done is not None]
        yield any(done is not False for _, done in steps)
