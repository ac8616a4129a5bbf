"""The scalar semantics of pointwise ops in every dtype, against eager: signs, NaN, wrap-around, rounding, conversions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from combinations import each_once

from ktir.lowering.region_to_ktir.dtypes import ELEMENTS, highest, is_float8, literal, lowest, promoted
from ktir.mlir import ir

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.7, -3.7, 1e-3, 7.0, -7.0, float("inf"), -float("inf"), float("nan")]
WHOLE = [0, 1, -1, 2, -2, 3, -3, 5, -5, 7, -7, 100, -100, 127, -128]


def edges(dtype: torch.dtype) -> list[float]:
    """Special values, and the largest, smallest normal and smallest of a type with their negatives."""
    about = torch.finfo(dtype)
    ends = [about.max, about.smallest_normal, about.smallest_normal * about.eps, about.eps, 1 - about.eps / 2]
    return [*SPECIAL, *ends, *(-e for e in ends)]


Functions = dict[str, Callable[..., torch.Tensor]]

UNARY: Functions = {
    **{
        f: getattr(torch, f)
        for f in "neg abs sign signbit floor ceil trunc round isnan isinf isfinite square reciprocal sigmoid relu sgn frac".split()
        + "exp exp2 expm1 sqrt rsqrt sin cos tan tanh atan asinh sinh cosh erf erfc logical_not".split()
    },
    "log": lambda a: torch.log(a.abs()),
    "log2": lambda a: torch.log2(a.abs()),
    "log10": lambda a: torch.log10(a.abs()),
    "log1p": lambda a: torch.log1p(a.abs()),
    "asin": lambda a: torch.asin(a.clamp(-1, 1)),
    "acos": lambda a: torch.acos(a.clamp(-1, 1)),
    "acosh": torch.acosh,
    "atanh": lambda a: torch.atanh(a.clamp(-0.9, 0.9)),
    "clamp": lambda a: a.clamp(-1, 2),
    "hardtanh": torch.nn.functional.hardtanh,
    "leaky": torch.nn.functional.leaky_relu,
    "silu": torch.nn.functional.silu,
    "softplus": torch.nn.functional.softplus,
    "elu": torch.nn.functional.elu,
    "mish": torch.nn.functional.mish,
    "power": lambda a: a.pow(3),
    "root": lambda a: a.abs().pow(0.3),
    "nan_to_num": lambda a: a.nan_to_num(),
    "to_int": lambda a: a.clamp(-9, 9).nan_to_num(0).to(torch.int32),
    "to_short": lambda a: a.clamp(-9, 9).nan_to_num(0).to(torch.int16),
    "to_byte": lambda a: a.clamp(-9, 9).nan_to_num(0).to(torch.uint8),
    "to_bool": lambda a: a.to(torch.bool),
    "to_double": lambda a: a.to(torch.float64),
    "logit": torch.logit,
    "logit_inside": lambda a: torch.logit(a, eps=0.1),
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda a: torch.nn.functional.gelu(a, approximate="tanh"),
    "heaviside": lambda a: torch.heaviside(a, torch.full_like(a, 0.5)),
}

BINARY: Functions = {
    **{
        f: getattr(torch, f)
        for f in "add sub mul maximum minimum fmax fmin remainder fmod atan2 copysign hypot".split()
        + "eq ne lt le gt ge logical_and logical_or logical_xor".split()
    },
    "div": torch.div,
    "floor_divide": torch.floor_divide,
    "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "floor_divide_number": lambda a, b: a // 0.1,
    "floor_divide_zero": lambda a, b: a // -0.0,
    "where": lambda a, b: torch.where(a > b, a, b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "lerp_back": lambda a, b: torch.lerp(a, b, 0.7),
    "pow": lambda a, b: torch.pow(a.abs(), b),
    "xlogy": lambda a, b: torch.xlogy(a, b.abs()),
}

OF_PRODUCTS: Functions = {
    "lerp_tensor": lambda a, b: torch.lerp(a, b, a.sigmoid()),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=0.5),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b),
}
"""Sums of products, which Inductor takes in another order than eager: near the largest number either may overflow where the other does
not.
"""

ON_INTEGERS: Functions = {
    **{
        f: getattr(torch, f) for f in "add sub mul maximum minimum eq ne lt le gt ge logical_and bitwise_and bitwise_or bitwise_xor".split()
    },
    "remainder": lambda a, b: torch.remainder(a, b | 1),
    "fmod": lambda a, b: torch.fmod(a, b | 1),
    "floor_divide": lambda a, b: torch.div(a, b | 1, rounding_mode="floor"),
    "trunc_divide": lambda a, b: torch.div(a, b | 1, rounding_mode="trunc"),
    "div": lambda a, b: a / (b | 1),
    "left": lambda a, b: a << (b & 3),
    "right": lambda a, b: a >> (b & 3),
    "not": lambda a, b: ~a,
    "abs": lambda a, b: a.abs(),
    "neg": lambda a, b: -a,
    "sign": lambda a, b: a.sign(),
    "square": lambda a, b: a.square(),
    "clamp": lambda a, b: a.clamp(1, 5),
    "pow": lambda a, b: a**3,
    "to_float": lambda a, b: a.float() / 3,
    "to_half": lambda a, b: a.half(),
    "to_byte": lambda a, b: a.to(torch.uint8),
    "to_long": lambda a, b: a.long() * 1000,
    "to_bool": lambda a, b: a.bool(),
    "mixed": lambda a, b: a + b.float(),
    "with_bool": lambda a, b: a + (b > 0),
    "sum": lambda a, b: a.sum(),
    "largest": lambda a, b: a.amax() + a.amin(),
    "prod": lambda a, b: (a[:5] | 1).prod(),
    "cumsum": lambda a, b: a.cumsum(0),
    "any": lambda a, b: a.any() ^ a.all(),
}

ON_BOOLS: Functions = {
    **{f: getattr(torch, f) for f in "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor eq ne maximum minimum".split()},
    "not": lambda a, b: ~a,
    "lt": lambda a, b: a < b,
    "sum": lambda a, b: a.sum(),
    "any": lambda a, b: a.any(),
    "all": lambda a, b: a.all(),
    "float": lambda a, b: a.float() - b.float(),
    "int": lambda a, b: a.int() - b.int(),
    "where": lambda a, b: torch.where(a, b, ~b),
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "argmax": lambda a, b: (a * 1).argmax(),
}


def pairs(values: list[Any], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """All pairs of some values."""
    a = torch.tensor(values, dtype=torch.float64).to(dtype)
    return tuple(t.reshape(-1).contiguous() for t in torch.meshgrid(a, a, indexing="ij"))  # type: ignore[return-value]


def apart(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with gaps between them: eager's vectorised kernels give NaN for gelu(inf) and for remainders of subnormals."""
    return torch.stack([tensor, tensor], -1)[..., 0]


def compare(compiled: Any, functions: Functions, inputs: tuple[torch.Tensor, ...], tolerance: float) -> None:
    def model(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(f(*given) for f in functions.values())

    for name, expected, actual in zip(functions, model(*map(apart, inputs)), compiled.run(model, *inputs), strict=True):
        assert actual.dtype == expected.dtype, name
        torch.testing.assert_close(
            actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}"
        )


FLOATS = [torch.float32, torch.float64, torch.float16]
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-5, torch.float16: 2e-3}
"""Half precision is computed in float32 and rounded once."""


@pytest.mark.parametrize(("part", "dtype"), [(0, torch.float32), (1, torch.float32), *each_once(range(2), [torch.float64, torch.float16])])
def test_functions_of_one(compiled: Any, dtype: torch.dtype, part: int) -> None:
    compare(compiled, dict(list(UNARY.items())[part::2]), (torch.tensor(edges(dtype), dtype=torch.float64).to(dtype),), TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_two(compiled: Any, dtype: torch.dtype) -> None:
    compare(compiled, BINARY, pairs(edges(dtype), dtype), TOLERANCES[dtype])
    compare(compiled, OF_PRODUCTS, pairs(SPECIAL, dtype), TOLERANCES[dtype])


def test_scans_of_half_precision_accumulate_in_float32(compiled: Any) -> None:
    x = torch.full((300,), 0.1).half()
    (total,) = compiled.run(lambda x: (x.cumsum(0),), x)
    assert torch.equal(total, x.float().cumsum(0).half())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_integers(compiled: Any, dtype: torch.dtype) -> None:
    functions = dict(ON_INTEGERS)
    if dtype == torch.uint8:
        functions.pop("neg")
    compare(compiled, functions, pairs(WHOLE, dtype), 0)


def test_bools(compiled: Any) -> None:
    compare(compiled, ON_BOOLS, pairs([True, False], torch.bool), 0)


def test_zeros_keep_their_sign(compiled: Any) -> None:
    a = torch.tensor([0.0, -0.0, -0.3, 0.3])
    functions: Functions = {"neg": torch.neg, "round": torch.round, "ceil": torch.ceil, "trunc": torch.trunc, "mul": lambda a: a * -0.0}

    def model(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(f(a) for f in functions.values())

    for expected, actual in zip(model(a), compiled.run(model, a), strict=True):
        assert torch.equal(expected.signbit(), actual.signbit())


PROMOTED = [d for d in ELEMENTS if d not in ("uint16", "uint32", "uint64") and not is_float8(d)]
"""Torch promotes no wider unsigned integers and no floats of one byte."""


@pytest.mark.parametrize("a", PROMOTED)
@pytest.mark.parametrize("b", PROMOTED)
def test_promotion_is_that_of_torch(a: str, b: str) -> None:
    assert promoted(a, b) == str(torch.promote_types(getattr(torch, a), getattr(torch, b)))[6:]


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_literals_are_read_back(dtype: str) -> None:
    with ir.Context(), ir.Location.unknown():
        for number in (0, 1, lowest(dtype), highest(dtype)):
            text = literal(number, dtype)
            element = ELEMENTS[dtype]
            attribute = ir.Attribute.parse(text if element == "i1" else f"{text} : {element}")
            found = attribute.value  # type: ignore[attr-defined]
            bits = 0 if "float" in dtype or dtype == "bool" else 1 << int(element[1:])
            if dtype == "float8_e4m3fn" and math.isinf(number):
                assert math.isnan(found)  # as torch makes of it
            else:
                assert found == number or (bits and (found - int(number)) % bits == 0)


def test_whole_quotients_are_exact(compiled: Any) -> None:
    """A rounded quotient is whole in many of these where the true one is just below."""
    a, b = torch.rand(2, 20000, generator=torch.Generator().manual_seed(0)) * torch.tensor([[10.0], [0.01]])
    whole = torch.arange(1.0, 20001.0) * b
    functions: Functions = {
        "floor_divide": lambda a, b, c: a // b,
        "multiples": lambda a, b, c: c // b,
        "number": lambda a, b, c: a // 1e-3,
    }
    compare(compiled, functions, (torch.cat([a, torch.tensor([2.5])]), torch.cat([b, torch.tensor([1e-3])]), torch.cat([whole, a[:1]])), 0)


def test_medians_with_nan(compiled: Any) -> None:
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, nan, 3.0, nan], [4.0, -inf, 2.0, inf], [nan] * 4, [0.5, 0.5, 0.25, 1.0]])
    functions: Functions = {
        "all": torch.median,
        "numbers": lambda a: a[1].median(),
        "along": lambda a: a.median(1).values,
        "kept": lambda a: a.median(0, keepdim=True).values,
        "place": lambda a: a[:3].median(1).indices,
    }
    compare(compiled, functions, (x,), 0)


def test_any_of_bytes_is_a_byte(compiled: Any) -> None:
    functions: Functions = {"all": torch.any, "along": lambda a: a.any(1), "dims": lambda a: torch.any(a, (0, 1)), "every": torch.all}
    compare(compiled, functions, (torch.tensor([[3, 0, 1], [0, 0, 0]], dtype=torch.uint8),), 0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float32])
def test_over_no_dims(compiled: Any, dtype: torch.dtype) -> None:
    """`any` and `all` are of one element each then, extremes and sums of all."""
    functions: Functions = {
        f"{name} {kept}": lambda a, f=f, kept=kept: f(a, dim=[], keepdim=kept)
        for name, f in {"any": torch.any, "all": torch.all, "amax": torch.amax, "amin": torch.amin, "sum": torch.sum}.items()
        for kept in (False, True)
    }
    compare(compiled, functions | {"largest": torch.amax, "least": torch.amin}, (torch.tensor([[3, 0, 1], [0, 0, 2]]).to(dtype),), 0)
