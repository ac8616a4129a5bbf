"""MLIR's printed text, in which our ops, types and attributes stand in generic form -> pretty KTIR text.

What repeats in a module (types, signatures, attribute dictionaries) is rewritten once and then taken from a table.
"""

import re
from functools import cache

from ktir.assembly import aliases, formats
from ktir.assembly.elements import Writing
from ktir.assembly.lexer import Cursor, SyntaxFault


@cache
def _scanner(dialects: tuple[str, ...], ops: bool) -> re.Pattern[str]:
    ours = rf"(?:{'|'.join(dialects)})\.[A-Za-z_][\w.]*"
    which = ours if ops else "|".join(re.escape(name) for name, syntax in formats.OPS.items() if syntax.spreads)
    op = rf'| "(?P<op>{which})"(?=\()' if which else ""
    return re.compile(rf"""//[^\n]* {op} | "[^"\\\n]*(?:\\.[^"\\\n]*)*" | (?P<named>[!\#]{ours})""", re.VERBOSE)


Attributes = dict[str, str | None]
Signature = tuple[list[str], list[str]]


class Printer:
    """Rewrites one text that MLIR printed."""

    def __init__(self, text: str, *, ops: bool) -> None:
        """`ops`: rewrite ops too, not only types and attributes."""
        self.text = text
        self._ops = ops
        self._search = _scanner(tuple(formats.dialects()) or ("ktdp",), ops).search
        self._aliases = aliases.definitions(text) if ops else {}
        self._parameters: dict[str, str] = {}
        self._dictionaries: dict[str, Attributes] = {}
        self._signatures: dict[str, Signature] = {}

    def write(self) -> str:
        return self.rewrite(0, len(self.text))

    def rewrite(self, start: int, end: int) -> str:
        out: list[str] = []
        at = start
        while match := self._search(self.text, at, end):
            at = match.end()
            if match.lastgroup is None:
                continue
            if match.lastgroup == "named":
                out.append(self.text[start:at])
                at = start = self._named(match.group(), at, out)
            elif syntax := formats.OPS.get(match.group("op")):
                try:
                    pretty, after = self._op(syntax, at) if self._ops else self._collapsed(syntax, match.start(), at)
                except (LookupError, SyntaxFault):  # an op that would not verify stays generic
                    continue
                out += (self.text[start : match.start()], pretty)
                at = start = after
        out.append(self.text[start:end])
        return "".join(out)

    def _named(self, name: str, at: int, out: list[str]) -> int:
        """Rewrites the parameters, if any, of the type or attribute whose name ends at `at`; where they end."""
        parameters = formats.PARAMETERS.get(name)
        if parameters is None or not self.text.startswith("<", at):
            return at
        cursor = Cursor(self.text, at)
        begin, end = cursor.bracketed()
        key = name + self.text[begin:end]
        if key not in self._parameters:
            cursor.seek(begin + 1)
            try:
                text = parameters.to_pretty(cursor)
            except SyntaxFault:  # parameters that nobody has verified, within another attribute, stay as they are
                self._parameters[key] = self.text[begin:end]
            else:
                self._parameters[key] = f"<{Printer(text, ops=False).write() if '!' in text else text}>"
        out.append(self._parameters[key])
        return end

    def _op(self, syntax: formats.OpSyntax, at: int) -> tuple[str, int]:
        """The op whose quoted name ends at `at`, and where it ends."""
        closing = self.text.index(")", at)
        operands = self.text[at + 1 : closing].split(", ") if closing > at + 1 else []
        cursor = Cursor(self.text, closing + 1)
        regions: list[str] = []
        if cursor.accept("("):
            while cursor.value == "{":
                regions.append(self.rewrite(*cursor.bracketed()))
                cursor.accept(",")
            cursor.expect(")")
        attributes = self._dictionary(cursor) if cursor.value == "{" else {}
        operand_sizes = _segments(attributes.pop("operandSegmentSizes", None))
        result_sizes = _segments(attributes.pop("resultSegmentSizes", None))
        operand_types, result_types = self._signature(cursor)
        types = _split(syntax.operands, operand_types, operand_sizes)
        types.update(_split(syntax.results, result_types, result_sizes))
        values = _split(syntax.operands, operands, operand_sizes)
        op = Writing(values, types, attributes, dict(zip(syntax.regions, regions, strict=False)), self._aliases)
        return syntax.name + syntax.write(op), cursor.last

    def _collapsed(self, syntax: formats.OpSyntax, start: int, at: int) -> tuple[str, int]:
        """The generic op whose quoted name starts and ends there, up to its dictionary, with segment sizes as they are published."""
        closing = self.text.index(")", at) + 1
        out = self.text[start:closing]
        cursor = Cursor(self.text, closing)
        if cursor.value == "(":
            begin, end = cursor.bracketed()
            out += " " + self.rewrite(begin, end)
        attributes = self._dictionary(cursor) if cursor.value == "{" else {}
        for groups, name in ((syntax.operands, "operandSegmentSizes"), (syntax.results, "resultSegmentSizes")):
            sizes = _segments(attributes.pop(name, None))
            if sizes and len(groups) > 1:
                attributes[name] = f"array<i32: {', '.join(map(str, formats.collapse(groups, sizes)))}>"
        written = ", ".join(key if text is None else f"{key} = {text}" for key, text in sorted(attributes.items()))
        return out + (f" {{{written}}}" if written else ""), cursor.last

    def _dictionary(self, cursor: Cursor) -> Attributes:
        begin, end = cursor.bracketed()
        key = self.text[begin:end]
        if key not in self._dictionaries:
            inside = Cursor(self.text, begin + 1)
            found: Attributes = {}
            while inside.value != "}":
                name = inside.value
                inside.advance()
                found[name] = self.rewrite(*inside.until_comma()) if inside.accept("=") else None
                inside.accept(",")
            self._dictionaries[key] = found
        return dict(self._dictionaries[key])

    def _signature(self, cursor: Cursor) -> Signature:
        """Operand and result types, from the colon on."""
        cursor.expect(":")
        begin, end = cursor.type_extent()
        key = self.text[begin:end]
        if key not in self._signatures:
            inside = Cursor(self.text, begin)
            operands = self._types(inside)
            inside.expect("->")
            self._signatures[key] = operands, self._types(inside)
        return self._signatures[key]

    def _types(self, cursor: Cursor) -> list[str]:
        if not cursor.accept("("):
            return [self.rewrite(*cursor.type_extent())]
        types: list[str] = []
        while cursor.value != ")":
            types.append(self.rewrite(*cursor.type_extent()))
            cursor.accept(",")
        cursor.expect(")")
        return types


@cache
def _segments(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    return tuple(int(n) for n in re.findall(r"\d+", text.partition(":")[2]))


def _split(groups: tuple[formats.Group, ...], items: list[str], sizes: tuple[int, ...] | None) -> dict[str, list[str]]:
    """`items` by field: by segment sizes, or else one each and the rest to the field that is not single."""
    if sizes is not None and len(sizes) != len(groups):
        sizes = tuple(formats.collapse(groups, sizes))
    if sizes is None:
        spare = len(items) - sum(g.count == "single" for g in groups)
        sizes = tuple(1 if g.count == "single" else spare for g in groups)
    if sum(sizes) != len(items):
        raise SyntaxFault("operand and result counts disagree with the op's definition", 0)
    split: dict[str, list[str]] = {}
    at = 0
    for group, size in zip(groups, sizes, strict=False):
        split[group.name] = items[at : at + size]
        at += size
    return split
