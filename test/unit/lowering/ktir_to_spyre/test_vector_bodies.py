"""Scalar bodies on the vector unit: the stream has the executor's bits, word by word and on the tape, for every op and type."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from combinations import each_once
from tiled_kernels import Tiled
from vector_cases import EDGES, edge_rows, elementwise, lanes_before, number, op, produced, reduction

from ktir.arithmetic.elementary import FLOAT_PREDICATES
from ktir.arithmetic.integers import PREDICATES
from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.dialects.vector_kinds import SCALAR_OPS
from ktir.emulator.machine import Machine
from ktir.emulator.machine.program.faults import DivisionFault
from ktir.emulator.machine.step.divisions import divides_by_data
from ktir.emulator.machine.step.step import Step
from ktir.emulator.reference import execute
from ktir.isa.kinds import KINDS
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import arith, ir
from ktir.pipeline import run_pipeline
from ktir.registry import dialect_class
from ktir.target import DATASHEET

ALLOCATE = "ktir-allocate-scratchpad"
MATH = [name for name in SCALAR_OPS if name.startswith("math.") and name != "math.absi"]
DIVISIONS = ("arith.divsi", "arith.remsi", "arith.floordivsi", "arith.divui", "arith.remui")


def declared() -> list[tuple[str, str, str]]:
    """Ops of `spyreop` that name their kind: name, type, kind."""
    with context():
        classes = [c for c in dialect_class("spyreop").operations if c.vector_kind]
    types = {c.OPERATION_NAME: getattr(c, "types", ["i32"]) for c in classes}
    return [(c.OPERATION_NAME, t, c.vector_kind) for c in classes for t in types[c.OPERATION_NAME] if t[0] != "!"]


def lowered(kernel: Tiled) -> Machine:
    with context(), ir.Location.unknown():
        module = parse_module(kernel.text, "kernel.mlir")
        run_pipeline(module, ALLOCATE)
        return Machine(lower_program(module), DATASHEET)


def bits(array: np.ndarray) -> np.ndarray:
    """Bits to compare; all NaNs are one."""
    if array.dtype == np.int32:
        return array
    return np.where(np.isnan(array), np.array(np.nan, array.dtype), array).view(np.int16 if array.dtype == np.float16 else np.int32)


def agree(kernel: Tiled, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Executor before and after allocation, and both modes of the emulator; the executor's arrays."""
    expected = kernel.arrays(given)
    for pipeline in ("", ALLOCATE):
        arrays = kernel.arrays(given)
        with context(), ir.Location.unknown():
            module = parse_module(kernel.text, "kernel.mlir")
            if pipeline:
                run_pipeline(module, pipeline)
            execute(module, None, arrays)
        if pipeline:
            assert all(np.array_equal(bits(a), bits(b)) for a, b in zip(arrays, expected, strict=True))
        expected = arrays
    machine = lowered(kernel)
    for mode in ("step", "tape"):
        carriers = [a.view(np.float32).copy() if a.dtype == np.int32 else a.astype(np.float32) for a in kernel.arrays(given)]
        machine.launch(carriers, mode=mode)
        for argument, carrier, array in zip(kernel.arguments, carriers, expected, strict=True):
            found = carrier.view(np.int32) if array.dtype == np.int32 else carrier.astype(array.dtype)
            wrong = bits(found) != bits(array)
            assert not wrong.any(), (mode, argument.name, found[wrong][:4], array[wrong][:4])
    return expected


def check(types: list[str], result: str, body: Callable[..., ir.Value], keep: Callable[..., bool] = lambda *_: True) -> None:
    values = edge_rows(types, keep)
    live = [i for i, row in enumerate(zip(*values, strict=True)) if keep(*(float(x) for x in row))]  # random bits obey the rule too
    values = [v[live] for v in values]
    agree(*elementwise(types, result, body, values))


@pytest.mark.parametrize(("name", "type_", "kind"), declared())
def test_ops_that_name_their_kind(name: str, type_: str, kind: str) -> None:
    """What the executor computes for the op is what the machine computes for the kind."""
    check([type_] * len(KINDS[kind].takes), type_, lambda *a: op(name, type_, *a))


@pytest.mark.parametrize("name", MATH)
def test_functions(name: str) -> None:
    count = {"math.fma": 3}.get(name) or len(KINDS.get(name[5:], KINDS["abs"]).takes)
    check(["f32"] * count, "f32", lambda *a: op(name, "f32", *a))
    if name == "math.fma":
        with pytest.raises(KtirError, match=r"'math.fma' op on f16, f16, f16 to f16 has no instruction"):
            check(["f16"] * 3, "f16", lambda *a: op(name, "f16", *a))
    else:
        check(["f16"] * count, "f16", lambda *a: op(name, "f16", *a))


@pytest.mark.parametrize("type_", ["f16", "f32"])
@pytest.mark.parametrize("name", ["addf", "subf", "mulf", "divf", "remf", "maximumf", "minimumf"])
def test_float_arithmetic(name: str, type_: str) -> None:
    check([type_] * 2, type_, lambda a, b: op(f"arith.{name}", type_, a, b))


@pytest.mark.parametrize("name", [k for k in KINDS if KINDS[k].takes == "ii" and KINDS[k].gives == "i" and not KINDS[k].makes])
def test_integer_arithmetic(name: str) -> None:
    divides = f"arith.{name}" in DIVISIONS
    check(
        ["i32"] * 2,
        "i32",
        lambda a, b: op(f"arith.{name}", "i32", a, b),
        lambda a, b: not divides or (b != 0 and not (a == -(2**31) and b == -1)),
    )


def test_absolute_integers() -> None:
    check(["i32"], "i32", lambda a: op("math.absi", "i32", a))


@pytest.mark.parametrize(("predicate", "type_"), each_once(FLOAT_PREDICATES[1:-1], ["f16", "f32"]))
def test_float_comparisons(predicate: str, type_: str) -> None:
    check([type_] * 2, "i32", lambda a, b: op("arith.cmpf", "i1", a, b, predicate=FLOAT_PREDICATES.index(predicate)))


@pytest.mark.parametrize("predicate", PREDICATES)
def test_integer_comparisons(predicate: str) -> None:
    check(["i32"] * 2, "i32", lambda a, b: op("arith.cmpi", "i1", a, b, predicate=PREDICATES.index(predicate)))


@pytest.mark.parametrize("type_", ["f16", "f32", "i32"])
def test_select(type_: str) -> None:
    """Of any type, by a mask that is logic on masks."""

    def body(a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        positive = op("arith.cmpi", "i1", a, number(0, "i32"), predicate=PREDICATES.index("sgt"))
        even = op("arith.cmpi", "i1", op("arith.andi", "i32", a, number(1, "i32")), number(0, "i32"), predicate=0)
        mask = op("arith.xori", "i1", op("arith.andi", "i1", positive, even), op("arith.ori", "i1", number(1, "i1"), positive))
        return op("arith.select", type_, mask, b, c)

    check(["i32", type_, type_], type_, body)


@pytest.mark.parametrize(
    ("name", "source", "result"),
    [
        *((n, "i32", t) for n in ("sitofp", "uitofp") for t in ("f16", "f32")),
        *((n, t, "i32") for n in ("fptosi", "fptoui") for t in ("f16", "f32")),
        ("truncf", "f32", "f16"),
        ("extf", "f16", "f32"),
        ("bitcast", "f32", "i32"),
        ("bitcast", "i32", "f32"),
    ],
)
def test_conversions(name: str, source: str, result: str) -> None:
    check([source], result, lambda a: op(f"arith.{name}", result, a))


@pytest.mark.parametrize(("name", "result"), [("extsi", "i32"), ("extui", "i32"), ("uitofp", "f32"), ("uitofp", "f16")])
def test_masks_as_numbers(name: str, result: str) -> None:
    check(["i32"], result, lambda a: op(f"arith.{name}", result, op("arith.cmpi", "i1", a, number(5, "i32"), predicate=2)))


@pytest.mark.parametrize(("result", "value"), [("f32", 0.1), ("f16", -2.5), ("i32", -5), ("i32", -(2**31)), ("i32", 0x7F800001)])
def test_constants_without_operands(result: str, value: float) -> None:
    (array,) = agree(produced(result, lambda: number(value, result)), {})
    assert (array == array.dtype.type(value)).all()


def test_position_masks_as_values() -> None:
    """Lanes before a bound, on integers and in logic with other masks."""

    def body(a: ir.Value) -> ir.Value:
        live = lanes_before(70, 0)
        odd = op("arith.cmpi", "i1", op("arith.andi", "i32", a, number(1, "i32")), number(1, "i32"), predicate=0)
        both = op("arith.andi", "i1", live, odd)
        return op("arith.select", "i32", both, a, op("arith.select", "i32", live, number(-1, "i32"), number(-9, "i32")))

    agree(*elementwise(["i32"], "i32", body, edge_rows(["i32"])))


IDENTITIES = {"addi": 0, "maxsi": -(2**31), "minsi": 2**31 - 1}


@pytest.mark.parametrize(("columns", "name"), each_once([1, 63, 64, 65, 130, 200], IDENTITIES))
def test_integer_reductions(name: str, columns: int) -> None:
    rng = np.random.default_rng(columns)
    x = rng.integers(-(2**31), 2**31, (5, columns)).astype(np.int32)
    program = reduction(
        f"arith.{name}", IDENTITIES[name], "i32", ["i32"], lambda a: op("arith.xori", "i32", a, number(3, "i32")), 5, columns
    )
    *_, y = agree(program, {"x0": x})
    function = {"addi": np.add, "maxsi": np.maximum, "minsi": np.minimum}[name]
    assert y[:, 0].tolist() == function.reduce(x ^ 3, axis=1, dtype=np.int32).tolist()


@pytest.mark.parametrize("columns", [1, 64, 100, 128, 300])
def test_product_reduction_in_f32(columns: int) -> None:
    """One column of a matmul of f32, which PT does not take: rows of the first operand times one row, both streamed, summed on SFP."""
    rng = np.random.default_rng(columns)
    x, w = rng.standard_normal((7, columns)).astype(np.float32), rng.standard_normal((1, columns)).astype(np.float32)
    program = reduction("arith.addf", 0.0, "f32", ["f32", "f32"], lambda a, b: arith.MulFOp(a, b).result, 7, columns)
    *_, y = agree(program, {"x0": x, "x1": w})
    assert np.allclose(y[:, 0], (x.astype(np.float64) @ w[0].astype(np.float64)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [7, 64, 100])
@pytest.mark.parametrize(("combiner", "identity"), [("arith.maximumf", -np.inf), ("arith.addf", 0.0)])
def test_causal_mask(combiner: str, identity: float, columns: int) -> None:
    """The maximum and the sum of attention's scores under a mask: positions come from a tensor of i32."""
    rng = np.random.default_rng(columns)
    x = rng.standard_normal((3, columns)).astype(np.float32)

    def body(score: ir.Value, key: ir.Value) -> ir.Value:
        seen = op("arith.cmpi", "i1", key, number(5, "i32"), predicate=PREDICATES.index("sle"))
        return op("arith.select", "f32", seen, score, number(-65504.0 if identity else 0.0, "f32"))

    *_, y = agree(
        reduction(combiner, identity, "f32", ["f32", "i32"], body, 3, columns), {"x0": x, "x1": np.arange(columns, dtype=np.int32)}
    )
    live = x[:, :6]
    assert np.allclose(y[:, 0], live.max(1) if identity else live.sum(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("columns", [64, 100])
def test_sum_of_minus_zeros(columns: int) -> None:
    """The accumulator starts from +0."""
    program = reduction("arith.addf", 0.0, "f32", ["f32"], lambda a: a, 3, columns)
    *_, y = agree(program, {"x0": np.full((3, columns), -0.0, np.float32)})
    assert not np.signbit(y[:, 0]).any()


def chain(length: int) -> Callable[..., ir.Value]:
    """A body with `length` values that are all needed at its end."""

    def body(a: ir.Value) -> ir.Value:
        values = [op("math.sin", "f32", op("arith.addf", "f32", a, number(float(i), "f32"))) for i in range(length)]
        while len(values) > 1:
            values.append(op("arith.mulf", "f32", values.pop(0), values.pop(0)))
        return values[0]

    return body


def test_registers() -> None:
    """Where they are scarce a constant holds one for an op only; bodies that need more are refused."""
    check(["f32"], "f32", chain(13))
    with pytest.raises(KtirError, match=r"needs more than 16 vector registers.*two ops with a tensor between them"):
        check(["f32"], "f32", chain(17))


def test_refusals() -> None:
    def wide(a: ir.Value) -> ir.Value:
        return op("arith.truncf", "f32", op("arith.extf", "f64", a))

    with pytest.raises(
        KtirError,
        match=r"'arith.extf' op on f32 to f64 has no instruction; the vector unit has this op on others of f16, bf16, f32, i32 and i1",
    ):
        lowered(elementwise(["f32"], "f32", wide, edge_rows(["f32"]))[0])

    def signed(a: ir.Value) -> ir.Value:
        return op("arith.sitofp", "f32", op("arith.cmpf", "i1", a, a, predicate=1))

    with pytest.raises(KtirError, match=r"'arith.sitofp' op on i1 to f32 has no instruction"):
        lowered(elementwise(["f32"], "f32", signed, edge_rows(["f32"]))[0])


LIVE = np.array([EDGES["i32"][3:9]] * 20, np.int32).ravel()


@pytest.mark.parametrize("name", DIVISIONS)
def test_dead_lanes_do_not_divide(name: str) -> None:
    """Lanes beyond a row are zero on both sides, also after arithmetic; only live ones count."""
    agree(*elementwise(["i32"] * 2, "i32", lambda a, b: op(name, "i32", a, b), [LIVE, LIVE[::-1].copy()]))
    agree(*elementwise(["i32"] * 2, "i32", lambda a, b: op(name, "i32", a, op("arith.muli", "i32", b, b)), [LIVE, LIVE]))


def test_dead_lanes_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that has no more of them than one before runs no word on its own; a live lane is found all the same."""
    kernel, given = elementwise(["i32"] * 2, "i32", lambda a, b: op("arith.floordivsi", "i32", a, b), [LIVE, LIVE[::-1].copy()])
    machine, run = lowered(kernel), Step.run
    word_by_word: list[Step] = []
    monkeypatch.setattr(Step, "run", lambda self, arguments: (word_by_word.append(self), run(self, arguments)))

    def launch() -> int:
        word_by_word.clear()
        machine.launch([v.view(np.float32).copy() for v in kernel.arrays(given)])
        return len(word_by_word)

    assert launch()
    assert not launch()
    given["x1"][77] = 0
    with pytest.raises(DivisionFault, match="divides by zero"):
        launch()


@pytest.mark.parametrize(
    ("name", "a", "b", "message"),
    [
        ("arith.divsi", 3, 0, "divides by zero"),
        ("arith.remui", 0, 0, "divides by zero"),
        ("arith.floordivsi", -(2**31), -1, "divides -2147483648 by -1, which i32 cannot hold"),
    ],
)
def test_live_lanes_divide(name: str, a: int, b: int, message: str) -> None:
    """A finding in both executors; nothing is written."""
    x, y = LIVE.copy(), LIVE.copy()
    x[77], y[77] = a, b
    kernel, given = elementwise(["i32"] * 2, "i32", lambda p, q: op(name, "i32", p, q), [x, y])
    with context(), ir.Location.unknown(), pytest.raises(KtirError, match=message):
        execute(parse_module(kernel.text, "kernel.mlir"), None, kernel.arrays(given))
    machine = lowered(kernel)
    for mode in ("step", "tape"):
        carriers = [v.view(np.float32).copy() for v in kernel.arrays(given)]
        with pytest.raises(DivisionFault, match=message) as found:
            machine.launch(carriers, mode=mode)
        assert found.value.site is not None
        assert found.value.site.source.op == "linalg.generic"
        assert (carriers[-1].view(np.int32) == 77).all()


def test_constant_divisors_are_not_looked_at() -> None:
    kernel, _ = elementwise(["i32"], "i32", lambda a: op("arith.floordivsi", "i32", a, number(7, "i32")), [LIVE])
    assert not divides_by_data(lowered(kernel).program)
    kernel, _ = elementwise(["i32"], "i32", lambda a: op("arith.floordivsi", "i32", a, number(-1, "i32")), [LIVE])
    assert divides_by_data(lowered(kernel).program)
