"""Pretty KTIR text -> MLIR generic text, with a map back to the source.

Only our own ops, types and attributes are rewritten; everything else, other dialects and generic forms included, is copied.
One compiled pattern hops over comments, strings and foreign text to the next name of ours.
"""

import itertools
import re
from functools import cache

from ktir.assembly import formats
from ktir.assembly.lexer import SKIP, Cursor, Remarks, SyntaxFault, Text

_SEGMENTS = re.compile(r"\b(operandSegmentSizes|resultSegmentSizes)\s*=\s*(array<i32[^>]*>)")
_RESULT = re.compile(r"(%[\w.$\-]+)\s*=\s*$")
_SHORT = 400  # characters: types and attributes, which repeat, rather than regions


@cache
def _scanner(dialects: tuple[str, ...]) -> re.Pattern[str]:
    ours = rf"(?:{'|'.join(dialects)})\.[A-Za-z_][\w.]*"
    return re.compile(
        rf"""//[^\n]*
           | (?P<generic>"{ours}")(?=\s*\()
           | "[^"\\\n]*(?:\\.[^"\\\n]*)*"
           | (?P<named>[!\#]{ours})
           | (?<![\w$.!\#%@^"\-])(?P<op>{ours})""",
        re.VERBOSE,
    )


class Reader:
    """Rewrites one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._scan = _scanner(tuple(formats.dialects()) or ("ktdp",)).search
        self._nested: dict[str, tuple[Text, Remarks]] = {}
        self._short: dict[str, tuple[Text, Remarks]] = {}
        self.old: Remarks = []

    def read(self) -> Text:
        """The whole text in generic form. Raises SyntaxFault. Old spellings are in `old` afterwards."""
        return self._rewrite(0, len(self.text), "")

    def rewrite(self, start: int, end: int, prefix: str = "") -> Text:
        """An extent of the source in generic form; `prefix` is the name of a type that the source leaves out."""
        if end - start > _SHORT:
            return self._rewrite(start, end, prefix)
        key = prefix + self.text[start:end]
        if key not in self._short:
            known = len(self.old)
            pieces = [(text, at - start) for text, at in self._rewrite(start, end, prefix)]
            self._short[key] = pieces, [(at - start, message) for at, message in self.old[known:]]
        else:
            self.old += [(at + start, message) for at, message in self._short[key][1]]
        return [(text, at + start) for text, at in self._short[key][0]]

    def _rewrite(self, start: int, end: int, prefix: str) -> Text:
        out: Text = []
        if prefix:
            out.append((prefix, start))
            start = self._parameters(prefix, start, out)
        at = start
        while match := self._scan(self.text, at, end):
            at = match.end()
            kind = match.lastgroup
            if kind is None:
                continue
            out.append((self.text[start : match.start()], start))
            start = match.start()
            if kind == "named":
                out.append((match.group(), start))
                at = self._parameters(match.group(), match.end(), out)
            elif kind == "generic":
                syntax = formats.OPS.get(match.group()[1:-1])
                if syntax and syntax.spreads:
                    at = self._spread(syntax, match.end(), start, out)
                else:
                    at = self._properties(match.end(), start, out)
            elif syntax := formats.OPS.get(match.group()):
                if (after := self._op(syntax, start, match.end(), out)) is None:
                    continue
                at = after
            else:
                continue
            start = at
        if start < end:
            out.append((self.text[start:end], start))
        return out

    def _op(self, syntax: formats.OpSyntax, start: int, after: int, out: Text) -> int | None:
        """Rewrites the op whose name ends at `after`; where it ends, or None if the name is an attribute's."""
        follows = SKIP.match(self.text, after).end()  # type: ignore[union-attr]  # SKIP matches ""
        if self.text.startswith(("=", ","), follows) or (self.text.startswith("}", follows) and not syntax.can_be_empty()):
            before = self.text[max(start - 100, 0) : start].rstrip(" ")
            if before.endswith("{") or before.rstrip().endswith(","):  # in a list of attributes: the first op of a region begins a line
                return None
        cursor = Cursor(self.text, after, self.old)
        pieces, collapsed = syntax.read(cursor, self.rewrite)
        collapse = self._collapse(collapsed, out) if collapsed else ""
        out.append((pieces[0][0], start))
        out += pieces[1:]
        if collapsed:
            out.append((collapse, start))
        return cursor.last

    def _collapse(self, type_: str, out: Text) -> str:
        """Names the result of the op that comes next otherwise; the op that makes the result of that name and of `type_` from it."""
        before, at = out[-1]
        result = _RESULT.search(before)
        if result is None:
            raise SyntaxFault("expects a name for the result, whose unit dim is dropped", at + len(before))
        name = result.group(1)
        whole = next(new for k in itertools.count() if (new := f"{name}.{k}") not in self.text)
        out[-1] = (f"{before[: result.start(1)]}{whole}{before[result.end(1) :]}", at)
        rank = type_.count("x")
        groups = [[0, 1], *([d] for d in range(2, rank + 1))] if rank else []
        role = type_.replace("<", "<1x", 1)
        return f'\n{name} = "tensor.collapse_shape"({whole}) {{reassociation = {groups}}} : ({role}) -> {type_}'

    def _parameters(self, name: str, at: int, out: Text) -> int:
        """Rewrites the parameters of a type or attribute, if it has any at `at`; where they end."""
        parameters = formats.PARAMETERS.get(name)
        if parameters is None or not self.text.startswith("<", at):
            return at
        cursor = Cursor(self.text, at, self.old)
        begin, end = cursor.bracketed()
        key = name + self.text[begin:end]
        if key not in self._nested:
            known = len(self.old)
            cursor.seek(begin + 1)
            if parameters.is_generic(cursor):
                pieces = [(self.text[begin:end], begin)]
            else:
                pieces = [("<", begin), *parameters.to_generic(cursor, self), (">", end - 1)]
                if cursor.start != end - 1:
                    raise SyntaxFault("expected '>'", cursor.start)
            self._nested[key] = [(text, at - begin) for text, at in pieces], [(at - begin, message) for at, message in self.old[known:]]
        else:
            self.old += [(at + begin, message) for at, message in self._nested[key][1]]
        out += [(text, at + begin) for text, at in self._nested[key][0]]
        return end

    def _spread(self, syntax: formats.OpSyntax, at: int, start: int, out: Text) -> int:
        """Rewrites a generic op, up to its type, whose published segment sizes are not those that MLIR knows."""
        cursor = Cursor(self.text, at)
        begin, end = cursor.bracketed()
        operands = len([name for name in self.text[begin + 1 : end - 1].split(",") if name.strip()])
        out.append((self.text[start:end], start))
        dictionaries: list[tuple[int, int]] = []
        if cursor.value == "<":
            opening, closing = cursor.bracketed()
            dictionaries.append((opening + 2, closing - 2))
        if cursor.value == "(":
            out += [(" ", cursor.start), *self.rewrite(*cursor.bracketed())]
        if cursor.value == "{":
            opening, closing = cursor.bracketed()
            dictionaries.append((opening + 1, closing - 1))
        after = cursor.last
        attributes = [self.rewrite(*extent) for extent in dictionaries if self.text[extent[0] : extent[1]].strip()]
        counts = {"operandSegmentSizes": (syntax.operands, operands), "resultSegmentSizes": (syntax.results, self._results(after))}
        out.append((" {", after))
        written = False
        for pieces in attributes:
            if written:
                out.append((", ", after))
            out += [(self._expanded(text, counts), place) for text, place in pieces]
            written = True
        everything = "".join(text for pieces in attributes for text, _ in pieces)
        for name, (groups, count) in counts.items():
            if name not in syntax.segments or name in everything:
                continue
            singles = sum(g.count == "single" for g in groups)
            sizes = [1 if g.count == "single" else max(0, count - singles) for g in groups]
            out.append((f"{', ' if written else ''}{name} = {syntax.segment_text(groups, sizes)}", after))
            written = True
        out.append(("}", after))
        return after

    def _results(self, at: int) -> int:
        """How many results the function type after the colon at `at` has."""
        cursor = Cursor(self.text, at)
        cursor.expect(":")
        cursor.bracketed()
        cursor.expect("->")
        if not cursor.accept("("):
            return 1
        count = 0
        while cursor.value != ")":
            cursor.type_extent()
            count += 1
            if not cursor.accept(","):
                break
        return count

    @staticmethod
    def _expanded(text: str, counts: dict[str, tuple[tuple[formats.Group, ...], int]]) -> str:
        def replace(match: re.Match[str]) -> str:
            groups = counts[match.group(1)][0]
            sizes = [int(n) for n in re.findall(r"\d+", match.group(2).partition(":")[2])]
            return f"{match.group(1)} = {formats.OpSyntax.segment_text(groups, sizes)}" if len(sizes) == len(groups) else match.group()

        return _SEGMENTS.sub(replace, text)

    def _properties(self, at: int, start: int, out: Text) -> int:
        """Moves the properties `<{...}>` of a generic op into its attribute dictionary, since our ops have no properties."""
        cursor = Cursor(self.text, at)
        cursor.bracketed()
        head = cursor.last
        if cursor.value != "<":
            out.append((self.text[start:at], start))
            return at
        begin, end = cursor.bracketed()
        out.append((self.text[start:head], start))
        inside = self.rewrite(begin + 2, end - 2)
        if cursor.value == "(":
            out += self.rewrite(*cursor.bracketed())
        out.append((" {", begin))
        out += inside
        if cursor.value == "{":
            opening, closing = cursor.bracketed()
            if self.text[opening + 1 : closing - 1].strip():
                out.append((", ", opening))
                out += self.rewrite(opening + 1, closing - 1)
        out.append(("}", begin))
        return cursor.last
