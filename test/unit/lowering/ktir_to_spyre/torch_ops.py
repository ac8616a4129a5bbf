"""What PyTorch says of ops of `arith` and `math`: in float64, and in int64 for integers of 32 bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

Oracle = Callable[..., torch.Tensor]


def bare(x: torch.Tensor) -> torch.Tensor:
    """The same 32 bits as numbers without sign."""
    return x & 0xFFFFFFFF


def floor(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="floor")


def towards_zero(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="trunc")


def unsigned(function: Oracle) -> Oracle:
    return lambda a, b: function(bare(a), bare(b))


EXACT: dict[str, Oracle] = {
    **{"arith.addf": torch.add, "arith.subf": torch.sub, "arith.mulf": torch.mul, "arith.divf": torch.div, "arith.remf": torch.fmod},
    **{"arith.maxnumf": torch.fmax, "arith.minnumf": torch.fmin},
    **{"arith.maximumf": torch.maximum, "arith.minimumf": torch.minimum, "arith.negf": torch.neg, "arith.cmpf": torch.gt},
    **{"arith.addi": torch.add, "arith.subi": torch.sub, "arith.muli": torch.mul, "arith.cmpi": torch.lt, "arith.select": torch.where},
    **{"arith.andi": torch.bitwise_and, "arith.ori": torch.bitwise_or, "arith.xori": torch.bitwise_xor, "math.absi": torch.abs},
    **{"arith.maxsi": torch.maximum, "arith.minsi": torch.minimum, "arith.divsi": towards_zero, "arith.remsi": torch.fmod},
    **{"arith.maxui": unsigned(torch.maximum), "arith.minui": unsigned(torch.minimum)},
    **{"arith.divui": unsigned(floor), "arith.remui": unsigned(torch.fmod), "arith.ceildivui": unsigned(lambda a, b: -floor(-a, b))},
    **{"arith.floordivsi": floor, "arith.ceildivsi": lambda a, b: -floor(-a, b)},
    **{"arith.shli": lambda a, b: a << b, "arith.shrsi": lambda a, b: a >> b, "arith.shrui": lambda a, b: bare(a) >> b},
    **dict.fromkeys(("arith.extf", "arith.extui", "arith.sitofp", "arith.truncf", "arith.fptosi", "arith.fptoui"), lambda x: x),
    **{"arith.uitofp": bare, "arith.extsi": torch.neg},  # of a mask
    **{"math.absf": torch.abs, "math.copysign": torch.copysign, "math.sqrt": torch.sqrt, "math.roundeven": torch.round},
    **{f"math.{name}": getattr(torch, name) for name in ("ceil", "floor", "trunc")},
    "math.round": lambda x: torch.copysign(torch.floor(x.abs() + 0.5), x),
}
NEAR: dict[str, Oracle] = {
    **{f"math.{name}": getattr(torch, name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "rsqrt", "erf", "erfc")},
    **{f"math.{name}": getattr(torch, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2")},
    **{f"math.{name}": getattr(torch, name) for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")},
    **{"math.powf": torch.pow, "math.fma": lambda a, b, c: a * b + c},
    "math.cbrt": lambda x: torch.copysign(x.abs() ** (1 / 3), x),
}
"""Within one unit of the last place."""


def defined(name: str, operands: list[torch.Tensor]) -> torch.Tensor:
    """Where MLIR defines a result."""
    if name.startswith("arith.sh"):
        return (operands[1] >= 0) & (operands[1] < 32)
    if name == "arith.fptosi":
        return (operands[0] > -(2.0**31) - 1) & (operands[0] < 2.0**31)
    if name == "arith.fptoui":
        return (operands[0] > -1) & (operands[0] < 2.0**32)
    return torch.ones_like(operands[0], dtype=torch.bool)


def check(name: str, operands: list[np.ndarray], found: np.ndarray) -> None:
    """What was `found` for operands, all of one shape; masks are 0 and 1."""
    if name == "arith.bitcast":
        assert np.array_equal(found.view(np.int32), operands[0].view(np.int32))
        return
    wide = [torch.from_numpy(x.astype(np.float64 if x.dtype.kind == "f" else np.int64)) for x in operands]
    if name == "arith.select":
        wide[0] = wide[0] != 0
    where = defined(name, wide).numpy()
    exact = (EXACT | NEAR)[name](*wide).numpy()
    with np.errstate(all="ignore"):
        wanted = exact.astype(np.float64 if found.dtype.kind == "f" else np.int64).astype(found.dtype)
        same = (found == wanted) | ((found != found) & (wanted != wanted)) | ~where
        if name in NEAR:
            same |= np.abs(found.astype(np.float64) - exact) <= np.spacing(np.abs(wanted)).astype(np.float64)
    assert same.all(), [(*(x[~same][0] for x in operands), found[~same][0], wanted[~same][0])]
