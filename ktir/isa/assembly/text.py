"""Program <-> assembly text: one instruction a line, named operands, loops indented.

    .program "softmax"
    .argument a0 = "x", role=input, sticks=8192, element_bytes=2
    .kernel "kernel_0", cores=32
    .table t0 = [0, 32768, 65536, ...]
    .group g0 = [0, 0, 2, 2, ...]
    .channel LXLU -> MNIL, token=0, leftover=2
    .descriptor %x.0 = ddr, element_bytes=2, extent=[16, 4], stride=[32768, 128], arg=a0, core_table=t0, level_step=[1024],
                                                            ^ everything that has its default is left out
    .unit MNIL
      loop trips=16, level=0, region=1
        move src=%x.0, dst=%lx.1 @3                          // ktdp.load at softmax.mlir:3:8
      endl level=0
      halt
    .source 3 = "ktdp.load", "softmax.mlir:3:8"

`@n` is the id of the source op. Registers are r0 to r15 and acc0 to acc7. Comments start with `//` or `;`. `parse_program` is in
`assembly_parser`; text and program determine each other, sources included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from ktir.isa.assembly.parser import parse_program
from ktir.isa.descriptor import LEVELS, Bound, Descriptor
from ktir.isa.instructions import Does, Field, default, register_name
from ktir.isa.lane import lane_text
from ktir.isa.problem import ProgramError
from ktir.isa.program import Argument, Kernel, Operand, Program, Word
from ktir.target import HALVES

__all__ = ["parse_program", "print_program", "word_text"]

_COMMENT_COLUMN = 64


def quote(text: str) -> str:
    """A string literal."""
    return json.dumps(text)


def descriptor_names(program: Program, kernel: Kernel) -> list[str]:
    """A readable unique name per descriptor: the argument's name or `lx`, and the index."""
    names = []
    for i, d in enumerate(kernel.descriptors):
        stem = "lx" if d.arg is None else re.sub(r"[^A-Za-z0-9_]", "_", program.arguments[d.arg].name) or "arg"
        names.append(f"%{stem}.{i}")
    return names


def print_program(program: Program) -> str:
    """The text of a well-formed program. Raises ProgramError on any other."""
    from ktir.isa.binary.validate import validate

    problems = validate(program)
    if problems:
        raise ProgramError(problems)
    lines = [f".program {quote(program.name)}"]
    for i, a in enumerate(program.arguments):
        lines.append(f".argument a{i} = {quote(a.name)}, role={a.role}, sticks={a.sticks}, element_bytes={a.element_bytes}{_half(a)}")
    for kernel in program.kernels:
        lines += ["", *_kernel_lines(program, kernel)]
    if len(program.sources) > 1:
        lines.append("")
        nodes = [f", {quote(s.nodes)}" if s.nodes else "" for s in program.sources]
        lines += [f".source {i} = {quote(s.op)}, {quote(s.location)}{nodes[i]}" for i, s in enumerate(program.sources) if i]
    return "\n".join(lines) + "\n"


def _kernel_lines(program: Program, kernel: Kernel) -> Iterable[str]:
    yield f".kernel {quote(kernel.name)}, cores={kernel.cores}"
    for name, rows in (("table", kernel.tables), ("group", kernel.groups)):
        for i, row in enumerate(rows):
            yield f".{name} {name[0]}{i} = {_list(row)}"
    for c in kernel.channels:
        yield f".channel {c.sender.name} -> {c.receiver.name}, token={c.token}, leftover={c.leftover}"
    names = descriptor_names(program, kernel)
    for name, d in zip(names, kernel.descriptors, strict=True):
        yield f".descriptor {name} = {', '.join(_descriptor_operands(d))}"
    for unit in sorted(kernel.units):
        yield f".unit {unit.name}"
        yield from _unit_lines(program, kernel.units[unit], names)


def _list(values: Iterable[int]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _half(held: Argument | Descriptor) -> str:
    return "" if held.half == HALVES[0] else f", half={held.half}"


def _descriptor_operands(d: Descriptor) -> Iterable[str]:
    yield d.space
    yield f"element_bytes={d.element_bytes}{_half(d)}"
    yield f"extent={_list(d.extent)}"
    yield f"stride={_list(d.stride)}"
    if d.base:
        yield f"base={d.base}"
    if d.arg is not None:
        yield f"arg=a{d.arg}"
    if d.core_table is not None:
        yield f"core_table=t{d.core_table}"
    if any(d.level_step):
        last = max(i for i, step in enumerate(d.level_step) if step)
        yield f"level_step={_list(d.level_step[: last + 1])}"
    if d.buffers != 1:
        yield f"buffers={d.buffers}"
    if d.rotate_levels:
        yield f"rotate_levels={_list(i for i in range(LEVELS) if d.rotate_levels >> i & 1)}"
    if d.rotate_step:
        yield f"rotate_step={d.rotate_step}"
    if d.corelet_step:
        yield f"corelet_step={d.corelet_step}"
    if d.lane_stride is not None:
        yield f"lane_stride={d.lane_stride}"
    if d.splat:
        yield "splat"
    if d.pad != "zero":
        yield f"pad={d.pad}"
    for b in d.bounds:
        yield f"bound=({', '.join(_bound_operands(b))})"


def _bound_operands(b: Bound) -> Iterable[str]:
    yield f"limit=t{b.table}" if b.table is not None else f"limit={b.limit}"
    if b.dim is not None:
        yield f"dim={b.dim}"
        yield f"dim_step={b.dim_step}"
    if b.level is not None:
        yield f"level={b.level}"
        yield f"level_step={b.level_step}"
    if b.corelet_step:
        yield f"corelet_step={b.corelet_step}"
    if b.lanes:
        yield "lanes"


def _unit_lines(program: Program, words: list[Word], names: list[str]) -> Iterable[str]:
    loops, inner = 0, 0
    for w in words:
        if w.does is Does.END_LOOP:
            loops = max(0, loops - 1)
        text = "  " * (1 + min(loops, LEVELS) + (inner > 0)) + word_text(w, names)
        source = program.source_of(w)
        if source.op or source.location:
            text = f"{text:<{_COMMENT_COLUMN - 1}} // {_comment(source.op)} at {_comment(source.location)}"
        yield text
        inner = w.held or max(0, inner - 1)
        loops += w.does is Does.LOOP


def _comment(text: str) -> str:
    return text if text.isprintable() else quote(text)


def word_text(word: Word, descriptor_names: list[str]) -> str:
    """One instruction without indentation and comment."""
    parts = [_operand(f, word[f.name], descriptor_names) for f in word.opcode.fields]
    text = f"{word.op} {', '.join(p for p in parts if p)}".rstrip()
    return f"{text} @{word.source}" if word.source else text


def _operand(field: Field, value: Operand, names: list[str]) -> str:
    if field.may_lack and value == default(field):
        return ""
    if field.kind == "flag":
        return field.name
    if field.kind == "descriptor":
        text = names[value]
    elif field.kind in ("register", "accumulator"):
        text = register_name(value)
    elif field.kind == "lane":
        text = lane_text(value)
    else:
        text = f"g{value}" if field.kind == "group" else str(value)
    return f"{field.name}={text}"
