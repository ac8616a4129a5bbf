"""Elements of op formats for sizes and subscripts: lists of numbers and values, affine expressions, variables of an op's own."""

import re

from ktir.assembly import subscripts
from ktir.assembly.elements import Element, Reading, Rewrite, Writing
from ktir.assembly.lexer import Cursor, Text
from ktir.assembly.parameters import DYNAMIC, Integers


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

    glued = True

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
