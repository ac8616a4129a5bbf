"""Documents as the protocol has them: lines end with a line feed, a carriage return, or both, and with nothing else of Unicode."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lsprotocol import types as lsp
from pygls.workspace import TextDocument, Workspace

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Document(TextDocument):
    """A text that an editor changes by ranges of lines and columns."""

    @property
    def lines(self) -> Sequence[str]:
        return tuple(_LINE.findall(self.source))


class Documents(Workspace):
    """All that are open."""

    def _create_text_document(
        self, doc_uri: str, source: str | None = None, version: int | None = None, language_id: str | None = None
    ) -> Document:
        kept = {"sync_kind": self._sync_kind, "position_codec": self._position_codec}
        return Document(doc_uri, source=source, version=version, language_id=language_id, **kept)


def documents(other: Workspace) -> Documents:
    """The same workspace, of which nothing is open yet."""
    kind = lsp.TextDocumentSyncKind.Incremental
    return Documents(other.root_uri, kind, list(other.folders.values()), other.position_encoding)


def readable(text: str) -> str:
    """A text as MLIR reads it: with line feeds, and with a character in place of half of one. Lines and columns stay."""
    return _SURROGATE.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))
