"""The TextMate grammar of KTIR, which editors and viewers colour text with; its names are those of the tables of `docs`.

`python -m ktir.editor.grammar > editors/vscode/syntaxes/ktir.tmLanguage.json` writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from ktir.assembly import formats
from ktir.editor import docs

_WORD = re.compile(r"`([A-Za-z_][\w]*):?`")
_OF_MLIR = """to step iter_args ins outs do else attributes private public nested dense affine_map affine_set array loc into low high
symbol ceildiv floordiv mod strided offset global ct_local ct_id true false unit"""
_TYPES = r"(?:tensor|memref|vector|tuple|complex|index|none|bf16|tf32|(?:f|i|si|ui)\d+|f8E\w+)"
_VALUE = r"%(?:[0-9]+|[A-Za-z_$.\-][\w$.\-]*)(?:#[0-9]+)?"


def _either(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(set(words), key=lambda word: (-len(word), word)))


def patterns() -> list[tuple[str, str]]:
    """Scope and regular expression of everything that is coloured; of those that match at one place, the first one counts."""
    ops = docs.ops()
    dialects = _either(docs.dialects())
    keywords, fields = _OF_MLIR.split(), []
    for name, syntax in formats.OPS.items():  # what fields of instructions are called, are names of dims and values elsewhere
        (fields if name.startswith("spyre.") else keywords).extend(_WORD.findall(syntax.assembly))
    return [
        ("comment.line.double-slash", r"//.*$"),
        ("support.function.op.quoted", rf'"(?:{dialects})\.[\w.]+"(?=\s*\()'),
        ("string.quoted.double", r'"(?:[^"\\]|\\.)*"'),
        ("variable.other.value", _VALUE),
        ("entity.name.function", r'@(?:[A-Za-z_][\w$.]*|"[^"]*")'),
        ("entity.name.label.block", r"\^[\w$.\-]+"),
        ("storage.type", rf"!(?:{_either(n[1:] for n in docs.parameters() if n[0] == '!')})\b"),
        ("support.constant.attribute", rf"\#(?:{_either(n[1:] for n in docs.parameters() if n[0] == '#')})\b"),
        ("storage.type.alias", r"![A-Za-z_][\w$.]*"),
        ("support.constant.alias", r"\#[A-Za-z_][\w$.]*"),
        ("variable.parameter.attribute", rf"(?<![\w.$])(?:{_either(docs.declared())})(?![\w.])"),
        ("keyword.operator.op", rf"(?<![\w.$])(?:{_either(ops)})(?![\w.])"),
        ("support.function.op", rf"(?<![\w.$])(?:{dialects})\.[a-z_][\w.]*"),
        ("keyword.operator.op", r"(?<![\w.$])(?:module|call|return)(?![\w.])"),
        ("storage.type", rf"(?<![\w.$]){_TYPES}(?![\w.])|(?<=x){_TYPES}(?=[>,\s])"),
        ("keyword.other", rf"(?<![\w.$])(?:{_either(keywords)})(?![\w.])"),
        ("keyword.other", rf"(?<![\w.$])(?:{_either(fields)})(?=\s*=)"),
        ("constant.numeric", r"(?<![\w.$])-?(?:0x[0-9A-Fa-f]+|[0-9]+(?:\.[0-9]*(?:[eE][-+]?[0-9]+)?)?)|(?<=x)[0-9]+(?=x)"),
        ("keyword.operator.arrow", r"->|=="),
    ]


def grammar() -> dict[str, Any]:
    """The grammar as JSON takes it."""
    return {
        "name": "KTIR",
        "scopeName": "source.ktir",
        "fileTypes": ["mlir", "ktir"],
        "patterns": [{"name": f"{scope}.ktir", "match": match} for scope, match in patterns()],
    }


def text() -> str:
    """The grammar as the file has it."""
    return json.dumps(grammar(), indent=2) + "\n"


if __name__ == "__main__":
    print(text(), end="")
