"""Colours for KTIR text, and registration of the lexer with Sphinx."""

from typing import Any, ClassVar

from pygments.lexer import RegexLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text


class MlirLexer(RegexLexer):
    """MLIR's text as far as colours need it."""

    name = "MLIR"
    aliases: ClassVar = ["mlir"]
    tokens: ClassVar = {
        "root": [
            (r"\s+", Text),
            (r"//.*?$", Comment.Single),
            (r'"[^"\n]*"', String),
            (r"%[\w$.-]+(#\d+)?", Name.Variable),
            (r"@[\w$.-]+", Name.Function),
            (r"\^\w+", Name.Label),
            (r"[!#][A-Za-z_][\w$.]*", Name.Class),
            (r"\b(index|none|[su]?i\d+|b?f\d+|memref|tensor|vector|tuple|affine_map|affine_set|dense|array)\b", Keyword.Type),
            (r"\b(module|func\.func|return|attributes|iter_args|to|step|else|ins|outs|loc|floordiv|ceildiv|mod)\b", Keyword),
            (r"\b[a-z_]\w*\.[\w.]+", Name.Builtin),
            (r"-?0x[0-9A-Fa-f]+|\b-?\d+(\.\d*)?([eE][+-]?\d+)?", Number),
            (r"->|==|>=|<=|[-+*/=]", Operator),
            (r"[A-Za-z_][\w$]*", Name),
            (r"[(){}\[\]<>,:?|&;$`'./…]", Punctuation),
        ]
    }


def setup(app: Any) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_lexer("mlir", MlirLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
