"""Every rule of a well-formed program is broken here, and found; nothing is found that no rule is about."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from samples import GATHER, MATMUL, ROW_SHARE
from test_isa_verify import CHANGES, spanning

from ktir.isa.assembly.text import parse_program
from ktir.isa.descriptor import Bound
from ktir.isa.program import Channel, Program, Word, word
from ktir.isa.units import Unit
from ktir.isa.wellformed.rules import RULES, Rule
from ktir.isa.wellformed.verify import verify
from ktir.target import DATASHEET

ODD = """.program "odd"
.argument a0 = "x", role=input, sticks=64, element_bytes=4
.kernel "k", cores=2
.table t0 = [0, {second}]
.descriptor %x = ddr, element_bytes=4, extent=[2], stride=[{stride}], arg=a0, core_table=t0, base={base}, level_step=[{step}]
.descriptor %l = lx, element_bytes=4, extent=[2], stride=[256], base=128
.unit MNIL
loop trips=2, level=0, region=0
move src=%x, dst=%l
endl level=0
halt
"""
FILL = """.program "f"
.kernel "k", cores=1
.descriptor %l = lx, element_bytes=2, extent=[1], stride=[128]
.unit MNIL
fill lx=%l, value={}
halt
"""


def other(number: int, **fields: Any) -> Callable[[Program], None]:
    """A descriptor with other fields."""

    def change(p: Program) -> None:
        descriptors = p.kernels[0].descriptors
        descriptors[number] = replace(descriptors[number], **fields)

    return change


def held(path: str, value: Any) -> Callable[[Program], None]:
    """Something of the program, of its first kernel (`kernel.`) or argument (`argument.`), is another value."""

    def change(p: Program) -> None:
        first, _, name = path.rpartition(".")
        if first == "argument":
            p.arguments[0] = replace(p.arguments[0], **{name: value})
        else:
            setattr(p.kernels[0] if first else p, name, value)

    return change


def first_word(unit: Unit, made: Word) -> Callable[[Program], None]:
    """A word stands at the front of a unit's program."""
    return lambda p: p.kernels[0].units[unit].insert(0, made)


def bound(*bounds: Bound) -> Callable[[Program], None]:
    """Other bounds of the first descriptor."""
    return other(0, bounds=bounds)


BREAKS = [
    *(held(path, value) for path in ("name", "kernel.name", "argument.name") for value in (3, "\ud800")),
    *(held("argument." + k, v) for k, v in (("role", "x"), ("sticks", -1), ("element_bytes", 3))),
    held("kernel.cores", 0),
    held("kernel.cores", 33),
    lambda p: p.kernels[0].units.update({"x": []}),
    held("kernel.tables", [[0]]),
    held("kernel.tables", [[2**41] * 29] * 3),
    held("kernel.groups", [[29] * 29]),
    held("kernel.groups", [[0] * 29] * 65535),
    *(held("kernel.channels", [c]) for c in (Channel(Unit.PT, Unit.SFP, -1), Channel(Unit.PT, Unit.SFP, 0, -1), Channel("x", Unit.PT, 0))),  # type: ignore[arg-type]
    held("kernel.channels", [Channel(Unit.PT, Unit.SFP, 0)] * 2),
    *(other(0, **c) for c in ({"space": "x"}, {"arg": None}, {"arg": 9}, {"core_table": 9}, {"pad": "x"}, {"corelet_step": 2**38})),
    *(other(0, **c) for c in ({"extent": (1,) * 5}, {"extent": (0, 2)}, {"extent": (2**31, 4)}, {"stride": (2**38, 1)}, {"base": -1})),
    *(other(0, **c) for c in ({"level_step": (0,)}, {"lane_stride": 2, "corelet_step": 2}, {"buffers": 0})),
    *(other(0, **c) for c in ({"rotate_levels": 1}, {"rotate_step": -1}, {"rotate_levels": 256}, {"element_bytes": 3})),
    *(other(1, **c) for c in ({"arg": 0}, {"lane_stride": 2})),
    *(bound(b) for b in (Bound(dim=0, dim_step=-1), Bound(dim=7), Bound(dim_step=2), Bound(level=8), Bound(level_step=1), Bound(table=9))),
    *(bound(b) for b in (Bound(limit=-1), Bound(limit=1, table=0), Bound(corelet_step=-1))),
    bound(Bound(1), Bound(1), Bound(1)),
    first_word(Unit.MNIL, Word("loop", {"trips": -1, "level": 0, "region": 0})),
    first_word(Unit.MNIL, Word("loop", {"trips": 1, "level": 8, "region": 0})),
    first_word(Unit.PT, word("ldw", 9)),
    first_word(Unit.PT, word("ldw", -1)),
    first_word(Unit.PT, word("rep", groups=1, sticks=1)),
    first_word(Unit.MNIL, Word("move", {"src": 0, "dst": 1, "group": 0, "index": None, "dim": 0, "size": 0, "ahead": 0})),
    *(first_word(unit, word("move", **names)) for unit, names in ((Unit.MNIL, {}), (Unit.MNIL, {"dst": 1}), (Unit.MNIS, {"dst": 6}))),
    first_word(Unit.MNIL, word("move", src=0, dst=1, size=3)),
    first_word(Unit.MNIS, word("move", src=1, dst=6, ahead=1)),
    first_word(Unit.SFP, Word("nothing", {})),
    lambda p: p.kernels[0].units[Unit.SFP].extend(p.kernels[0].units[Unit.SFP][:1]),
    lambda p: p.kernels[0].units[Unit.PT].clear(),
    lambda p: p.kernels[0].units[Unit.LXSU].insert(-1, p.kernels[0].units[Unit.LXSU][0]),
]  # fmt: skip


@cache
def messages() -> tuple[str, ...]:
    """All that is found in programs that break rules."""
    return tuple(dict.fromkeys(p.message for program in broken() for p in verify(program, DATASHEET)))


def broken() -> Iterator[Program]:
    for text, (old, new, *count), _ in CHANGES:
        changed = text.replace(old, new, *count or [1])
        yield parse_program(changed.replace("each=2", "each=3") if "vacc kind=max" in new else changed)
    for change in BREAKS:
        program = parse_program(ROW_SHARE)
        change(program)
        yield program
    yield from (parse_program(odd(**c)) for c in ({"second": 3}, {"stride": 257}, {"base": 64}, {"step": 1}))
    yield parse_program(FILL.format(0.1))
    yield parse_program(GATHER.replace("index=", "group=g0, index=").replace(".table t0", ".group g0 = [0, 1]\n.table t0", 1))
    yield parse_program(ROW_SHARE.replace("mov, dst=r0, src=r2", "absi, dst=r0, src=r2"))
    yield spanning(DATASHEET.span_bytes // 128 + 1)


def odd(second: int = 128, stride: int = 384, base: int = 0, step: int = 128) -> str:
    """A load of f32 that begins at any stick, on two cores and in two trips."""
    return ODD.format(second=second, stride=stride, base=base, step=step)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.says[:30])
def test_a_rule_is_checked(rule: Rule) -> None:
    assert any(re.search(rule.says, m) for m in messages()), rule.text


def test_every_message_has_a_rule() -> None:
    assert not [m for m in messages() if not any(re.search(rule.says, m) for rule in RULES)]


def test_what_keeps_the_rules() -> None:
    for text in (ROW_SHARE, GATHER, MATMUL, odd(), odd(base=128, second=640), FILL.format(0.5), FILL.format("-inf")):
        assert verify(parse_program(text), DATASHEET) == []
