"""The elements that op formats are made of. Each reads itself from pretty text and writes itself back."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ktir.assembly.lexer import Cursor, Text
from ktir.assembly.parameters import Integers


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
    """Base: an element, printed with a blank before it."""

    fields: tuple[str, ...] = ()
    glued = False
    """Whether it is printed without that blank."""

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

    glued = True

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
        glued = part.glued or after_bracket
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
