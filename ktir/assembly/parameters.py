"""The text between `<` and `>` of our own types and attributes, in both spellings.

Pretty: `#ktdp.memory_space<ct_local, ct_id = 3>`. MLIR's own printer knows only positional parameters and gives
`#ktdp.memory_space<"ct_local", 3 : i64>`. A `ParameterList` turns one into the other through Python values.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ktir.assembly.lexer import Cursor, SyntaxFault
from ktir.mlir import ir

DYNAMIC = -(2**63)
"""MLIR's marker of a dynamic size in integer arrays."""


class Integer:
    """`3` in pretty text, `3 : i64` in MLIR's."""

    what = "integer"

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
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)

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

    def to_attribute(self, value: Any) -> ir.Attribute:
        return ir.TypeAttr.get(value)

    def from_attribute(self, attribute: ir.Attribute) -> Any:
        return ir.TypeAttr(attribute).value


Codec = Integer
"""What the classes above have in common: `read`/`write` for pretty text, `decode`/`encode` for MLIR's, and attributes."""


def _no_fault(_: Mapping[str, Any]) -> str | None:
    return None


@dataclass(frozen=True)
class ParameterList:
    """The parameters of one type or attribute.

    In pretty text the `positional` ones come first and bare, the others as `key = value` in any order. Those in `defaults` may be
    left out; those in `elided` are not printed when they have their default. `check` takes the values by name and returns what is
    wrong with them, or None.
    """

    codecs: dict[str, Codec]
    positional: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    elided: tuple[str, ...] = ()
    check: Callable[[Mapping[str, Any]], str | None] = _no_fault

    def is_generic(self, cursor: Cursor) -> bool:
        """Whether the parameters under the cursor are in MLIR's spelling."""
        return cursor.kind == "string" or cursor.value == "array" or (cursor.kind == "number" and not self.positional)

    def to_generic(self, cursor: Cursor) -> str:
        """Reads pretty parameters up to `>` and returns MLIR's spelling."""
        start = cursor.start
        values: dict[str, Any] = {}
        for name in self.positional:
            values[name] = self.codecs[name].read(cursor)
            if cursor.value != ">":
                cursor.expect(",")
        while cursor.value != ">":
            name = cursor.value
            if name not in self.codecs or name in self.positional:
                raise cursor.fail(f"expected one of: {', '.join(n for n in self.codecs if n not in self.positional)}")
            if name in values:
                raise cursor.fail(f"duplicate parameter '{name}'")
            cursor.advance()
            cursor.expect("=")
            values[name] = self.codecs[name].read(cursor)
            if cursor.value != ">":
                cursor.expect(",")
        for name in self.codecs:
            if name not in values and name not in self.defaults:
                raise cursor.fail(f"missing parameter '{name}'")
        values = dict(self.defaults) | values
        if fault := self.check(values):
            raise SyntaxFault(fault, start)
        return ", ".join(codec.encode(values[name]) for name, codec in self.codecs.items())

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
                parts.append(f"{name} = {codec.write(value)}")
        return ", ".join(parts)
