"""Elements that only formats of `spyreop` have: numbers in places of their own, attributes without their type's name."""

from ktir.assembly import elements
from ktir.assembly.lexer import Cursor


class AddressPart(elements.Element):
    """An operand of `values`, or, in an old spelling that is kept, the i32 attribute `name`; printed as an address."""

    form = "0x{:08X}"

    def __init__(self, values: str, name: str) -> None:
        self.fields = (values, name)
        self.values, self.name = values, name

    def read(self, cursor: Cursor, op: elements.Reading, rewrite: elements.Rewrite) -> None:
        values = op.operands.setdefault(self.values, [])
        at = cursor.start
        if cursor.kind == "value":
            values.append((cursor.value, at))
            cursor.advance()
            return
        number = cursor.integer() % 2**32
        cursor.old(at, "a number here is deprecated: write a value of type i32")
        op.attributes[self.name] = [(f"{number - 2**32 if number >= 2**31 else number} : i32", at)]

    def write(self, op: elements.Writing) -> str:
        if self.name in op.attributes:
            return self.form.format(int(op.attribute(self.name).partition(" :")[0]) % 2**32)
        return op.operands[self.values][0 if self.name == "base_value" else 1]


class NumberPart(AddressPart):
    """As `AddressPart`, but printed as a plain number."""

    form = "{}"


class BareAttribute(elements.AttributeValue):
    """Attribute `name` of the type called `attribute`, written without that name: `<word>`."""

    def __init__(self, name: str, attribute: str) -> None:
        super().__init__(name)
        self.prefix = f"#{attribute}"

    def read(self, cursor: Cursor, op: elements.Reading, rewrite: elements.Rewrite) -> None:
        if cursor.value != "<":
            super().read(cursor, op, rewrite)
            return
        op.attributes[self.name] = rewrite(*cursor.bracketed(), self.prefix)

    def write(self, op: elements.Writing) -> str:
        return op.attribute(self.name).removeprefix(self.prefix)


class F32Literal(elements.AttributeValue):
    """An f32 attribute as a bare number."""

    def read(self, cursor: Cursor, op: elements.Reading, rewrite: elements.Rewrite) -> None:
        at = cursor.start
        minus = "-" if cursor.accept("-") else ""
        number = cursor.take("number", "floating point literal")
        if number[-1] in "eE" and cursor.value in ("+", "-"):  # the lexer ends numbers before a sign
            number += cursor.value
            cursor.advance()
            number += cursor.take("number", "exponent")
        op.attributes[self.name] = [(f"{minus}{number} : f32", at)]

    def write(self, op: elements.Writing) -> str:
        return op.attribute(self.name).partition(" :")[0]


class TypedValue(elements.AttributeValue):
    """Attribute `name` with its type, which is that of result `result`."""

    def __init__(self, name: str, result: str) -> None:
        super().__init__(name)
        self.result = result

    def read(self, cursor: Cursor, op: elements.Reading, rewrite: elements.Rewrite) -> None:
        probe = Cursor(cursor.text, cursor.start)
        probe.accept("-")
        if probe.value in ("dense", "sparse", "dense_resource"):
            probe.advance()
            probe.bracketed()
        else:
            probe.advance()
        if probe.value in ("+", "-"):
            probe.advance()
            probe.advance()
        start = cursor.start
        probe.expect(":")
        op.types[self.result] = [rewrite(*probe.type_extent())]
        op.attributes[self.name] = rewrite(start, probe.last)
        cursor.seek(probe.last)

    def write(self, op: elements.Writing) -> str:
        return op.attribute(self.name)


DIRECTIVES = {"address_part": AddressPart, "number_part": NumberPart, "bare": BareAttribute, "f32_literal": F32Literal, "typed": TypedValue}
"""Name in a format -> element."""
