"""MLIR's printed text, in which our ops, types and attributes stand in generic form -> pretty KTIR text."""

import re
from functools import cache

from ktir.assembly import aliases, formats
from ktir.assembly.elements import Writing
from ktir.assembly.lexer import Cursor, SyntaxFault


@cache
def _scanner(dialects: tuple[str, ...], ops: bool) -> re.Pattern[str]:
    ours = rf"(?:{'|'.join(dialects)})\.[A-Za-z_][\w.]*"
    op = rf'| "(?P<op>{ours})"(?=\()' if ops else ""
    return re.compile(rf"""//[^\n]* {op} | "(?:[^"\\\n]|\\.)*" | (?P<named>[!\#]{ours})""", re.VERBOSE)


class Printer:
    """Rewrites one text that MLIR printed."""

    def __init__(self, text: str, *, ops: bool) -> None:
        """`ops`: rewrite ops too, not only types and attributes."""
        self.text = text
        self._search = _scanner(tuple(formats.dialects()) or ("ktdp",), ops).search
        self._nested: dict[str, str] = {}
        self._aliases = aliases.definitions(text) if ops else {}

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
                at = start = self._parameters(match.group(), at, out)
            elif syntax := formats.OPS.get(match.group("op")):
                out.append(self.text[start : match.start()])
                at = start = self._op(syntax, at, out)
        out.append(self.text[start:end])
        return "".join(out)

    def _parameters(self, name: str, at: int, out: list[str]) -> int:
        parameters = formats.PARAMETERS.get(name)
        if parameters is None or not self.text.startswith("<", at):
            return at
        cursor = Cursor(self.text, at)
        begin, end = cursor.bracketed()
        key = name + self.text[begin:end]
        if key not in self._nested:
            cursor.seek(begin + 1)
            self._nested[key] = f"<{parameters.to_pretty(cursor)}>"
        out.append(self._nested[key])
        return end

    def _op(self, syntax: formats.OpSyntax, at: int, out: list[str]) -> int:
        cursor = Cursor(self.text, at)
        cursor.expect("(")
        operands: list[str] = []
        while cursor.value != ")":
            operands.append(cursor.take("value", "SSA operand"))
            cursor.accept(",")
        cursor.expect(")")
        regions: list[str] = []
        if cursor.accept("("):
            while cursor.value == "{":
                regions.append(self.rewrite(*cursor.bracketed()))
                cursor.accept(",")
            cursor.expect(")")
        attributes: dict[str, str | None] = {}
        if cursor.accept("{"):
            while cursor.value != "}":
                name = cursor.value
                cursor.advance()
                attributes[name] = self.rewrite(*cursor.balanced((",",))) if cursor.accept("=") else None
                cursor.accept(",")
            cursor.expect("}")
        cursor.expect(":")
        operand_types = self._types(cursor)
        cursor.expect("->")
        result_types = self._types(cursor)
        counts = {key: _segments(attributes.pop(key, None)) for key in ("operandSegmentSizes", "resultSegmentSizes")}
        grouped = _split(syntax.operands, operands, counts["operandSegmentSizes"])
        types = _split(syntax.operands, operand_types, counts["operandSegmentSizes"])
        types |= _split(syntax.results, result_types, counts["resultSegmentSizes"])
        op = Writing(grouped, types, attributes, dict(zip(syntax.regions, regions, strict=False)), self._aliases)
        out.append(syntax.name + syntax.write(op))
        return cursor.last

    def _types(self, cursor: Cursor) -> list[str]:
        if not cursor.accept("("):
            return [self.rewrite(*cursor.type_extent())]
        types: list[str] = []
        while cursor.value != ")":
            types.append(self.rewrite(*cursor.type_extent()))
            cursor.accept(",")
        cursor.expect(")")
        return types


def _segments(text: str | None) -> list[int] | None:
    if text is None:
        return None
    return [int(n) for n in re.findall(r"\d+", text.partition(":")[2])]


def _split(groups: tuple[formats.Group, ...], items: list[str], sizes: list[int] | None) -> dict[str, list[str]]:
    """`items` by field: by segment sizes, or else one each and the rest to the field that is not single."""
    if sizes is None:
        spare = len(items) - sum(g.count == "single" for g in groups)
        sizes = [1 if g.count == "single" else spare for g in groups]
    if sum(sizes) != len(items):
        raise SyntaxFault("operand and result counts disagree with the op's definition", 0)
    split: dict[str, list[str]] = {}
    at = 0
    for group, size in zip(groups, sizes, strict=False):
        split[group.name] = items[at : at + size]
        at += size
    return split
