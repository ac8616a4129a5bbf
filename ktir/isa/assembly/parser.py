"""Assembly text -> Program. See `assembly` for the form."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ktir.diagnostics import Diagnostic
from ktir.isa.assembly.lexer import Line, Token, describe, integer
from ktir.isa.descriptor import LEVELS, PADS, Bound, Descriptor
from ktir.isa.instructions import FIRST_ACCUMULATOR, MAX_SOURCE, OPCODES, REGISTERS, Field
from ktir.isa.instructions import default as default_operand
from ktir.isa.lane import read_lane
from ktir.isa.problem import AssemblyError, Problem, ProgramError
from ktir.isa.program import ROLES, Argument, Channel, Kernel, Program, Source, Word
from ktir.isa.units import Unit
from ktir.target import MOVED

Place = tuple[int, int]


def parse_program(text: str, source: str = "-") -> Program:
    """The program that `text` describes. `source` names the text in messages.

    Raises AssemblyError with line and column on malformed text, and on a program that is not well-formed: then at the line at fault.
    """
    return _Parser(source).parse(text)


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.program = Program("", [], [])
        self.named = False
        self.kernel: Kernel | None = None
        self.unit: Unit | None = None
        self.names: dict[str, int] = {}
        self.sources: dict[int, Source] = {}
        self.places: dict[tuple, Place] = {}

    def parse(self, text: str) -> Program:
        lines = text.split("\n")
        for number, content in enumerate(lines, 1):
            line = Line(content, number, self.source)
            if line.token.kind != "end":
                self._statement(line)
                line.end()
        if not self.named:
            raise AssemblyError("expects '.program'", self.source, len(lines), len(lines[-1]) + 1)
        if self.sources:
            last = max(self.sources)
            if last != len(self.sources):
                missing = next(i for i in range(1, last) if i not in self.sources)
                raise AssemblyError(f"source {missing} is missing", self.source, *self.places["source", last])
            self.program.sources += [self.sources[i] for i in range(1, last + 1)]
        self._validate()
        return self.program

    def _validate(self) -> None:
        from ktir.isa.binary.validate import validate

        problems = validate(self.program)
        if problems:
            error = AssemblyError(problems[0].text, self.source, *self._place(problems[0]))
            error.diagnostics = [Diagnostic("error", p.text, ":".join(map(str, (self.source, *self._place(p))))) for p in problems]
            raise error from ProgramError(problems)

    def _place(self, p: Problem) -> Place:
        keys = [
            ("argument", p.argument),
            ("word", p.kernel, p.unit, p.word),
            ("descriptor", p.kernel, p.descriptor),
            ("kernel", p.kernel),
        ]
        return next((self.places[key] for key in keys if key in self.places), (1, 1))

    # --- statements ---

    def _statement(self, line: Line) -> None:
        token = line.atom("an instruction or a directive")
        if not token.text.startswith("."):
            self._instruction(line, token)
            return
        directive: Callable[[Line, Token], None] | None = getattr(self, f"_directive_{token.text[1:]}", None)
        if directive is None:
            line.fail(f"unknown directive '{token.text}'", token)
        if not self.named and token.text != ".program":
            line.fail("expects '.program' first", token)
        directive(line, token)

    def _directive_program(self, line: Line, token: Token) -> None:
        if self.named:
            line.fail("a second '.program'", token)
        self.program.name = line.string("the program's name")
        self.named = True

    def _directive_argument(self, line: Line, token: Token) -> None:
        if self.kernel:
            line.fail("arguments stand before the kernels", token)
        self._label(line, "a", len(self.program.arguments))
        name = line.string("the argument's name")
        fields = _Fields(line, name)
        while line.accept(","):
            fields.parse({"role": lambda: _one_of(line, ROLES), "sticks": _int(line), "element_bytes": _int(line), "half": _half(line)})
        role, sticks, size = (fields.require(n) for n in ("role", "sticks", "element_bytes"))
        self.places["argument", len(self.program.arguments)] = (line.number, token.column)
        self.program.arguments.append(Argument(name, role, sticks, size, fields.values.get("half", MOVED[0])))

    def _directive_kernel(self, line: Line, token: Token) -> None:
        name = line.string("the kernel's name")
        line.expect(",")
        fields = _Fields(line, "kernel")
        fields.parse({"cores": _int(line)})
        self.kernel, self.unit, self.names = Kernel(name, fields.require("cores"), {}, []), None, {}
        self.places["kernel", len(self.program.kernels)] = (line.number, token.column)
        self.program.kernels.append(self.kernel)

    def _in_kernel(self, line: Line, token: Token) -> Kernel:
        if self.kernel is None:
            line.fail(f"'{token.text}' stands outside a kernel", token)
        return self.kernel

    def _directive_table(self, line: Line, token: Token) -> None:
        kernel = self._in_kernel(line, token)
        self._label(line, "t", len(kernel.tables))
        kernel.tables.append(_ints(line))

    def _directive_group(self, line: Line, token: Token) -> None:
        kernel = self._in_kernel(line, token)
        self._label(line, "g", len(kernel.groups))
        kernel.groups.append(_ints(line))

    def _directive_channel(self, line: Line, token: Token) -> None:
        kernel = self._in_kernel(line, token)
        sender = _unit(line)
        line.expect("->")
        receiver = _unit(line)
        fields = _Fields(line, "channel")
        while line.accept(","):
            fields.parse({"token": _int(line), "leftover": _int(line)})
        kernel.channels.append(Channel(sender, receiver, fields.require("token"), fields.require("leftover")))

    def _directive_unit(self, line: Line, token: Token) -> None:
        kernel = self._in_kernel(line, token)
        at = line.token
        self.unit = _unit(line)
        if self.unit in kernel.units:
            line.fail(f"a second unit {self.unit.name} in this kernel", at)
        kernel.units[self.unit] = []

    def _directive_source(self, line: Line, token: Token) -> None:
        at = line.token
        number = line.integer("a source id")
        if number < 1 or number > MAX_SOURCE or number in self.sources:
            line.fail(f"source id {number} is used already or not positive", at)
        line.expect("=")
        op = line.string("the op's name")
        line.expect(",")
        place = line.string("a location")
        self.sources[number] = Source(op, place, line.string("nodes") if line.accept(",") else "")
        self.places["source", number] = (line.number, token.column)

    def _label(self, line: Line, letter: str, number: int) -> None:
        token = line.atom("a label")
        if token.text != f"{letter}{number}":
            line.fail(f"expects label '{letter}{number}', but got '{token.text}'", token)
        line.expect("=")

    # --- descriptors ---

    def _directive_descriptor(self, line: Line, token: Token) -> None:
        kernel = self._in_kernel(line, token)
        name = line.atom("a descriptor name")
        if not name.text.startswith("%"):
            line.fail("a descriptor name starts with '%'", name)
        if name.text in self.names:
            line.fail(f"descriptor {name.text} is defined twice", name)
        line.expect("=")
        space = _one_of(line, ("ddr", "lx"))
        fields = _Fields(line, "descriptor")
        bounds: list[Bound] = []
        parsers: dict[str, Callable[[], object] | None] = {
            "element_bytes": _int(line),
            "half": _half(line),
            "extent": lambda: tuple(_ints(line)),
            "stride": lambda: tuple(_ints(line)),
            "base": _int(line),
            "arg": lambda: _index(line, "a"),
            "core_table": lambda: _index(line, "t"),
            "level_step": lambda: _levels(line),
            "buffers": _int(line),
            "rotate_levels": lambda: _mask(line),
            "rotate_step": _int(line),
            "corelet_step": _int(line),
            "lane_stride": _int(line),
            "splat": None,
            "pad": lambda: _one_of(line, PADS),
        }
        while line.accept(","):
            if line.accept("bound"):
                bounds.append(_bound(line))
            else:
                fields.parse(parsers)
        for needed in ("element_bytes", "extent", "stride"):
            fields.require(needed)
        self.names[name.text] = len(kernel.descriptors)
        self.places["descriptor", len(self.program.kernels) - 1, len(kernel.descriptors)] = (line.number, token.column)
        kernel.descriptors.append(replace(_BLANK, space=space, bounds=tuple(bounds), **fields.values))

    # --- instructions ---

    def _instruction(self, line: Line, token: Token) -> None:
        opcode = OPCODES.get(token.text)
        if opcode is None:
            line.fail(f"unknown instruction '{token.text}'", token)
        if self.kernel is None or self.unit is None:
            line.fail(f"'{token.text}' stands outside a unit", token)
        if self.unit not in opcode.units:
            line.fail(f"'{token.text}' cannot run on {self.unit.name}", token)
        fields = _Fields(line, token.text)
        parsers = {f.name: self._operand(line, f) for f in opcode.fields}
        if line.token.kind == "atom" and not line.token.text.startswith("@"):
            fields.parse(parsers)
            while line.accept(","):
                fields.parse(parsers)
        for f in opcode.fields:
            if f.name not in fields.values:
                if not f.may_lack:
                    line.fail(f"'{token.text}' needs {f.name}")
                fields.values[f.name] = default_operand(f)
        source = 0
        if line.token.text.startswith("@"):
            at = line.take()
            source = integer(line, replace(at, text=at.text[1:]), "a source id")
            if not 1 <= source <= MAX_SOURCE:
                line.fail(f"source id {source} is out of range", at)
        body = self.kernel.units[self.unit]
        self.places["word", len(self.program.kernels) - 1, self.unit, len(body)] = (line.number, token.column)
        body.append(Word(token.text, {f.name: fields.values[f.name] for f in opcode.fields}, source))

    def _operand(self, line: Line, field: Field) -> Callable[[], object] | None:
        kinds: dict[str, Callable[[], object] | None] = {
            "flag": None,
            "int": _int(line),
            "descriptor": lambda: self._descriptor(line),
            "group": lambda: _index(line, "g"),
            "register": lambda: _register(line),
            "accumulator": lambda: _register(line),
            "unit": lambda: _unit(line).name,
            "fifo": lambda: line.atom("a FIFO").text,
            "enum": lambda: _one_of(line, field.values),
            "lane": lambda: _lane(line),
        }
        return kinds[field.kind]

    def _descriptor(self, line: Line) -> int:
        token = line.atom("a descriptor")
        if token.text not in self.names:
            line.fail(f"unknown descriptor '{token.text}'", token)
        return self.names[token.text]


_BLANK = Descriptor("lx", 2, (), ())


class _Fields:
    """The `name=value` operands of a line, each at most once; a parser of None stands for a bare flag."""

    def __init__(self, line: Line, what: str) -> None:
        self.line, self.what = line, what
        self.values: dict[str, Any] = {}

    def parse(self, parsers: dict[str, Callable[[], object] | None]) -> None:
        """Take one operand."""
        token = self.line.atom("an operand")
        if token.text not in parsers:
            self.line.fail(f"'{self.what}' has no operand '{token.text}'", token)
        if token.text in self.values:
            self.line.fail(f"operand '{token.text}' is given twice", token)
        parse = parsers[token.text]
        if parse is None:
            self.values[token.text] = True
        else:
            self.line.expect("=")
            self.values[token.text] = parse()

    def require(self, name: str) -> Any:
        """The value of an operand that must be there."""
        if name not in self.values:
            self.line.fail(f"'{self.what}' needs {name}")
        return self.values[name]


def _int(line: Line) -> Callable[[], int]:
    return lambda: line.integer("an integer")


def _half(line: Line) -> Callable[[], str]:
    return lambda: _one_of(line, MOVED)


def _ints(line: Line) -> list[int]:
    line.expect("[")
    values = []
    while not line.accept("]"):
        if values:
            line.expect(",")
        values.append(line.integer("an integer"))
    return values


def _one_of(line: Line, names: tuple[str, ...]) -> str:
    token = line.atom(f"one of {', '.join(names)}")
    if token.text not in names:
        line.fail(f"expects one of {', '.join(names)}, but got '{token.text}'", token)
    return token.text


def _unit(line: Line) -> Unit:
    return Unit[_one_of(line, tuple(u.name for u in Unit))]


def _index(line: Line, letter: str) -> int:
    token = line.atom(f"'{letter}' and a number")
    if not re.fullmatch(letter + "[0-9]{1,9}", token.text):
        line.fail(f"expects '{letter}' and a number, but got {describe(token)}", token)
    return int(token.text[1:])


def _levels(line: Line) -> tuple[int, ...]:
    token, steps = line.token, _ints(line)
    if len(steps) > LEVELS:
        line.fail(f"expects at most {LEVELS} steps, but got {len(steps)}", token)
    return tuple(steps) + (0,) * (LEVELS - len(steps))


def _mask(line: Line) -> int:
    token, levels = line.token, _ints(line)
    if len(set(levels)) != len(levels) or not all(0 <= v < LEVELS for v in levels):
        line.fail(f"expects distinct levels of 0 to {LEVELS - 1}", token)
    return sum(1 << v for v in levels)


def _bound(line: Line) -> Bound:
    line.expect("=")
    line.expect("(")
    fields = _Fields(line, "bound")
    names: dict[str, Callable[[], object] | None] = {n: _int(line) for n in ("dim", "dim_step", "level", "level_step", "corelet_step")}
    parsers = {**names, "lanes": None, "limit": lambda: _limit(line)}
    fields.parse(parsers)
    while line.accept(","):
        fields.parse(parsers)
    line.expect(")")
    limit = fields.require("limit")
    values = {n: v for n, v in fields.values.items() if n != "limit"}
    return replace(Bound(**limit), **values)  # type: ignore[arg-type]


def _limit(line: Line) -> dict[str, int]:
    if line.token.text.startswith("t"):
        return {"table": _index(line, "t")}
    return {"limit": line.integer("an integer or a table")}


def _register(line: Line) -> int:
    token = line.atom("a register")
    m = re.fullmatch(r"(r|acc)([0-9]{1,3})", token.text)
    number = int(m[2]) + (FIRST_ACCUMULATOR if m[1] == "acc" else 0) if m else REGISTERS
    if number >= REGISTERS or (m and m[1] == "r" and number >= FIRST_ACCUMULATOR):
        line.fail(
            f"expects r0 to r{FIRST_ACCUMULATOR - 1} or acc0 to acc{REGISTERS - FIRST_ACCUMULATOR - 1}, but got '{token.text}'",
            token,
        )
    return number


def _lane(line: Line) -> int:
    token = line.atom("a number")
    try:
        return read_lane(token.text)
    except ValueError as e:
        line.fail(str(e), token)
