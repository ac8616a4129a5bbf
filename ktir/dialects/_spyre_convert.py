"""Program <-> the spyre dialect, exactly.

A word's source stands in its op's location as `fused<number>["ktir op", "file":line:col]`, so that its number survives too. Locations of
other forms, for example those of a hand-written file, are numbered after these by first use.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from ktir.diagnostics import KtirError, position
from ktir.dialects._spyre_ops import INSTRUCTION_OPS, OPTIONAL_INTS, REGIONS, BoundAttr, attribute_fields
from ktir.isa import instructions as table
from ktir.isa.binary.validate import validate
from ktir.isa.descriptor import LEVELS, Bound, Descriptor
from ktir.isa.instructions import Does
from ktir.isa.problem import NO_SOURCE, Problem, ProgramError
from ktir.isa.program import Argument, Channel, Kernel, Program, Source, Word
from ktir.isa.units import Unit
from ktir.mlir import integer_attribute, ir
from ktir.target import HALVES

# --- Program -> MLIR -------------------------------------------------------------------------------------------------


def to_mlir(program: Program, context: ir.Context) -> ir.Module:
    """A module with `program` as its only op. Raises ProgramError if it is not well-formed or its loops do not nest."""
    problems = validate(program)
    if problems:
        raise ProgramError(problems)
    with context, ir.Location.unknown():
        module = ir.Module.create()
        _Writer(program).program(module.body)
    return module


def _attribute(value: Any) -> ir.Attribute:
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    return ir.DenseI64ArrayAttr.get(list(value)) if isinstance(value, (list, tuple)) else integer_attribute(value)


class _Writer:
    def __init__(self, program: Program) -> None:
        self.input = program
        self.locations: dict[int, ir.Location] = {0: ir.Location.unknown()}
        self.kernel_index = 0

    def op(self, block: ir.Block, name: str, attributes: Mapping[str, Any], regions: int = 0, source: int = 0) -> Any:
        """Append an op; returns its body, or its bodies, if it has any."""
        made = ir.Operation.create(
            f"spyre.{name}",
            attributes={k: v if isinstance(v, ir.Attribute) else _attribute(v) for k, v in attributes.items()},
            regions=regions,
            loc=self.location(source),
            ip=ir.InsertionPoint(block),
        )
        bodies = [region.blocks.append() for region in made.regions]
        return bodies if regions > 1 else bodies[0] if regions else made

    def location(self, source: int) -> ir.Location:
        """The location of source `source`; its number is kept as metadata, so that words get it back exactly."""
        if source not in self.locations:
            known = self.input.sources[source] if source < len(self.input.sources) else NO_SOURCE
            self.locations[source] = _location(known, source)
        return self.locations[source]

    def program(self, block: ir.Block) -> None:
        body = self.op(block, "program", {"name": self.input.name}, 1)
        for a in self.input.arguments:
            given = {"name": a.name, "role": a.role, "sticks": a.sticks, "element_bytes": a.element_bytes}
            self.op(body, "argument", given | ({"half": a.half} if a.half != HALVES[0] else {}))
        for index, kernel in enumerate(self.input.kernels):
            self.kernel_index = index
            self.kernel(self.op(body, "kernel", {"name": kernel.name, "cores": kernel.cores}, 1), kernel)

    def kernel(self, body: ir.Block, kernel: Kernel) -> None:
        for row in kernel.tables:
            self.op(body, "table", {"values": row})
        for row in kernel.groups:
            self.op(body, "group", {"leaders": row})
        for c in kernel.channels:
            names = {"sender": c.sender.name, "receiver": c.receiver.name}
            self.op(body, "channel", names | {"token": c.token, "leftover": c.leftover})
        for d in kernel.descriptors:
            self.op(body, "descriptor", dict(_descriptor_attributes(d)))
        for unit in sorted(kernel.units):
            self.words(self.op(body, "unit", {"unit": unit.name}, 1), kernel, unit)

    def words(self, body: ir.Block, kernel: Kernel, unit: Unit) -> None:
        words = kernel.units[unit]
        open_loops: list[tuple[ir.Block, ir.Operation, Word]] = []
        at = 0

        def fail(message: str, index: int) -> ProgramError:
            w = words[index]
            place = Problem(message, self.kernel_index, kernel.name, unit, index, w.op, source=self.input.source_of(w))
            return ProgramError([place])

        while at < len(words):
            w = words[at]
            at += 1
            if w.does is Does.LOOP:
                if any(w["level"] == loop["level"] for _, _, loop in open_loops):
                    raise fail(f"'loop' expects a level that is not open, but got {w['level']}", at - 1)
                inner = self.op(body, "loop", _word_attributes(w), 1, w.source)
                open_loops.append((body, inner.owner, w))
                body = inner
            elif w.does is Does.END_LOOP:
                if not open_loops or open_loops[-1][2]["level"] != w["level"]:
                    raise fail("'endl' does not end the innermost open loop", at - 1)
                body, op, loop = open_loops.pop()
                if loop.source != w.source:
                    ends = [self.location(n) for n in (loop.source, w.source) if n]
                    op.location = ir.Location.fused(ends, ir.DenseI64ArrayAttr.get([loop.source, w.source]))
            elif w.does is Does.REPEAT:
                bodies = dict(zip(w.opcode.holds, self.op(body, w.op, _word_attributes(w), len(w.opcode.holds), w.source), strict=True))
                for i, part in enumerate(w.parts, at):
                    if i >= len(words) or not words[i].opcode.body_only:
                        raise fail(f"'rep' has a body of {w.held} words, but word {i} is none of a body", at - 1)
                    self.op(bodies[part], words[i].op, _word_attributes(words[i]), 0, words[i].source)
                at += w.held
            else:
                self.op(body, w.op, _word_attributes(w), 0, w.source)
        if open_loops:
            raise fail("'loop' is not ended", max(i for i, w in enumerate(words) if w.does is Does.LOOP))


def _word_attributes(w: Word) -> dict[str, ir.Attribute]:
    attributes = {}
    for f in attribute_fields(w.opcode):
        if f.may_lack and w[f.name] == table.default(f):
            continue
        attributes[f.name] = ir.UnitAttr.get() if f.kind == "flag" else _attribute(w[f.name])
    return attributes


def _descriptor_attributes(d: Descriptor) -> Iterator[tuple[str, Any]]:
    yield from (("space", d.space), ("element_bytes", d.element_bytes), ("extent", d.extent), ("stride", d.stride))
    for name in OPTIONAL_INTS:
        if getattr(d, name) != _DEFAULTS[name]:
            yield name, getattr(d, name)
    if any(d.level_step):
        yield "level_step", d.level_step[: 1 + max(i for i, step in enumerate(d.level_step) if step)]
    if d.rotate_levels:
        yield "rotate_levels", [i for i in range(LEVELS) if d.rotate_levels >> i & 1]
    if d.splat:
        yield "splat", ir.UnitAttr.get()
    for name in ("pad", "half"):
        if getattr(d, name) != _DEFAULTS[name]:
            yield name, getattr(d, name)
    if d.bounds:
        yield "bounds", ir.ArrayAttr.get([_bound_attribute(b) for b in d.bounds])


def _bound_attribute(b: Bound) -> ir.Attribute:
    values = {f.name: getattr(b, f.name) for f in fields(Bound)}
    return BoundAttr.build(**{name: -1 if v is None else int(v) for name, v in values.items()})


_DEFAULTS = {f.name: f.default for f in fields(Descriptor)}


def _location(source: Source, number: int) -> ir.Location:
    """`fused<number>["op", "file":line:col]`; a position that is no `file:line:col`, and nodes, stand as names marked as such."""
    parts = [ir.Location.name(source.op)] if source.op else []
    file, *place = source.location.rsplit(":", 2)
    if file and len(place) == 2 and all(p.isascii() and p.isdigit() and str(int(p)) == p and int(p) < 2**31 for p in place):
        parts.append(ir.Location.file(file, int(place[0]), int(place[1])))
    elif source.location:
        parts.append(ir.Location.name(source.location, ir.Location.name(_POSITION)))
    if source.nodes:
        parts.append(ir.Location.name(source.nodes, ir.Location.name(_NODES)))
    return ir.Location.fused(parts or [ir.Location.unknown()], integer_attribute(number))


_POSITION, _NODES = "position", "nodes"


# --- MLIR -> Program -------------------------------------------------------------------------------------------------


def from_mlir(module: ir.Module | ir.Operation) -> Program:
    """The program in a module, or of a `spyre.program` op. Raises KtirError if there is not exactly one, or it is not well-formed."""
    top = module.operation
    found = [top] if top.name == "spyre.program" else [o for o in _ops(top) if o.name == "spyre.program"]
    if len(found) != 1:
        raise KtirError(f"expects one 'spyre.program' op, but got {len(found)}", top.location)
    program = Reader(found[0]).program
    problems = validate(program)
    if problems:
        raise ProgramError(problems)
    return program


def _ops(parent: Any, region: int = 0) -> Iterator[Any]:
    """The operations of a region of an op."""
    for block in parent.operation.regions[region].blocks if len(parent.operation.regions) > region else ():
        for op in block.operations:
            yield op.operation


def _value(attribute: ir.Attribute) -> Any:
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return list(attribute)
    if isinstance(attribute, (ir.StringAttr, ir.IntegerAttr, ir.FloatAttr)):
        return attribute.value
    raise ValueError(str(attribute))


def _get(op: Any, name: str) -> Any:
    """The value of an attribute that must be there."""
    if name not in op.attributes:
        raise Misformed(op, f"requires attribute '{name}'")
    try:
        return _value(op.attributes[name])
    except ValueError:
        raise Misformed(op, f"has a wrong attribute '{name}': {op.attributes[name]}") from None


def _unit(op: Any, name: str) -> Unit:
    text = _get(op, name)
    if text not in Unit.__members__:
        raise Misformed(op, f"expects {name} to be one of {', '.join(Unit.__members__)}, but got '{text}'")
    return Unit[text]


def _metadata(loc: Any) -> Any:
    """What is attached to a fused location, or None."""
    return loc.metadata.maybe_downcast() if isinstance(loc, ir.FusedLoc) and loc.metadata else None


def _source(location: ir.Location, op: str) -> tuple[int | None, Source]:
    """The source that a location stands for, and its number if the location carries one; `op` names a bare position."""
    loc: Any = ir.Location.from_attr(location.attr)
    number = _metadata(loc)
    if isinstance(number, ir.IntegerAttr):
        name = place = nodes = ""
        for part in (ir.Location.from_attr(child.attr) for child in loc.locations):
            if isinstance(part, ir.NameLoc) and isinstance(ir.Location.from_attr(part.child_loc.attr), ir.UnknownLoc):
                name = str(part.name_str)
            elif isinstance(part, ir.NameLoc) and _name(part.child_loc) == _NODES:
                nodes = str(part.name_str)
            elif not isinstance(part, ir.UnknownLoc):
                place = str(part.name_str) if isinstance(part, ir.NameLoc) else _place(part)
        return number.value, Source(name, place, nodes)
    if isinstance(loc, ir.UnknownLoc):
        return 0, NO_SOURCE
    return None, Source(str(loc.name_str) if isinstance(loc, ir.NameLoc) else op, _place(loc))


def _name(location: ir.Location) -> str:
    loc: Any = ir.Location.from_attr(location.attr)
    return str(loc.name_str) if isinstance(loc, ir.NameLoc) else ""


def _place(location: ir.Location) -> str:
    """The position of a source as it was given, line 0 too."""
    at = position(location)
    return f"{at[0]}:{at[1]}:{at[2]}" if at else "<unknown>"


class Misformed(KtirError):
    """An op that no program can hold; `place` is its location."""

    def __init__(self, op: Any, message: str) -> None:
        super().__init__(f"'{op.name}' op {message}", op.location)
        self.place = op.location


class Reader:
    """Builds the program of a `spyre.program` op and remembers where everything stands."""

    def __init__(self, top: Any) -> None:
        self.top = top.operation
        self.program = Program(_get(self.top, "name"), [], [])
        self.sources: dict[int, Source] = {0: NO_SOURCE}
        self.unnumbered: dict[Source, int] = {}
        self.places: dict[tuple[Any, ...], ir.Location] = {}
        with self.top.context:
            self._read()

    def _read(self) -> None:
        for op in _ops(self.top):
            if op.name == "spyre.argument":
                self.places["argument", len(self.program.arguments)] = op.location
                name, role, sticks, size = (_get(op, n) for n in ("name", "role", "sticks", "element_bytes"))
                half = _get(op, "half") if "half" in op.attributes else HALVES[0]
                self.program.arguments.append(Argument(name, role, sticks, size, half))
            elif op.name == "spyre.kernel":
                self.places["kernel", len(self.program.kernels)] = op.location
                self.program.kernels.append(Kernel(_get(op, "name"), _get(op, "cores"), {}, []))
                self._kernel(op, self.program.kernels[-1])
            else:
                raise _stray(op, self.top)
        self._number()

    def place(self, p: Problem) -> tuple[str, ir.Location]:
        """Name and location of the op that a problem is about."""
        keys = (
            (f"spyre.{p.op}", ("word", p.kernel, p.unit, p.word)),
            ("spyre.descriptor", ("descriptor", p.kernel, p.descriptor)),
            ("spyre.argument", ("argument", p.argument)),
            ("spyre.kernel", ("kernel", p.kernel)),
        )
        return next(((name, self.places[key]) for name, key in keys if key in self.places), ("spyre.program", self.top.location))

    def _kernel(self, parent: Any, kernel: Kernel) -> None:
        index = len(self.program.kernels) - 1
        for op in _ops(parent):
            if op.name == "spyre.table":
                kernel.tables.append(_get(op, "values"))
            elif op.name == "spyre.group":
                kernel.groups.append(_get(op, "leaders"))
            elif op.name == "spyre.channel":
                ends = _unit(op, "sender"), _unit(op, "receiver")
                kernel.channels.append(Channel(*ends, _get(op, "token"), _get(op, "leftover")))
            elif op.name == "spyre.descriptor":
                self.places["descriptor", index, len(kernel.descriptors)] = op.location
                kernel.descriptors.append(_descriptor(op))
            elif op.name == "spyre.unit":
                unit = _unit(op, "unit")
                if unit in kernel.units:
                    raise Misformed(op, f"is the second {unit.name} of its kernel")
                kernel.units[unit] = []
                self._words(op, kernel.units[unit], ("word", index, unit))
            else:
                raise _stray(op, parent)

    def _words(self, parent: Any, words: list[Word], key: tuple[Any, ...], depth: int = 0, region: int = 0) -> None:
        if depth > LEVELS + 1:
            raise Misformed(parent, f"nests loops deeper than {LEVELS} levels")
        for op in _ops(parent, region):
            name = op.name.removeprefix("spyre.")
            if name not in INSTRUCTION_OPS or op.name == name or (parent.name == "spyre.rep" and not table.OPCODES[name].body_only):
                raise _stray(op, parent)
            self.places[(*key, len(words))] = op.location
            operands = {f.name: self._operand(op, f) for f in table.OPCODES[name].fields}
            source, end = self._ends(op)
            words.append(Word(name, operands, source))
            for number in range(len(REGIONS.get(name, ()))):
                self._words(op, words, key, depth + 1, number)
            if table.OPCODES[name].does is Does.LOOP:
                self.places[(*key, len(words))] = op.location
                words.append(Word("endl", {"level": operands["level"]}, end))

    def _operand(self, op: Any, f: table.Field) -> Any:
        if f.may_lack and f.name not in op.attributes:
            return table.default(f)
        if f.kind == "flag":
            return True
        regions = REGIONS.get(op.name.removeprefix("spyre."), ())
        if f.name in regions:
            return sum(1 for _ in _ops(op, regions.index(f.name)))
        return _get(op, f.name)

    def _ends(self, op: Any) -> tuple[int, int]:
        """The sources of an op's word and, of a loop, of its `endl`: where they differ, the location is a fusion of both."""
        loc: Any = op.location
        metadata = _metadata(loc)
        if op.name != "spyre.loop" or not isinstance(metadata, ir.DenseI64ArrayAttr) or len(metadata) != 2:
            source = self._source(loc, op.name)
            return source, source
        inside = {_source(child, op.name)[0]: self._source(child, op.name) for child in loc.locations}
        return inside.get(metadata[0], 0), inside.get(metadata[1], 0)

    def _source(self, location: ir.Location, op: str) -> int:
        """A source's number, or a negative one until all numbers in locations are known."""
        number, source = _source(location, op)
        if number is not None and 0 <= number <= _MAX_NUMBER and self.sources.setdefault(number, source) == source:
            return number
        return self.unnumbered.setdefault(source, -1 - len(self.unnumbered))

    def _number(self) -> None:
        """Number the remaining sources after the others."""
        free = max(self.sources) + 1
        numbers = {temporary: free + i for i, temporary in enumerate(self.unnumbered.values())}
        self.sources |= {numbers[temporary]: source for source, temporary in self.unnumbered.items()}
        self.program.sources = [self.sources.get(i, NO_SOURCE) for i in range(max(self.sources) + 1)]
        if numbers:
            for kernel in self.program.kernels:
                for words in kernel.units.values():
                    words[:] = [replace(w, source=numbers.get(w.source, w.source)) for w in words]


_MAX_NUMBER = 2**20
"""Larger source numbers in locations are not kept: the table of sources has no gaps."""


def _stray(op: Any, parent: Any) -> Misformed:
    return Misformed(op, f"does not belong into '{parent.name}'")


def _descriptor(op: Any) -> Descriptor:
    given = {name: _get(op, name) for name in (*OPTIONAL_INTS, "pad", "half") if name in op.attributes}
    steps = _get(op, "level_step") if "level_step" in op.attributes else []
    levels = _get(op, "rotate_levels") if "rotate_levels" in op.attributes else []
    if len(steps) > LEVELS or len(set(levels)) != len(levels) or not all(0 <= v < LEVELS for v in levels):
        raise Misformed(op, f"expects level_step and rotate_levels to name levels of 0 to {LEVELS - 1}")
    return Descriptor(
        space=_get(op, "space"),
        element_bytes=_get(op, "element_bytes"),
        extent=tuple(_get(op, "extent")),
        stride=tuple(_get(op, "stride")),
        level_step=tuple(steps) + (0,) * (LEVELS - len(steps)),
        rotate_levels=sum(1 << v for v in levels),
        splat="splat" in op.attributes,
        bounds=tuple(_bounds(op)),
        **given,
    )


def _bounds(op: Any) -> Iterator[Bound]:
    attribute = op.attributes["bounds"] if "bounds" in op.attributes else []
    if not isinstance(attribute, (list, ir.ArrayAttr)) or not all(isinstance(b, BoundAttr) for b in attribute):
        raise Misformed(op, "expects bounds to be an array of #spyre.bound")
    for b in (BoundAttr(a) for a in attribute):
        table, dim, level = (None if n == -1 else n for n in (b.table, b.dim, b.level))
        yield Bound(b.limit, table, dim, b.dim_step, level, b.level_step, b.corelet_step, bool(b.lanes))
