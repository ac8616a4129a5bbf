"""The TextMate grammar, and the folder for VS Code that it is in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ktir.assembly import formats
from ktir.assembly.lexer import TOKEN
from ktir.diagnostics import Diagnostic
from ktir.editor import docs, grammar

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "editors" / "vscode"
FILES = [*sorted((ROOT / "examples").glob("*.mlir")), *sorted((ROOT / "docs" / "examples").rglob("*.mlir"))[::6]]


@cache
def rules() -> list[tuple[str, re.Pattern[str]]]:
    """What the file has; TextMate matches line by line."""
    written = json.loads((FOLDER / "syntaxes" / "ktir.tmLanguage.json").read_text())
    return [(rule["name"], re.compile(rule["match"])) for rule in written["patterns"]]


def scopes(line: str) -> Iterator[tuple[int, str, str]]:
    """Place, text and scope of what is coloured in a line: at each place the earliest match counts, and of several the first rule's."""
    at = 0
    while at < len(line):
        found = [(m.start(), k, m) for k, (_, rule) in enumerate(rules()) if (m := rule.search(line, at)) and m.group()]
        if not found:
            return
        start, k, match = min(found, key=lambda f: f[:2])
        yield start, match.group(), rules()[k][0].removesuffix(".ktir")
        at = match.end()


def test_the_file_is_what_the_tables_say() -> None:
    assert (FOLDER / "syntaxes" / "ktir.tmLanguage.json").read_text() == grammar.text(), grammar.__doc__


def test_each_op_type_and_attribute_has_its_colour() -> None:
    for name in formats.OPS.keys() | docs.ops().keys():
        assert list(scopes(f"  %x = {name} %y"))[1:2] == [(7, name, "keyword.operator.op")]
        assert next(scopes(f'"{name}"()'))[1:] == (f'"{name}"', "support.function.op.quoted")
    for name in formats.PARAMETERS.keys() | docs.parameters().keys():
        wanted = "storage.type" if name[0] == "!" else "support.constant.attribute"
        assert next(scopes(f"{name}<3>"))[1:] == (name, wanted)
    for name in docs.declared():
        assert next(scopes(f"{name} = 3"))[1:] == (name, "variable.parameter.attribute")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_names_ops_and_literals_of_programs_have_a_colour(path: Path) -> None:
    """What the lexer takes for a value, symbol, alias, block or string; words with a dialect are ops, types or attributes."""
    for line in path.read_text().splitlines():
        coloured = {place: (text, scope) for start, text, scope in scopes(line) for place in range(start, start + len(text)) if text}
        for match in TOKEN.finditer(line.partition("//")[0]):
            kind, start = match.lastgroup or "", match.start(match.lastindex or 0)
            if kind in ("value", "named", "symbol", "block", "string") or (kind == "word" and "." in match[kind]):
                assert start in coloured, (line, match[kind])
                if kind in ("value", "symbol", "block"):
                    assert coloured[start][0].startswith(match[kind]), line


def test_the_folder_for_vs_code() -> None:
    package: dict[str, Any] = json.loads((FOLDER / "package.json").read_text())
    given = package["contributes"]
    files = [package["main"], given["grammars"][0]["path"], given["languages"][0]["configuration"]]
    assert [name for name in files if not (FOLDER / name).is_file()] == []
    settings = json.loads((FOLDER / "language-configuration.json").read_text())
    assert re.fullmatch(settings["wordPattern"], "%arg0")
    assert given["grammars"][0]["scopeName"] == grammar.grammar()["scopeName"]
    assert given["configuration"]["properties"]["ktir.server"]["default"] == "ktir-lsp"
    (pattern,) = given["problemPatterns"]
    note = Diagnostic("note", "prior use here", "a b.mlir:1:2")
    lines = str(Diagnostic("error", "'ktdp.load' op expects: a tile", "dir/x.mlir:12:3", (note,))).splitlines()
    said = [re.match(pattern["regexp"], line) for line in lines]
    groups = [[match[pattern[key]] for key in ("file", "line", "column", "severity", "message")] for match in said if match]
    assert groups == [
        ["dir/x.mlir", "12", "3", "error", "'ktdp.load' op expects: a tile"],
        ["a b.mlir", "1", "2", "note", "prior use here"],
    ]
