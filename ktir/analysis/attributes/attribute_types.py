"""What attributes of ours on modules and functions have to be, whatever the level: held before a pass reads one."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ktir.analysis.attributes.broken import Broken, refuse_broken
from ktir.diagnostics import KtirError, location_text
from ktir.dialects import ktir as kt
from ktir.mlir import func, ir

LEVELS = ("logical", "laid-out", "divided", "tiled", "allocated", "spyre")
Check = Callable[[ir.Attribute], bool]


def _is(kind: type[ir.Attribute]) -> Check:
    """Whether an attribute is of a kind: the constructors of all kinds take attributes of their own and no others."""

    def holds(a: ir.Attribute) -> bool:
        try:
            kind(a)
        except (TypeError, ValueError):
            return False
        return True

    return holds


def _is_count(a: ir.Attribute) -> bool:
    return _is(ir.IntegerAttr)(a) and isinstance(ir.IntegerAttr(a).type, ir.IntegerType) and ir.IntegerAttr(a).value >= 0


def _is_grid(a: ir.Attribute) -> bool:
    sizes = list(ir.ArrayAttr(a)) if _is(ir.ArrayAttr)(a) else []
    return 1 <= len(sizes) <= 3 and all(_is_count(n) and ir.IntegerAttr(n).value > 0 for n in sizes)


def _is_extents(a: ir.Attribute) -> bool:
    return _is(ir.DenseI64ArrayAttr)(a) and len(ir.DenseI64ArrayAttr(a)) > 0 and all(n > 0 for n in ir.DenseI64ArrayAttr(a))


def _is_tensor_type(a: ir.Attribute) -> bool:
    return _is(ir.TypeAttr)(a) and isinstance(ir.TypeAttr(a).value, ir.RankedTensorType)


FUNCTION: dict[str, tuple[Check, str]] = {
    "grid": (_is_grid, "an array of one to three positive integers"),
    "arg_attrs": (lambda a: _is(ir.ArrayAttr)(a) and all(map(_is(ir.DictAttr), ir.ArrayAttr(a))), "an array of dictionaries"),
    "ktir.rows": (_is_extents, "an array<i64> of positive extents"),
    "ktir.columns": (_is_count, "an integer that is not negative"),
    "ktir.sums": (_is_count, "an integer that is not negative"),
    "ktir.lx_bytes": (_is_count, "an integer that is not negative"),
    "ktir.work": (_is(kt.WorkAttr), "a #ktir.work"),
}
ARGUMENT: dict[str, tuple[Check, str]] = {
    "ktir.name": (_is(ir.StringAttr), "a string"),
    "ktir.role": (_is(ir.StringAttr), "a string"),
    "ktir.type": (_is_tensor_type, "a tensor type"),
    "ktir.layout": (_is(kt.LayoutAttr), "a #ktir.layout"),
    "ktir.host": (_is(kt.HostViewAttr), "a #ktir.host_view"),
}
PLAN: dict[str, tuple[Check, str]] = {
    "ktir.stick": (_is(ir.DenseI64ArrayAttr), "an array<i64> of dimensions"),
    "ktir.kernel": (_is_count, "an integer that is not negative"),
    "ktir.plan": (lambda a: _is(ir.ArrayAttr)(a) and all(map(_is(ir.DictAttr), ir.ArrayAttr(a))), "an array of dictionaries"),
}


def check_attributes(module: ir.Module) -> None:
    """Raise KtirError for attributes of ours that are of another kind, each at its op."""
    refuse_broken([module.operation], _module)
    refuse_broken([op.operation for op in module.body.operations if isinstance(op, func.FuncOp)], _function)


def _module(op: ir.Operation) -> None:
    if "ktir.level" in op.attributes:
        level = op.attributes["ktir.level"]
        if not _is(ir.StringAttr)(level) or ir.StringAttr(level).value not in LEVELS:
            raise Broken(f"expects 'ktir.level' to be one of {', '.join(LEVELS)}, but got {level}")


def require_kind(op: ir.Operation, name: str) -> None:
    """Raise KtirError if an attribute of a plan is of another kind."""
    holds, what = PLAN[name]
    if name in op.attributes and not holds(op.attributes[name]):
        text = f"'{op.name}' op expects '{name}' to be {what}, but got {op.attributes[name]}"
        raise KtirError(text, location_text(op.location))


def _function(f: ir.Operation) -> None:
    for name, (holds, what) in FUNCTION.items():
        if name in f.attributes and not holds(f.attributes[name]):
            raise Broken(f"expects '{name}' to be {what}, but got {f.attributes[name]}")
    if "ktir.work" in f.attributes and "ktir.rows" not in f.attributes:
        raise Broken("expects a kernel that is divided to have the attribute 'ktir.rows'")
    if "ktir.work" in f.attributes:
        splits, rows = list(kt.WorkAttr(f.attributes["ktir.work"]).splits), list(ir.DenseI64ArrayAttr(f.attributes["ktir.rows"]))
        if len(splits) != len(rows) + 2:
            raise Broken(f"expects 'ktir.work' to divide sticks, the rows {rows} and lanes, but got splits {splits}")
    if "arg_attrs" not in f.attributes:
        return
    for i, d in enumerate(map(ir.DictAttr, ir.ArrayAttr(f.attributes["arg_attrs"]))):
        for name, (holds, what) in ARGUMENT.items():
            if name in d and not holds(d[name]):
                raise Broken(f"expects '{name}' of argument #{i} to be {what}, but got {d[name]}")
        if "ktir.host" in d and "ktir.layout" in d:
            host, layout = kt.HostViewAttr(d["ktir.host"]), kt.LayoutAttr(d["ktir.layout"])
            if prod(host.size) != prod(layout.size):
                sizes = f"as many elements as its layout of size {list(layout.size)}, but got {list(host.size)}"
                raise Broken(f"expects the host view of argument #{i} to have {sizes}")
