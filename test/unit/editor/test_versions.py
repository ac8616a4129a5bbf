"""A version of a document is read and indexed once, however much is asked of it."""

from __future__ import annotations

from typing import Any

import pytest
from lsprotocol import types as lsp
from pygls.workspace import Workspace

from ktir.editor import server


def test_a_version_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symbols of many functions have an extent each: of 3,000 lines they took a fifth of a second."""
    read, readable = list[int](), server.readable

    def counted(text: str) -> str:
        read.append(len(text))
        return readable(text)

    monkeypatch.setattr(server, "readable", counted)
    served: Any = server.serve()
    served.protocol._workspace = Workspace(None)
    text = "".join(f"func.func @f{i}() {{\n  return\n}}\n" for i in range(50))
    served.workspace.put_text_document(lsp.TextDocumentItem("file:///a.mlir", "mlir", 1, text))
    assert [s.name for s in server._symbols(served, "file:///a.mlir")] == [f"@f{i}" for i in range(50)]
    assert read == [len(text)]
    served.workspace.put_text_document(lsp.TextDocumentItem("file:///a.mlir", "mlir", 2, text + text.replace("@f", "@g")))
    assert len(list(server._symbols(served, "file:///a.mlir"))) == 100
    assert read == [len(text), 2 * len(text)]
