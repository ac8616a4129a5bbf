"""The statements of random programs on the device: lines of Python over tensors by name, drawn while they are run on the host."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

FLOATS = (torch.float16, torch.float32, torch.bfloat16, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)
_WEIGHTS = (4, 4, 1, 1, 5, 3, 2, 2, 2, 2)
SHAPES = ((), (1,), (0,), (63,), (64,), (65,), (130,), (3, 64), (2, 65), (5, 0), (0, 4), (4, 1), (2, 3, 33))
_SMALL = (0, 1, -1, 2, 3, 7, 127, 128, 255, -129)
_INTEGERS = (*_SMALL, 2**31 - 1, 2**31, -(2**31) - 1, 2**40 + 5, 2**63 - 1, -(2**63), 2**63, 2**64 + 1, 2**70)
_FLOATS = (0.0, -0.0, 0.5, -1.5, 3.0, 1e10, 65520.0, 1e39, 1e300, float("inf"), -float("inf"), float("nan"), 1e-45, 1e-320)


@dataclass
class Line:
    """A statement. judged: how what it makes is compared: "exact", or floats within their bound. roundings: of float32 that computing it
    may be wrong by, of the result, and with `sums` of the sum of its operands' magnitudes. terms: likewise, of what this says, which is the
    size of terms that may cancel.
    """

    text: str
    judged: str = "exact"
    roundings: float = 0
    sums: bool = False
    terms: str = ""


@dataclass
class Drawing:
    """A program as far as it is drawn, with what its names stand for on the host."""

    r: random.Random
    env: dict[str, Any] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.env.items() if isinstance(value, Tensor)}

    def any(self, fits: Callable[[Tensor], bool] = lambda _: True) -> str:
        """The name of a tensor; an operand that is no such where none fits."""
        found = [name for name, t in self.tensors.items() if fits(t)]
        return self.r.choice(found or list(self.tensors))

    def beside(self, name: str) -> str:
        """A second operand: of the same size, or of another one, or a number."""
        t, draw = self.env[name], self.r.random()
        if draw < 0.35:
            return self.number(t.dtype)
        if draw < 0.9:
            return self.any(lambda other: other.shape == t.shape)
        return self.any()

    def number(self, dtype: torch.dtype) -> str:
        """A number as it is written, often of the kind of a type."""
        if self.r.random() < 0.1:
            return self.r.choice(("True", "False"))
        floats = dtype.is_floating_point if self.r.random() < 0.85 else not dtype.is_floating_point
        value = self.r.choice(_FLOATS if floats else _INTEGERS)
        return f'float("{value}")' if value != value or value in (float("inf"), -float("inf")) else repr(value)

    def dim(self, name: str) -> int:
        """A dim of a tensor; rarely none of its own."""
        dims = max(self.env[name].dim(), 1)
        return self.r.randrange(-dims, dims) if self.r.random() < 0.97 else dims

    def add(self, line: Line) -> None:
        """Run a line on the host, and keep it."""
        self.lines.append(line)
        run(line.text, self.env)


def run(text: str, env: dict[str, Any]) -> BaseException | None:
    """Run a line; what it raises."""
    try:
        exec(text, env)
    except Exception as error:
        return error
    return None


# ---------------------------------------------------------------------------------------------------------------------------- operands


def content(seed: int, dtype: torch.dtype, shape: tuple[int, ...], special: bool) -> Tensor:
    """Numbers of a type: small ones, among which are special ones where these are wanted."""
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=g).bool()
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        x = torch.randn(shape, generator=g, dtype=torch.float64).mul(3).to(dtype)
        edges = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, info.max, -info.max, info.tiny, info.tiny / 4, 2.0**31, -1.0, 2.5, 1e4]
    else:
        limits = torch.iinfo(dtype)
        x = torch.randint(max(limits.min, -90), 91, shape, generator=g).to(dtype)
        wide = [2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**40 + 5, -(2**53) - 1, 2**24 + 1]
        edges = [0, 1, limits.min, limits.max, limits.max - 1, *(n for n in wide if limits.min <= n <= limits.max)]
    if special and x.numel():
        chosen = torch.tensor(edges, dtype=dtype)[torch.randint(0, len(edges), shape, generator=g)]
        x = torch.where(torch.rand(shape, generator=g) < 0.3, chosen, x)
    return x


def operand(d: Drawing, shape: tuple[int, ...]) -> None:
    """A tensor to begin with."""
    dtype = d.r.choices(DTYPES, _WEIGHTS)[0]
    seed, special = d.r.randrange(1000), d.r.random() < 0.5
    d.add(Line(f"x{len(d.tensors)} = content({seed}, {dtype}, {shape}, {special})"))


def made(d: Drawing, text: str, judged: str = "exact", roundings: float = 0, *, sums: bool = False, terms: str = "") -> None:
    """A line that makes a new value."""
    d.add(Line(f"v{len(d.lines)} = {text}", judged, roundings, sums, terms))


# -------------------------------------------------------------------------------------------------------------------------- by element

_BINARY = "add sub mul maximum minimum fmax fmin eq ne lt le gt ge logical_and logical_or logical_xor copysign"
_OF_INTEGERS = "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd"
_QUOTIENTS = "floor_divide remainder fmod"
_ROUNDED = {"div": 4, "atan2": 8, "hypot": 8, "xlogy": 16, "pow": 16, "float_power": 16, "ldexp": 4, "heaviside": 0, "nextafter": 0}
_UNARY = (
    "neg abs sign signbit floor ceil round trunc logical_not isnan isinf isfinite isposinf isneginf nan_to_num relu square positive"
    " bitwise_not frac"
)
_FUNCTIONS = (
    "sqrt rsqrt reciprocal exp log sin cos tan tanh sigmoid erf expm1 log1p exp2 log2 log10 atan asinh acos sinh cosh erfinv lgamma digamma"
)

_PARTS = "(lambda x, part: part(1 - x).abs() + ({})(torch.pi * (x - x.round())).abs())({{}}.double().clamp(max=0), torch.{})"
_TERMS = {
    "lgamma": _PARTS.format("lambda angle: torch.log(torch.sin(angle).abs())", "lgamma"),
    "digamma": _PARTS.format("lambda angle: torch.pi / torch.tan(angle)", "digamma")
    + ".nan_to_num(0.0, 0.0, 0.0) + torch.log(torch.tensor(10.0))",
}
"""Functions that are mirrored for negative operands: what is subtracted there. And `digamma` comes down to its value from the logarithm of
about 10, by steps of 1 / x, whatever the value is (PyTorch: aten/src/ATen/native/Math.h, `calc_digamma`).
"""


def binary(d: Drawing) -> None:
    a = d.any()
    b = d.beside(a)
    kind = d.r.random()
    if kind < 0.5:
        name = d.r.choice(_BINARY.split())
        made(d, _called(d, name, a, b), "float" if name in ("add", "sub", "mul") else "exact", 2)
    elif kind < 0.7:
        a = d.any(lambda t: not t.is_floating_point())
        made(d, _called(d, d.r.choice(_OF_INTEGERS.split()), a, d.beside(a)))
    elif kind < 0.85:  # PyTorch's own quotient of the least number and -1 ends the process
        b = d.r.choice(("0", "1", "2", "3", "-7", "2**31", "2**40", "0.5", f"{a}.abs().clamp(min=1)"))
        made(d, f"torch.{d.r.choice(_QUOTIENTS.split())}({a}, {b})", "float", 4)
    else:
        name = d.r.choice(list(_ROUNDED))
        made(d, f"torch.{name}({a}, {b})", "float", _ROUNDED[name])


_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "lt": "<", "eq": "=="}


def _called(d: Drawing, name: str, a: str, b: str) -> str:
    """As a function, as a method, with the operands the other way round, or with a factor."""
    draw = d.r.random()
    if draw < 0.1 and name in ("add", "sub"):
        return f"torch.{name}({a}, {b}, alpha={d.number(d.env[a].dtype)})"
    if draw < 0.25:
        symbol = _SYMBOLS.get(name)
        if symbol:
            return f"{b} {symbol} {a}"
    return f"torch.{name}({a}, {b})"


def unary(d: Drawing) -> None:
    a = d.any()
    if d.r.random() < 0.5:
        made(d, f"torch.{d.r.choice(_UNARY.split())}({a})")
    else:
        name = d.r.choice(_FUNCTIONS.split())
        made(d, f"torch.{name}({a})", "float", 8, terms=_TERMS.get(name, "").format(a))


def converted(d: Drawing) -> None:
    a = d.any()
    dtype = d.r.choice(DTYPES)
    methods = [f"{a}.to({dtype})", f"{a}.type({dtype})", f"torch.empty_like({a}, dtype={dtype}).copy_({a})"]
    made(d, d.r.choice(methods))


def chosen(d: Drawing) -> None:
    """By truth values, or by bounds."""
    a = d.any()
    b, t = d.beside(a), d.env[a]
    mask = d.any(lambda m: m.dtype == torch.bool and m.shape == t.shape)
    low, high = d.number(t.dtype), d.number(t.dtype)
    made(
        d,
        d.r.choice(
            (
                f"torch.where({mask}, {a}, {b})",
                f"torch.where({a} > {low}, {b}, {a})",
                f"{a}.clamp({low}, {high})",
                f"{a}.clamp(min={low})",
                f"{a}.clamp(max={b})",
                f"{a}.masked_fill({mask}, {low})",
                f"{a}.masked_fill({a} == {a}, {low})",
                f"torch.isin({a}, {b})",
                f"torch.isclose({a}, {b}, equal_nan=True)",
                f"torch.nn.functional.threshold({a}, {low}, {high})",
                f"torch.full_like({a}, {low})",
                f"torch.nn.functional.hardtanh({a}, {low}, {high})",
            )
        ),
    )


def several(d: Drawing) -> None:
    """Of three operands."""
    a = d.any()
    b, c = (d.any(lambda t: t.shape == d.env[a].shape) for _ in "bc")
    value = d.number(d.env[a].dtype)
    texts = (f"torch.addcmul({a}, {b}, {c}, value={value})", f"torch.addcdiv({a}, {b}, {c}, value=2)", f"torch.lerp({a}, {b}, 0.25)")
    made(d, d.r.choice(texts), "float", 6, sums=True)


# ------------------------------------------------------------------------------------------------------------------- places of elements


def moved(d: Drawing) -> None:
    a = d.any()
    b, dim = d.any(lambda t: t.shape == d.env[a].shape), d.dim(a)
    made(
        d,
        d.r.choice(
            (
                f"{a}.clone()",
                f"{a}.flip(({dim},))",
                f"{a}.roll(1, {dim})",
                f"torch.cat([{a}, {b}], {dim})",
                f"torch.stack([{a}, {b}], {dim})",
                f"{a}.repeat_interleave(2, {dim})",
                f"{a}.expand(2, *{a}.shape).contiguous()",
                f"torch.nn.functional.pad({a}, (1, 2), value={d.number(d.env[a].dtype)})",
                f"{a}.tril()",
                f"{a}.reshape(-1).diag_embed()[:4]",
                f"{a}.view({d.r.choice(DTYPES)})",
                f"{a}.movedim({dim}, 0)",
                f"{a}.repeat(2, *[1] * {a}.dim())",
                f"torch.tensor({a}.tolist(), dtype={a}.dtype, device={a}.device)",
            )
        ),
    )


def viewed(d: Drawing) -> None:
    """Parts and orders, which writes reach."""
    a = d.any()
    dim = d.dim(a)
    views = (
        f"{a}[1:]",
        f"{a}[::2]",
        f"{a}[..., 1:-1]",
        f"{a}.narrow({dim}, 0, 1)",
        f"{a}.select({dim}, {d.r.choice((0, -1, 70))})",
        f"{a}.unsqueeze({dim})",
        f"{a}.transpose({dim}, 0)",
        f"{a}.reshape(-1)",
        f"{a}.expand(2, *{a}.shape)",
        f"{a}.diagonal()",
        f"{a}.unfold({dim}, 2, 1)",
        f"{a}.view(-1)[::3]",
        f"{a}.detach()",
    )
    made(d, d.r.choice(views))


def indexed(d: Drawing) -> None:
    """Elements by their numbers, some of which there are not."""
    a = d.any()
    t, dim = d.env[a], d.dim(a)
    size = t.shape[dim] if -t.dim() <= dim < t.dim() else 1
    low, high = (0, size) if d.r.random() < 0.8 else d.r.choice(((-size, size), (0, size + 1), (-size - 1, 0), (2**40, 2**40 + 2)))
    numbers = sorted({d.r.randrange(low, high) for _ in range(d.r.choice((1, 3, 0)))}) if high > low else [0] * d.r.choice((0, 1))
    d.r.shuffle(numbers)
    index = f"torch.tensor({numbers}, device={a}.device, dtype={d.r.choice(('torch.int64', 'torch.int64', 'torch.int32'))})"
    along = f"{index}.reshape([-1 if k == {dim} % {a}.dim() else 1 for k in range({a}.dim())])"
    value = d.number(t.dtype)
    texts = (
        f"{a}.gather({dim}, {along})",
        f"{a}.index_select({dim}, {index})",
        f"{a}.take({index})",
        f"torch.take_along_dim({a}, {along}, {dim})",
        f"{a}[{index}]",
        f"{a}[..., {index}]",
        f"{a}.scatter({dim}, {along}, {value})",
        f"{a}.scatter({dim}, {along}, {a})",
        f"{a}.scatter_add({dim}, {along}, {a})",
        f"{a}.index_fill({dim}, {index}, {value})",
        f"{a}.index_add({dim}, {index}, {a}.narrow({dim}, 0, {len(numbers)}))",
        f"{a}.index_copy({dim}, {index}, {a}.narrow({dim}, 0, {len(numbers)}))",
        f"{a}.index_put(({index},), {a}.reshape(-1)[0])",
        f"{a}.put({index}, {a}.reshape(-1)[:{len(numbers)}])",
        f"torch.nn.functional.embedding({index}, {a})",
        f"{a}[{a} > {value}]",
        f"{a}.nonzero()",
        f"torch.nn.functional.one_hot({index}, {max(size, 1)})",
    )
    made(d, d.r.choice(texts), "float", 2)


# --------------------------------------------------------------------------------------------------------------------------- reductions


def reduced(d: Drawing) -> None:
    a = d.any()
    dim = d.dim(a)
    if d.r.random() < 0.4:
        texts = (f"{a}.sum()", f"{a}.sum({dim})", f"{a}.mean({dim})", f"{a}.cumsum({dim})", f"{a}.nansum({dim})", f"torch.trapezoid({a})")
        made(d, d.r.choice(texts), "float", 4, sums=True)
        return
    kept = d.r.choice(("", ", keepdim=True"))
    texts = (
        f"{a}.amax({dim}{kept})",
        f"{a}.max({dim}{kept})[0]",
        f"{a}.min({dim})[1]",
        f"{a}.argmax({dim}{kept})",
        f"{a}.argmin()",
        f"{a}.max()",
        f"{a}.any({dim}{kept})",
        f"{a}.all()",
        f"{a}.cummax({dim})[0]",
        f"{a}.cummin({dim})[1]",
        f"{a}.sort({dim}, stable=True)[0]",
        f"{a}.argsort({dim}, stable=True, descending=True)",
        f"{a}.topk(min(2, {a}.shape[{dim}]), {dim})[0]",
        f"{a}.median({dim})[0]",
        f"{a}.nanmedian()",
        f"{a}.count_nonzero({dim})",
        f"{a}.unique()",
        f"torch.unique_consecutive({a})",
        f"{a}.aminmax(dim={dim})[0]",
        f"torch.searchsorted({a}, {a}, right={d.r.choice((True, False))}, out_int32={d.r.choice((True, False))})",
        f"torch.bucketize({a}, {d.any(lambda t: t.dim() == 1)}, right={d.r.choice((True, False))})",
        f"torch.bucketize({a}, {d.any(lambda t: t.dim() == 1)}.sort()[0])",
        f"{a}.equal({d.any(lambda t: t.shape == d.env[a].shape)})",
        f"{a}.item()",
        f"bool({a})",
        f"torch.bincount({a}.reshape(-1).clamp(-1, 9))",
        f"{a}.histc(4, -2, 2)",
        f"{a}.kthvalue(1, {dim})[0]",
        f"{a}.logical_not().cumprod({dim})",
    )
    made(d, d.r.choice(texts))


# ------------------------------------------------------------------------------------------------------------------------------- writes


def _apart(t: Tensor) -> bool:
    """Whether no two elements share a place; the host refuses to write such a tensor only where it sees it at once."""
    places = torch.arange(1 + sum((n - 1) * step for n, step in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0)
    return 0 in t.stride() or places.as_strided(t.shape, t.stride()).unique().numel() == t.numel()


def written(d: Drawing) -> None:
    """In place, whole and in part."""
    a = d.any(_apart)
    b, value = d.beside(a), d.number(d.env[a].dtype)
    exact = (
        f"{a}.copy_({b})",
        f"{a}.fill_({value})",
        f"{a}.zero_()",
        f"{a}.clamp_(min={value})",
        f"{a}.eq_({b})",
        f"{a}.masked_fill_({a} != {a}, {value})",
        f"{a}[1:] = {value}",
        f"{a}[..., ::2] = {b}",
        f"{a}[{a} > {value}] = {b}",
        f"{a}[torch.tensor([0], device={a}.device)] = {value}",
        f"{a}.neg_()",
        f"{a}.logical_or_({b})",
        f"{a}.bitwise_and_({b})",
        f"{a}.fill_diagonal_({value})",
        f"{a}.t_()",
        f"{a}.unsqueeze_(0)",
        f"{a}.resize_({a}.shape)",
        f"{a}.floor_()",
    )
    floats = (f"{a}.add_({b})", f"{a}.mul_({b})", f"{a} *= {value}", f"{a}.sub_({b}, alpha={value})", f"{a}.pow_(2)", f"{a}.exp_()")
    if d.r.random() < 0.65:
        d.add(Line(d.r.choice(exact)))
    else:
        d.add(Line(d.r.choice(floats), "float", 16))


def given(d: Drawing) -> None:
    """To a tensor that is given, which may have another type or size."""
    a = d.any()
    b, out = d.beside(a), d.any(lambda t: t.shape == d.env[a].shape)
    dim = d.dim(a)
    exact = (
        f"torch.maximum({a}, {b}, out={out})",
        f"torch.eq({a}, {b}, out={out})",
        f"torch.cat([{a}, {a}], {dim}, out={out})",
        f"torch.bitwise_xor({a}, {b}, out={out})",
        f"torch.amax({a}, {dim}, out={out}.clone())",
        f"torch.sign({a}, out={out})",
        f"torch.clamp({a}, {d.number(d.env[a].dtype)}, out={out})",
        f"torch.index_select({a}, {dim}, torch.tensor([0], device={a}.device), out={out})",
        f"torch.arange(5, out={out})",
        f"torch.nonzero({a}, out={out})",
    )
    floats = (
        f"torch.add({a}, {b}, out={out})",
        f"torch.mul({a}, {b}, out={out})",
        f"torch.exp({a}, out={out})",
        f"torch.sqrt({a}, out={out})",
    )
    if d.r.random() < 0.6:
        d.add(Line(d.r.choice(exact)))
    else:
        d.add(Line(d.r.choice(floats), "float", 8))


def multiplied(d: Drawing) -> None:
    a = d.any(lambda t: t.dim() == 2)
    b = d.any(lambda t: t.dim() == 2 and t.shape == d.env[a].shape)
    made(
        d,
        d.r.choice((f"{a} @ {b}.mT", f"torch.matmul({a}.mT, {b})", f"torch.outer({a}, {b})", f"torch.softmax({a}, -1)")),
        "float",
        16,
        sums=True,
    )


_OFTEN = (binary, binary, unary, chosen, viewed, indexed, reduced, written)
STATEMENTS = (*_OFTEN, *_OFTEN, binary, written, converted, several, moved, given, multiplied)
