"""Well-formedness: what every form of a program (binary, text, MLIR) must satisfy to be written or read.

Tables have the right length, operands are in range, units may execute their words. What a program *does* with them (nesting, balance of
FIFOs and tokens, addresses) is `verify`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ktir.isa.binary import descriptor_codec, words
from ktir.isa.instructions import MAX_TOKEN
from ktir.isa.problem import Problem
from ktir.isa.program import ROLES, Argument, Kernel, Program, Source
from ktir.isa.units import Unit
from ktir.target import MOST_CORES

MAX_CORES = MOST_CORES
MAX_COUNT = 0xFFFE
"""Descriptors, tables or groups of a kernel; the id 0xFFFF means none."""
MAX_STICKS = 2**32 - 1
"""As many as bases reach."""

Packed = dict[tuple[int, Unit], words.WordArray]


def _is_int(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _text_fault(value: Any, what: str) -> str | None:
    if not isinstance(value, str):
        return f"{what} expects text, but got {value!r}"
    try:
        value.encode()
    except UnicodeEncodeError:
        return f"{what} {value!r} is no valid Unicode"
    return None


def validate_headers(program: Program) -> list[Problem]:
    """Faults of everything but the words."""
    problems = [Problem(f) for f in [_text_fault(program.name, "the program's name")] if f]
    for i, a in enumerate(program.arguments):
        problems += [Problem(m, argument=i) for m in _argument_faults(a)]
    for k, kernel in enumerate(program.kernels):
        at = Problem("", kernel=k, kernel_name=kernel.name)
        problems += [replace(at, message=m) for m in kernel_faults(kernel)]
        for i, d in enumerate(kernel.descriptors):
            found = descriptor_codec.faults(d, len(program.arguments), len(kernel.tables))
            problems += [replace(at, message=m, descriptor=i) for m in found]
    return problems


def validate(program: Program, packed: Packed | None = None) -> list[Problem]:
    """Faults of a program. If `packed` is given, it receives the records of every unit's words."""
    problems = validate_headers(program)
    limits = {"source": len(program.sources) if len(program.sources) > 1 else 0}
    sound: dict[tuple[int, Unit, int, int], words.WordArray] = {}  # of a kernel that runs several times the words are the same list
    for k, kernel in enumerate(program.kernels):
        limits |= {"descriptor": len(kernel.descriptors), "group": len(kernel.groups)}
        for unit, body in kernel.units.items():
            if not isinstance(unit, Unit):
                continue
            key = (id(body), unit, limits["descriptor"], limits["group"])
            if key in sound:
                if packed is not None:
                    packed[k, unit] = sound[key]
                continue
            unit_at = Problem("", kernel=k, kernel_name=kernel.name, unit=unit)
            try:
                array = words.pack(body)
            except words.OperandError as e:
                w = body[e.index]
                source = program.source_of(w) if isinstance(w.source, int) else Source("", "")
                problems.append(replace(unit_at, message=str(e), word=e.index, op=str(w.op), source=source))
                continue
            if packed is not None:
                packed[k, unit] = array
            found = list(words.check(array, unit, limits))
            if not found:
                sound[key] = array
            for index, message in found:
                w = body[index]
                problems.append(replace(unit_at, message=message, word=index, op=w.op, source=program.source_of(w)))
    return problems


def _argument_faults(a: Argument) -> Iterator[str]:
    fault, role, sticks, element_bytes = _text_fault(a.name, "name"), a.role, a.sticks, a.element_bytes
    if fault:
        yield fault
    if role not in ROLES:
        yield f"role expects one of {', '.join(ROLES)}, but got {role!r}"
    if not _is_int(sticks, 0, MAX_STICKS):
        yield f"sticks expects a value of 0 to {MAX_STICKS}, but got {sticks!r}"
    if element_bytes not in (1, 2, 4) or type(element_bytes) is not int:
        yield f"element_bytes expects 1, 2 or 4, but got {element_bytes!r}"
    yield from descriptor_codec.half_faults(a)


def kernel_faults(kernel: Kernel) -> Iterator[str]:
    """Faults of a kernel's name, core count, tables, groups and channels."""
    fault = _text_fault(kernel.name, "name")
    if fault:
        yield fault
    if not _is_int(kernel.cores, 1, MAX_CORES):
        yield f"cores expects 1 to {MAX_CORES}, but got {kernel.cores!r}"
        return
    for name, items in (("descriptors", kernel.descriptors), ("tables", kernel.tables), ("groups", kernel.groups)):
        if len(items) > MAX_COUNT:
            yield f"has {len(items)} {name}, but at most {MAX_COUNT} can be named"
    for what, rows, low, high in (
        ("table", kernel.tables, -descriptor_codec.MAX_BASE, descriptor_codec.MAX_BASE),
        ("group", kernel.groups, 0, kernel.cores - 1),
    ):
        for i, row in enumerate(rows):
            if len(row) != kernel.cores:
                yield f"{what} {i} expects {kernel.cores} values, one per core, but got {len(row)}"
            bad = next((v for v in row if not _is_int(v, low, high)), None)
            if bad is not None:
                yield f"{what} {i} expects values of {low} to {high}, but got {bad!r}"
    seen = set()
    for c in kernel.channels:
        if not isinstance(c.sender, Unit) or not isinstance(c.receiver, Unit):
            yield f"a channel expects two units, but got {c.sender!r} and {c.receiver!r}"
            continue
        name = f"channel {c.sender.name} -> {c.receiver.name}, token {c.token}"
        if not _is_int(c.token, 0, MAX_TOKEN):
            yield f"{name}: token expects a value of 0 to {MAX_TOKEN}"
        if not _is_int(c.leftover, 0, 2**32 - 1):
            yield f"{name}: leftover expects a value of 0 to {2**32 - 1}, but got {c.leftover!r}"
        if (c.sender, c.receiver, c.token) in seen:
            yield f"{name} is declared twice"
        seen.add((c.sender, c.receiver, c.token))
    for unit in kernel.units:
        if not isinstance(unit, Unit):
            yield f"units expects unit kinds as keys, but got {unit!r}"
