"""Every op that the rules of the allocated level admit lowers, or is refused by its name and place; what lowers computes what PyTorch
does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from logical_programs import linear
from tiled_kernels import LANES, Argument, Kernel, Tiled, tiled
from torch_ops import check
from vector_cases import EDGES, TYPES, elementwise, shown

from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import Unsupported
from ktir.dialects.module_level import Level
from ktir.dialects.vector_kinds import SCALAR_OPS
from ktir.emulator.machine import Machine
from ktir.hints import hint
from ktir.isa.program import Program
from ktir.lowering.compile import pipeline
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import arith, ir, math, operations
from ktir.passes.levels.ktir_verify_level import OPS
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET

INPUTS = Path(__file__).parents[3] / "lit" / "lowering" / "inductor"
LANE_TYPES = ("f32", "i32", "f16", "i1")
DIVISIONS = ("arith.divsi", "arith.divui", "arith.remsi", "arith.remui", "arith.floordivsi", "arith.ceildivsi", "arith.ceildivui")


def names() -> list[str]:
    """The ops of the scalar dialects, without those of whole vectors."""
    classes = [c for dialect in (arith, math) for c in vars(dialect).values() if isinstance(c, type)]
    return sorted({c.OPERATION_NAME for c in classes if getattr(c, "OPERATION_NAME", "").startswith(("arith.", "math."))})


EVERY = names()


def lowers(module: ir.Module, name: str) -> Program | None:
    """The program, if the op `name` of a module has instructions; if not, the refusal names it and its place."""
    try:
        return lower_program(module)
    except Unsupported as error:
        refused = error
    assert f"'{name}' op" in refused.message, str(refused)
    assert refused.location, str(refused)
    return None


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


ROWS = 20
HELD = {"f16": "f16", "f32": "f32", "i32": "i32", "i1": "i32"}
"""In memory a mask is an integer, 0 or 1."""
MAPS = ("whole", "row", "column")
"""How the last operand is read: an element for each element, for those of a column, for those of a row."""


def columns_of(name: str, operands: tuple[str, ...], how: str) -> list[np.ndarray]:
    """Values [rows, lanes] of the operands; each pair of edge values of the first two meets."""
    row, lane = np.mgrid[:ROWS, :LANES]
    places = [row + lane, lane, 3 * row + 5 * lane]
    places[len(operands) - 1] = {"whole": places[len(operands) - 1], "row": lane, "column": row}[how]
    values = []
    for type_, place in zip(operands, places, strict=False):
        edges = np.array([0, 1] if type_ == "i1" else EDGES[type_], TYPES[HELD[type_]])
        if name in DIVISIONS and values:
            edges = edges[edges != 0]
        values.append(edges[place % edges.size])
    if name in DIVISIONS:
        values[0][(values[0] == -(2**31)) & (values[1] == -1)] = 5
    return values


def body_with(name: str, operands: tuple[str, ...], result: str, how: str) -> Tiled:
    """A kernel whose body has the op on values of these types."""

    def body(*given: ir.Value) -> ir.Value:
        values = []
        for x, type_ in zip(given, operands, strict=True):
            if type_ == "i1":
                x = arith.CmpIOp(arith.CmpIPredicate.ne, x, arith.ConstantOp(x.type, ir.IntegerAttr.get(x.type, 0)).result).result
            values.append(x)
        return shown(ir.Operation.create(name, [ir.Type.parse(result)], values, attributes_of(name)).results[0])

    sizes = [ROWS * LANES] * (len(operands) + 1)
    if how == "row":
        sizes[len(operands) - 1] = LANES
    arguments = [Argument(f"x{i}", "input", n, HELD[t]) for i, (n, t) in enumerate(zip(sizes, operands, strict=False))]
    arguments.append(Argument("y", "output", ROWS * LANES, HELD[result]))

    def kernel(k: Kernel) -> None:
        views = [k.view(a.name, 0, [1, a.elements // LANES, LANES], [LANES, LANES, 1]) for a in arguments]
        tiles = [k.load(v, [0, 0, 0], [1, a.elements // LANES, LANES]) for v, a in zip(views[:-1], arguments, strict=False)]
        if how == "column":
            k.columns.append(tiles[-1])
        k.store(k.pointwise(body, [1, ROWS, LANES], HELD[result], *tiles), views[-1], [0, 0, 0])

    return tiled(1, arguments, kernel)


def executed(kernel: Tiled, program: Program, given: list[np.ndarray]) -> np.ndarray:
    """The output of a program, run on the emulated chip."""
    arrays = kernel.arrays({a.name: x.ravel()[: a.elements] for a, x in zip(kernel.arguments, given, strict=False)})
    carriers = [a.view(np.float32).copy() if a.dtype == np.int32 else a.astype(np.float32) for a in arrays]
    Machine(program, DATASHEET).launch(carriers, mode="tape")
    return carriers[-1].view(np.int32) if arrays[-1].dtype == np.int32 else carriers[-1].astype(arrays[-1].dtype)


def is_executed(name: str, operands: tuple[str, ...], result: str, how: str) -> bool:
    """Whether the op has instructions; then they compute what PyTorch does."""
    kernel = body_with(name, operands, result, how)
    module = parse_module(kernel.text, "kernel.mlir")
    run_pipeline(module, "ktir-allocate-scratchpad")
    program = lowers(module, name)
    if program is not None:
        given = columns_of(name, operands, how)
        check(name, given, executed(kernel, program, given))
    return program is not None


@pytest.mark.parametrize("name", EVERY)
def test_scalar_ops(name: str) -> None:
    """On f32, i32, f16 and i1, as many operands as it may have, the last one read in each way; what is refused is so in one."""
    with context(), ir.Location.file("body.mlir", 3, 5):
        valid = [form for form in forms(name, LANE_TYPES) if is_valid(name, *form)]
        lowered = [form for form in valid if is_executed(name, *form, MAPS[0])]
        assert bool(lowered) == (name in SCALAR_OPS and name != "arith.constant")
        assert all(is_executed(name, *form, how) for form in lowered for how in MAPS[1:])


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
    missing = {n for n in OPS[Level.ALLOCATED] if n not in seen and n not in elsewhere}
    assert not missing


@pytest.mark.parametrize("name", ["ktdp.inter_tile_reduce", "linalg.matmul", "scf.while", "tensor.extract_slice"])
def test_ops_of_other_levels(name: str) -> None:
    """What the lowering has no case for, the level does not admit."""
    assert name not in OPS[Level.ALLOCATED]


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
