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
    text = name_sets(text)
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


_INLINE = re.compile(r"groups = (affine_set<[^\n]*?\)>)")


def name_sets(text: str) -> str:
    """Gives the integer sets inside our types aliases, which MLIR does not see there, and numbers all sets in the order of their use."""
    inline = dict.fromkeys(_INLINE.findall(text))
    if not inline:
        return text
    names = {definition: name for name, definition in _DEFINITION.findall(text) if _OURS.fullmatch(name)}
    for i, definition in enumerate(inline):
        names.setdefault(definition, f"#set{len(names) + 1000 + i}")
    text = _INLINE.sub(lambda m: f"groups = {names[m.group(1)]}", text)
    sets = {name: definition for definition, name in names.items() if name.startswith("#set")}
    others = [f"{name} = {definition}\n" for name, definition in _DEFINITION.findall(text) if name not in sets and _OURS.fullmatch(name)]
    body = _DEFINITION.sub(lambda m: "" if _OURS.fullmatch(m.group(1)) else m.group(), text)
    order = [m.group() for m in _USE.finditer(body) if m.group() in sets]
    renamed = {name: f"#set{i or ''}" for i, name in enumerate(dict.fromkeys([*order, *sets]))}
    body = _USE.sub(lambda m: renamed.get(m.group(), m.group()), body)
    return "".join(others) + "".join(f"{new} = {sets[old]}\n" for old, new in renamed.items()) + body
