"""The grammar of the dialects' text in EBNF: one rule per op, from the format that its parser and printer interpret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ktir import registry

_TOKEN = re.compile(r"\s*(?:`([^`]*)`|(attr-dict)|\$(\w+)|([\w.]+)\(([^)]*)\)|(\()|(\)\?))")
_LIST = '[ {0} { "," {0} } ]'
_NUMBERS = '"[" [ integer { "," integer } ] "]"'
_MIXED = '"[" [ ( integer | value ) { "," ( integer | value ) } ] "]"'
_FIXED = {
    "integer": "integer",
    "integers": _NUMBERS,
    "keyword": "bare-id",
    "symbol": "symbol",
    "mixed": _MIXED,
    "affine": 'subscript { "," subscript }',
    "region": "region",
    "indirect": 'indirect-subscript { "," indirect-subscript }',
    "variables": '"(" [ value { "," value } ] ")"',
    "full_set": "",
    "old_types": "",
    "lane": "integer",
    "f32_literal": "float",
    "typed": 'literal ":" type',
    "bare": '"<" bare-id ">"',
    "role_types": _LIST.replace("{0}", "type"),
    "number_part": "( integer | value )",
    "address_part": "( integer | value )",
}
CORE = """
module             = { attribute-alias } ( "module" [ "attributes" attribute-dict ] "{" { op } "}" | { op } ) ;
attribute-alias    = "#" bare-id "=" attribute ;
op                 = [ value { "," value } "=" ] ( dialect-op | generic-op | upstream-op ) [ location ] ;
generic-op         = string "(" [ value { "," value } ] ")" [ "<" attribute-dict ">" ] [ "(" region { "," region } ")" ]
                     [ attribute-dict ] ":" "(" [ type { "," type } ] ")" "->" "(" [ type { "," type } ] ")" ;
region             = "{" [ block-arguments ] { op } { block-label { op } } "}" ;
block-label        = "^" bare-id [ "(" argument { "," argument } ")" ] ":" ;
block-arguments    = block-label ;
argument           = value ":" type ;
value              = "%" ( bare-id | integer ) [ "#" integer ] ;
subscript          = affine-expression ;
indirect-subscript = "ind" "(" value "[" subscript { "," subscript } "]" ")" | "(" subscript ")" ;
affine-expression  = affine-term { ( "+" | "-" ) affine-term } ;
affine-term        = affine-factor { ( "*" | "floordiv" | "ceildiv" | "mod" ) affine-factor } ;
affine-factor      = [ "-" ] ( integer | value | "symbol" "(" value ")" | "(" affine-expression ")" ) ;
attribute-dict     = "{" [ attribute-entry { "," attribute-entry } ] "}" ;
attribute-entry    = ( bare-id | string ) [ "=" attribute ] ;
stripped-type      = "<" parameters ">" ;
"""
"""What the rules of ops stand on."""
OF_MLIR = (
    "attribute", "type", "integer", "float", "literal", "bare-id", "string", "symbol", "location", "upstream-op", "parameters",
)  # fmt: skip
"""What MLIR's language reference defines."""


def _parts(assembly: str, counts: dict[str, str], attributes: Iterable[str]) -> Iterator[str]:
    known = {*attributes}
    for token in _TOKEN.finditer(assembly):
        literal, dictionary, name, directive, arguments, opening, closing = token.groups()
        first = (arguments or "").split(",")[0].strip().removeprefix("$")
        if literal is not None:
            yield f'"{literal}"'
        elif dictionary:
            yield "[ attribute-dict ]"
        elif name:
            yield ("symbol" if name == "name" else "attribute") if name in known or name not in counts else _many("value", counts[name])
        elif directive == "enum":
            words = [w.strip() for w in arguments.split(",")[1:]]
            yield "( " + " | ".join(f'"{w}"' for w in words) + " )"
        elif directive == "type":
            yield _many("type", counts.get(first, "single"))
        elif directive == "stripped":
            yield _many("( type | stripped-type )", counts.get(first, "single"))
        elif directive:
            yield _FIXED[directive]
        elif opening:
            yield "["
        elif closing:
            yield "]"


def _many(what: str, count: str) -> str:
    return what if count == "single" else _LIST.replace("{0}", what)


def rule(cls: Any) -> str:
    """The right side of an op's rule."""
    counts = {g.name: g.count for g in (*cls.operand_fields.groups, *cls.result_fields.groups)}
    parts = _parts(cls.assembly, counts, cls.required)
    return " ".join([f'"{cls.OPERATION_NAME}"', *filter(None, parts)])


def name_of(operation: str) -> str:
    """What the rule of an op is called."""
    return operation.replace(".", "-").replace("_", "-")


def grammar_page() -> list[str]:
    """The page of the grammar."""
    lines = [
        "# Grammar",
        "",
        "The text of KTIR in EBNF (ISO 14977): `[ ]` may be left out, `{ }` is repeated any number of times, what is in quotes stands",
        "for itself. The rules of ops are generated from the formats that the parser and the printer interpret; what they say of older",
        "spellings is in [](../spec/text.md). These words are MLIR's own, as its language reference defines them: "
        + ", ".join(f"`{w}`" for w in OF_MLIR)
        + ".",
        "",
        "## Modules, ops, subscripts",
        "",
        "```ebnf",
        CORE.strip(),
    ]
    dialects = {name: registry.dialect_class(name).operations for name in registry.dialect_names()}
    lines += ["dialect-op         = " + " | ".join(f"{name}-op" for name, ops in dialects.items() if ops) + " ;", "```", ""]
    for name, ops in dialects.items():
        if not ops:
            continue
        sorted_ops = sorted(ops, key=lambda op: op.OPERATION_NAME)
        lines += [f"## `{name}`", "", "```ebnf"]
        lines.append(f"{name}-op = " + "\n  | ".join(name_of(op.OPERATION_NAME) for op in sorted_ops) + " ;")
        lines += [f"{name_of(op.OPERATION_NAME)} =\n  {rule(op)} ;" for op in sorted_ops]
        lines += ["```", ""]
    return lines
