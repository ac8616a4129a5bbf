"""Elements of op formats that read what older public texts write; they print nothing of their own."""

import re

from ktir.assembly.elements import Element, Reading, Rewrite, TypeOf, Writing
from ktir.assembly.lexer import Cursor
from ktir.assembly.parameters import DYNAMIC, Integers


class OldTypes(Element):
    """`: T, T`, which an old spelling has here and whose meaning stands elsewhere; never printed."""

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        if cursor.value != ":":
            return
        cursor.old(cursor.start, "a type list before the future is deprecated: leave it out")
        cursor.advance()
        cursor.type_extent()
        while cursor.accept(","):
            cursor.type_extent()

    def write(self, op: Writing) -> str:
        return ""

    def starts(self, cursor: Cursor) -> bool:
        return cursor.value == ":"


class RoleTypes(TypeOf):
    """Types of the results of a delivery. An old spelling, known by the role of its future without parentheses, drops the role's unit
    dim from the result; the op then has the type of the role and a reshape follows it.
    """

    def __init__(self, name: str, future: str) -> None:
        super().__init__(name, "variadic", None)
        self.future = future

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        start = cursor.start
        super().read(cursor, op, rewrite)
        future = op.types[self.future][0]
        role = _OLD_ROLE.search("".join(text for text, _ in future))
        if role is None or not _OLD_FUTURE.match(cursor.text, future[0][1]) or len(op.types[self.name]) != 1:
            return
        written = "".join(text for text, _ in op.types[self.name][0])
        if role.group(1).replace("tensor<1x", "tensor<", 1) == written:
            cursor.old(start, "a result without the unit dim of its role is deprecated: drop it with 'tensor.collapse_shape'")
            op.types[self.name] = [[(role.group(1), start)]]
            op.collapsed = written


_OLD_FUTURE = re.compile(r"![\w.]+\s*<\s*tensor<")
_OLD_ROLE = re.compile(r"<\[(tensor<1x[^<>]*>)\]")


class FullSet(Element):
    """Attribute `name`, an integer set, where it was left out: the box of the sizes in `static`, a symbol for each dynamic one."""

    def __init__(self, name: str, static: str) -> None:
        self.name, self.static = name, static

    def read(self, cursor: Cursor, op: Reading, rewrite: Rewrite) -> None:
        if self.name in op.attributes:
            return
        cursor.old(op.start, f"an op without '{self.name}' is deprecated: write the whole box of its sizes")
        bounds: list[str] = []
        symbols = 0
        sizes = Integers().decode(Cursor("".join(text for text, _ in op.attributes[self.static] or []), 0))
        for i, size in enumerate(sizes):
            bounds.append(f"d{i} >= 0")
            bounds.append(f"-d{i} + s{symbols} - 1 >= 0" if size == DYNAMIC else f"-d{i} + {size - 1} >= 0")
            symbols += size == DYNAMIC
        dims, names = (", ".join(f"{letter}{i}" for i in range(n)) for letter, n in (("d", len(sizes)), ("s", symbols)))
        op.attributes[self.name] = [(f"affine_set<({dims}){f'[{names}]' if names else ''} : ({', '.join(bounds)})>", op.start)]

    def write(self, op: Writing) -> str:
        return ""
