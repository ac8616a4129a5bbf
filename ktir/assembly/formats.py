"""The format language of ops: one declarative string per op, interpreted in both directions.

    $x             operand(s) x, or attribute x        `text`         literal text
    type($x)       type(s) of operand or result x      stripped($x)   the same without its name: <4x8xindex>
    attr-dict      the attributes not named elsewhere  mixed($x, $s)  [4, %n]: values x, static array s
    affine($x, $m) subscripts: values x, map m         integer($a)    3, for 3 : i64
    integers($a)   [1, 2], for array<i64: 1, 2>        keyword($a)    word, for "word"
    symbol($a)     @name, for "name"                   region($r)     { ... }
    enum($a, u, v) the n-th word, for n : i32          old_types()    an old spelling's `: T, T`, read and dropped
    variables($r, terminator)                          (%i, %j): arguments of a region that is not shown
    indirect($views, $captured, $kinds, $maps, $r)     ind(%view[...]), (...): subscripts, some through index views
    full_set($a, $static)                              nothing; in an old spelling without a, the box of the sizes `static`
    role_types($results, $future)                      types of results; an old spelling drops the unit dim of the future's role
    ( ... )?       a group, printed when the first field named in it is there

Blanks are printed by MLIR's rules: before each element, except around brackets and before commas. Types that the format
leaves out are derived: `index` operands, and fields that share a type variable with one that is named.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ktir.assembly import elements, index_elements, old_spellings
from ktir.assembly.elements import Element, Reading, Rewrite, Writing
from ktir.assembly.lexer import Cursor, SyntaxFault, Text
from ktir.assembly.parameters import ParameterList

_FORMAT_TOKEN = re.compile(r"\s*(?:`([^`]*)`|(attr-dict)|\$(\w+)|(\w+)\(([^)]*)\)|(\()|(\)\?)|(\S))")


@dataclass(frozen=True)
class Group:
    """An operand or result field. `count` is `single`, `optional` or `variadic`.

    `type_text` is its type where only one is possible; `like` names the type variable that it shares with other fields;
    `type_name` is the name of its type with the sigil, as `!ktdp.access_tile`, where the field admits one type class only.
    `spread`: MLIR knows that many optional fields instead of this one.
    """

    name: str
    count: str = "single"
    type_text: str | None = None
    like: str | None = None
    type_name: str | None = None
    spread: int = 0


def collapse(groups: Sequence[Group], sizes: Sequence[int]) -> list[int]:
    """Segment sizes with one number per group, from those that MLIR holds."""
    collapsed: list[int] = []
    at = 0
    for group in groups:
        width = group.spread or 1
        collapsed.append(sum(sizes[at : at + width]))
        at += width
    return collapsed if at == len(sizes) else list(sizes)


def expand(groups: Sequence[Group], sizes: Sequence[int]) -> list[int]:
    """Segment sizes as MLIR holds them, from one number per group."""
    expanded: list[int] = []
    for group, size in zip(groups, sizes, strict=True):
        expanded += [1] * size + [0] * (group.spread - size) if group.spread else [size]
    return expanded


@dataclass(frozen=True)
class OpSyntax:
    """Name, fields and format of one op."""

    name: str
    assembly: str
    operands: tuple[Group, ...] = ()
    results: tuple[Group, ...] = ()
    regions: tuple[str, ...] = ()
    segments: frozenset[str] = field(default_factory=frozenset)
    """Which of `operandSegmentSizes` and `resultSegmentSizes` the op carries."""

    @cached_property
    def elements(self) -> list[Element]:
        return self._parse(iter(_FORMAT_TOKEN.finditer(self.assembly)))

    @cached_property
    def spreads(self) -> bool:
        """Whether MLIR knows other fields than the op has."""
        return any(g.spread for g in (*self.operands, *self.results))

    @cached_property
    def hides(self) -> bool:
        """Whether the op has a region that its text does not show."""
        return any(isinstance(e, index_elements.Variables) for e in self.elements)

    def read(self, cursor: Cursor, rewrite: Rewrite) -> tuple[Text, str]:
        """Reads the op after its name; the generic form, from the quoted name on, and `Reading.collapsed`."""
        op = Reading(cursor.start)
        for element in self.elements:
            element.read(cursor, op, rewrite)
        return self._generic(op), op.collapsed

    def write(self, op: Writing) -> str:
        """The pretty text of the op after its name."""
        return elements.join(self.elements, op)

    def can_be_empty(self) -> bool:
        """Whether nothing may follow the op's name."""
        return all(isinstance(e, elements.AttributeDictionary | elements.OptionalGroup) for e in self.elements)

    def _parse(self, tokens: Iterator[re.Match[str]]) -> list[Element]:
        """The elements up to the end of the format or of the group."""
        operands = {g.name: g for g in self.operands}
        groups = operands | {g.name: g for g in self.results}
        parsed: list[Element] = []
        for token in tokens:
            literal, dictionary, name, directive, arguments, opening, closing, other = token.groups()
            names = [a.strip().removeprefix("$") for a in (arguments or "").split(",") if a.strip()]
            if closing:
                return parsed
            if opening:
                parsed.append(elements.OptionalGroup(self._parse(tokens)))
            elif dictionary:
                parsed.append(elements.AttributeDictionary())
            elif literal is not None:
                parsed.append(elements.Literal(literal))
            elif name in operands:
                parsed.append(elements.Operand(name, operands[name].count))
            elif name:
                parsed.append(elements.AttributeValue(name))
            elif directive in ("type", "stripped") and names and names[0] in groups:
                group = groups[names[0]]
                kind = elements.TypeOf if directive == "type" else elements.StrippedType
                parsed.append(kind(group.name, group.count, group.type_name))
            elif directive in DIRECTIVES:
                parsed.append(DIRECTIVES[directive](*names))
            else:
                raise ValueError(f"format of '{self.name}': cannot read {token.group().strip() or other!r}")
        return parsed

    def _generic(self, op: Reading) -> Text:
        start = op.start
        out: Text = [(f'"{self.name}"(', start)]
        sizes: list[int] = []
        for group in self.operands:
            values = op.operands.get(group.name, [])
            sizes.append(len(values))
            if group.spread and len(values) > group.spread:
                raise SyntaxFault(f"'{self.name}' op has more than {group.spread} of '{group.name}'", values[-1][1])
            for value, at in values:
                if len(out) > 1:
                    out.append((", ", at))
                out.append((value, at))
        out.append((")", start))
        if self.regions:
            out.append((" (", start))
            for i, name in enumerate(self.regions):
                if i:
                    out.append((", ", start))
                out += op.regions.get(name, [("{}", start)])
            out.append((")", start))
        attributes = dict(op.attributes)
        if "operandSegmentSizes" in self.segments:
            attributes["operandSegmentSizes"] = [(self.segment_text(self.operands, sizes), start)]
        if "resultSegmentSizes" in self.segments:
            counts = [len(op.types.get(g.name, [])) for g in self.results]
            if any(g.spread and count > g.spread for g, count in zip(self.results, counts, strict=True)):
                raise SyntaxFault(f"'{self.name}' op has too many results", start)
            attributes["resultSegmentSizes"] = [(self.segment_text(self.results, counts), start)]
        out.append((" {", start))
        for i, (name, text) in enumerate(attributes.items()):
            out.append((f"{', ' if i else ''}{name}{' = ' if text else ''}", start))
            out += text or []
        out.append(("} : (", start))
        self._types(out, self.operands, op, start)
        out.append((") -> (", start))
        self._types(out, self.results, op, start)
        out.append((")", start))
        return out

    @staticmethod
    def segment_text(groups: Sequence[Group], sizes: Sequence[int]) -> str:
        """The attribute that says how many values each of `groups` has."""
        return f"array<i32: {', '.join(map(str, expand(groups, sizes)))}>"

    def _types(self, out: Text, groups: tuple[Group, ...], op: Reading, start: int) -> None:
        first = True
        for group in groups:
            for text in self._group_types(group, op):
                if not first:
                    out.append((", ", start))
                out += text
                first = False

    def _group_types(self, group: Group, op: Reading) -> list[Text]:
        given = op.types.get(group.name)
        if given is not None:
            return given
        count = len(op.operands[group.name]) if group.name in op.operands else int(group.count == "single")
        if group.type_text:
            return [[(group.type_text, op.start)]] * count
        for other in (*self.operands, *self.results):
            if group.like and other.like == group.like and op.types.get(other.name):
                return [op.types[other.name][0]] * count
        return []


DIRECTIVES: dict[str, Callable[..., Element]] = {
    "mixed": index_elements.MixedList,
    "affine": index_elements.Subscripts,
    "integer": elements.IntegerValue,
    "integers": elements.IntegerList,
    "keyword": elements.KeywordValue,
    "symbol": elements.SymbolName,
    "region": elements.Region,
    "variables": index_elements.Variables,
    "indirect": index_elements.IndirectSubscripts,
    "enum": elements.EnumValue,
    "old_types": old_spellings.OldTypes,
    "role_types": old_spellings.RoleTypes,
    "full_set": old_spellings.FullSet,
}
"""Directive name -> element, built from the field names in its parentheses; `type` and `stripped` also need the field's kind."""

OPS: dict[str, OpSyntax] = {}
"""Op name, dialect included -> syntax."""

PARAMETERS: dict[str, ParameterList] = {}
"""Name of a type or attribute with its sigil and dialect, as `!ktdp.access_tile` -> its parameters."""


def register_op(syntax: OpSyntax) -> None:
    OPS[syntax.name] = syntax


def register_parameters(name: str, parameters: ParameterList) -> None:
    PARAMETERS[name] = parameters


def dialects() -> list[str]:
    """Names of the dialects that have registered anything."""
    return sorted({name.lstrip("!#").partition(".")[0] for name in (*OPS, *PARAMETERS)})
