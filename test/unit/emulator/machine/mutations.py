"""Single random changes of programs, and what becomes of them: found by the verifier, found by the control run, harmless, or silent."""

from __future__ import annotations

import random
import re
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from machine_builds import Case

from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.grid import check_grid
from ktir.emulator.machine.machine import carrier_shape
from ktir.emulator.machine.program.faults import MachineFinding
from ktir.emulator.machine.replay.builder import Builder
from ktir.emulator.machine.replay.tape import Tape
from ktir.emulator.machine.step.step import Step
from ktir.isa.descriptor import PADS, Bound, Descriptor
from ktir.isa.instructions import OPCODES, PARTS
from ktir.isa.kinds import BINARY, REDUCTIONS, UNARY
from ktir.isa.lane import lane_bits
from ktir.isa.program import Kernel, Program, Word
from ktir.isa.units import FIFOS, Unit
from ktir.isa.wellformed.verify import verify
from ktir.target import DATASHEET, Target

SYNC = ("drop", "duplicate", "swap", "token", "count", "peer", "ahead")
DESCRIPTOR = (
    "base",
    "level_step",
    "stride",
    "extent",
    "buffers",
    "rotate_levels",
    "rotate_step",
    "corelet_step",
    "element_bytes",
    "pad",
    "splat",
)
OTHER = (
    "trips",
    "entries",
    "table",
    "group",
    "bound",
    "operation",
    "register",
    "round",
    "part",
    "constant",
    "descriptor",
    "opcode",
    "fifo",
)
KINDS = SYNC + DESCRIPTOR + OTHER
ELEMENT = ("element", "lane_stride")
"""Kinds for programs with element descriptors."""


def mutate(program: Program, r: random.Random, kind: str) -> Program | None:
    """A copy with one change of a kind, or None if there is nothing to change."""
    p = deepcopy(program)
    kernel = r.choice(p.kernels)
    if kind in SYNC:
        return p if _sync(kernel, r, kind) else None
    if kind in DESCRIPTOR + ELEMENT or kind == "bound":
        if not kernel.descriptors:
            return None
        i = r.randrange(len(kernel.descriptors))
        changed = _bound(kernel.descriptors[i], kernel, r) if kind == "bound" else _descriptor(kernel.descriptors[i], r, kind)
        if changed is None or changed == kernel.descriptors[i]:
            return None
        kernel.descriptors[i] = changed
        return p
    if kind == "table":
        if not kernel.tables or kernel.cores < 2:
            return None
        number = r.randrange(len(kernel.tables))
        t, unit = kernel.tables[number], next((d.unit for d in kernel.descriptors if d.core_table == number), 1)
        i, j = r.sample(range(len(t)), 2)
        t[i] = t[j] if r.random() < 0.5 else max(0, t[i] + unit * r.choice([-1, 1]))
        return p
    if kind == "group":
        if not kernel.groups or kernel.cores < 2:
            return None
        g = r.choice(kernel.groups)
        i = r.randrange(len(g))
        g[i] = i if r.random() < 0.5 else r.randrange(len(g))
        return p
    return p if _word(kernel, r, kind) else None


def _pick(kernel: Kernel, r: random.Random, ops: tuple[str, ...]) -> tuple[list[Word], int] | None:
    found = [(words, i) for words in kernel.units.values() for i, w in enumerate(words) if w.op in ops]
    return r.choice(found) if found else None


def _set(words: list[Word], i: int, **operands: Any) -> None:
    words[i] = replace(words[i], operands={**words[i].operands, **operands})


def _sync(kernel: Kernel, r: random.Random, kind: str) -> bool:
    place = _pick(kernel, r, ("move",) if kind == "ahead" else ("wait", "sig"))
    if place is None:
        return False
    words, i = place
    w = words[i]
    if kind == "drop":
        del words[i]
    elif kind == "ahead":
        _set(words, i, ahead=r.choice([0, 1, 2, 3, 255]))
    elif kind == "duplicate":
        words.insert(i, w)
    elif kind == "swap":
        j = i + r.choice([-1, 1])
        if not 0 <= j < len(words) - 1 or words[j] == w or {words[j].op} & {"par", "rep"} or OPCODES[words[j].op].body_only:
            return False
        words[i], words[j] = words[j], words[i]
    elif kind == "token":
        _set(words, i, token=(w["token"] + 1) % 3)
    elif kind == "count":
        _set(words, i, count=w["count"] % 3 + 1)
    else:
        field = "sender" if w.op == "wait" else "receiver"
        _set(words, i, **{field: r.choice([u.name for u in Unit if u.name != w[field]])})
    return True


def _descriptor(d: Descriptor, r: random.Random, kind: str) -> Descriptor | None:
    if kind == "base":
        return replace(d, base=max(0, d.base + d.unit * r.choice([-16, -2, -1, 1, 2, 16])))
    if kind == "level_step":
        steps = list(d.level_step)
        level = r.choice([i for i, s in enumerate(steps) if s] or [0, 1])
        steps[level] += d.unit * r.choice([-1, 1, 2])
        return replace(d, level_step=tuple(steps))
    if kind in ("stride", "extent"):
        values = list(getattr(d, kind))
        k = r.randrange(len(values))
        values[k] = max(1, values[k] + r.choice([-1, 1, 2])) if kind == "extent" else values[k] + d.unit * r.choice([-1, 1, 2])
        return replace(d, **{kind: tuple(values)})
    if kind == "buffers":
        return replace(d, buffers=r.choice([1, 2, 3]), rotate_levels=d.rotate_levels or 1)
    if kind == "rotate_levels":
        return replace(d, rotate_levels=r.choice([1, 2, 3, 4, 6]))
    if kind in ("rotate_step", "corelet_step"):
        return replace(d, **{kind: getattr(d, kind) + d.unit * r.choice([-1, 1, 2])})
    if kind == "element_bytes":
        return replace(d, element_bytes=6 - d.element_bytes)
    if kind == "element":
        adjacent = d.space == "ddr" and d.lane_step == d.element_bytes
        return replace(d, lane_stride=None if d.element else d.lane_step) if adjacent else None
    if kind == "lane_stride":
        return replace(d, lane_stride=d.lane_step + d.element_bytes * r.choice([-1, 1, 2])) if d.element else None
    if kind == "pad":
        return replace(d, pad=r.choice(PADS))
    return replace(d, splat=not d.splat)


def _bound(d: Descriptor, kernel: Kernel, r: random.Random) -> Descriptor:
    bounds = list(d.bounds)
    choice = r.randrange(5)
    if not bounds or (choice == 0 and len(bounds) < 2):
        bounds.append(Bound(r.randrange(70), dim=r.randrange(len(d.extent)), dim_step=r.choice([1, 64]), lanes=r.random() < 0.4))
        return replace(d, bounds=tuple(bounds))
    k = r.randrange(len(bounds))
    b = bounds[k]
    if choice == 1:
        del bounds[k]
    elif choice == 2:
        bounds[k] = replace(b, limit=r.randrange(70), table=None)
    elif choice == 3:
        bounds[k] = replace(b, lanes=not b.lanes, corelet_step=r.choice([0, 1, 2]))
    else:
        bounds[k] = replace(
            b, dim=r.randrange(len(d.extent)), dim_step=r.choice([0, 1, 2]), level_step=max(0, b.level_step + r.choice([-1, 1]))
        )
    return replace(d, bounds=tuple(bounds))


def _word(kernel: Kernel, r: random.Random, kind: str) -> bool:
    ops = {
        "trips": ("loop",), "entries": ("mm", "rep"), "operation": ("v1", "v2", "vacc", "vred"),
        "register": ("v1", "v2", "vacc", "vred", "vmask", "vin", "vout"), "round": ("v1", "v2"),
        "part": ("rep",), "constant": ("vconst", "vmask", "fill"),
        "descriptor": ("move", "push", "pull"), "opcode": ("move", "push"),
        "fifo": ("push", "pull", "vin", "vout"), "index": ("move",),
    }[kind]  # fmt: skip
    place = _pick(kernel, r, ops)
    if place is None:
        return False
    words, i = place
    w = words[i]
    match kind:
        case "trips":
            _set(words, i, trips=max(0, w["trips"] + r.choice([-1, 1])))
        case "entries":
            field = r.choice(["groups", "sticks", "each"]) if w.op == "rep" else "rows"
            _set(words, i, **{field: max(1, w[field] + r.choice([-2, -1, 1, 16]))})
        case "operation":
            kinds = {"v1": UNARY, "v2": BINARY}.get(w.op, REDUCTIONS)
            _set(words, i, kind=r.choice(kinds))
        case "register":
            field = r.choice([f for f in ("src", "src2", "dst") if f in w.operands and not (w.op == "vin" and f == "src")])
            low = 16 if w.op == "vacc" and field == "dst" else 0
            _set(words, i, **{field: r.randrange(low, low + 8) if low or r.random() < 0.7 else 16 + r.randrange(2)})
        case "round":
            _set(words, i, round=not w["round"])
        case "part":
            a, b = r.sample(PARTS, 2)
            if not w[a]:
                return False
            _set(words, i, **{a: w[a] - 1, b: w[b] + 1})
        case "index":
            change = r.choice([{"dim": r.randrange(4)}, {"size": max(1, w["size"] + r.choice([-3, -1, 1]))}])
            _set(words, i, **(change if r.random() < 0.8 else {"index": r.randrange(len(kernel.descriptors))}))
        case "constant":
            field = "fill" if w.op == "vmask" else "value"
            change = {field: lane_bits(r.choice([0.5, 1.0 / 3, -2.0, np.inf]))}
            _set(
                words, i, **({"lanes": max(0, w["lanes"] + r.choice([-64, -1, 1, 64]))} if w.op == "vmask" and r.random() < 0.5 else change)
            )
        case "descriptor":
            field = r.choice([f for f in ("src", "dst", "lx") if w.operands.get(f) is not None])
            _set(words, i, **{field: r.randrange(len(kernel.descriptors))})
        case "opcode":
            if w.op == "push":
                _set(words, i, transpose=not w["transpose"])
                return True
            if w["group"] is None and not kernel.groups:
                return False
            _set(words, i, group=0 if w["group"] is None else None)
        case _:
            _set(words, i, fifo=r.choice(list(FIFOS)))
    return True


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits; any NaN equals any other."""
    return bool(((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))).all())


def carriers(program: Program, case: Case) -> list[np.ndarray]:
    """Arguments for both executors, outputs and pools full of a pattern."""
    out = []
    for spec, a in zip(program.arguments, case.fresh(), strict=True):
        out.append(np.full(carrier_shape(spec), -55, np.float32) if a is None else a)
    return out


def outcome(case: Case, program: Program, target: Target = DATASHEET) -> tuple[str, str]:
    """(verdict, detail) for a mutant of `case`: static, dynamic, harmless or silent. Fails if tape and step differ.

    A program that the verifier refuses runs nevertheless if the control run accepts it: the two executors must agree on it too.
    """
    problems = verify(program, target)
    detail = "static only"
    try:
        trace = control(program, target)
        check_grid(program, trace)
    except MachineFinding as e:
        return ("static" if problems else "dynamic"), e.kind
    by_step, by_tape = carriers(program, case), carriers(program, case)
    tape = Tape(Builder(program, trace, target.corelets).build())
    try:
        Step(program, trace, target.corelets).run(by_step)
    except MachineFinding as e:
        with pytest.raises(type(e), match=re.escape(e.message)):
            tape.run(by_tape)
        return ("static" if problems else "dynamic"), e.kind
    tape.run(by_tape)
    again = carriers(program, case)
    tape.run(again)
    for i, (a, b, c) in enumerate(zip(by_step, by_tape, again, strict=True)):
        assert same(a, b), f"tape and step differ in argument {i}"
        assert same(b, c), f"the second launch differs in argument {i}"
    if problems:
        return "static", detail
    right = all(e is None or same(a, e) for a, e in zip(by_step, case.expected, strict=True))
    return ("harmless" if right else "silent"), ""
