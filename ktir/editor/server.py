"""The language server: answers an editor with what the functions of this folder find. It needs pygls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol
from pygls.workspace import Workspace

from ktir.editor.check import Analysis, Finding
from ktir.editor.completion import Item, complete
from ktir.editor.documents import Documents, documents, readable
from ktir.editor.hover import hover
from ktir.editor.text import Index
from ktir.editor.worker import Worker
from ktir.version import __version__

QUIET = 0.1
"""Seconds without a change after which the functions that changed are checked."""
SETTLED = 0.6
"""Further seconds after which the text is checked as a whole, where no function alone has an error."""
_SEVERITIES = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "remark": lsp.DiagnosticSeverity.Information,
}
_KINDS = {
    "value": lsp.CompletionItemKind.Variable,
    "function": lsp.CompletionItemKind.Function,
    "alias": lsp.CompletionItemKind.Constant,
    "type": lsp.CompletionItemKind.Class,
    "attribute": lsp.CompletionItemKind.Property,
    "word": lsp.CompletionItemKind.EnumMember,
    "op": lsp.CompletionItemKind.Keyword,
}


class Protocol(LanguageServerProtocol):
    """The protocol, in which each request has an answer: also one whose parameters are none, as a line of -1 or of 2**31."""

    @property
    def workspace(self) -> Workspace:
        """What is open. Raises RuntimeError before the editor has introduced itself."""
        found = super().workspace
        if not isinstance(found, Documents):
            found = self._workspace = documents(found)
        return found

    def structure_message(self, data: dict[str, Any]) -> Any:
        """A message of the client. Raises JsonRpcException for what is none."""
        try:
            return super().structure_message(data)
        except JsonRpcException:
            if "id" in data and "method" in data:
                said = f"'{data['method']}' expects the parameters that the protocol has, with numbers from 0 to 2147483647"
                self._send_response(data["id"], error=lsp.ResponseError(JsonRpcInvalidParams.CODE, said))
            raise


class Server(LanguageServer):
    """Keeps per document its index, by version, and the last analysis of each function."""

    def __init__(self) -> None:
        super().__init__("ktir-lsp", __version__, protocol_cls=Protocol)
        self.worker = Worker()
        self._indices: dict[str, tuple[str, Index]] = {}
        self._analyses: dict[str, Analysis] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}

    def index(self, uri: str) -> Index:
        """The index of a document as it is now; of one that is neither open nor a file, of no text."""
        try:
            source = self.workspace.get_text_document(uri).source
        except (OSError, UnicodeError):
            source = ""
        known = self._indices.get(uri)
        if known is None or known[0] != source:
            known = self._indices[uri] = source, Index(readable(source))
        return known[1]

    def analysis(self, uri: str) -> Analysis:
        """The types that are known; of functions that no longer read, those from when they did."""
        return self._analyses.setdefault(uri, Analysis())

    def changed(self, uri: str) -> None:
        """Checks a document once it has not changed for a moment."""
        if (waiting := self._waiting.pop(uri, None)) is not None:
            waiting.cancel()
        self._waiting[uri] = asyncio.get_running_loop().create_task(self._check(uri))

    async def _check(self, uri: str) -> None:
        for pause, whole in ((QUIET, False), (SETTLED, True)):
            await asyncio.sleep(pause)
            index = self.index(uri)
            version = self.workspace.get_text_document(uri).version
            found = await asyncio.to_thread(self.worker.check, index.text, whole=whole)
            self.analysis(uri).values.update(found.values)
            diagnostics = [self._diagnostic(index, uri, each) for each in found.findings]
            self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, diagnostics, version))
            if found.settled:
                return

    def closed(self, uri: str) -> None:
        """Forgets a document."""
        if (waiting := self._waiting.pop(uri, None)) is not None:
            waiting.cancel()
        self._indices.pop(uri, None)
        self._analyses.pop(uri, None)
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))

    def offset(self, uri: str, position: lsp.Position) -> int:
        """The place in the text of a position of the editor, which counts in units of its own."""
        codec = self.workspace.get_text_document(uri).position_codec
        index = self.index(uri)
        column = codec.position_from_client_units([index.line(position.line)], lsp.Position(0, position.character)).character
        return index.offset(position.line, column)

    def range(self, uri: str, start: int, end: int) -> lsp.Range:
        """An extent of the text as the editor counts."""
        codec = self.workspace.get_text_document(uri).position_codec
        index = self.index(uri)
        lines = (index.position(at)[0] for at in (start, end))
        first, last = (lsp.Position(n, codec.client_num_units(index.line_before(at))) for n, at in zip(lines, (start, end), strict=True))
        return lsp.Range(first, last)

    def _diagnostic(self, index: Index, uri: str, found: Finding) -> lsp.Diagnostic:
        start, end = _extent(index, found)
        notes = [
            lsp.DiagnosticRelatedInformation(lsp.Location(uri, self.range(uri, *_extent(index, note))), note.message)
            for note in found.notes
        ]
        severity = _SEVERITIES.get(found.severity, lsp.DiagnosticSeverity.Hint)
        return lsp.Diagnostic(self.range(uri, start, end), found.message, severity, source="ktir", related_information=notes or None)


def _extent(index: Index, found: Finding) -> tuple[int, int]:
    """The token at which something was found; a character, where there is none."""
    at = index.offset(found.line - 1, found.column - 1)
    token = index.token(at)
    return (at, token[1] + len(token[0])) if token and token[1] == at else (at, min(at + 1, len(index.text)))


def serve() -> Server:
    """A server with all that it answers."""
    server = Server()

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: lsp.DidOpenTextDocumentParams | lsp.DidChangeTextDocumentParams) -> None:
        server.changed(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        server.closed(params.text_document.uri)

    @server.feature(lsp.SHUTDOWN)
    def shutdown(_: None) -> None:
        server.worker.stop()

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hovered(params: lsp.HoverParams) -> lsp.Hover | None:
        uri = params.text_document.uri
        found = hover(server.index(uri), server.offset(uri, params.position), server.analysis(uri))
        if found is None:
            return None
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, found.markdown), server.range(uri, found.start, found.end))

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def defined(params: lsp.DefinitionParams) -> lsp.Location | None:
        uri = params.text_document.uri
        extent = server.index(uri).definition(server.offset(uri, params.position))
        return lsp.Location(uri, server.range(uri, *extent)) if extent else None

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        return list(_symbols(server, params.text_document.uri))

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["%", "#", "!", "@", ".", "{", "<"]))
    def completed(params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        uri = params.text_document.uri
        offset = server.offset(uri, params.position)
        return [_item(server, uri, offset, each) for each in complete(server.index(uri), offset, server.analysis(uri))]

    return server


def _item(server: Server, uri: str, offset: int, item: Item) -> lsp.CompletionItem:
    documentation = lsp.MarkupContent(lsp.MarkupKind.Markdown, item.text) if item.text else None
    edit = lsp.TextEdit(server.range(uri, item.start, offset), item.label)
    return lsp.CompletionItem(item.label, kind=_KINDS[item.kind], detail=item.detail, documentation=documentation, text_edit=edit)


def _symbols(server: Server, uri: str) -> Iterable[lsp.DocumentSymbol]:
    index = server.index(uri)
    for name, at in sorted(index.aliases.items(), key=lambda item: item[1]):
        extent = server.range(uri, at, at + len(name))
        yield lsp.DocumentSymbol(name, lsp.SymbolKind.Constant, extent, extent)
    for each in index.functions:
        if each.name:
            named = server.range(uri, each.at, each.at + len(each.name) + 1)
            yield lsp.DocumentSymbol(f"@{each.name}", lsp.SymbolKind.Function, server.range(uri, each.start, each.end), named)
