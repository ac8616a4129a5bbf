"""Attribute and type aliases in printed text."""

import re

_DEFINITION = re.compile(r"^([#!][A-Za-z_]\w*) = (.*)\n", re.MULTILINE)
_OURS = re.compile(r"#(map|set)(\d*)")
_USE = re.compile(r'//[^\n]*|"[^"\\\n]*(?:\\.[^"\\\n]*)*"|#(?:map|set)\d*\b(?![\w.<])')


def definitions(text: str) -> dict[str, str]:
    """Alias name with sigil -> its text."""
    return dict(_DEFINITION.findall(text))


def tidy(text: str) -> str:
    """Drops the map and set aliases that only elided attributes used, and numbers the others anew, as MLIR would have done."""
    head = [name for name, _ in _DEFINITION.findall(text) if _OURS.fullmatch(name)]
    if not head:
        return text
    used = {m.group() for m in _USE.finditer(_DEFINITION.sub(lambda m: "" if m.group(1) in head else m.group(), text))}
    counts: dict[str, int] = {}
    renamed: dict[str, str] = {}
    for name in head:
        if name in used:
            family = name.rstrip("0123456789")
            number = counts.get(family, 0)
            counts[family] = number + 1
            renamed[name] = f"{family}{number or ''}"
    if all(renamed.get(name) == name for name in head):
        return text
    text = _DEFINITION.sub(lambda m: "" if m.group(1) in head and m.group(1) not in renamed else m.group(), text)
    return _USE.sub(lambda m: renamed.get(m.group(), m.group()), text)
