"""What reads IR names ops by their classes: a misspelt one is an error at import, and where an op is used can be looked up.

Text that is written (`lowering/region_to_ktir`) names them as strings, in calls; nothing is asked for by such a name.
"""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from ktir import mlir
from ktir.mlir import arith, is_a

ROOT = Path(__file__).resolve().parents[2] / "ktir"
ROOMS = ("analysis", "passes", "lowering")
WRITES_TEXT = "lowering/region_to_ktir/"
DIALECTS = ("arith", "builtin", "func", "linalg", "math", "scf", "tensor")
OWN = ("ktdp", "ktir", "spyre", "spyreop")


def op_names() -> set[str]:
    modules: list[Any] = [getattr(mlir, name) for name in DIALECTS] + [import_module(f"ktir.dialects.{name}") for name in OWN]
    found = {getattr(each, "OPERATION_NAME", None) for module in modules for each in vars(module).values() if isinstance(each, type)}
    return {name for name in found if isinstance(name, str)}


def literals(path: Path, known: set[str]) -> Iterator[tuple[ast.Constant, ast.AST]]:
    """Names of ops as strings, each with what it is part of: a call, a comparison, a table, whatever lists it stands in."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for child in ast.iter_child_nodes(node):
            yield from _literals(child, node, known)


def _literals(node: ast.AST, user: ast.AST, known: set[str]) -> Iterator[tuple[ast.Constant, ast.AST]]:
    if isinstance(node, ast.Constant) and node.value in known and not isinstance(user, ast.Tuple | ast.List | ast.Set):
        yield node, user
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        for each in node.elts:
            yield from _literals(each, user, known)


def test_no_op_is_asked_for_by_a_string() -> None:
    known, wrong = op_names(), []
    assert {"arith.addf", "linalg.generic", "ktdp.load", "ktir.scan", "builtin.module"} <= known
    for path in (p for room in ROOMS for p in sorted((ROOT / room).rglob("*.py"))):
        where = path.relative_to(ROOT).as_posix()
        for node, user in literals(path, known):
            if not where.startswith(WRITES_TEXT) or isinstance(user, ast.Compare):
                wrong.append(f"ktir/{where}:{node.lineno}: '{node.value}'")
    assert not wrong, "\n".join(wrong)


def test_what_the_type_checker_knows_is_in_the_wheel() -> None:
    for dialect in DIALECTS:
        stub = ast.parse((ROOT.parent / f"typings/torch_mlir/dialects/{dialect}.pyi").read_text(encoding="utf-8"))
        declared = {node.name for node in stub.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        assert declared
        assert declared <= vars(getattr(mlir, dialect)).keys()


def test_what_owns_a_value_may_be_no_op() -> None:
    with mlir.ir.Context():
        module = mlir.ir.Module.parse("func.func @f(%a: f32) -> f32 { %0 = arith.addf %a, %a : f32 return %0 : f32 }")
        function = module.body.operations[0]
        add, end = function.regions[0].blocks[0].operations
        for each in (add, add.operation, end.operands[0].owner):
            assert is_a(each, arith.MulFOp, arith.AddFOp)
        for each in (end, add.operands[0].owner, None):
            assert not is_a(each, arith.AddFOp)
