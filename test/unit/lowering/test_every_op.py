"""Every op that the rules of the allocated level admit lowers, or is refused by its name and place; nothing else happens."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from logical_programs import linear
from vector_cases import edge_rows, elementwise

from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import Unsupported
from ktir.hints import hint
from ktir.lowering.compile import pipeline
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import arith, ir, math, operations
from ktir.passes.levels.ktir_verify_level import OPS
from ktir.pipeline import run_pipeline

INPUTS = Path(__file__).parents[2] / "lit" / "inductor"
TYPES = ("f32", "i32", "f16", "i1")


def names() -> list[str]:
    """The ops of the scalar dialects, without those of whole vectors."""
    classes = [c for dialect in (arith, math) for c in vars(dialect).values() if isinstance(c, type)]
    return sorted({c.OPERATION_NAME for c in classes if getattr(c, "OPERATION_NAME", "").startswith(("arith.", "math."))})


EVERY = names()


def lowers(module: ir.Module, name: str) -> bool:
    """Whether the op `name` of a module has instructions; if not, the refusal names it and its place."""
    refused: Unsupported | None = None
    try:
        lower_program(module)
    except Unsupported as error:
        refused = error
    assert refused is None or (f"'{name}' op" in refused.message and refused.location), str(refused)
    return refused is None


# Scalar ops in bodies


def forms(name: str, types: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Types of operands and result that an op could have."""
    for count in (1, 2, 3):
        for type_, result in itertools.product(types, types):
            yield (type_,) * count, result
    if name in ("arith.select",):
        for type_ in types:
            yield ("i1", type_, type_), type_
    if name == "math.fpowi":
        yield ("f32", "i32"), "f32"


def attributes_of(name: str) -> dict[str, ir.Attribute]:
    i64 = ir.IntegerType.get_signless(64)
    return {"predicate": ir.IntegerAttr.get(i64, 2)} if name in ("arith.cmpi", "arith.cmpf") else {}


def is_valid(name: str, operands: tuple[str, ...], result: str) -> bool:
    """Whether there is such an op, by MLIR's own verifier."""
    arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(operands))
    properties = " <{predicate = 2 : i64}>" if name in ("arith.cmpi", "arith.cmpf") else ""
    given = ", ".join(f"%a{i}" for i in range(len(operands)))
    text = f'func.func @f({arguments}) {{\n%r = "{name}"({given}){properties} : ({", ".join(operands)}) -> {result}\nreturn\n}}'
    try:
        ir.Module.parse(text)
    except ir.MLIRError:
        return False
    return True


def body_with(name: str, operands: tuple[str, ...], result: str) -> ir.Module:
    """An allocated kernel whose body has the op on values of these types."""

    def typed(x: ir.Value, wanted: str) -> ir.Value:
        """A value of a type, made of an i32 by a bitcast or a comparison, so that only the op itself can be the one refused."""
        type_ = ir.Type.parse(wanted)
        if x.type == type_:
            return x
        if wanted == "i1":
            zero = arith.ConstantOp(x.type, ir.IntegerAttr.get(x.type, 0)).result
            return arith.CmpIOp(arith.CmpIPredicate.sgt, x, zero).result
        return arith.BitcastOp(type_, x).result if wanted == "f32" else ir.Operation.create("arith.sitofp", [type_], [x]).results[0]

    def body(a: ir.Value) -> ir.Value:
        values = [typed(a, t) for t in operands]
        value = ir.Operation.create(name, [ir.Type.parse(result)], values, attributes_of(name)).results[0]
        if result == "i1":
            return ir.Operation.create("arith.extui", [a.type], [value]).results[0]
        return value if result == "i32" else arith.BitcastOp(a.type, value).result if result == "f32" else _stored(value, a.type)

    kernel, _ = elementwise(["i32"], "i32", body, edge_rows(["i32"]))
    module = parse_module(kernel.text, "kernel.mlir")
    run_pipeline(module, "ktir-allocate-scratchpad")
    return module


def _stored(value: ir.Value, type_: ir.Type) -> ir.Value:
    """An f16 as an i32."""
    return ir.Operation.create("arith.fptosi", [type_], [value]).results[0]


@pytest.mark.parametrize("name", EVERY)
def test_scalar_ops(name: str) -> None:
    """On f32, i32, f16 and i1, as many operands as it may have."""
    with context(), ir.Location.file("body.mlir", 3, 5):
        for operands, result in forms(name, TYPES):
            if is_valid(name, operands, result):
                lowers(body_with(name, operands, result), name)


# Index arithmetic


INDEX_OPS = [n for n in EVERY if n.startswith("arith.")]


@pytest.mark.parametrize("name", INDEX_OPS)
def test_index_ops(name: str) -> None:
    """An address that the op computes of a core's number."""
    with context(), ir.Location.file("kernel.mlir", 3, 5):
        module = parse_module(linear(30, 70, 20).text())
        run_pipeline(module, pipeline(4))
        views = [o for o in operations(module) if o.name == "ktdp.construct_memory_view" and o.opview.memory_space == "global"]
        (tile,) = [o for o in operations(module) if o.name == "ktdp.get_compute_tile_id"]
        index = ir.IndexType.get()
        for count in (1, 2, 3):
            if is_valid(name, ("index",) * count, "index"):
                with ir.InsertionPoint(views[-1]):
                    two = arith.ConstantOp(index, 2).result
                    views[-1].operands[0] = ir.Operation.create(
                        name, [index], [tile.results[0], two, two][:count], attributes_of(name)
                    ).results[0]
                lowers(module, name)


# All else


def programs() -> Iterator[ir.Module]:
    """Programs at the allocated level that have all kinds of ops."""
    texts = [path.read_text() for path in sorted(INPUTS.glob("*.mlir"))]
    for text in texts:
        module = parse_module(text)
        run_pipeline(module, pipeline(4))
        yield module
    with hint(work_div={"k": 2}):
        module = parse_module(linear(5, 200, 70).text())
        run_pipeline(module, pipeline(4))
    yield module


def test_other_ops() -> None:
    """Each lowers in some program that passes make, or has a test of its own."""
    seen: set[str] = set()
    with context(), ir.Location.unknown():
        for module in programs():
            seen |= {o.name for o in operations(module)}
            lower_program(module)
    elsewhere = {
        "scf.if": "test_conditions",
        "ktdp.construct_indirect_access_tile": "test_tiled_kernels",
        "ktdp.region_terminator": "the same",
    }
    missing = {n for n in OPS["allocated"] if n not in seen and n not in elsewhere}
    assert not missing


@pytest.mark.parametrize("name", ["ktdp.inter_tile_reduce", "linalg.matmul", "scf.while", "tensor.extract_slice"])
def test_ops_of_other_levels(name: str) -> None:
    """What the lowering has no case for, the level does not admit."""
    assert name not in OPS["allocated"]


def test_positions_as_values() -> None:
    def body(a: ir.Value) -> ir.Value:
        i64 = ir.IntegerType.get_signless(64)
        position = ir.Operation.create("linalg.index", [ir.IndexType.get()], [], {"dim": ir.IntegerAttr.get(i64, 2)}).results[0]
        return arith.AddIOp(a, arith.IndexCastOp(a.type, position).result).result

    with context(), ir.Location.file("body.mlir", 3, 5):
        kernel, _ = elementwise(["i32"], "i32", body, [np.arange(9, dtype=np.int32)])
        module = parse_module(kernel.text, "kernel.mlir")
        run_pipeline(module, "ktir-allocate-scratchpad")
        with pytest.raises(Unsupported, match=r"'(linalg\.index|arith\.index_cast)' op") as error:
            lower_program(module)
        assert error.value.location
