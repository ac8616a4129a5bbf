"""The ops of the ktir dialect on the executor, against NumPy and against rounding by hand."""

from typing import Any

import numpy as np
import pytest

from ktir.emulator.reference import execute

_TYPES = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "i64": np.int64, "i32": np.int32, "i16": np.int16, "i1": np.bool_}


def _moved(name: str, shape: tuple[int, ...], element: str) -> str:
    dims = ", ".join(f"d{k}" for k in range(len(shape)))
    box = ", ".join(f"d{k} >= 0, -d{k} + {n - 1} >= 0" for k, n in enumerate(shape))
    strides = [int(np.prod(shape[k + 1 :])) for k in range(len(shape))]
    type_, zero = "x".join(map(str, shape)), ", ".join("0" for _ in shape)
    space = "memory_space = #ktdp.memory_space<global>"
    return f"""
  %{name}_view = ktdp.construct_memory_view %{name}, sizes: {list(shape)}, strides: {strides}
      {{coordinate_set = affine_set<({dims}) : ({box})>, {space}}} : memref<{type_}x{element}>
  %{name}_tile = ktdp.construct_access_tile %{name}_view[{zero}] {{access_tile_order = affine_map<({dims}) -> ({dims})>,
      access_tile_set = affine_set<({dims}) : ({box})>}} : memref<{type_}x{element}> -> !ktdp.access_tile<{type_}xindex>
"""


def along(op: str, body: str, inputs: list[np.ndarray], elements: list[str]) -> list[np.ndarray]:
    """The results of `ktir.scan` or `ktir.sort`: `op` with its attributes, `body` its region."""
    shape = inputs[0].shape
    box, types = "x".join(map(str, shape)), ", ".join(f"tensor<{'x'.join(map(str, shape))}x{e}>" for e in elements)
    count = len(inputs)
    arguments = ", ".join(f"%{side}{k}: index" for side in "xy" for k in range(count))
    lines = [f"func.func @f({arguments}) {{"]
    for k, element in enumerate(elements):
        lines.append(_moved(f"x{k}", shape, element) + f"  %v{k} = ktdp.load %x{k}_tile : <{box}xindex> -> tensor<{box}x{element}>")
    results, values = (", ".join(f"%{letter}{k}" for k in range(count)) for letter in "rv")
    lines.append(f"  {results} = {op.format(values)} : {types} -> {types}{body}")
    for k, element in enumerate(elements):
        lines.append(_moved(f"y{k}", shape, element) + f"  ktdp.store %r{k}, %y{k}_tile : tensor<{box}x{element}>, <{box}xindex>")
    lines.append("  return\n}\n")
    outputs = [np.zeros(shape, _TYPES[e]) for e in elements]
    execute("\n".join(lines), None, [*(x.copy() for x in inputs), *outputs])
    return outputs


def _combiner(op: str, element: str) -> str:
    return f" {{\n^bb0(%a: {element}, %b: {element}):\n  %c = {op} %a, %b : {element}\n  ktir.yield %c : {element}\n}}"


@pytest.mark.parametrize(
    ("op", "element", "function"),
    [
        ("arith.addf", "f32", np.add),
        ("arith.mulf", "f64", np.multiply),
        ("arith.maximumf", "f32", np.maximum),
        ("arith.addi", "i64", np.add),
        ("arith.minsi", "i32", np.minimum),
        ("arith.ori", "i1", np.logical_or),
    ],
)
@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_scans(op: str, element: str, function: np.ufunc, dimension: int) -> None:
    x = (np.random.default_rng(dimension).standard_normal((3, 4, 5)) * 4).astype(_TYPES[element])
    (result,) = along(f"ktir.scan {{}} dimension = {dimension}", _combiner(op, element), [x], [element])
    np.testing.assert_array_equal(result, function.accumulate(x, axis=dimension))


def test_a_scan_of_a_narrow_float_rounds_at_every_step() -> None:
    x = np.full(4000, 1.0, np.float16)
    (result,) = along("ktir.scan {} dimension = 0", _combiner("arith.addf", "f16"), [x], ["f16"])
    assert result[-1] == 2048
    np.testing.assert_array_equal(result[:2048], np.arange(1, 2049))


def test_a_scan_is_no_commutation() -> None:
    """The combiner's first arguments are what came before."""
    x = np.array([1, 2, 4, 8], np.int64)
    (result,) = along("ktir.scan {} dimension = 0", _combiner("arith.subi", "i64"), [x], ["i64"])
    np.testing.assert_array_equal(result, [1, -1, -5, -13])


@pytest.mark.parametrize("descending", [False, True])
def test_sorts_are_stable_and_take_nan_for_the_largest(descending: bool) -> None:
    key = np.array([[2, np.nan, 1, 2, -np.inf, 1, np.nan, 0.0, -0.0]], np.float32).repeat(2, 0)
    key[1] = np.roll(key[1], 4)
    place = np.arange(9, dtype=np.int16)[None].repeat(2, 0)
    op = "ktir.sort {} dimension = 1 " + ("{{descending, stable}}" if descending else "{{stable}}")
    values, order = along(op, "", [key, place], ["f32", "i16"])
    for row, sorted_, found in zip(key, values, order, strict=True):
        rank = [(1, 0.0) if np.isnan(v) else (0, float(v)) for v in row]
        expected = sorted(range(9), key=lambda k: (-rank[k][0], -rank[k][1]) if descending else rank[k])
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(sorted_, row[expected])


def added(target: np.ndarray, index: np.ndarray, value: np.ndarray, element: str) -> np.ndarray:
    """`target` after value[k, d] was added to target[index[k], d]."""
    n, d = value.shape
    rows = target.shape[0]
    text = f"""func.func @f(%x: index, %i: index, %y: index) {{
{_moved("x", (n, d), element)}
  %v = ktdp.load %x_tile : <{n}x{d}xindex> -> tensor<{n}x{d}x{element}>
{_moved("i", (n,), "i64").split("  %i_tile")[0]}
{_moved("y", (rows, d), element).split("  %y_tile")[0]}
  %t = ktdp.construct_indirect_access_tile intermediate_variables(%k, %l) %y_view[ind(%i_view[%k]), (%l)]
      {{variables_space_order = affine_map<(d0, d1) -> (d0, d1)>,
       variables_space_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + {n - 1} >= 0, d1 >= 0, -d1 + {d - 1} >= 0)>}}
      : memref<{rows}x{d}x{element}>, memref<{n}xi64> -> !ktdp.access_tile<{n}x{d}xindex>
  ktir.scatter_add %v, %t : tensor<{n}x{d}x{element}>, !ktdp.access_tile<{n}x{d}xindex>
  return
}}
"""
    result = target.copy()
    execute(text, None, [value, index, result])
    return result


@pytest.mark.parametrize("element", ["f32", "f16", "i64"])
def test_additions_happen_in_order(element: str) -> None:
    random = np.random.default_rng(0)
    target, value = ((random.standard_normal((n, 3)) * 100).astype(_TYPES[element]) for n in (5, 40))
    index = random.integers(0, 5, 40)
    expected: Any = target.copy()
    for row, place in zip(value, index, strict=True):
        expected[place] += row
    np.testing.assert_array_equal(added(target, index, value, element), expected)


def test_other_elements_stay() -> None:
    target = np.arange(12, dtype=np.float32).reshape(4, 3)
    result = added(target, np.array([2, 2]), np.ones((2, 3), np.float32), "f32")
    np.testing.assert_array_equal(result - target, [[0] * 3, [0] * 3, [2] * 3, [0] * 3])
