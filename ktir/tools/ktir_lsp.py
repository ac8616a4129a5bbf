"""`ktir-lsp`: the language server for KTIR, which an editor starts and talks to on the standard streams."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ktir.version import __version__

USAGE = """usage: ktir-lsp

The language server for KTIR. An editor starts it and speaks the Language Server Protocol on its standard streams.

  --help     show this text
  --version  show the version"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the server until the editor ends it; the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    words = [word for word in given if word.lstrip("-") != "stdio"]  # editors give it by habit
    if words in (["--help"], ["-h"]):
        print(USAGE)
        return 0
    if words == ["--version"]:
        print(f"ktir-lsp {__version__}")
        return 0
    if words:
        print(f"ktir-lsp: error: '{words[0]}': expected no arguments", file=sys.stderr)
        return 1
    try:
        from ktir.editor.server import serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        print("ktir-lsp: error: needs the package 'pygls': pip install 'ktir[lsp]'", file=sys.stderr)
        return 1
    serve().start_io()
    return 0


if __name__ == "__main__":
    sys.exit(main())
