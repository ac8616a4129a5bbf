"""NumPy's functions in kernels, each against NumPy in a wider type, rounded once: on the executor, and on the chip with a grid or none."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ktir import lang
from ktir.lang.base.functions import BODIES, OTHERS

UNARY = [n for n in BODIES if getattr(np, n).nin == 1 and n not in ("invert", "logical_not")]
ROUNDED = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "fmin", "power", "arctan2", "copysign"]
"""Functions of two floats whose result is the nearest to that of numbers."""
DIVISIONS = ["floor_divide", "remainder", "fmod"]
"""NumPy defines these by steps in the type of the operands, so they are held against it in that type."""
TRUTHS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
ENGINES: list[tuple[Any, Any]] = [("executor", None), ("chip", None), ("chip", 1)]
rng = np.random.default_rng(11)


def numbers(dtype: Any, count: int) -> np.ndarray:
    """Special values first, then some of all magnitudes."""
    if np.dtype(dtype).kind == "i":
        return np.concatenate([[0, 1, -1, 2, -2, 7, -7], rng.integers(-99, 99, count - 7)]).astype(dtype)
    limits = ml_dtypes.finfo(dtype)
    some = [0.0, -0.0, 0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 0.1, -0.1, np.inf, -np.inf, np.nan, float(limits.max), float(limits.tiny)]
    rest = rng.standard_normal(count - len(some)) * 2.0 ** rng.integers(-4, 5, count - len(some))
    return np.concatenate([some, rest]).astype(dtype)


def pairs(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Each of some numbers beside each."""
    some = numbers(dtype, 32)
    return np.repeat(some, 32), np.tile(some, 32)


def found_of(functions: list[Any], operands: tuple[np.ndarray, ...], result: Any, on: Any, grid: Any) -> np.ndarray:
    """What a kernel makes of operands: a row for each of the functions."""

    def body(x, y, z):
        for row, function in enumerate(functions):
            z[row] = function(x[:], y[:]).astype(result)

    z = np.zeros((len(functions), operands[0].size), result)
    lang.kernel(body).using(on=on, grid=grid)(*operands, z)
    return z


def same(found: np.ndarray, expected: np.ndarray, names: list[str], operands: tuple[np.ndarray, ...]) -> None:
    for name, own, other in zip(names, found, expected, strict=True):
        own, other = own.reshape(-1), other.reshape(-1)
        apart = np.flatnonzero(~((own == other) | (np.isnan(own) & np.isnan(other))))
        assert not apart.size, f"{name} of {[x[apart[:4]] for x in operands]}: {own[apart[:4]]}, not {other[apart[:4]]}"


def of_one(function: Any) -> Callable[[Any, Any], Any]:
    return lambda x, _: function(x)


@pytest.mark.parametrize(("on", "grid"), ENGINES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_functions_of_floats(dtype: Any, on: Any, grid: Any) -> None:
    x, y = pairs(dtype)
    functions = [*(of_one(getattr(np, n)) for n in UNARY), *(getattr(np, n) for n in (*ROUNDED, *TRUTHS))]
    found = found_of(functions, (x, y), dtype, on, grid)
    with np.errstate(all="ignore"):
        wide = [f(x.astype(np.float64), y.astype(np.float64)).astype(dtype) for f in functions]
    same(found, np.stack(wide), [*UNARY, *ROUNDED, *TRUTHS], (x, y))


BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def known(name: str) -> bool:
    """Whether NumPy has a function of bfloat16, as `ml_dtypes` gives it."""
    function = getattr(np, name)
    try:
        return bool(function.resolve_dtypes((BFLOAT16,) * function.nin + (None,)))
    except TypeError:
        return False


@pytest.mark.parametrize(("on", "grid"), ENGINES)
def test_functions_of_bfloat16(on: Any, grid: Any) -> None:
    """Those of f32, rounded, as `ml_dtypes` has them."""
    x, y = pairs(BFLOAT16)
    one, two = ([n for n in names if known(n)] for names in (UNARY, [*ROUNDED, *TRUTHS]))
    assert len(one) > 25
    assert len(two) > 12
    functions = [*(of_one(getattr(np, n)) for n in one), *(getattr(np, n) for n in two)]
    found = found_of(functions, (x, y), BFLOAT16, on, grid)
    with np.errstate(all="ignore"):
        wide = [f(x.astype(np.float64), y.astype(np.float64)).astype(np.float32).astype(BFLOAT16) for f in functions]
    same(found.astype(np.float32), np.stack(wide).astype(np.float32), [*one, *two], (x, y))


@pytest.mark.parametrize(("on", "grid"), ENGINES)
@pytest.mark.parametrize("axis", [0, 1])
def test_sums_along_each_dim(axis: int, on: Any, grid: Any) -> None:
    """In f32 in whatever order: within the bound of a sum of n numbers, against float64."""
    x = rng.standard_normal((70, 130)).astype(np.float32)

    def body(x, z):
        z[:] = x[:].sum(axis)

    z = np.zeros(x.shape[1 - axis], np.float32)
    lang.kernel(body).using(on=on, grid=grid)(x, z)
    wide = x.astype(np.float64)
    assert (np.abs(z - wide.sum(axis)) <= x.shape[axis] * 2.0**-24 * np.abs(wide).sum(axis)).all()


@pytest.mark.parametrize(("on", "grid"), ENGINES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_divisions_of_floats(dtype: Any, on: Any, grid: Any) -> None:
    x, y = pairs(dtype)
    functions = [getattr(np, n) for n in DIVISIONS]
    found = found_of(functions, (x, y), dtype, on, grid)
    with np.errstate(all="ignore"):
        expected = np.stack([f(x, y) for f in functions])
    same(found, expected, DIVISIONS, (x, y))
    assert np.array_equal(np.signbit(found)[~np.isnan(expected)], np.signbit(expected)[~np.isnan(expected)])


@pytest.mark.parametrize(("on", "grid"), ENGINES)
def test_functions_of_integers(on: Any, grid: Any) -> None:
    x, y = pairs(np.int32)
    unary = [n for n in UNARY if "i" in BODIES[n]]
    binary = ["add", "subtract", "multiply", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor", *TRUTHS]
    powers = [lambda x, _, n=n: x**n for n in (0, 1, 2, 3, 5)]
    functions = [*(of_one(getattr(np, n)) for n in unary), *(getattr(np, n) for n in binary), *powers]
    found = found_of(functions, (x, y), np.int32, on, grid)
    same(found, np.stack([f(x, y).astype(np.int32) for f in functions]), [*unary, *binary, *map(str, range(5))], (x, y))
    inside = y != 0
    x, y = x[inside], y[inside]
    functions = [getattr(np, n) for n in DIVISIONS]
    same(found_of(functions, (x, y), np.int32, on, grid), np.stack([f(x, y) for f in functions]), DIVISIONS, (x, y))


WHOLE: dict[str, Callable[[Any], Any]] = {
    "clip": lambda v: np.clip(v, -0.5, 1),
    "clip below": lambda v: v.clip(max=0.25),
    "round": lambda v: np.round(v),
    "**2": lambda v: v**2,
    "**-1": lambda v: v**-1,
    "**0.5": lambda v: abs(v) ** 0.5,
    "**3": lambda v: v**3.0,
    "stack": lambda v: np.stack([v[0], v[1], v[0], v[3]]),
    "expand_dims": lambda v: np.expand_dims(v, 1)[:, 0],
    "swapaxes": lambda v: np.swapaxes(v, 0, 1).T,
    "ravel": lambda v: np.ravel(v).reshape(v.shape),
    "squeeze": lambda v: np.squeeze(v[:, None]),
    "ones_like": lambda v: v + np.ones_like(v),
    "full_like": lambda v: np.full_like(v, 3),
    "ptp": lambda v: np.broadcast_to(np.ptp(v, axis=-1, keepdims=True), v.shape),
    "outer": lambda v: np.outer(v[:, 0], v[0]),
}


@pytest.mark.parametrize(("on", "grid"), ENGINES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_functions_of_tiles(dtype: Any, on: Any, grid: Any) -> None:
    x = rng.standard_normal((4, 64)).astype(dtype)
    names = list(WHOLE)

    def body(x, z):
        for row, name in enumerate(names):
            z[row] = WHOLE[name](x[:])

    z = np.zeros((len(names), 4, 64), dtype)
    lang.kernel(body).using(on=on, grid=grid)(x, z)
    same(z, np.stack([WHOLE[n](x.astype(np.float64)).astype(dtype) for n in names]), names, ())


@pytest.mark.parametrize(("on", "grid"), ENGINES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_variances(dtype: Any, on: Any, grid: Any) -> None:
    x = (rng.standard_normal((8, 64)) + 3).astype(dtype)

    def body(x, z):
        z[0], z[1], z[2] = x[:].var(-1), x[:].std(-1), np.var(x[:], axis=1, ddof=1)

    z = np.zeros((3, 8), dtype)
    lang.kernel(body).using(on=on, grid=grid)(x, z)
    wide = x.astype(np.float64)
    expected = np.stack([wide.var(-1), wide.std(-1), wide.var(-1, ddof=1)])
    steps = 70 * 2.0**-24 * (wide**2).mean()  # of sums of 64, each in f32
    assert (np.abs(z - expected) <= steps + np.finfo(dtype).eps / 2 * expected).all()


def test_the_page_lists_them() -> None:
    page = (Path(__file__).parents[4] / "docs" / "lang.md").read_text().split("### NumPy's functions")[1].split("\n#")[0]
    listed = {name for row in page.splitlines() if row.startswith("|") for name in re.findall(r"`(\w+)`", row.split("|")[2])}
    assert listed == {*BODIES, *OTHERS}


def test_what_is_missing_is_told_with_what_is_close() -> None:
    def body(x, y):
        y[:] = np.cumsum(x[:])

    with pytest.raises(lang.Mistake, match=r"has no 'np.cumsum'; did you mean 'sum'\?"):
        lang.kernel(body)(np.zeros(4, np.float32), np.zeros(4, np.float32))
