"""Rules of REP bodies: which values an op may use, given when it and they are computed.

A body runs in order for every stick of a group; ops of phase `start` only at the first stick, ops of phase `end` only at the last one.
Start values and constants may be used everywhere, stick values at sticks, accumulators and end values at the end.
"""

from __future__ import annotations

from ktir.isa.instructions import Does, register_name
from ktir.isa.kinds import KINDS
from ktir.isa.program import Word

_USABLE = {
    "start": ("start", "const"),
    "stick": ("stick", "start", "const"),
    "end": ("end", "accumulator", "start", "const"),
}
_PHASES = {Does.TAKE: ("stick", "start"), Does.GIVE: ("stick", "end")}
_HOLDS = {Does.ACCUMULATE: "accumulator", Does.CONSTANT: "const"}

Fault = tuple[int, str]


def phase(word: Word) -> str:
    """When an op runs; ops without the field run at every stick."""
    return word["phase"] if "phase" in word.operands else "stick"


def uses(word: Word) -> list[int]:
    """Registers that an op reads; the accumulator of a VACC not counted."""
    return [word[f.name] for f in word.opcode.fields if f.kind == "register" and f.name != "dst"]


def faults(rep: Word, body: list[Word]) -> list[Fault]:
    """What is wrong in a body, as (index in the body, message)."""
    found: list[Fault] = []
    kinds: dict[int, str] = {}
    combiners: dict[int, int] = {}
    for i, w in enumerate(body):
        when = phase(w)
        if when not in _PHASES.get(w.does, _USABLE):
            found.append((i, f"'{w.op}' runs at {' or '.join(_PHASES[w.does])}, but got phase {when}"))
            continue
        if w.operands.get("round") and not KINDS[w["kind"]].rounds:
            found.append((i, f"'{w.op}' rounds to f16, but '{w['kind']}' gives integers"))
        for r in uses(w):
            if r not in kinds:
                found.append((i, f"'{w.op}' uses {register_name(r)} before it is defined"))
            elif kinds[r] not in _USABLE[when]:
                found.append(
                    (i, f"'{w.op}' runs at {when}, but {register_name(r)} holds a value of phase {kinds[r].replace('accumulator', 'end')}")
                )
        if w.does is Does.ACCUMULATE:
            if w["dst"] in combiners:
                first = combiners[w["dst"]]
                found.append((i, f"'vacc' expects an accumulator of its own, but word {first} uses {register_name(w['dst'])}"))
            combiners[w["dst"]] = i
        if w.register is not None:
            kinds[w.register] = _HOLDS.get(w.does, when)
    return found or _clobbers(rep, body)


def _clobbers(rep: Word, body: list[Word]) -> list[Fault]:
    """Uses that later sticks or groups would find overwritten."""
    found: dict[int, str] = {}
    holds: dict[int, int] = {}
    sticks = min(rep["sticks"], 2)
    for _ in range(min(rep["groups"], 2)):
        for stick in range(sticks):
            written: dict[int, int] = {}
            for i, w in enumerate(body):
                runs = {"start": stick == 0, "stick": True, "end": stick == sticks - 1}[phase(w)]
                for r in uses(w) if runs else ():
                    if holds[r] != written[r] and i not in found:
                        found[i] = (
                            f"'{w.op}' expects {register_name(r)} from word {written[r]} of the body, but word {holds[r]} overwrites it"
                        )
                if w.register is not None:
                    written[w.register] = i
                    if runs:
                        holds[w.register] = i
    return sorted(found.items())
