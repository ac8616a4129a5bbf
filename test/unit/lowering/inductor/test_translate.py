"""Regions made by hand through the translator: values on the executor, rungs and remarks, refusals, locations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from ktir.assembly import print_module
from ktir.context import context
from ktir.diagnostics import location_names, location_text, remarks
from ktir.emulator.reference import execute
from ktir.lowering.region_to_ktir.dtypes import ELEMENTS, is_float8
from ktir.lowering.region_to_ktir.emit import emit
from ktir.lowering.region_to_ktir.indices import Index, variable
from ktir.lowering.region_to_ktir.region import Buffer, Nest, NestRefused, Origin, Record, Region, Role
from ktir.lowering.region_to_ktir.translate import translate
from ktir.mlir import ir, operations

i0, i1, r0 = (variable(v) for v in ("i0", "i1", "r0"))
ORIGIN = Origin("add_1", "aten.add.Tensor", "model.py", 7)


def buffer(name: str, role: Role, *size: int, dtype: str = "float32") -> Buffer:
    stride = tuple(int(np.prod(size[k + 1 :])) for k in range(len(size)))
    return Buffer(name, dtype, size, stride, 0, role)


def nest(name: str, iteration: Mapping[str, int], *body: Record, reduction: Mapping[str, int] | None = None) -> Nest:
    return Nest(name, "Pointwise", tuple(iteration.items()), tuple((reduction or {}).items()), body, (ORIGIN,))


def region(buffers: list[Buffer], *nests: Nest) -> Region:
    arguments = tuple(b.name for b in buffers if b.role != "temp")
    return Region("forward", {b.name: b for b in buffers}, nests, arguments)


def load(out: str, name: str, index: Index, dtype: str = "float32") -> Record:
    return Record("load", out, buffer=name, index=index, dtype=dtype)


def store(name: str, index: Index, value: str, mode: str = "") -> Record:
    return Record("store", "", (value,), buffer=name, index=index, mode=mode)


def run(given: Region, *arrays: np.ndarray) -> list[np.ndarray]:
    """The arrays after the region ran on them, from the text of its module."""
    results = [a.copy() for a in arrays]
    with context(), ir.Location.unknown():
        text = print_module(emit(given), debuginfo=True)
    execute(text, None, results)
    return results


def copy(index: Index, iteration: Mapping[str, int], source: Buffer, target: Buffer, at: Index) -> Region:
    """One nest that copies `source[index]` to `target[at]`."""
    return region([source, target], nest("n", iteration, load("%0", source.name, index), store(target.name, at, "%0")))


def masked(out: str, mask: str, body: tuple[Record, ...], value: float) -> Record:
    return Record("masked", out, (mask,), dtype="float32", body=body, yields=(body[-1].out,), value=value)


def below(out: str, index: Index, bound: int) -> tuple[Record, ...]:
    """Records of `index < bound`."""
    return (
        Record("index_expr", f"{out}.a", index=index, dtype="int64"),
        Record("constant", f"{out}.b", value=bound, dtype="int64"),
        Record("lt", out, (f"{out}.a", f"{out}.b"), dtype="bool"),
    )


def names(given: Region) -> list[str]:
    return [r.name for r in translate(given).rungs]


def test_a_window_begins_at_its_offset() -> None:
    """A piece of a concatenation: without the offset of its window it would overwrite the other one."""
    source, target = buffer("x", "input", 3, 2), buffer("y", "output", 3, 5)
    given = region(
        [source, target],
        nest("a", {"i0": 3, "i1": 2}, load("%0", "x", i0.scaled(2) + i1), store("y", i0.scaled(5) + i1, "%0")),
        nest("b", {"i0": 3, "i1": 3}, Record("constant", "%0", value=7.0, dtype="float32"), store("y", i0.scaled(5) + i1 + Index(2), "%0")),
    )
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    _, y = run(given, x, np.zeros((3, 5), np.float32))
    np.testing.assert_array_equal(y, np.concatenate([x, np.full((3, 3), 7)], 1))
    assert names(given) == ["view", "insert", "insert"]


@pytest.mark.parametrize("bound", [13, 8, 3, 16, 0])
def test_a_mask_on_a_number_of_two_loops_is_a_box_of_it(bound: int) -> None:
    """`8*i0 + i1 < bound`: padding before a reshape."""
    number = i0.scaled(8) + i1
    body = (load("%l", "x", number),)
    source, target = buffer("x", "input", max(bound, 1)), buffer("y", "output", 2, 8)
    given = region(
        [source, target],
        nest("n", {"i0": 2, "i1": 8}, *below("%m", number, bound), masked("%0", "%m", body, -1.0), store("y", number, "%0")),
    )
    x = np.arange(max(bound, 1), dtype=np.float32)
    _, y = run(given, x, np.zeros((2, 8), np.float32))
    np.testing.assert_array_equal(y.reshape(-1), [*x[:bound], *[-1.0] * (16 - bound)])
    assert "index table" not in names(given)


def test_a_mask_that_is_no_box_reads_element_0_outside() -> None:
    """`2 * i0 + i1 < 5` for an access at `i0 + i1`, over a buffer that ends where the mask does."""
    number = Index(0, ((1, "i0"), (1, "i1")))
    body = (load("%l", "x", number),)
    source, target = buffer("x", "input", 5), buffer("y", "output", 4, 4)
    mask = (
        *below("%p", number + i0, 5),
        Record("index_expr", "%q.a", index=i0 + i1.scaled(-1), dtype="int64"),
        Record("constant", "%q.b", value=0, dtype="int64"),
        Record("ne", "%q", ("%q.a", "%q.b"), dtype="bool"),
        Record("logical_and", "%m", ("%p", "%q"), dtype="bool"),
    )
    given = region(
        [source, target], nest("n", {"i0": 4, "i1": 4}, *mask, masked("%0", "%m", body, 9.0), store("y", i0.scaled(4) + i1, "%0"))
    )
    x = np.arange(5, dtype=np.float32) + 1
    _, y = run(given, x, np.zeros((4, 4), np.float32))
    expected = [[x[a + b] if 2 * a + b < 5 and a != b else 9.0 for b in range(4)] for a in range(4)]
    np.testing.assert_array_equal(y, expected)
    assert "index table" in names(given)


@pytest.mark.parametrize("size", [1, 5])
def test_reductions_of_several_results(size: int) -> None:
    """Mean, sum of squared differences and count; also over one element, whose loop is left out."""
    x = np.random.default_rng(0).standard_normal((3, size)).astype(np.float32)
    outs = ("%1", "%2", "%3")
    reduction = Record("reduction", "%1", ("%0",), kind="welford_reduce", dtype="float32", outs=outs, dtypes=("float32",) * 3)
    buffers = [buffer("x", "input", 3, size), *(buffer(f"y{k}", "output", 3) for k in range(3))]
    loops = {"r0": size} if size > 1 else {}
    index = i0.scaled(size) + (r0 if size > 1 else Index())
    stores = [store(f"y{k}", i0, out) for k, out in enumerate(outs)]
    given = region(buffers, nest("n", {"i0": 3}, load("%0", "x", index), reduction, *stores, reduction=loops))
    _, mean, squares, count = run(given, x, *(np.zeros(3, np.float32) for _ in range(3)))
    np.testing.assert_allclose(mean, x.mean(1), rtol=1e-6)
    np.testing.assert_allclose(squares, ((x - x.mean(1, keepdims=True)) ** 2).sum(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(count, [size] * 3)


@pytest.mark.parametrize(("kind", "function"), [("argmax_with_value", np.argmax), ("argmin_with_value", np.argmin)])
def test_extremes_with_their_places(kind: str, function: Callable[..., Any]) -> None:
    """The first place counts; NaN is more extreme than all."""
    x = np.array([[3, 1, 3, 1], [0, np.nan, -np.inf, np.nan]], np.float32)
    reduction = Record("reduction", "%1", ("%0",), kind=kind, dtype="float32", outs=("%1", "%2"), dtypes=("float32", "int64"))
    buffers = [buffer("x", "input", 2, 4), buffer("v", "output", 2), buffer("p", "output", 2, dtype="int64")]
    body = (load("%0", "x", i0.scaled(4) + r0), reduction, store("v", i0, "%1"), store("p", i0, "%2"))
    _, value, place = run(
        region(buffers, nest("n", {"i0": 2}, *body, reduction={"r0": 4})), x, np.zeros(2, np.float32), np.zeros(2, np.int64)
    )
    expected = function(x, axis=1)
    np.testing.assert_array_equal(place, expected)
    np.testing.assert_array_equal(value, x[[0, 1], expected])


def test_what_is_added_to_memory_is_read_after_it() -> None:
    """A temporary in memory, written by a scatter that accumulates, between two nests."""
    x, k = np.arange(4, dtype=np.float32) + 1, np.array([1, 0, 1, 1])
    buffers = [buffer("x", "input", 4), buffer("k", "input", 4, dtype="int64"), buffer("m", "mem", 2), buffer("y", "output", 2)]
    zero = nest("zero", {"i0": 2}, Record("constant", "%0", value=0.0, dtype="float32"), store("m", i0, "%0"))
    add = nest(
        "add",
        {"i0": 4},
        load("%0", "x", i0),
        load("%1", "k", i0, "int64"),
        Record("indirect", "s", ("%1",), size=Index(2), wrap=True),
        store("m", variable("s"), "%0", "atomic_add"),
    )
    last = nest("last", {"i0": 2}, load("%0", "m", i0), Record("neg", "%1", ("%0",), dtype="float32"), store("y", i0, "%1"))
    *_, y = run(region(buffers, zero, add, last), x, k, np.zeros(2, np.float32), np.zeros(2, np.float32))
    np.testing.assert_array_equal(y, [-2, -8])


def test_remarks_name_the_rung_and_the_line() -> None:
    given = copy((i0 + Index(1)).modulo(8), {"i0": 8}, buffer("x", "input", 8), buffer("y", "output", 8), i0)
    with remarks() as found, context(), ir.Location.unknown():
        emit(given)
    assert [str(r) for r in found] == ["model.py:7:1: remark: [translate] access of 'x' uses quasi-affine tile: div-carry"]


def test_every_op_names_the_node_and_the_line() -> None:
    given = copy(i0, {"i0": 8}, buffer("x", "input", 8), buffer("y", "output", 8), i0)
    with context(), ir.Location.unknown():
        function = emit(given).body.operations[0].operation
        for op in operations(function)[1:-1]:
            assert location_text(op.location) == "model.py:7:1"
            assert location_names(op.location) == ["add_1"]


def _refused(given: Region) -> NestRefused:
    with pytest.raises(NestRefused) as caught:
        translate(given)
    assert caught.value.location == "model.py:7:1"
    assert caught.value.nest == "n"
    assert caught.value.origins == (ORIGIN,)
    return caught.value


def test_refusals_name_op_shape_dtype_and_line() -> None:
    x, y = buffer("x", "input", 8), buffer("y", "output", 8)
    lgamma = Record("lgamma", "%1", ("%0",), dtype="float32")
    error = _refused(region([x, y], nest("n", {"i0": 8}, load("%0", "x", i0), lgamma, store("y", i0, "%1"))))
    assert str(error) == "model.py:7:1: error: 'lgamma' op, in 'aten.add.Tensor' of shape [8] and dtype float32, is not supported"


@pytest.mark.parametrize(
    ("what", "given"),
    [
        ("a read of 't' before it is written", copy(i0, {"i0": 8}, buffer("t", "temp", 8), buffer("y", "output", 8), i0)),
        ("elements 1 to 8 of 'x', which has 8", copy(i0 + Index(1), {"i0": 8}, buffer("x", "input", 8), buffer("y", "output", 8), i0)),
        (
            "a store to 'y' at index 7 + -1*i0 (reversed)".replace("7 + -1*i0", "-1*i0 + 7"),
            copy(i0, {"i0": 8}, buffer("x", "input", 8), buffer("y", "output", 8), i0.scaled(-1) + Index(7)),
        ),
        ("dtype complex64", copy(i0, {"i0": 8}, buffer("x", "input", 8, dtype="complex64"), buffer("y", "output", 8), i0)),
        ("an index with 's0'", copy(i0 + variable("s0"), {"i0": 8}, buffer("x", "input", 9), buffer("y", "output", 8), i0)),
    ],
)
def test_refusals(what: str, given: Region) -> None:
    assert f"error: {what}" in str(_refused(given))


def test_text_needs_no_mlir_context() -> None:
    """The translator is plain Python; the same region gives the same text."""
    given = copy(i0, {"i0": 8}, buffer("x", "input", 8), buffer("y", "output", 8), i0)
    assert translate(given).text == translate(Region.from_json(given.to_json())).text


def test_elements_of_all_dtypes_can_be_copied() -> None:
    for dtype in (d for d in ELEMENTS if d != "bfloat16" and not is_float8(d)):  # of which NumPy has none
        given = copy(i0, {"i0": 4}, buffer("x", "input", 4, dtype=dtype), buffer("y", "output", 4, dtype=dtype), i0)
        given = Region.from_json(given.to_json().replace('"dtype": "float32"', f'"dtype": "{dtype}"'))
        signed = dtype.removeprefix("u")
        x = np.array([0, 1, 1, 0]).astype(signed)
        np.testing.assert_array_equal(run(given, x, np.zeros(4, signed))[1], x)


@pytest.mark.parametrize("step", [1, 2])
def test_windows_over_padding_read_a_padded_part(step: int) -> None:
    """A window of three along the rows of the middle columns, with a row of padding above and two below; no index is computed."""
    row = i0.scaled(step) + r0 + Index(-1)
    body = (load("%l", "x", row.scaled(7) + i1 + Index(2)),)
    above = (
        Record("index_expr", "%a.row", index=row, dtype="int64"),
        Record("constant", "%a.zero", value=0, dtype="int64"),
        Record("ge", "%a", ("%a.row", "%a.zero"), dtype="bool"),
    )
    mask = (*above, *below("%b", row, 5), Record("logical_and", "%m", ("%a", "%b"), dtype="bool"))
    count = (8 - 3) // step + 1
    source, target = buffer("x", "input", 5, 7), buffer("y", "output", count, 4)
    total = Record("reduction", "%s", ("%0",), dtype="float32", kind="sum", source="float32")
    given = region(
        [source, target],
        nest(
            "n",
            {"i0": count, "i1": 4},
            *mask,
            masked("%0", "%m", body, 0.0),
            total,
            store("y", i0.scaled(4) + i1, "%s"),
            reduction={"r0": 3},
        ),
    )
    x = np.arange(35, dtype=np.float32).reshape(5, 7) + 1
    _, y = run(given, x, np.zeros((count, 4), np.float32))
    padded = np.pad(x[:, 2:6], ((1, 2), (0, 0)))
    np.testing.assert_array_equal(y, [padded[k * step : k * step + 3].sum(0) for k in range(count)])
    assert "pad" in names(given)
    assert "index table" not in names(given)
