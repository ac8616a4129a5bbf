"""The declarations of the `spyre` dialect: its attribute, its ops but for the program itself, and what they say of fields of words."""

import re
import types
from typing import Any

from ktir.assembly import elements, formats
from ktir.assembly.lexer import Cursor
from ktir.dialects._foundation.base import Attribute, Dialect, Operation
from ktir.isa import instructions as table
from ktir.isa.lane import lane_text, read_lane
from ktir.mlir import ext, ir


class Spyre(Dialect, name="spyre"):
    """Programs of the Spyre instruction stream."""


class BoundAttr(Attribute, dialect=Spyre, name="bound"):
    """A bound of a descriptor; -1 stands for an absent table, dim or level.

    #spyre.bound<limit = 57, dim = 0, level = 0, level_step = 8>
    """

    limit: int
    table: int
    dim: int
    dim_step: int
    level: int
    level_step: int
    corelet_step: int
    lanes: int

    defaults = {"limit": 0, "table": -1, "dim": -1, "dim_step": 1, "level": -1, "level_step": 0, "corelet_step": 0, "lanes": 0}
    elided = tuple(defaults)


class LaneValue(elements.AttributeValue):
    """The bits of a lane as a number: `1.5`, `-inf`, `nan` of f32, `3` or `-1` of i32, or as they are in hexadecimal."""

    def read(self, cursor: Cursor, op: elements.Reading, rewrite: elements.Rewrite) -> None:
        match = _NUMBER.match(cursor.text, cursor.start)
        if match is None:
            raise cursor.fail("expected number")
        try:
            bits = read_lane(match.group())
        except ValueError as fault:
            raise cursor.fail(str(fault)) from None
        op.attributes[self.name] = [(f"{bits} : i64", cursor.start)]
        cursor.seek(match.end())

    def write(self, op: elements.Writing) -> str:
        return lane_text(int(op.attribute(self.name).partition(" :")[0]))


_NUMBER = re.compile(r"[+-]?(?:0x[0-9A-Fa-f]+|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|inf|nan)")
formats.DIRECTIVES["lane"] = LaneValue


# --- ops -------------------------------------------------------------------------------------------------------------


class ArgumentOp(Operation, dialect=Spyre, name="argument"):
    """A device buffer in memory, `sticks` long; words and descriptors name it by its position. `half` says which floats 2 bytes are."""

    required = {"name": ir.StringAttr, "role": ir.StringAttr, "sticks": ir.IntegerAttr, "element_bytes": ir.IntegerAttr}
    assembly = "$name `role` `=` keyword($role) `,` `sticks` `=` integer($sticks) `,` `element_bytes` `=` integer($element_bytes)"
    assembly += " (`half` `=` keyword($half))? attr-dict"


class KernelOp(Operation, dialect=Spyre, name="kernel", traits=[ir.NoTerminatorTrait]):
    """The programs of all units of `cores` cores."""

    body: ext.Region

    required = {"name": ir.StringAttr, "cores": ir.IntegerAttr}
    assembly = "$name `cores` `=` integer($cores) region($body) attr-dict"


class TableOp(Operation, dialect=Spyre, name="table"):
    """A core table: one value per core. Tables, groups and descriptors are named by their position in the kernel."""

    required = {"values": ir.DenseI64ArrayAttr}
    assembly = "integers($values) attr-dict"


class GroupOp(Operation, dialect=Spyre, name="group"):
    """A multicast group: per core the core that reads for it."""

    required = {"leaders": ir.DenseI64ArrayAttr}
    assembly = "integers($leaders) attr-dict"


class ChannelOp(Operation, dialect=Spyre, name="channel"):
    """A token channel on which `leftover` tokens per queue remain."""

    required = {"sender": ir.StringAttr, "receiver": ir.StringAttr, "token": ir.IntegerAttr, "leftover": ir.IntegerAttr}
    assembly = "keyword($sender) `->` keyword($receiver) `token` `=` integer($token) `,` `leftover` `=` integer($leftover) attr-dict"


OPTIONAL_INTS = ("base", "arg", "core_table", "buffers", "rotate_step", "corelet_step", "lane_stride")


class DescriptorOp(Operation, dialect=Spyre, name="descriptor"):
    """An access pattern, see `ktir.isa.descriptor`. What has its default is left out; `rotate_levels` lists levels.

    `splat` and `pad` stand in the attribute dictionary: `{splat, pad = "-inf"}`.
    """

    required = {
        "space": ir.StringAttr,
        "element_bytes": ir.IntegerAttr,
        "extent": ir.DenseI64ArrayAttr,
        "stride": ir.DenseI64ArrayAttr,
    }
    assembly = " ".join(
        [
            "keyword($space) `element_bytes` `=` integer($element_bytes)",
            "(`half` `=` keyword($half))?",
            "`extent` `=` integers($extent) `stride` `=` integers($stride)",
            *(f"(`{name}` `=` integer(${name}))?" for name in OPTIONAL_INTS),
            *(f"(`{name}` `=` integers(${name}))?" for name in ("level_step", "rotate_levels")),
            "(`bounds` `=` $bounds)? attr-dict",
        ]
    )


class UnitOp(Operation, dialect=Spyre, name="unit", traits=[ir.NoTerminatorTrait]):
    """The words of one unit kind, for all cores and both corelets."""

    body: ext.Region

    required = {"unit": ir.StringAttr}
    assembly = "keyword($unit) region($body) attr-dict"


_ATTRIBUTE_CLASSES: dict[str, Any] = dict.fromkeys(("fifo", "unit", "enum"), ir.StringAttr)
_SPELLINGS = {"lane": "lane(${})"} | dict.fromkeys(("fifo", "unit", "enum"), "keyword(${})")
REGIONS = {op.name: op.holds or ("body",) for op in table.OPCODES.values() if op.does in (table.Does.LOOP, table.Does.REPEAT)}
"""Ops with regions, and the names of these; a field of that name counts the region's words."""


def attribute_fields(op: table.Opcode) -> list[table.Field]:
    """The fields that are attributes: all but the counts of a region's words."""
    return [f for f in op.fields if f.name not in REGIONS.get(op.name, ())]


def _instruction_op(op: table.Opcode) -> type:
    """The op class of an instruction: flags are unit attributes, all other fields stand in the text."""
    given = [f for f in attribute_fields(op) if f.kind != "flag"]
    shown = [f for f in given if not f.may_lack]
    spelled = {f.name: f"`{f.name}` `=` {_SPELLINGS.get(f.kind, 'integer(${})').format(f.name)}" for f in given}
    optional = [f"({spelled[f.name]})?" for f in given if f.may_lack]
    texts = [spelled[f.name] for f in shown]
    regions = REGIONS.get(op.name, ())
    shown_regions = [f"region(${r})" if len(regions) == 1 else f"`{r}` region(${r})" for r in regions]
    units = ", ".join(u.name for u in op.units)
    rows = [f"    {f.name}: {f.doc}" + (f" ({', '.join(f.values)})" if f.kind == "enum" else "") for f in op.fields]
    body: dict[str, Any] = {
        "__doc__": "\n".join([op.doc, "", f"Units: {units}.", *(["", *rows] if rows else [])]),
        "__module__": __name__,
        "__annotations__": dict.fromkeys(regions, ext.Region),
        "required": {f.name: _ATTRIBUTE_CLASSES.get(f.kind, ir.IntegerAttr) for f in shown},
        "assembly": " ".join([" `,` ".join(texts), *optional, *shown_regions, "attr-dict"]).strip(),
    }
    keywords = {"dialect": Spyre, "name": op.name} | ({"traits": [ir.NoTerminatorTrait]} if regions else {})
    return types.new_class(f"{op.name.capitalize()}Op", (Operation,), keywords, lambda namespace: namespace.update(body))


INSTRUCTION_OPS = {op.name: _instruction_op(op) for op in table.OPCODES.values() if op.does is not table.Does.END_LOOP}
"""Op classes by mnemonic."""
