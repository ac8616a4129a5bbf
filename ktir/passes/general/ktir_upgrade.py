"""Any KTIR -> KTIR in the newest spelling.

Old text that has only another form (futures without parentheses, bare subscripts) is renewed by reading it. What stays as it was written is
renewed here: memory spaces, also inside types, and numbers in the place of operands.
"""

import re
from dataclasses import dataclass
from typing import ClassVar

from ktir.assembly import parse_module, pretty
from ktir.diagnostics import KtirError
from ktir.dialects import spyreop
from ktir.dialects.ktdp import SUCCESSORS
from ktir.mlir import arith, ir, is_a, operations
from ktir.pipeline import Pass


@dataclass(frozen=True)
class UpgradePass(Pass):
    """Rewrites old spellings that the text keeps.

    Expects: any level. Guarantees: nothing old is left, except what has no successor, which is refused.
    """

    name: ClassVar[str] = "ktir-upgrade"
    description: ClassVar[str] = "old spellings -> the newest"

    def run(self, module: ir.Module) -> None:
        """Rewrite every op of the module."""
        renewed: dict[ir.Attribute, ir.Attribute] = {}
        for op in operations(module):
            for name in list(op.attributes):
                old = op.attributes[name]
                if (new := _renew(old, op, renewed)) != old:
                    op.attributes[name] = new
            arguments = [argument for region in op.regions for block in region.blocks for argument in block.arguments]
            for value in (*op.results, *arguments):
                old = ir.TypeAttr.get(value.type)
                if (new := _renew(old, op, renewed)) != old:
                    value.set_type(ir.TypeAttr(new).value)
            if is_a(op, spyreop.Idx32ToAddrOp) and "base_value" in op.attributes:
                _give_operands(op)


_OLD_SPACE = re.compile(r'#ktdp\.spyre_memory_space<"(\w+)", (-?\d+) : i64>|"(?:[^"\\]|\\.)*"')


def _renew(attribute: ir.Attribute, op: ir.Operation, known: dict[ir.Attribute, ir.Attribute]) -> ir.Attribute:
    """`attribute` with old memory spaces replaced, anywhere in it."""
    if attribute not in known:

        def replace(match: re.Match[str]) -> str:
            if match.group(1) is None:  # a string
                return match.group()
            kind = SUCCESSORS.get(match.group(1))
            if kind is None:
                raise KtirError(f"'{pretty(match.group())}' has no successor in the newest spelling", op.location)
            return f'#ktdp.memory_space<"{kind}", {match.group(2)} : i64>'

        text = str(attribute)
        new = _OLD_SPACE.sub(replace, text) if "spyre_memory_space" in text else text
        known[attribute] = attribute if new == text else _parsed(new)
    return known[attribute]


def _parsed(text: str) -> ir.Attribute:
    """An attribute from its text, in which types of ours may stand that MLIR's own parser does not read."""
    return parse_module(f"module attributes {{ktdp.parsed = {text}}} {{}}").operation.attributes["ktdp.parsed"]


def _give_operands(op: ir.Operation) -> None:
    """Turns base and stride of a `spyreop.idx32toaddr` from attributes into operands."""
    with ir.InsertionPoint(op), op.location:
        factors = [arith.ConstantOp(op.attributes[name].type, op.attributes[name]).result for name in ("base_value", "stride_value")]
        new = ir.Operation.create(op.name, results=[op.results[0].type], operands=[op.operands[0], *factors])
    op.results[0].replace_all_uses_with(new.results[0])
    op.erase()
