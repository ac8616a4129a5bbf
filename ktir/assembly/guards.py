"""Text on which MLIR's own reader ends the process: refused before it gets there."""

import re

from ktir.assembly.lexer import SyntaxFault

# torch-mlir 20261001: the parser of linalg.transpose asks for 2^64 bytes if its permutation is empty.
_EMPTY_PERMUTATION = re.compile(
    r"""//[^\n]* | "linalg\.transpose"[^\n]*?permutation\s*=\s*(?P<generic>array<i64\s*>) | "[^"\\\n]*(?:\\.[^"\\\n]*)*"
      | \blinalg\.transpose\b(?:[^/"{}]|//[^\n]*\n)*?\bpermutation\s*=\s*(?P<pretty>\[\s*\])""",
    re.VERBOSE,
)


# The same parsers read on behind a list of dims, or of kinds of loops, that they have refused; kinds must be strings there.
_GAP = r"(?:\s|//[^\n]*\n)*"
_STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'


def _list(item: str) -> str:
    return rf"\[{_GAP}(?:{item}{_GAP}(?:,{_GAP}{item}{_GAP})*)?\]"


_INTEGER = r"-?(?:0x[0-9a-fA-F]{1,15}|\d{1,18})"
_KIND = rf"(?:{_STRING}|\#[\w.$<>]+)"
_LISTS = re.compile(
    rf"""//[^\n]* | {_STRING} | [{{,]{_GAP}(?:permutation|dimensions)\b
      | (?:linalg\.generic|=){_GAP}\{{(?:[^{{}}"]|{_STRING})*?\b(?P<attributes>iterator_types){_GAP}={_GAP}\[[^\]]*\#linalg\.
      | (?<![\w.$%#!@^-])(?P<dims>permutation|dimensions){_GAP}={_GAP}(?P<numbers>{_list(_INTEGER)})?
      | (?<![\w.$%#!@^-])(?P<kinds>iterator_types){_GAP}={_GAP}(?!{_list(_KIND)})\[""",
    re.VERBOSE,
)


# MLIR reads, simplifies and prints recursively, and a stack that overflows ends the process.
NESTING = 1000
"""Depth of brackets, and of aliases that name aliases, that is accepted."""
_AFFINE = 1 << 14
"""Characters of one affine map or set: its chains of operators and signs are read recursively too."""
_BYTES = 1 << 28

_BRACKETS = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"|//[^\n]*|->|>=|<=|([(\[{<])|[)\]}>]')
_LONG_AFFINE = re.compile(rf"affine_(?:map|set)\s*<(?:[^>]|(?<=-)>|>=){{{_AFFINE}}}")
_ALIAS = re.compile(r"^[ \t]*([!#][A-Za-z_][\w.$]*)[ \t]*=", re.MULTILINE)
_ALIAS_NAME = re.compile(r"[!#][A-Za-z_][\w.$]*")


def check(text: str) -> None:
    """Raises SyntaxFault at what MLIR cannot read."""
    if len(text) > _BYTES:
        raise SyntaxFault(f"more than {_BYTES} characters", 0)
    _check_nesting(text)
    if match := _LONG_AFFINE.search(text):
        raise SyntaxFault(f"an affine map or set of more than {_AFFINE} characters", match.start())
    _check_aliases(text)
    _check_permutations(text)
    _check_lists(text)


def _check_nesting(text: str) -> None:
    if sum(map(text.count, "([{<")) <= NESTING:
        return
    depth = 0
    for match in _BRACKETS.finditer(text):
        depth = depth + 1 if match.lastindex else depth - 1 if match.end() == match.start() + 1 else depth
        if depth > NESTING:
            raise SyntaxFault(f"more than {NESTING} levels of nesting", match.start())


def _check_aliases(text: str) -> None:
    definitions = list(_ALIAS.finditer(text))
    if len(definitions) <= NESTING:
        return
    depths: dict[str, int] = {}
    for match, following in zip(definitions, [*definitions[1:], None], strict=True):
        used = _ALIAS_NAME.findall(text, match.end(), following.start() if following else len(text))
        depths[match[1]] = 1 + max((depths.get(name, 0) for name in used), default=0)
        if depths[match[1]] > NESTING:
            raise SyntaxFault(f"more than {NESTING} aliases that name each other", match.start(1))


def _check_permutations(text: str) -> None:
    if "linalg.transpose" not in text:
        return
    for match in _EMPTY_PERMUTATION.finditer(text):
        if match.lastgroup:
            raise SyntaxFault("'linalg.transpose' op expects a permutation of at least one dim", match.start(match.lastgroup))


def _check_lists(text: str) -> None:
    if "linalg." not in text:
        return
    for match in _LISTS.finditer(text):
        if match.lastgroup in ("kinds", "attributes"):
            raise SyntaxFault("expected strings as iterator types", match.start(match.lastgroup))
        if match["dims"] and not match["numbers"]:
            raise SyntaxFault(f"expected integers in brackets behind '{match['dims']} ='", match.start())
