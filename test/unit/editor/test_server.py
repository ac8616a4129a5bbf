"""The language server as an editor meets it: a process that speaks the protocol over pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from ktir.tools import ktir_lsp

ROOT = Path(__file__).parents[3]
URI = "file:///kernel.mlir"
TEXT = "// \U0001f600 %a\nfunc.func @f(%a: index) -> index {\n  %x = arith.addi %a, %a : index\n  return %x : index\n}\n"


class Client:
    """As much of an editor as the server needs."""

    def __init__(self, sent: IO[bytes], got: IO[bytes]) -> None:
        self.sent, self.got = sent, got
        self.asked = 0

    def send(self, method: str, params: Any, **more: Any) -> None:
        data = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        self.sent.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        self.sent.flush()

    def receive(self) -> dict[str, Any]:
        size = 0
        while (line := self.got.readline().strip()) or not size:
            assert line, "the server has ended"
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        return json.loads(self.got.read(size))

    def ask(self, method: str, params: Any) -> Any:
        self.asked += 1
        self.send(method, params, id=self.asked)
        while (message := self.receive()).get("id") != self.asked:
            pass
        return message["result"]

    def diagnostics(self) -> list[tuple[int, int, str]]:
        while (message := self.receive()).get("method") != "textDocument/publishDiagnostics":
            pass
        return [(d["range"]["start"]["line"], d["range"]["start"]["character"], d["message"]) for d in message["params"]["diagnostics"]]


@pytest.fixture
def client() -> Iterator[Client]:
    server = subprocess.Popen([sys.executable, "-m", "ktir.tools.ktir_lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert server.stdin is not None
    assert server.stdout is not None
    with server:
        try:
            yield Client(server.stdin, server.stdout)
        finally:
            server.stdin.close()
            if server.poll() is None:
                try:
                    server.wait(10)
                finally:
                    server.kill()


def at(line: Any, character: Any) -> dict[str, Any]:
    return {"textDocument": {"uri": URI}, "position": {"line": line, "character": character}}


def test_a_session(client: Client) -> None:
    offered = client.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})["capabilities"]
    assert offered["hoverProvider"]
    assert offered["definitionProvider"]
    client.send("initialized", {})
    client.send("textDocument/didOpen", {"textDocument": {"uri": URI, "languageId": "ktir", "version": 1, "text": TEXT}})
    assert client.diagnostics() == []
    assert "%x : index" in client.ask("textDocument/hover", at(3, 10))["contents"]["value"]
    defined = client.ask("textDocument/definition", at(3, 10))["range"]["start"]
    assert defined == {"line": 2, "character": 2}
    assert [s["name"] for s in client.ask("textDocument/documentSymbol", {"textDocument": {"uri": URI}})] == ["@f"]
    # The emoji counts twice in the editor's units.
    edit = {"range": {"start": {"line": 0, "character": 6}, "end": {"line": 0, "character": 7}}, "text": "b"}
    more = {"range": {"start": {"line": 2, "character": 23}, "end": {"line": 2, "character": 24}}, "text": "b"}
    client.send("textDocument/didChange", {"textDocument": {"uri": URI, "version": 2}, "contentChanges": [edit, more]})
    assert client.diagnostics() == [(2, 22, "use of undeclared SSA value name")]
    labels = {item["label"] for item in client.ask("textDocument/completion", at(3, 10))}
    assert labels == {"%a", "%x"}
    client.send("textDocument/didClose", {"textDocument": {"uri": URI}})
    assert client.diagnostics() == []
    assert client.ask("shutdown", None) is None
    client.send("exit", None)


def test_each_request_is_answered(client: Client) -> None:
    """Positions that are none are errors of the request, those beyond the text are nothing, and so are documents that nobody has opened."""

    def answer(method: str, params: Any) -> dict[str, Any]:
        client.asked += 1
        client.send(method, params, id=client.asked)
        while (message := client.receive()).get("id") != client.asked:
            pass
        return message

    client.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
    client.send("initialized", {})
    client.send("textDocument/didOpen", {"textDocument": {"uri": URI, "languageId": "ktir", "version": 1, "text": TEXT}})
    assert client.diagnostics() == []
    for method in ("hover", "definition", "completion"):
        for line, character in ((-1, 0), (0, -1), (2**31, 0), (0, 2**31), (2**40, 0), ("a", 0)):
            error = answer(f"textDocument/{method}", at(line, character))["error"]
            assert error["code"] == -32602
            assert f"'textDocument/{method}' expects the parameters that the protocol has" in error["message"]
        assert "result" in answer(f"textDocument/{method}", at(2**31 - 1, 2**31 - 1))
        for uri in ("file:///nowhere.mlir", "untitled:Untitled-1"):
            assert "result" in answer(f"textDocument/{method}", {**at(0, 0), "textDocument": {"uri": uri}})
    assert answer("textDocument/documentSymbol", {"textDocument": {"uri": "file:///nowhere.mlir"}})["result"] == []
    assert "%x : index" in client.ask("textDocument/hover", at(3, 10))["contents"]["value"]


def test_lines_are_those_of_the_protocol(client: Client) -> None:
    """Of a text with other ends of lines, and with half a character, an editor changes a range: it is the one that it means."""
    client.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
    text = TEXT.replace("// ", "// \u2028\v\f\x85\ud800 ").replace("return %x", "return %none")
    for version, end in enumerate(("\n", "\r\n", "\r")):
        uri = f"file:///kernel{version}.mlir"
        document = {"uri": uri, "languageId": "mlir", "version": 1, "text": text.replace("\n", end)}
        client.send("textDocument/didOpen", {"textDocument": document})
        assert client.diagnostics() == [(3, 9, "use of undeclared SSA value name")]
        extent = {"start": {"line": 3, "character": 9}, "end": {"line": 3, "character": 14}}
        change = {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"range": extent, "text": "%x"}]}
        client.send("textDocument/didChange", change)
        assert client.diagnostics() == []
        place = {"textDocument": {"uri": uri}, "position": {"line": 3, "character": 10}}
        assert client.ask("textDocument/hover", place)["contents"]["value"] == "```mlir\n%x : index\n```"


def test_without_pygls_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delitem(sys.modules, "ktir.editor.server", raising=False)
    monkeypatch.setitem(sys.modules, "pygls", None)
    monkeypatch.setitem(sys.modules, "lsprotocol", None)
    assert ktir_lsp.main([]) == 1
    assert capsys.readouterr().err == "ktir-lsp: error: needs the package 'pygls': pip install 'ktir[lsp]'\n"
    assert ktir_lsp.main(["--stdio", "x"]) == 1
