"""Changes of words: which ones there are, their operands, tokens and loops."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ktir.isa.instructions import FIRST_ACCUMULATOR, OPCODES, PARTS, REGISTERS, Field
from ktir.isa.lane import lane_bits
from ktir.isa.program import Channel, Kernel, Word
from ktir.isa.units import FIFOS, Unit
from ktir.package import Package

TOKENS, LOOPS = ("wait", "sig"), ("loop", "endl")
BODY = tuple(name for name, o in OPCODES.items() if o.body_only)
MOVES = ("move", "fill", "push", "pull", "ldw", "mm", "pto", "rep", "par")


def near(r: random.Random, value: int, low: int = 0) -> int:
    """Another number, most often close by."""
    return max(low, r.choice([value + 1, value - 1, value + 2, value - 2, value * 2, value // 2, 0, 1, value + 64, value - 64, value + 16]))


Change = Callable[[Package, random.Random], bool]
"""Changes a package in place; False if it has nothing to change."""


def pick_kernel(p: Package, r: random.Random) -> Kernel:
    return r.choice(p.program.kernels)


def _words(kernel: Kernel, ops: Sequence[str]) -> list[tuple[list[Word], int]]:
    return [(words, i) for words in kernel.units.values() for i, w in enumerate(words) if w.op in ops]


def place(p: Package, r: random.Random, ops: Sequence[str]) -> tuple[Kernel, list[Word], int] | None:
    kernel = pick_kernel(p, r)
    found = _words(kernel, ops)
    return (kernel, *r.choice(found)) if found else None


def dropped(ops: Sequence[str]) -> Change:
    """A word is not there."""

    def change(p: Package, r: random.Random) -> bool:
        found = place(p, r, ops)
        if found:
            _, words, i = found
            _resize(words, i, -1)
            del words[i]
        return bool(found)

    return change


def doubled(ops: Sequence[str]) -> Change:
    """A word is there twice."""

    def change(p: Package, r: random.Random) -> bool:
        found = place(p, r, ops)
        if found:
            _, words, i = found
            _resize(words, i, 1)
            words.insert(i, words[i])
        return bool(found)

    return change


def moved(ops: Sequence[str]) -> Change:
    """A word and its neighbour have changed places."""

    def change(p: Package, r: random.Random) -> bool:
        found = place(p, r, ops)
        if not found:
            return False
        _, words, i = found
        j = i + r.choice([-1, 1])
        if not 0 <= j < len(words) or words[i] == words[j]:
            return False
        words[i], words[j] = words[j], words[i]
        return True

    return change


def _resize(words: list[Word], i: int, by: int) -> None:
    """Let the PAR or REP around a word count one more or less, so that only the word itself is at fault."""
    for j in range(i - 1, -1, -1):
        w = words[j]
        if i <= j + w.held:
            name = w.parts[i - j - 1]
            words[j] = replace(w, operands={**w.operands, name: w[name] + by})
            return


def operand(kinds: Sequence[str], ops: Sequence[str]) -> Change:
    """A field of some kinds has another value, in a word of `ops`."""

    def change(p: Package, r: random.Random) -> bool:
        kernel = pick_kernel(p, r)
        words_and_fields = ((words, i, f) for words, i in _words(kernel, ops) for f in words[i].opcode.fields if f.kind in kinds)
        found = [(words, i, f) for words, i, f in words_and_fields if words[i][f.name] is not None]
        if not found:
            return False
        words, i, f = r.choice(found)
        w = words[i]
        words[i] = replace(w, operands={**w.operands, f.name: _value(f, w[f.name], kernel, r)})
        return True

    return change


def _value(f: Field, old: Any, kernel: Kernel, r: random.Random) -> Any:
    match f.kind:
        case "int":
            return min(near(r, old, f.low), f.high)
        case "descriptor":
            return r.randrange(len(kernel.descriptors))
        case "group":
            return r.randrange(len(kernel.groups))
        case "fifo":
            return r.choice(f.values or tuple(FIFOS))
        case "unit":
            return r.choice([u.name for u in Unit])
        case "register":
            return r.randrange(REGISTERS if r.random() < 0.2 else 8)
        case "accumulator":
            return r.randrange(FIRST_ACCUMULATOR, FIRST_ACCUMULATOR + 8)
        case "enum":
            return r.choice(f.values)
        case "flag":
            return not old
    return lane_bits(
        r.choice([0.0, -0.0, 1.0, 0.5, 1 / 3, float("inf"), float("-inf"), 65504.0, old ^ 1 << 31, old ^ 1, old + 1 & 0xFFFFFFFF])
    )


def twin(p: Package, r: random.Random) -> bool:
    """What a move may leave out is there, or is not."""
    found = place(p, r, ("move",))
    if not found:
        return False
    kernel, words, i = found
    fields = [f for f in words[i].opcode.fields if f.kind == "descriptor" or (f.kind == "group" and kernel.groups)]
    f = r.choice(fields)
    value = None if words[i][f.name] is not None else r.randrange(len(kernel.groups if f.kind == "group" else kernel.descriptors))
    words[i] = replace(words[i], operands={**words[i].operands, f.name: value})
    return True


def other_list(p: Package, r: random.Random) -> bool:
    """A word at the edge of a list of a REP's body stands in the list beside it."""
    found = place(p, r, ("rep",))
    if not found:
        return False
    _, words, i = found
    edge = r.randrange(2)
    lists = PARTS[edge : edge + 2]
    a, b = lists if r.random() < 0.5 else lists[::-1]
    if not words[i][a]:
        return False
    words[i] = replace(words[i], operands={**words[i].operands, a: words[i][a] - 1, b: words[i][b] + 1})
    return True


def channel_gone(p: Package, r: random.Random) -> bool:
    """Both ends of a token channel are gone, and its leftovers: counts still agree."""
    kernel = pick_kernel(p, r)
    ends = sorted({(u.name, w["receiver"], w["token"]) for u, words in kernel.units.items() for w in words if w.op == "sig"})
    if not ends:
        return False
    sender, receiver, token = r.choice(ends)
    for unit, words in kernel.units.items():
        gone = [
            (w.op == "sig" and (unit.name, w["receiver"], w["token"]) == (sender, receiver, token))
            or (w.op == "wait" and (w["sender"], unit.name, w["token"]) == (sender, receiver, token))
            for w in words
        ]
        words[:] = [w for w, away in zip(words, gone, strict=True) if not away]
    kernel.channels = [c for c in kernel.channels if (c.sender.name, c.receiver.name, c.token) != (sender, receiver, token)]
    return True


def credits(p: Package, r: random.Random) -> bool:
    """A channel starts with another number of credits, and ends with as many more or fewer."""
    kernel = pick_kernel(p, r)
    if not kernel.channels:
        return False
    i = r.randrange(len(kernel.channels))
    c = kernel.channels[i]
    more = r.choice([-1, 1])
    words = kernel.units[c.sender]
    at = next((j for j, w in enumerate(words) if w.op == "sig" and (w["receiver"], w["token"]) == (c.receiver.name, c.token)), None)
    if at is None or words[at]["count"] + more < 1:
        return False
    words[at] = replace(words[at], operands={**words[at].operands, "count": words[at]["count"] + more})
    kernel.channels[i] = Channel(c.sender, c.receiver, c.token, c.leftover + more)
    return True


def op_gone(p: Package, r: random.Random) -> bool:
    """All that a KTIR op has become is gone, from all units."""
    kernel = pick_kernel(p, r)
    sources = sorted({w.source for words in kernel.units.values() for w in words if w.source})
    if not sources:
        return False
    source = r.choice(sources)
    for words in kernel.units.values():
        words[:] = [w for w in words if w.source != source]
    return True


def trips(p: Package, r: random.Random) -> bool:
    """A loop has other trips in all units."""
    kernel = pick_kernel(p, r)
    regions = sorted({w["region"] for words in kernel.units.values() for w in words if w.op == "loop"})
    if not regions:
        return False
    region, more = r.choice(regions), r.choice([-1, 1])
    for words in kernel.units.values():
        for i, w in enumerate(words):
            if w.op == "loop" and w["region"] == region:
                words[i] = replace(w, operands={**w.operands, "trips": max(0, w["trips"] + more)})
    return True
