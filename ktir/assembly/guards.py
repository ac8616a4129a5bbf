"""Text on which MLIR's own reader ends the process: refused before it gets there."""

import re

from ktir.assembly.lexer import SyntaxFault

# torch-mlir 20261001: the parser of linalg.transpose asks for 2^64 bytes if its permutation is empty.
_EMPTY_PERMUTATION = re.compile(
    r"""//[^\n]* | "linalg\.transpose"[^\n]*?permutation\s*=\s*(?P<generic>array<i64\s*>) | "[^"\\\n]*(?:\\.[^"\\\n]*)*"
      | \blinalg\.transpose\b(?:[^/"{}]|//[^\n]*\n)*?\bpermutation\s*=\s*(?P<pretty>\[\s*\])""",
    re.VERBOSE,
)


def check(text: str) -> None:
    """Raises SyntaxFault at what MLIR cannot read."""
    if "linalg.transpose" not in text:
        return
    for match in _EMPTY_PERMUTATION.finditer(text):
        if match.lastgroup:
            raise SyntaxFault("'linalg.transpose' op expects a permutation of at least one dim", match.start(match.lastgroup))
