"""The text between `<` and `>` of our own types and attributes, in both spellings.

Pretty: `#ktdp.memory_space<ct_local, ct_id = 3>`. MLIR's own printer knows only positional parameters and gives
`#ktdp.memory_space<"ct_local", 3 : i64>`. A `ParameterList` turns one into the other through Python values.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from ktir.assembly.lexer import Cursor, SyntaxFault, Text
from ktir.mlir import integer_attribute, ir

DYNAMIC = -(2**63)
"""MLIR's marker of a dynamic size in integer arrays."""


class Source(Protocol):
    """The text that is being read, as far as parameters need it."""

    def rewrite(self, start: int, end: int, prefix: str = "") -> Text:
        """An extent in generic form."""
        ...


class Integer:
    """`3` in pretty text, `3 : i64` in MLIR's."""

    what = "integer"

    def generic(self, value: Any, cursor: Cursor, start: int, source: Source) -> Text:
        """MLIR's spelling of `value`, which was read from `start` up to `cursor.last`."""
        return [(self.encode(value), start)]

    def resolved(self, value: Any, cursor: Cursor) -> Any:
        """`value` with aliases replaced by what they stand for, as checks want it."""
        return value

    def read(self, cursor: Cursor) -> Any:
        return cursor.integer()

    def write(self, value: Any) -> str:
        return str(value)

    def encode(self, value: Any) -> str:
        return f"{value} : i64"

    def decode(self, cursor: Cursor) -> Any:
        value = cursor.integer()
        if cursor.accept(":"):
            cursor.advance()
        return value

    def to_attribute(self, value: Any) -> ir.Attribute:
        return integer_attribute(value)

    def from_attribute(self, attribute: ir.Attribute) -> Any:
        return ir.IntegerAttr(attribute).value


class Integers(Integer):
    """`[1, 2]` in pretty text, `array<i64: 1, 2>` in MLIR's."""

    what = "integer list"

    def read(self, cursor: Cursor) -> Any:
        cursor.expect("[")
        values: list[int] = []
        while cursor.value != "]":
            values.append(cursor.integer())
            if not cursor.accept(","):
                break
        cursor.expect("]")
        return values

    def write(self, value: Any) -> str:
        return f"[{', '.join(map(str, value))}]"

    def encode(self, value: Any) -> str:
        return f"array<i64: {', '.join(map(str, value))}>" if value else "array<i64>"

    def decode(self, cursor: Cursor) -> Any:
        for token in ("array", "<", "i64"):
            cursor.expect(token)
        values: list[int] = []
        if cursor.accept(":"):
            values.append(cursor.integer())
            while cursor.accept(","):
                values.append(cursor.integer())
        cursor.expect(">")
        return values

    def to_attribute(self, value: Any) -> ir.Attribute:
        return ir.DenseI64ArrayAttr.get(list(value))

    def from_attribute(self, attribute: ir.Attribute) -> Any:
        return list(ir.DenseI64ArrayAttr(attribute))


class Dimensions(Integers):
    """`4x?xindex` in pretty text, an integer array in MLIR's. Values are sizes, `DYNAMIC` for `?`."""

    what = "dimension list"

    def read(self, cursor: Cursor) -> Any:
        start = cursor.start
        while cursor.value not in (">", ","):
            if cursor.kind not in ("number", "word") and cursor.value not in ("?", "-"):
                raise cursor.fail("expected dimension list")
            cursor.advance()
        text = "".join(cursor.text[start : cursor.last].split())
        *sizes, element = text.split("x") if not text.endswith("index") else (*text[: -len("index")].split("x")[:-1], "index")
        if element != "index":
            raise SyntaxFault(f"tile element type must be 'index', but got: '{element}'", start)
        try:
            values = [DYNAMIC if size == "?" else int(size) for size in sizes]
        except ValueError:
            raise SyntaxFault("expected dimension list", start) from None
        if any(value < 0 and value != DYNAMIC for value in values):
            raise SyntaxFault("tile dimensions must be non-negative", start)
        return values

    def write(self, value: Any) -> str:
        return "".join(f"{'?' if size == DYNAMIC else size}x" for size in value) + "index"


class Keyword(Integer):
    """A bare word in pretty text, a string in MLIR's. `choices` lists the legal words; empty: any."""

    def __init__(self, choices: tuple[str, ...] = ()) -> None:
        self.choices = choices
        self.what = "one of: " + ", ".join(choices) if choices else "keyword"

    def read(self, cursor: Cursor) -> Any:
        if cursor.kind != "word" or (self.choices and cursor.value not in self.choices):
            raise cursor.fail(f"expected {self.what}")
        return cursor.take("word", self.what)

    def encode(self, value: Any) -> str:
        return f'"{value}"'

    def decode(self, cursor: Cursor) -> Any:
        return cursor.take("string", "string")[1:-1]

    def to_attribute(self, value: Any) -> ir.Attribute:
        return ir.StringAttr.get(value)

    def from_attribute(self, attribute: ir.Attribute) -> Any:
        return ir.StringAttr(attribute).value


class TypeName(Integer):
    """A builtin type, the same in both spellings."""

    what = "type"

    def read(self, cursor: Cursor) -> Any:
        start, end = cursor.type_extent()
        return cursor.text[start:end]

    def encode(self, value: Any) -> str:
        return str(value)

    decode = read

    def generic(self, value: Any, cursor: Cursor, start: int, source: Source) -> Text:
        return source.rewrite(start, cursor.last)

    def to_attribute(self, value: Any) -> ir.Attribute:
        return ir.TypeAttr.get(value)

    def from_attribute(self, attribute: ir.Attribute) -> Any:
        return ir.TypeAttr(attribute).value


class OptionalInteger(Integer):
    """`3` in pretty text, `3 : i64` in MLIR's; None is `unit` there and has no pretty text."""

    def encode(self, value: Any) -> str:
        return "unit" if value is None else super().encode(value)

    def decode(self, cursor: Cursor) -> Any:
        return None if cursor.accept("unit") else super().decode(cursor)

    def to_attribute(self, value: Any) -> ir.Attribute:
        return ir.UnitAttr.get() if value is None else super().to_attribute(value)

    def from_attribute(self, attribute: ir.Attribute) -> Any:
        return None if attribute == ir.UnitAttr.get(attribute.context) else super().from_attribute(attribute)


class TypeList(Integer):
    """`(f16, f32)` in pretty text, `[f16, f32]` in MLIR's. An old spelling of a single type has no parentheses."""

    what = "list of types"

    def read(self, cursor: Cursor) -> Any:
        if cursor.value == "(":
            return self._inside(cursor, "(", ")")
        at = cursor.start
        start, end = cursor.type_extent()
        cursor.old(at, f"a type list without parentheses is deprecated: write '({cursor.text[start:end]})'")
        return [cursor.text[start:end]]

    def _inside(self, cursor: Cursor, opening: str, closing: str) -> list[str]:
        cursor.expect(opening)
        types: list[str] = []
        while cursor.value != closing:
            start, end = cursor.type_extent()
            types.append(cursor.text[start:end])
            if not cursor.accept(","):
                break
        cursor.expect(closing)
        return types

    def write(self, value: Any) -> str:
        return f"({', '.join(value)})"

    def encode(self, value: Any) -> str:
        return f"[{', '.join(value)}]"

    def decode(self, cursor: Cursor) -> Any:
        return self._inside(cursor, "[", "]")

    def generic(self, value: Any, cursor: Cursor, start: int, source: Source) -> Text:
        again = Cursor(cursor.text, start)
        again.accept("(")
        out: Text = [("[", start)]
        for i, _ in enumerate(value):
            if i:
                out.append((", ", again.start))
                again.expect(",")
            out += source.rewrite(*again.type_extent())
        return [*out, ("]", again.last)]

    def resolved(self, value: Any, cursor: Cursor) -> Any:
        return [_alias(cursor, t) for t in value]

    def to_attribute(self, value: Any) -> ir.Attribute:
        return ir.ArrayAttr.get([ir.TypeAttr.get(t) for t in value])

    def from_attribute(self, attribute: ir.Attribute) -> Any:
        return [ir.TypeAttr(t).value for t in ir.ArrayAttr(attribute)]


class IntegerSet(Integer):
    """An integer set or an alias of one; in MLIR's spelling a string, since it cannot read a type of ours in which `>=` stands."""

    what = "integer set"
    _HEAD = re.compile(r"affine_set<\(([^)]*)\)(?:\s*\[([^\]]*)\])?")

    @classmethod
    def counts(cls, text: str) -> tuple[int, int] | None:
        """Number of dims and symbols of a set in text; None if it is none."""
        match = cls._HEAD.match(text)
        if match is None:
            return None
        dims, symbols = (len(names.split(",")) if names and names.strip() else 0 for names in match.groups())
        return dims, symbols

    def read(self, cursor: Cursor) -> Any:
        start = cursor.start
        if cursor.kind == "named" and cursor.value[0] == "#":
            text = _alias(cursor, cursor.value)
            if text == cursor.value:
                raise cursor.fail(f"undefined symbol alias id '{text[1:]}'")
            cursor.advance()
        else:
            cursor.expect("affine_set")
            cursor.bracketed()
            text = cursor.text[start : cursor.last]
        try:
            return _canonical(text)
        except ir.MLIRError:
            raise SyntaxFault("expected integer set", start) from None

    def write(self, value: Any) -> str:
        return value

    def encode(self, value: Any) -> str:
        return f'"{value}"'

    def decode(self, cursor: Cursor) -> Any:
        return cursor.take("string", "string")[1:-1]

    def to_attribute(self, value: Any) -> ir.Attribute:
        return ir.StringAttr.get(str(value))

    def from_attribute(self, attribute: ir.Attribute) -> Any:
        return ir.Attribute.parse(ir.StringAttr(attribute).value, attribute.context)


@lru_cache(maxsize=1024)
def _canonical(text: str) -> str:
    """A set as MLIR prints it."""
    attribute = ir.Attribute.parse(text)
    return str(attribute) if isinstance(attribute, ir.IntegerSetAttr) else "not a set"


def _alias(cursor: Cursor, name: str) -> str:
    """What the alias `name` is defined as in the text; `name` itself if it is none."""
    match = re.search(rf"(?m)^[ \t]*{re.escape(name)}[ \t]*=", cursor.text) if name[0] in "#!" else None
    if match is None:
        return name
    at = Cursor(cursor.text, match.end())
    if name[0] == "!":
        start, end = at.type_extent()
    else:
        start = at.start
        at.advance()
        end = at.bracketed()[1] if at.value == "<" else at.last
    return at.text[start:end]


Codec = Integer
"""What the classes above have in common: `read`/`write` for pretty text, `decode`/`encode` for MLIR's, and attributes."""


def _no_fault(_: Mapping[str, Any]) -> str | None:
    return None


@dataclass(frozen=True)
class ParameterList:
    """The parameters of one type or attribute.

    In pretty text the `positional` ones come first and bare, the others as `key = value` in any order, joined by `joint`. Those in
    `defaults` may be left out; those in `elided` are not printed when they have their default. `check` takes the values by name and
    returns what is wrong with them, or None. `successor` takes them too and returns what to write instead of an old type or attribute.
    """

    name: str
    codecs: dict[str, Codec]
    positional: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    elided: tuple[str, ...] = ()
    check: Callable[[Mapping[str, Any]], str | None] = _no_fault
    joint: str = " = "
    successor: Callable[[Mapping[str, Any]], str | None] = _no_fault

    def is_generic(self, cursor: Cursor) -> bool:
        """Whether the parameters under the cursor are in MLIR's spelling."""
        if cursor.kind == "string" or cursor.value in ("array", "["):
            return True
        if cursor.kind == "number":
            return not self.positional
        if len(self.positional) == len(self.codecs) or not isinstance(self.codecs[next(iter(self.codecs))], TypeName):
            return False
        probe = Cursor(cursor.text, cursor.start)
        probe.type_extent()
        return probe.accept(",") and (probe.kind == "number" or probe.value in ("unit", "-"))

    def to_generic(self, cursor: Cursor, source: Source) -> Text:
        """Reads pretty parameters up to `>` and returns MLIR's spelling."""
        start = cursor.start
        values: dict[str, Any] = {}
        texts: dict[str, Text] = {}

        def read(name: str) -> None:
            at = cursor.start
            values[name] = self.codecs[name].read(cursor)
            texts[name] = self.codecs[name].generic(values[name], cursor, at, source)
            values[name] = self.codecs[name].resolved(values[name], cursor)
            if cursor.value != ">":
                cursor.expect(",")

        for name in self.positional:
            read(name)
        while cursor.value != ">":
            name = cursor.value
            bare = next((n for n, codec in self.codecs.items() if isinstance(codec, IntegerSet) and n not in values), None)
            if bare and (name == "affine_set" or name[:1] == "#"):
                cursor.old(cursor.start, f"'{self.name}' with a bare integer set is deprecated: write '{bare} = ...'")
                read(bare)
                continue
            if name not in self.codecs or name in self.positional:
                raise cursor.fail(f"expected one of: {', '.join(n for n in self.codecs if n not in self.positional)}")
            if name in values:
                raise cursor.fail(f"duplicate parameter '{name}'")
            cursor.advance()
            cursor.expect("=")
            read(name)
        for name in self.codecs:
            if name not in values and name not in self.defaults:
                raise cursor.fail(f"missing parameter '{name}'")
        values = dict(self.defaults) | values
        if fault := self.check(values):
            raise SyntaxFault(fault, start)
        if newer := self.successor(values):
            cursor.old(start, f"'{self.name}' is deprecated: {newer}")
        out: Text = []
        for name, codec in self.codecs.items():
            pieces = texts.get(name) or [(codec.encode(values[name]), start)]
            if out:
                out.append((", ", pieces[0][1]))
            out += pieces
        return out

    def to_pretty(self, cursor: Cursor) -> str:
        """Reads parameters in MLIR's spelling up to `>` and returns the pretty one."""
        parts: list[str] = []
        for name, codec in self.codecs.items():
            if cursor.value == ",":
                cursor.advance()
            value = codec.decode(cursor)
            if name in self.positional:
                parts.append(codec.write(value))
            elif name not in self.elided or self.defaults[name] != value:
                parts.append(f"{name}{self.joint}{codec.write(value)}")
        return ", ".join(parts)
