"""`ktir-docs`: writes the pages of the specification that follow from the code, as Markdown.

    ktir-docs docs/generated

One page per dialect from its op, type and attribute classes, one per pass from its class, and the instruction set from its table. An
example stands in `docs/examples/<dialect>/<op>.mlir` (further ones in `<op>.<word>.mlir`); the tests of the documentation run it.
"""

import ast
import dataclasses
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ktir import registry
from ktir.analysis.attributes import table as attribute_table
from ktir.dialects.module_level import Level
from ktir.isa import descriptor, granules, instructions, kinds, units
from ktir.isa.assembly import text as assembly
from ktir.isa.binary import encoding
from ktir.isa.wellformed import rules
from ktir.mlir import ext, ir
from ktir.package import schema
from ktir.pipeline import NamedPipeline
from ktir.target import HALVES
from ktir.tools.pages.grammar import grammar_page
from ktir.tools.pages.markdown import code, fence, prose, table, toctree
from ktir.tools.pages.python_api import api_page, environment_page

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"

_NAMES = {
    ir.DenseI64ArrayAttr: "array of i64",
    ir.IntegerAttr: "integer",
    ir.FloatAttr: "number",
    ir.IntegerSetAttr: "integer set",
    ir.AffineMapAttr: "affine map",
    ir.ArrayAttr: "array",
    ir.StringAttr: "word",
    ir.BoolAttr: "true or false",
    ir.UnitAttr: "unit",
    ir.TypeAttr: "type",
    ir.IndexType: "index",
    ir.MemRefType: "ranked memref",
    ir.RankedTensorType: "ranked tensor",
    ir.F16Type: "f16",
    ir.F32Type: "f32",
    ir.Type: "any type",
    Any: "any type",
}
_TRAITS = {
    "Pure": "no effects; may be removed, merged and moved",
    "ReadEffect": "reads memory",
    "WriteEffect": "writes memory",
    "NoTerminatorTrait": "its blocks have no terminator",
    "IsTerminatorTrait": "ends its block",
}


# --- Docstrings, constraints -----------------------------------------------------------------------------------------


def _doc(cls: type, example_names: Sequence[str], has_example: bool) -> list[str]:
    """The docstring; fragments of code that name the thing are left out where a whole example follows."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(cls.__doc__ or "")):
        is_code = block.startswith("    ") or (len(lines) > 0 and block.lstrip()[:1] in "%#!")
        is_code = is_code or (len(lines) > 0 and block.startswith(tuple(example_names)))
        if not is_code:
            lines += [prose(block), ""]
        elif not (has_example and any(name in block for name in example_names)):
            lines += fence(textwrap.dedent(block))
    return lines


def _examples(dialect: str, name: str) -> list[str]:
    folder = EXAMPLES / dialect
    paths = [p for p in (folder / f"{name}.mlir", *sorted(folder.glob(f"{name}.*.mlir"))) if p.exists()]
    return [line for p in paths for line in fence(p.read_text(), "mlir")]


_FAULTS = re.compile(r"fault|doubt|reach|shares|^_?check")
"""Names of the functions that checks get their messages from."""


def _messages(function: Callable[..., Any], owner: Any, depth: int = 3) -> Iterator[str]:
    """What a check says: the strings that it, and the functions for faults that it calls, return."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and node.value is not None:
            yield from filter(None, map(_text, _values(node.value)))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "report":
            yield from filter(None, map(_text, _values(node.args[1])))
        if isinstance(node, ast.Call) and depth:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            inner = function.__globals__.get(name) or getattr(owner, name, None)
            if _FAULTS.search(name) and inspect.isfunction(inner) and inner is not function:
                yield from _messages(inner, owner, depth - 1)


def _values(node: ast.expr) -> list[ast.expr]:
    return [*_values(node.body), *_values(node.orelse)] if isinstance(node, ast.IfExp) else [node]


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(v) or "…" if isinstance(v, ast.Constant) else "…" for v in node.values)
    return None


def _constraints(owner: Any, *functions: str, title: str = "Errors") -> list[str]:
    """The messages of these checks of a class, as a list."""
    texts = [m for name in functions if hasattr(owner, name) for m in _messages(getattr(owner, name), owner)]
    found = dict.fromkeys(line for text in texts for line in text.split("\n") if re.search(r"\w .*\w|\w+ ", line))
    return [f"{title}:", "", *(f"* {code(m)}" for m in found), ""] if found else []


def describe(constraint: Any) -> str:
    """A class, union or type variable of types or attributes in words."""
    if isinstance(constraint, TypeVar):
        inner = constraint.__constraints__ or ((constraint.__bound__,) if constraint.__bound__ else ())
        return f"{constraint.__name__}: {' or '.join(map(describe, inner)) or 'any type'}"
    if isinstance(constraint, tuple):
        return " or ".join(map(describe, constraint))
    if constraint in _NAMES:
        return _NAMES[constraint]
    if get_origin(constraint) is ir.IntegerType:
        return f"i{get_args(constraint)[0]}"
    if hasattr(constraint, "type_name"):
        return code(f"!{constraint.type_name}")
    if hasattr(constraint, "attr_name"):
        return code(f"#{constraint.attr_name}")
    if args := get_args(constraint):
        return " or ".join(map(describe, args))
    return getattr(constraint, "__name__", str(constraint))


# --- Dialects --------------------------------------------------------------------------------------------------------

_COUNT = {"single": "", "optional": "optional ", "variadic": "any number of "}


def _fields(title: str, fields: Any, cls: Any) -> list[str]:
    """The table of the operands or results of an op class."""
    constraints = {f.name: f.constraint for f in cls._fields}
    rows = []
    for group in fields.groups:
        constraint = constraints.get(group.name, constraints.get(f"{group.name}_0", Any))
        kind = describe(constraint)
        listed = getattr(cls, "types" if isinstance(constraint, TypeVar) else {"operand": "takes", "result": "gives"}[title], ())
        if isinstance(constraint, TypeVar) and listed:
            kind = f"{constraint.__name__}: {' or '.join(map(code, listed))}"
        elif constraint is Any and listed:
            kind = " or ".join(map(code, listed))
        rows.append((code(group.name), (f"up to {group.spread} of: " if group.spread else _COUNT[group.count]) + kind))
    return table((title, "type"), rows)


def _trait(trait: Any) -> str:
    """A trait in words; ours by their docstrings."""
    doc = inspect.cleandoc(trait.__doc__ or "") if trait.__module__.startswith("ktir.") else ""
    return _TRAITS.get(trait.__name__) or prose((doc[:1].lower() + doc[1:]).rstrip(".")) or code(trait.__name__)


def op_section(cls: Any) -> list[str]:
    """The part of a dialect's page about one op."""
    name: str = cls.OPERATION_NAME
    dialect, _, short = name.partition(".")
    _, attributes, _, regions = ext.partition_fields(cls._fields)
    example = _examples(dialect, short)
    lines = [f"### `{name}`", "", *_doc(cls, (name,), bool(example))]
    lines += ["Syntax:", "", *fence(f"{name} {cls.assembly}".replace(" )?", ")?"))]
    lines += _fields("operand", cls.operand_fields, cls)
    named = {g.name for g in (*cls.operand_fields.groups, *cls.result_fields.groups)} | {f.name for f in (*attributes, *regions)}
    rows = [(code(key), describe(kind)) for key, kind in cls.required.items()]
    rows += [(code(f.name), describe(getattr(f, "constraint", Any))) for f in attributes]
    written = dict.fromkeys(re.findall(r"\$(\w+)", cls.assembly))
    rows += [(code(key), "optional") for key in written if key not in named and key not in cls.required]
    lines += table(("attribute", "kind"), rows)
    lines += _fields("result", cls.result_fields, cls)
    lines += table(("region",), [(code(r.name),) for r in regions])
    effects = [_trait(t) for t in cls._traits]
    lines += [f"Effects and traits: {'; '.join(effects)}.", ""] if effects else []
    lines += _constraints(cls, "check", "verify_invariants", "verify_region_invariants")
    lines += _constraints(cls, "doubt", title="Warnings, errors under `--strict`")
    return [*lines, *(["Example:", "", *example] if example else [])]


def parameter_section(cls: Any, sigil: str) -> list[str]:
    """The part of a dialect's page about one attribute or type."""
    name: str = cls.type_name if sigil == "!" else cls.attr_name
    dialect, _, short = name.partition(".")
    example = _examples(dialect, short)
    joint = getattr(cls, "joint", " = ")
    texts = [key if key in cls.positional else f"{key}{joint}…" for key in cls.codecs]
    lines = [f"### `{sigil}{name}`", "", *_doc(cls, (f"{sigil}{name}",), bool(example))]
    if texts:
        lines += ["Syntax:", "", *fence(f"{sigil}{name}<{', '.join(texts)}>")]
    rows = []
    for key, codec in cls.codecs.items():
        notes = [f"default {code(str(cls.defaults[key]))}"] if key in cls.defaults else []
        notes += ["not printed when it has its default"] if key in cls.elided else []
        rows.append((code(key), prose(codec.what), "; ".join(notes)))
    lines += table(("parameter", "kind", ""), rows)
    return [*lines, *_constraints(cls, "check"), *(["Example:", "", *example] if example else [])]


def dialect_page(name: str) -> list[str]:
    """The page of dialect `name`."""
    cls = registry.dialect_class(name)
    lines = [f"# The `{name}` dialect", "", *_doc(cls, (), False)]
    if (EXAMPLES / f"{name}.mlir").exists():
        lines += fence((EXAMPLES / f"{name}.mlir").read_text(), "mlir")
    for title, items, sigil in (("Types", cls.types, "!"), ("Attributes", cls.attributes, "#")):
        if items:
            lines += [f"## {title}", "", *(line for item in items for line in parameter_section(item, sigil))]
    if cls.operations:
        operations = sorted(cls.operations, key=lambda op: op.OPERATION_NAME)
        lines += ["## Operations", "", *(line for op in operations for line in op_section(op))]
    return lines


# --- Passes ----------------------------------------------------------------------------------------------------------


def _option_notes(cls: type) -> dict[str, str]:
    """What the source says about each option: the string below it, or the comment behind it."""
    source = textwrap.dedent(inspect.getsource(cls))
    body = ast.parse(source).body[0].body  # type: ignore[attr-defined]  # a class
    notes: dict[str, str] = {}
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            line = source.splitlines()[node.lineno - 1]
            notes[node.target.id] = line.partition("  # ")[2]
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                notes[node.target.id] = " ".join(str(after.value.value).split())
    return notes


def pass_page(cls: Any) -> list[str]:
    """The page of one pass or named pipeline."""
    lines = [f"# `{cls.name}`", "", prose(cls.description[:1].upper() + cls.description[1:]) + ".", "", *_doc(cls, (), False)]
    notes, hints = _option_notes(cls), get_type_hints(cls)
    rows = []
    for f in dataclasses.fields(cls):
        default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
        kind = getattr(hints[f.name], "__name__", str(hints[f.name]))
        rows.append((code(f.name.replace("_", "-")), kind, code(str(default)), prose(notes.get(f.name, ""))))
    lines += ["## Options", "", *table(("option", "type", "default", "meaning"), rows)] if rows else []
    if issubclass(cls, NamedPipeline):
        return [*lines, "## Passes", "", *fence(cls().text().replace(",", ",\n"))]
    change = f"by at most the relative difference {cls.tolerance:g}" if cls.tolerance else "in no bit"
    return [*lines, "## Values", "", f"The pass changes the values of the program {change}.", ""]


# --- Instruction set -------------------------------------------------------------------------------------------------


def instruction_section(op: instructions.Opcode) -> list[str]:
    """The part of the instruction set chapter about one instruction."""
    where = ", ".join(u.name for u in op.units) + (", inside the body of a `rep` only" if op.body_only else "")
    lines = [f"### `{op.name}`", "", prose(op.doc), "", f"Code `{op.code:#04x}`. Units: {where}.", ""]
    rows = []
    for f in op.fields:
        place = f.slot + (f" bits {f.shift} to {f.shift + f.bits - 1}" if f.bits > 1 else f" bit {f.shift}" if f.bits else "")
        doc = f.doc + (f": {', '.join(f.values)}" if f.kind == "enum" else "")
        rows.append((code(f.name), f.kind + (", may be left out" if f.optional else ""), place, prose(doc)))
    return [*lines, *table(("field", "kind", "slot", "meaning"), rows)]


_LETTERS = {"f": "f32", "i": "i32", "m": "mask", "x": "any"}


def kinds_section() -> list[str]:
    """The operations of the vector unit: what each takes, gives and computes. The code of a kind is its place among those of its word."""
    rows = []
    for word, names in (("v1", kinds.UNARY), ("v2", kinds.BINARY), ("v3", kinds.TERNARY)):
        for number, name in enumerate(names):
            k = kinds.KINDS[name]
            takes = ", ".join(_LETTERS[x] for x in k.takes)
            rows.append((code(name), f"`{word}` {number}", takes, _LETTERS[k.gives], kinds.meaning(k)))
    reductions = ", ".join(f"`{name}` {i}" for i, name in enumerate(kinds.REDUCTIONS))
    lines = ["## Kinds", "", "Results of floats are rounded once to f32; those of integers wrap modulo 2³². Operands are x, y, z.", ""]
    lines += table(("kind", "code", "takes", "gives", "value"), rows)
    return [*lines, f"Kinds of `vred` and `vacc`, by code: {reductions}. They combine as the kind of that name does.", ""]


def container_section() -> list[str]:
    """A program as text and as bytes."""
    lines = ["## Programs as text", "", *_module_doc(assembly), "## Programs as bytes", "", *_module_doc(encoding)]
    for title, dtype in (
        ("Header", encoding.HEADER_DTYPE),
        ("Argument", encoding.ARGUMENT_DTYPE),
        ("Kernel", encoding.KERNEL_DTYPE),
        ("Unit", encoding.UNIT_DTYPE),
        ("Channel", encoding.CHANNEL_DTYPE),
    ):
        held: Any = dtype.fields
        rows = [(code(name), str(held[name][1]), str(held[name][0].itemsize)) for name in dtype.names or ()]
        lines += [f"{title}, {dtype.itemsize} bytes:", "", *table(("field", "at byte", "bytes"), rows)]
    roles = ", ".join(f"{i} {name}" for i, name in enumerate(encoding.ROLES))
    lines += [
        f"The magic is `{encoding.MAGIC.decode()}`, the version {encoding.VERSION}. Roles: {roles}. A name is the number of a string.",
        "",
    ]
    return [*lines, prose(" ".join(_CODES)), ""]


_CODES = (
    "Codes of descriptors and bounds: what is absent is 0xFFFF in 16 bits and 0xFF in 8 (`arg`, `core_table`, `dim`, `level`, `table`).",
    "`space` is 0 for ddr, 1 for lx. `flags` of a descriptor: bit 0 splat, bit 1 that there is a lane_stride,",
    "bits 4 and 5 the pad (0 zero, 1 −inf, 2 +inf).",
    "`flags` of a bound: bit 0 says that there is one, bit 1 lanes; one that is not there is all zero. `dim_step` is 0 without a `dim`.",
    "Extents and strides beyond the rank are 0. `flags` of a word: bit 0 `round` or `transpose`, bits 1 and 2 `half`.",
    f"`half`: {', '.join(f'{i} {name}' for i, name in enumerate(HALVES))}; 0 where there are no elements of 2 bytes.",
    "A descriptor or group that a word does not name is all ones.",
    "Registers r0 to r15 are 0 to 15, acc0 to acc7 16 to 23. `region` 0 is none.",
)


def rules_section() -> list[str]:
    """What a well-formed program is."""
    lines, number = ["## What a well-formed program is", "", "`ktir-objdump --verify` checks these rules.", ""], 0
    for title, section in rules.SECTIONS.items():
        lines += [f"### {title}", ""]
        for rule in section:
            number += 1
            lines.append(f"{number}. {prose(rule.text)}")
        lines.append("")
    return lines


_UNDECLARED = (
    "An attribute of another kind, at another op or at another level is an error, and so is one whose name begins with `ktir.` and is not "
    "listed here. A module without `ktir.level` is of no level, and may have all of them."
)


def attributes_page() -> list[str]:
    """The page of the attributes by which passes tell each other what they decided."""
    lines = ["# Attributes", "", *_module_doc(attribute_table)]
    lines += [_UNDECLARED, ""]
    rows = []
    for one in sorted((d for found in attribute_table.TABLE.values() for d in found), key=lambda d: d.name):
        where = ", ".join(code(x) if isinstance(x, str) else x.value for x in one.on)
        levels = "all" if set(one.levels) == set(Level) else ", ".join(one.levels)
        rows.append((code(one.name), where, prose(one.kind.what), levels, "yes" if one.kept else "", prose(one.meaning)))
    return [*lines, *table(("attribute", "carried by", "kind", "levels", "kept by a rebuilt function", "meaning"), rows)]


def launch_spec_page() -> list[str]:
    """The page of the launch spec."""
    return ["# Launch spec", "", *_module_doc(schema), *fence(json.dumps(schema.SCHEMA, indent=1), "json")]


def isa_page() -> list[str]:
    """The chapter of the instruction set."""
    lines = ["# Instruction set", "", *_module_doc(units)]
    lines += ["What a program does is told in [](../spec/machine.md), numbers in [](../spec/numerics.md).", "", "## Units", ""]
    rows = [(code(u.name), str(int(u)), "corelet" if u.per_corelet else "core") for u in units.Unit]
    lines += table(("unit", "id", "one per"), rows)
    lines += ["## FIFOs", "", prose(inspect.cleandoc(units.Fifo.__doc__ or "")), ""]
    lines += table(
        ("FIFO", "code", "from", "to"), [(code(f.name), str(f.code), f.producer.name, f.consumer.name) for f in units.FIFOS.values()]
    )
    lines += ["## Words", "", *_module_doc(instructions)]
    formats = zip(instructions.SLOTS, instructions.SLOT_FORMATS, strict=True)
    lines += table(("slot", "format"), [(code(s), code(f)) for s, f in formats])
    lines += ["## Descriptors", "", *_module_doc(descriptor)]
    lines += table(("field", "format", "count"), _layout(descriptor.DESCRIPTOR_LAYOUT))
    lines += ["### Element descriptors: what they cost", "", *_module_doc(granules)]
    lines += ["### Bounds", "", prose(inspect.cleandoc(descriptor.Bound.__doc__ or "")), ""]
    lines += table(("field", "format", "count"), _layout(descriptor.BOUND_LAYOUT))
    lines += ["## Instructions", ""]
    for op in instructions.OPCODES.values():
        lines += instruction_section(op)
    return [*lines, *kinds_section(), *container_section(), *rules_section()]


def _layout(layout: Sequence[Any]) -> list[tuple[str, str, str]]:
    return [(code(e[0]), code(e[1]) if isinstance(e[1], str) else "bound", str(e[2]) if len(e) > 2 else "1") for e in layout]


def _module_doc(module: Any) -> list[str]:
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(module.__doc__)):
        lines += fence(textwrap.dedent(block)) if block.startswith("    ") else [prose(block), ""]
    return lines


# --- All pages -------------------------------------------------------------------------------------------------------


_DIALECTS = (
    "Generated from the classes of the operations, types and attributes. The errors and warnings listed are ours, `…` standing for",
    "what they quote. Every operation further reports a wrong number of operands or results, operands and results of another type than its",
    "tables say, and missing attributes. How to read the syntax lines is told in [](../../spec/text.md).",
)


def pages() -> dict[str, str]:
    """Path below the target folder -> text of every generated page."""
    made: dict[str, list[str]] = {}
    dialects = registry.dialect_names()
    for name in dialects:
        made[f"dialects/{name}.md"] = dialect_page(name)
    made["dialects/index.md"] = ["# Dialects", "", *_DIALECTS, "", *toctree(dialects)]
    passes = registry.pass_classes()
    rows = [(f"[`{name}`]({name}.md)", prose(cls.description)) for name, cls in passes.items()]
    made["passes/index.md"] = ["# Passes", "", *table(("pass", ""), rows), *toctree(passes)]
    for name, cls in passes.items():
        made[f"passes/{name}.md"] = pass_page(cls)
    made["attributes.md"] = attributes_page()
    made["isa.md"] = isa_page()
    made["launch_spec.md"] = launch_spec_page()
    made["grammar.md"], made["api.md"], made["environment.md"] = grammar_page(), api_page(), environment_page()
    return {path: "\n".join(lines).rstrip("\n") + "\n" for path, lines in made.items()}


def write_pages(folder: Path) -> list[Path]:
    """Writes all pages below `folder`; files that say the same already are left alone."""
    written: list[Path] = []
    for name, text in pages().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        written.append(path)
    return written


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tool with `arguments` (default: those of the process); the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) != 1 or given[0].startswith("-"):
        asked = given in (["--help"], ["-h"])
        print(
            "usage: ktir-docs <folder>\n\nWrites the generated pages of the specification to a folder.",
            file=sys.stdout if asked else sys.stderr,
        )
        return 0 if asked else 1
    print(f"{len(write_pages(Path(given[0])))} pages in {given[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
