"""Rules of REP bodies: which values an op may use, given the list in which it and they stand.

A body runs, for every group, its `start` list, its `each` list at every stick, its `end` list. Start values and constants may be used
everywhere below them, those of a stick at that stick, accumulators and end values at the end.
"""

from __future__ import annotations

from ktir.isa.instructions import Does, register_name
from ktir.isa.kinds import KINDS
from ktir.isa.program import Word
from ktir.target import HALVES

_USABLE = {
    "start": ("start", "const"),
    "each": ("each", "start", "const"),
    "end": ("end", "accumulator", "start", "const"),
}
_PLACES = {Does.TAKE: ("start", "each"), Does.GIVE: ("each", "end"), Does.ACCUMULATE: ("each",), Does.LIVE: ("each",), Does.MASK: ("each",)}
_HOLDS = {Does.ACCUMULATE: "accumulator", Does.CONSTANT: "const"}

Fault = tuple[int, str]


def uses(word: Word) -> list[int]:
    """Registers that an op reads; the accumulator of a VACC not counted."""
    return [word[f.name] for f in word.opcode.fields if f.kind == "register" and f.name != "dst"]


def faults(rep: Word, body: list[Word]) -> list[Fault]:
    """What is wrong in a body, as (index in the body, message)."""
    found: list[Fault] = []
    kinds: dict[int, str] = {}
    combiners: dict[int, int] = {}
    for i, (w, part) in enumerate(zip(body, rep.parts, strict=False)):
        if part not in _PLACES.get(w.does, _USABLE):
            found.append((i, f"'{w.op}' stands in {' or '.join(_PLACES[w.does])}, but got one in {part}"))
            continue
        if w.operands.get("round") and not KINDS[w["kind"]].rounds:
            found.append((i, f"'{w.op}' rounds to {w['half']}, but '{w['kind']}' gives integers"))
        if w.operands.get("half", HALVES[0]) != HALVES[0] and not w["round"]:
            found.append((i, f"'{w.op}' names {w['half']}, but does not round"))
        for r in uses(w):
            if r not in kinds:
                found.append((i, f"'{w.op}' uses {register_name(r)} before it is defined"))
            elif kinds[r] not in _USABLE[part]:
                found.append(
                    (i, f"'{w.op}' stands in {part}, but {register_name(r)} holds a value of {kinds[r].replace('accumulator', 'end')}")
                )
        if w.does is Does.ACCUMULATE:
            if w["dst"] in combiners:
                first = combiners[w["dst"]]
                found.append((i, f"'vacc' expects an accumulator of its own, but word {first} uses {register_name(w['dst'])}"))
            combiners[w["dst"]] = i
        if w.register is not None:
            kinds[w.register] = _HOLDS.get(w.does, part)
    return found or _clobbers(rep, body)


def _clobbers(rep: Word, body: list[Word]) -> list[Fault]:
    """Uses that later sticks or groups would find overwritten."""
    wanted: list[dict[int, int]] = []
    above: dict[int, int] = {}
    for i, w in enumerate(body):
        wanted.append({r: above[r] for r in uses(w)})
        if w.register is not None:
            above[w.register] = i
    start, last = rep["start"], rep["start"] + rep["each"]
    order = [*range(start), *[*range(start, last)] * min(rep["sticks"], 2), *range(last, len(body))] * min(rep["groups"], 2)
    found: dict[int, str] = {}
    holds: dict[int, int] = {}
    for i in order:
        for r, word in wanted[i].items():
            if holds[r] != word and i not in found:
                found[i] = f"'{body[i].op}' expects {register_name(r)} from word {word} of the body, but word {holds[r]} overwrites it"
        register = body[i].register
        if register is not None:
            holds[register] = i
    return sorted(found.items())
