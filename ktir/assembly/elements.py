"""The elements that op formats are made of. Each reads itself from pretty text and writes itself back."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ktir.assembly import subscripts
from ktir.assembly.lexer import Cursor, Text
from ktir.assembly.parameters import DYNAMIC, Integers


class Rewrite(Protocol):
    """Turns an extent of the source (types, attributes, regions) into generic text; `prefix` is the name of a stripped type."""

    def __call__(self, start: int, end: int, prefix: str = "") -> Text: ...


@dataclass
class Reading:
    """What reading an op has collected so far, by field name."""

    start: int = 0
    operands: dict[str, Text] = field(default_factory=dict)
    types: dict[str, list[Text]] = field(default_factory=dict)
    attributes: dict[str, Text | None] = field(default_factory=dict)
    regions: dict[str, Text] = field(default_factory=dict)
    variables: list[str] = field(default_factory=list)
    """Names that the text of the op itself introduces."""
    collapsed: str = ""
    """In an old spelling, the type that the text gives the op's one result, which is that of the op without its unit dim."""


@dataclass
class Writing:
    """A generic op taken apart for printing. Elements remove the attributes that they print; attr-dict prints the rest."""

    operands: dict[str, list[str]]
    types: dict[str, list[str]]
    attributes: dict[str, str | None]
    regions: dict[str, str]
    aliases: Mapping[str, str]

    def attribute(self, name: str) -> str:
        """Text of attribute `name` with an alias resolved; taken out of the dictionary. Raises KeyError if it is not there."""
        text = self.attributes.pop(name) or ""
        return self.aliases.get(text, text)

    def has(self, name: str) -> bool:
        return bool(self.operands.get(name)) or name in self.attributes or bool(self.regions.get(name)) or bool(self.types.get(name))


class Element:
    """Base: an element that prints itself with a blank before it."""

    fields: tuple[str, ...] = ()

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        raise NotImplementedError

    def write(self, op: Writing) -> str:
        raise NotImplementedError

    def starts(self, cursor: Cursor) -> bool:
        """Whether the element can begin at the cursor; decides about optional groups."""
        return cursor.kind == "value"


class Literal(Element):
    """Fixed text of one or more tokens."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = re.findall(r"->|[A-Za-z_][\w.\-]*|\S", text)

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        for token in self.tokens:
            cursor.expect(token)

    def write(self, op: Writing) -> str:
        return self.text

    def starts(self, cursor: Cursor) -> bool:
        return cursor.value == self.tokens[0]


class Operand(Element):
    """Operand `name`; comma-separated if variadic."""

    def __init__(self, name: str, count: str) -> None:
        self.fields = (name,)
        self.name, self.count = name, count

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        values = op.operands.setdefault(self.name, [])
        if self.count != "single" and cursor.kind != "value":
            return
        while True:
            at = cursor.start
            values.append((cursor.take("value", "SSA operand"), at))
            if self.count != "variadic" or not cursor.accept(","):
                return

    def write(self, op: Writing) -> str:
        return ", ".join(op.operands[self.name])


class AttributeValue(Element):
    """Attribute `name`, written as MLIR writes attributes."""

    def __init__(self, name: str) -> None:
        self.fields = (name,)
        self.name = name

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        start, end = attribute_extent(cursor)
        op.attributes[self.name] = rewrite(start, end)

    def write(self, op: Writing) -> str:
        return op.attributes.pop(self.name) or ""

    def starts(self, cursor: Cursor) -> bool:
        return cursor.kind in ("number", "string", "named", "word", "symbol")


class IntegerValue(AttributeValue):
    """An i64 attribute as a bare number."""

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        at = cursor.start
        op.attributes[self.name] = [(f"{cursor.integer()} : i64", at)]

    def write(self, op: Writing) -> str:
        return op.attribute(self.name).partition(" :")[0]

    def starts(self, cursor: Cursor) -> bool:
        return cursor.kind == "number" or cursor.value == "-"


class IntegerList(AttributeValue):
    """An i64 array attribute as a bracketed list."""

    codec = Integers()

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        at = cursor.start
        op.attributes[self.name] = [(self.codec.encode(self.codec.read(cursor)), at)]

    def write(self, op: Writing) -> str:
        return self.codec.write(self.codec.decode(Cursor(op.attribute(self.name), 0)))

    def starts(self, cursor: Cursor) -> bool:
        return cursor.value == "["


class KeywordValue(AttributeValue):
    """A string attribute as a bare word."""

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        at = cursor.start
        op.attributes[self.name] = [(f'"{cursor.take("word", "keyword")}"', at)]

    def write(self, op: Writing) -> str:
        return op.attribute(self.name)[1:-1]

    def starts(self, cursor: Cursor) -> bool:
        return cursor.kind == "word"


class SymbolName(AttributeValue):
    """A string attribute as a symbol name."""

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        at = cursor.start
        name = cursor.take("symbol", "symbol name")[1:]
        op.attributes[self.name] = [(name if name.startswith('"') else f'"{name}"', at)]

    def write(self, op: Writing) -> str:
        name = op.attribute(self.name)
        return "@" + (name[1:-1] if re.fullmatch(r'"[A-Za-z_][\w$.]*"', name) else name)

    def starts(self, cursor: Cursor) -> bool:
        return cursor.kind == "symbol"


class TypeOf(Element):
    """Type or types of field `name`."""

    def __init__(self, name: str, count: str, type_name: str | None) -> None:
        self.fields = (name,)
        self.name, self.count, self.type_name = name, count, type_name

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        types = op.types.setdefault(self.name, [])
        expected = len(op.operands[self.name]) if self.name in op.operands else None
        if self.count != "single" and (expected == 0 or not self.starts(cursor)):
            return
        while True:
            types.append(self.read_one(cursor, rewrite))
            if self.count != "variadic" or len(types) == expected or not cursor.accept(","):
                return

    def read_one(self, cursor: Cursor, rewrite: Rewrite) -> Text:
        return rewrite(*cursor.type_extent())

    def write(self, op: Writing) -> str:
        return ", ".join(op.types[self.name])

    def starts(self, cursor: Cursor) -> bool:
        return cursor.kind in ("word", "named") or cursor.value == "("


class StrippedType(TypeOf):
    """Type of field `name`, printed without its name, read with or without."""

    def read_one(self, cursor: Cursor, rewrite: Rewrite) -> Text:
        if cursor.value != "<":
            return super().read_one(cursor, rewrite)
        begin, end = cursor.bracketed()
        return rewrite(begin, end, self.type_name or "")

    def write(self, op: Writing) -> str:
        prefix = f"{self.type_name}<"
        return ", ".join(t[len(prefix) - 1 :] if t.startswith(prefix) else t for t in op.types[self.name])

    def starts(self, cursor: Cursor) -> bool:
        return cursor.value == "<" or super().starts(cursor)


class AttributeDictionary(Element):
    """The attributes that no other element prints."""

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        if not cursor.accept("{"):
            return
        while cursor.value != "}":
            if cursor.kind not in ("word", "string"):
                raise cursor.fail("expected attribute name")
            name = cursor.value.strip('"')
            if name in op.attributes:
                raise cursor.fail(f"key '{name}' is already set by the op's own syntax or given twice")
            cursor.advance()
            op.attributes[name] = rewrite(*cursor.until_comma()) if cursor.accept("=") else None
            if not cursor.accept(","):
                break
        cursor.expect("}")

    def write(self, op: Writing) -> str:
        inside = ", ".join(name if text is None else f"{name} = {text}" for name, text in op.attributes.items())
        return f"{{{inside}}}" if inside else ""

    def starts(self, cursor: Cursor) -> bool:
        return cursor.value == "{"


class MixedList(Element):
    """`[4, %n]`: static entries in array attribute `static`, dynamic ones as operands `values`."""

    def __init__(self, values: str, static: str) -> None:
        self.fields = (values, static)
        self.values, self.static = values, static

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        at = cursor.start
        values = op.operands.setdefault(self.values, [])
        entries: list[int] = []
        cursor.expect("[")
        while cursor.value != "]":
            if cursor.kind == "value":
                values.append((cursor.value, cursor.start))
                cursor.advance()
                entries.append(DYNAMIC)
            elif cursor.kind == "number" or cursor.value == "-":
                entries.append(cursor.integer())
            else:
                raise cursor.fail("expected SSA value or integer")
            if not cursor.accept(","):
                break
        cursor.expect("]")
        op.attributes[self.static] = [(Integers().encode(entries), at)]

    def write(self, op: Writing) -> str:
        values = iter(op.operands[self.values])
        entries = Integers().decode(Cursor(op.attribute(self.static), 0))
        return f"[{', '.join(next(values, '?') if e == DYNAMIC else str(e) for e in entries)}]"

    def starts(self, cursor: Cursor) -> bool:
        return cursor.value == "["


class Subscripts(Element):
    """Affine expressions of SSA values, held as operands `values` and affine map `base_map`."""

    def __init__(self, values: str, base_map: str) -> None:
        self.fields = (values, base_map)
        self.values, self.base_map = values, base_map

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        at = cursor.start
        op.operands[self.values], text = subscripts.read(cursor, "]")
        op.attributes[self.base_map] = [(text, at)]

    def write(self, op: Writing) -> str:
        return subscripts.write(op.attribute(self.base_map), op.operands[self.values])


_VARIABLE = "%$"  # with a number: a block argument of a region that the text does not show
_BLOCK_ARGUMENT = re.compile(r"(%[\w$.\-]+): ")


class Variables(Element):
    """`(%i, %j)`: the `index` arguments of region `name`, which holds nothing but the terminator `terminator`."""

    def __init__(self, name: str, terminator: str) -> None:
        self.fields = (name,)
        self.name, self.terminator = name, terminator

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        at = cursor.start
        cursor.expect("(")
        while cursor.value != ")":
            if cursor.value in op.variables:
                raise cursor.fail(f"variable '{cursor.value}' is given twice")
            op.variables.append(cursor.take("value", "variable name"))
            if not cursor.accept(","):
                break
        cursor.expect(")")
        arguments = ", ".join(f"{_VARIABLE}{i}: index" for i in range(len(op.variables)))
        header = f"^bb0({arguments}): " if arguments else ""
        op.regions[self.name] = [(f'{{{header}"{self.terminator}"() : () -> ()}}', at)]

    def write(self, op: Writing) -> str:
        return f"({', '.join(self.names(op, self.name))})"

    @staticmethod
    def names(op: Writing, region: str) -> list[str]:
        """The names that the printed region gives its arguments."""
        header, colon, _ = op.regions[region].partition("):")
        return _BLOCK_ARGUMENT.findall(header + ") ") if colon and "^" in header else []


class IndirectSubscripts(Element):
    """`ind(%view[...]), (...)`: per dim a direct subscript, or one through an index view.

    Held as operands `views` and `captured`, kinds (true: indirect) and maps over captured values and then the variables of `region`.
    """

    def __init__(self, views: str, captured: str, kinds: str, maps: str, region: str) -> None:
        self.fields = (views, captured, kinds, maps)
        self.views, self.captured, self.kinds, self.maps, self.region = views, captured, kinds, maps, region

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        at = cursor.start
        views: Text = []
        values: dict[str, int] = {}
        all_terms: list[subscripts.Terms] = []
        kinds: list[str] = []
        while cursor.value != "]":
            if all_terms:
                if cursor.value != ",":
                    raise cursor.fail("expecting a comma between subscripts")
                cursor.advance()
            kinds.append("true" if cursor.value == "ind" else "false")
            if cursor.accept("ind"):
                cursor.expect("(")
                views.append((cursor.value, cursor.start))
                cursor.take("value", "index view")
                cursor.expect("[")
                all_terms.append(subscripts.read_terms(cursor, "]", values))
                cursor.expect("]")
                cursor.expect(")")
            elif cursor.accept("("):
                all_terms.append(subscripts.read_terms(cursor, ")", values))
                cursor.expect(")")
            elif cursor.kind in ("value", "number") or cursor.value == "-":
                start = cursor.start
                all_terms.append(subscripts.read_terms(cursor, "]", values, one=True))
                written = cursor.text[start : cursor.last]
                cursor.old(start, f"a direct subscript without parentheses is deprecated: write '({written})'")
            else:
                hint = f": a subscript through an index view is written 'ind(%{cursor.value}[...])'" if cursor.kind == "word" else ""
                raise cursor.fail(f"unexpected token in subscript list, expected 'ind', '(', or ']'{hint}")
        captured = [(name, place) for name, place in values.items() if name not in op.variables]
        names = [*(name for name, _ in captured), *op.variables]
        op.operands[self.views], op.operands[self.captured] = views, captured
        op.attributes[self.kinds] = [(f"[{', '.join(kinds)}]", at)]
        op.attributes[self.maps] = [(f"[{', '.join(subscripts.map_text(terms, names) for terms in all_terms)}]", at)]

    def write(self, op: Writing) -> str:
        names = [*op.operands[self.captured], *Variables.names(op, self.region)]
        views = iter(op.operands[self.views])
        inside = Cursor(op.attribute(self.maps), 0)
        inside.expect("[")
        kinds = op.attribute(self.kinds).strip("[]")
        parts: list[str] = []
        for kind in kinds.split(", ") if kinds else []:
            begin, end = inside.until_comma()
            inside.accept(",")
            text = inside.text[begin:end]
            written = subscripts.write(op.aliases.get(text, text), names)
            parts.append(f"ind({next(views)}[{written}])" if kind == "true" else f"({written})")
        return ", ".join(parts)


class EnumValue(AttributeValue):
    """An i32 attribute as one of `words`, which are numbered from 0."""

    def __init__(self, name: str, *words: str) -> None:
        super().__init__(name)
        self.words = words

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        if cursor.value not in self.words:
            raise cursor.fail(f"expected one of: {', '.join(self.words)}")
        op.attributes[self.name] = [(f"{self.words.index(cursor.value)} : i32", cursor.start)]
        cursor.advance()

    def write(self, op: Writing) -> str:
        return self.words[int(op.attribute(self.name).partition(" :")[0])]

    def starts(self, cursor: Cursor) -> bool:
        return cursor.kind == "word"


class Region(Element):
    """A region in braces."""

    def __init__(self, name: str) -> None:
        self.fields = (name,)
        self.name = name

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        if cursor.value != "{":
            raise cursor.fail("expected '{' to begin a region")
        op.regions[self.name] = rewrite(*cursor.bracketed())

    def write(self, op: Writing) -> str:
        return op.regions[self.name]

    def starts(self, cursor: Cursor) -> bool:
        return cursor.value == "{"


class OptionalGroup(Element):
    """Elements that are there together or not at all."""

    def __init__(self, inner: Sequence[Element]) -> None:
        self.inner = inner
        self.fields = tuple(f for e in inner for f in e.fields)
        self.leads = next((e.fields[0] for e in inner if e.fields), "")

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        if not self.inner[0].starts(cursor):
            return
        for element in self.inner:
            element.read(cursor, op, rewrite)

    def write(self, op: Writing) -> str:
        return join(self.inner, op) if op.has(self.leads) else ""

    def starts(self, cursor: Cursor) -> bool:
        return self.inner[0].starts(cursor)


def join(parts: Sequence[Element], op: Writing) -> str:
    """The printed elements, each with the blank that MLIR's formats put before it."""
    out = ""
    for part in parts:
        text = part.write(op)
        if not text:
            continue
        after_bracket = out.endswith(("(", "[", "<"))
        if isinstance(part, OptionalGroup) and after_bracket:
            text = text.lstrip()
        glued = isinstance(part, OptionalGroup | Variables) or after_bracket
        if isinstance(part, Literal):
            glued |= text[0] in ",)]>" or (text[0] in "([<" and not out.endswith((",", ":", "=", ">")))
        out += text if glued else " " + text
    return out


def attribute_extent(cursor: Cursor) -> tuple[int, int]:
    """Skips one attribute value; its extent. A number takes the type that follows it."""
    begin = cursor.start
    cursor.accept("-")
    if cursor.value in ("[", "{"):
        return cursor.bracketed()
    if cursor.kind == "symbol":
        cursor.advance()
        while cursor.accept("::"):
            cursor.take("symbol", "symbol name")
        return begin, cursor.last
    number = cursor.kind == "number"
    if not number and cursor.kind not in ("string", "named", "word"):
        raise cursor.fail("expected attribute value")
    dense = cursor.value in ("dense", "sparse", "dense_resource")
    cursor.advance()
    if cursor.value == "<" and not number:
        cursor.bracketed()
    if (number or dense) and cursor.accept(":"):
        cursor.type_extent()
    return begin, cursor.last
