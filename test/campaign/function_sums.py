"""The operators of generated functions that take many elements to one: reductions, contractions, norms, attention, orders."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from campaign.function_call import Call, Own, Rule
from campaign.function_draws import MOST, Draw, NoFit
from campaign.function_model import FLOOR, Apply, Bounded, bilinear, compute_unit, moved, unless
from campaign.function_pointwise import ACCURACY, Sampler
from torch import Tensor


def whole(*xs: Tensor) -> bool:
    """Whether all are whole numbers so small that their products and sums are exact in float32."""
    return all(bool((torch.isfinite(x) & (x == torch.round(x)) & (x.abs() < 4096)).all()) for x in xs)


def finite(x: Bounded) -> Tensor:
    """Magnitudes; of what is infinite or NaN already, which is so in any order, none."""
    return torch.where(torch.isfinite(x.value.double()), x.magnitude, 0.0)


def unless_nan(total: Tensor, apply: Apply, *xs: Bounded) -> Tensor:
    """None where the sum is NaN by its infinities and NaNs alone, whatever the numbers beside them add up to."""
    signs = (torch.where(torch.isfinite(x.value.double()), torch.sign(x.value.double()), x.value.double()) for x in xs)
    return torch.where(torch.isnan(apply(*signs)), 0.0, total)


def summing(count: int, kind: torch.dtype) -> Own:
    """A sum of so many numbers in any order: a rounding of the sum of magnitudes for each of them."""

    def own(apply: Apply, x: Bounded) -> Tensor:
        total = unless_beyond(apply(finite(x)), kind, count)
        if kind.is_floating_point:
            total = unless_nan(total, apply, x)
        return total * 0 if whole(x.value) and bool((total < 2**24).all()) and not x.error.any() else count * total

    return own


def unless_beyond(magnitudes: Tensor, kind: torch.dtype, count: int) -> Tensor:
    """Sums of magnitudes, infinite where a sum of some of the numbers may be, in some order: it is no larger, but for a rounding for each
    of them. Operands that are put in another order show that eager PyTorch has infinities there, too.
    """
    computing = torch.float64 if kind == torch.float64 else torch.float32
    most = torch.finfo(computing).max * (1 - count * compute_unit(kind))
    return torch.where(magnitudes < most, magnitudes, torch.inf) if kind.is_floating_point else magnitudes


def _count(d: Draw, k: int, dims: tuple[int, ...]) -> int:
    return math.prod(d.nodes[k].shape[i] for i in dims) or 1


def _sum(d: Draw) -> Call:
    """Over any dims, all of them, or one, kept or not."""
    a = d.pick(lambda n: n.dtype != torch.bool and len(n.shape) > 0)
    dims = d.dims(a)
    text = f"torch.sum({{0}}, {dims}, keepdim={d.r.random() < 0.5})"
    if d.r.random() < 0.15:
        dims, text = tuple(range(len(d.nodes[a].shape))), "{0}.sum()"
    return Call(text, (a,), moved, summing(_count(d, a, dims), d.nodes[a].dtype))


def _mean(d: Draw) -> Call:
    """A sum, which may be infinite though the mean is a number, and a division."""
    a = d.floats(1)
    dims = d.dims(a)
    count = _count(d, a, dims)
    total = summing(count, d.nodes[a].dtype)

    def own(apply: Apply, x: Bounded) -> Tensor:
        return total(lambda y: count * apply(y), x) / count + 2 * apply(x.value).abs()

    return Call(f"torch.mean({{0}}, {dims}, keepdim={d.r.random() < 0.5})", (a,), moved, own)


def _amax(d: Draw) -> Call:
    a = d.pick(lambda n: n.dtype != torch.bool and len(n.shape) > 0)
    text = f"torch.{d.r.choice(('amax', 'amin'))}({{0}}, {d.dims(a)}, keepdim={d.r.random() < 0.5})"
    return Call(text, (a,), moved, errors=text.replace("amin", "amax"), unrounded=True)


def _any(d: Draw) -> Call:
    a = d.pick(lambda n: n.dtype == torch.bool and len(n.shape) > 0)
    text = f"torch.{d.r.choice(('any', 'all'))}({{0}}, {d.dim(a)}, keepdim={d.r.random() < 0.5})"
    return Call(text, (a,), moved, errors=text.replace("all(", "amax(").replace("any(", "amax("))


def _beyond(squares: Tensor, kind: torch.dtype) -> Tensor:
    """Whether a sum of squares, which is float32 for all types but float64, may not be a number of its type."""
    return squares > 0.99 * torch.finfo(torch.float64 if kind == torch.float64 else torch.float32).max


def _variance(d: Draw) -> Call:
    a = d.floats(1)
    dims = d.dims(a)
    count = _count(d, a, dims)
    if count < 2:
        raise NoFit
    root = d.r.random() < 0.4
    text = f"torch.{'std' if root else 'var'}({{0}}, {dims}, keepdim={d.r.random() < 0.5})"
    plain = text.replace("std", "var")

    def error(x: Bounded, each: Tensor) -> Tensor:
        """Of the variance, where each element is off by `each`."""
        apart = (x.value - x.value.mean(dims, keepdim=True)).abs()
        off = each + each.mean(dims, keepdim=True)
        keep = "keepdim=True" in text
        return ((2 * apart * off + off * off).sum(dims, keepdim=keep)) / (count - 1)

    def through_root(apply: Apply, x: Bounded, off: Tensor) -> Tensor:
        if not root:
            return off
        square = apply(x.value) ** 2
        return torch.sqrt(square + off) - torch.sqrt((square - off).clamp(min=0))

    def rule(apply: Apply, x: Bounded) -> Tensor:
        return through_root(apply, x, error(x, x.error))

    def own(apply: Apply, x: Bounded) -> Tensor:
        unit = 2.0**-52 if d.main == torch.float64 else 2.0**-24
        mean = x.magnitude.mean(dims, keepdim=True) * count * unit + unit * x.magnitude
        spread = error(x, mean) + (count + 4) * unit * (x.value.var(dims, keepdim="keepdim=True" in text))
        return through_root(apply, x, spread) / unit + 2 * apply(x.value).abs()

    return Call(text if not root else plain.replace("var", "std"), (a,), rule, own)


def shares(weights: Tensor, off: Tensor, dim: int) -> Tensor:
    """By how much the results `weights` of a softmax change where its operands are off by `off`: each is largest where its own operand is
    as large as it may be and all others as small, and the other way round.
    """
    up, down = (torch.where(weights == 0, 0.0, weights * torch.exp(x)) for x in (off, -off))
    least, most = ((x.sum(dim, keepdim=True) - x).clamp(min=0) for x in (down, up))
    change = torch.maximum(torch.where(torch.isinf(up), 1.0, up / (up + least)) - weights, weights - down / (down + most))
    return torch.where(torch.isinf(off).any(dim, keepdim=True), torch.inf, torch.where(weights == 0, 0.0, change))


def _softmax(d: Draw) -> Call:
    a = d.floats(1)
    dim = d.dim(a)
    log = d.r.random() < 0.3
    n = d.nodes[a].shape[dim]
    text = f"torch.{'log_softmax' if log else 'softmax'}({{0}}, {dim})"

    def rule(apply: Apply, x: Bounded) -> Tensor:
        return x.error + x.error.amax(dim, keepdim=True) if log else shares(apply(x.value), x.error, dim)

    def own(apply: Apply, x: Bounded) -> Tensor:
        apart = x.value.amax(dim, keepdim=True) - x.value
        apart = torch.where(torch.isfinite(apart), apart, 0.0)  # exp(-inf) is 0
        return apart + n + ACCURACY + apply(x.value).abs() if log else apply(x.value) * (apart + n + 2 * ACCURACY)

    def steps(apply: Apply, x: Bounded) -> Tensor:
        return 2 + apply(x.value).abs() if log else 3 * apply(x.value)

    return Call(text, (a,), rule, own, steps)


def _logsumexp(d: Draw) -> Call:
    a = d.floats(1)
    dim = d.dim(a)
    n = d.nodes[a].shape[dim]

    def rule(apply: Apply, x: Bounded) -> Tensor:
        return x.error.amax(dim, keepdim=True).expand(apply(x.value).shape) if "keepdim=True" in text else x.error.amax(dim)

    def own(apply: Apply, x: Bounded) -> Tensor:
        return n + ACCURACY + apply(x.value).abs() + torch.where(torch.isfinite(apply(x.value.abs())), apply(x.value.abs()), 0.0)

    def steps(apply: Apply, x: Bounded) -> Tensor:
        return 3 + own(apply, x) - n - ACCURACY

    text = f"torch.logsumexp({{0}}, {dim}, keepdim={d.r.random() < 0.5})"
    return Call(text, (a,), rule, own, steps)


def _norm(d: Draw) -> Call:
    """The Euclidean norm."""
    a = d.floats(1)
    dims = d.dims(a)
    text = f"torch.linalg.vector_norm({{0}}, dim={dims}, keepdim={d.r.random() < 0.5})"
    count = _count(d, a, dims)
    return Call(text, (a,), moved, lambda apply, x: (count + 4) * apply(x.magnitude))


def _cumsum(d: Draw) -> Call:
    a = d.pick(lambda n: n.dtype != torch.bool and len(n.shape) > 0)
    dim = d.dim(a)
    return Call(f"torch.cumsum({{0}}, {dim})", (a,), moved, summing(d.nodes[a].shape[dim], d.nodes[a].dtype))


# ---------------------------------------------------------------------------------------------------------------------------- contractions


def products(count: int, kind: torch.dtype, roundings: int = 0, *, padded: bool = False) -> Own:
    """Sums of so many products; whole numbers are exact. With `roundings` the result of the sum is a number of the type by itself, and so
    is what is added: each may be infinite, though it has a factor of 1/2 at least. `padded`: kernels of PyTorch differ in whether they
    multiply zeros outside of the operand, of which infinities make NaN.
    """

    def own(apply: Apply, a: Bounded, b: Bounded, *rest: Bounded) -> Tensor:
        total = apply(*(x.magnitude if padded else finite(x) for x in (a, b, *rest)))
        exact = whole(a.value, b.value, *(r.value for r in rest)) and not any(x.error.any() for x in (a, b, *rest))
        total = unless_beyond(total, kind, count)
        if roundings:
            total = torch.where(total < torch.finfo(kind).max / 4, total, torch.inf)
        total = torch.where(torch.isnan(total), torch.inf, total) if padded else unless_nan(total, apply, a, b, *rest)
        return total * 0 if exact and bool((total < 2**24).all()) else (count + roundings) * total

    return own


def _matmul(d: Draw) -> Call:
    """Of any ranks: vectors, matrices, batches that are broadcast, transposed operands."""
    a = d.floats(1)
    *batch, inner = d.nodes[a].shape
    n = d.size()
    shape = d.r.choice([(inner,), (inner, n), (inner, n), (n, inner), (*batch[:-1], inner, n), (inner, 1)])
    b = d.operand(shape, d.nodes[a].dtype)
    turned = shape == (n, inner) and (n != inner or d.r.random() < 0.5)
    if math.prod(d.nodes[a].shape) * n > 40 * MOST:
        raise NoFit
    text = "F.linear({0}, {1})" if turned else d.r.choice(("{0} @ {1}", "torch.matmul({0}, {1})"))
    return Call(text, (a, b), bilinear, products(inner, d.nodes[a].dtype))


def _linear(d: Draw) -> Call:
    a = d.floats(1)
    inner, n, kind = d.nodes[a].shape[-1], d.size(), d.nodes[a].dtype
    return Call("F.linear({0}, {1}, {2})", (a, d.operand((n, inner), kind), d.operand((n,), kind)), bilinear, products(inner, kind, 2))


def _bmm(d: Draw) -> Call:
    a = d.pick(lambda n: n.is_float and len(n.shape) == 3)
    batch, rows, inner = d.nodes[a].shape
    n, kind = d.size(), d.nodes[a].dtype
    b = d.operand((batch, inner, n), kind)
    if d.r.random() < 0.5:
        return Call("torch.bmm({0}, {1})", (a, b), bilinear, products(inner, kind))
    bias = d.operand((batch, rows, n), kind)
    return Call("torch.baddbmm({2}, {0}, {1})", (a, b, bias), bilinear, products(inner, kind, 2))


def _addmm(d: Draw) -> Call:
    a = d.pick(lambda n: n.is_float and len(n.shape) == 2)
    rows, inner = d.nodes[a].shape
    n, kind = d.size(), d.nodes[a].dtype
    b, bias = d.operand((inner, n), kind), d.operand(d.r.choice([(n,), (rows, n)]), kind)
    return Call("torch.addmm({2}, {0}, {1}, beta=2, alpha=0.5)", (a, b, bias), bilinear, products(inner, kind, 4))


def _dot(d: Draw) -> Call:
    a = d.pick(lambda n: n.is_float and len(n.shape) == 1)
    kind = d.nodes[a].dtype
    b, own = d.operand(d.nodes[a].shape, kind), products(d.nodes[a].shape[0], kind)
    return Call("torch.dot({0}, {1})", (a, b), bilinear, own, own)  # eager PyTorch adds in the type itself


def _outer(d: Draw) -> Call:
    a, b = (d.pick(lambda n: n.is_float and len(n.shape) == 1) for _ in range(2))
    if d.nodes[a].dtype != d.nodes[b].dtype or d.nodes[a].shape[0] * d.nodes[b].shape[0] > MOST:
        raise NoFit
    return Call("torch.outer({0}, {1})", (a, b), bilinear)


def _convolution(d: Draw) -> Call:
    """Of one or two dims with padding, strides, dilation and groups."""
    a = d.pick(lambda n: n.is_float and len(n.shape) in (3, 4) and min(n.shape) > 0)
    here = d.nodes[a]
    rank, channels = len(here.shape) - 2, here.shape[1]
    groups = d.r.choice([g for g in (1, 1, 2, channels) if channels % g == 0])
    out = groups * d.r.choice((1, 2, 5)) if channels < 70 else groups
    kernel = tuple(d.r.choice((1, 2, 3, 4)) for _ in range(rank))
    weight = d.operand((out, channels // groups, *kernel), here.dtype)
    padding, stride = d.r.choice((0, 1, 2)), d.r.choice((1, 1, 2))
    text = f"F.conv{rank}d({{0}}, {{1}}, {{2}}, stride={stride}, padding={padding}, groups={groups})"
    inner = channels // groups * math.prod(kernel)
    return Call(text, (a, weight, d.operand((out,), here.dtype)), bilinear, products(inner, here.dtype, 2, padded=padding > 0))


def _layer_norm(d: Draw) -> Call:
    """Layer and RMS norm over the last dim, in float32."""
    a = d.floats(1)
    n, kind = d.nodes[a].shape[-1], d.nodes[a].dtype
    weight = d.operand((n,), kind)
    rms = d.r.random() < 0.4
    unit = 2.0**-52 if kind == torch.float64 else 2.0**-24

    def spread(x: Bounded, w: Bounded, each: Tensor, own: Tensor) -> Tensor:
        """Where each element is off by `each`, the weight by its error, and arithmetic by `own` relative."""
        centre = x.value * 0 if rms else x.value.mean(-1, keepdim=True)
        apart, off = (x.value - centre).abs(), each if rms else each + each.mean(-1, keepdim=True)
        square = (apart**2).mean(-1, keepdim=True) + 1e-5
        change = (2 * apart * off + off * off).mean(-1, keepdim=True) + own * square
        least = torch.rsqrt((square - change).clamp(min=0))
        top = (apart + off) * least - apart * torch.rsqrt(square)
        error = top * (w.value.abs() + w.error) + apart * torch.rsqrt(square) * w.error
        return torch.where(_beyond(square * n, kind), torch.inf, error)

    def rule(apply: Apply, x: Bounded, w: Bounded) -> Tensor:
        return spread(x, w, x.error, torch.zeros(()))

    def own(apply: Apply, x: Bounded, w: Bounded) -> Tensor:
        each = unit * (x.magnitude + (0 if rms else 1) * n * x.magnitude.mean(-1, keepdim=True))
        return spread(x, w, each, torch.tensor((n + 8) * unit)) / unit + 4 * torch.nan_to_num(apply(x.value, w.value).abs(), nan=0.0)

    text = f"F.rms_norm({{0}}, ({n},), {{1}}, 1e-5)" if rms else f"F.layer_norm({{0}}, ({n},), {{1}})"
    return Call(text, (a, weight), rule, own)


def _attention(d: Draw) -> Call:
    """Scaled dot products; scores and probabilities may be rounded to the type, as PyTorch does, or not."""
    a = d.pick(lambda n: n.is_float and len(n.shape) in (3, 4))
    *batch, rows, size = d.nodes[a].shape
    keys = d.r.choice((rows, d.size()))
    k, v = (d.operand((*batch, keys, size), d.nodes[a].dtype) for _ in range(2))
    causal = keys == rows and d.r.random() < 0.5
    kind = d.nodes[a].dtype
    unit = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}.get(kind, 2.0**-24 if kind == torch.float32 else 2.0**-52)
    compute = 2.0**-52 if kind == torch.float64 else 2.0**-24

    def error(apply: Apply, q: Bounded, k: Bounded, v: Bounded) -> Tensor:
        scale = 1 / math.sqrt(size)
        turned, plain = k.value.abs().mT, q.value.abs()
        seen, most = _visible(rows, keys, causal), (plain + q.error) @ (turned + k.error.mT)
        scores = scale * (most - plain @ turned + (4 * unit + size * compute) * (plain @ turned))
        scores = torch.where(seen, torch.where(most < torch.finfo(kind).max * (1 - 4 * unit), scores, torch.inf), 0.0)
        weights = torch.softmax((q.value @ k.value.mT * scale).masked_fill(~seen, -torch.inf), -1)
        off = shares(weights, scores, -1) + weights * (4 * unit + (keys + 2 * ACCURACY) * compute) + FLOOR[kind]
        total = off @ (v.value.abs() + v.error) + weights @ v.error + keys * compute * (weights @ v.value.abs())
        return torch.nan_to_num(total, nan=torch.inf)  # what infinities and NaNs of masked keys do, depends on the kernel

    return Call(
        f"F.scaled_dot_product_attention({{0}}, {{1}}, {{2}}, is_causal={causal})",
        (a, k, v),
        lambda apply, *xs: torch.zeros(()),
        lambda apply, *xs: error(apply, *xs) / compute,
    )


def _visible(rows: int, keys: int, causal: bool) -> Tensor:
    every = torch.ones(rows, keys, dtype=torch.bool)
    return every.tril() if causal else every


# ---------------------------------------------------------------------------------------------------------------------------------- orders


def _places(dim: int, sign: int, wanted: Callable[[Bounded], Tensor], keep: bool) -> Callable[[Tensor, list[Bounded]], Tensor]:
    """Places of extreme values are right where the operand there may be as extreme as `wanted` says."""

    def check(got: Tensor, operands: list[Bounded]) -> Tensor:
        x = operands[0]
        index = got if keep else got.unsqueeze(dim)
        inside = (index >= 0) & (index < x.value.shape[dim])
        at = index.clamp(0, x.value.shape[dim] - 1)
        reached = (x.value.double() * sign + x.error).gather(dim, at)
        bad = ~inside | (reached < wanted(x))
        return bad if keep else bad.squeeze(dim)

    return check


def _argmax(d: Draw) -> Call:
    a = d.pick(lambda n: n.dtype != torch.bool and len(n.shape) > 0)
    dim, sign, keep = d.dim(a), d.r.choice((1, -1)), d.r.random() < 0.5
    name = "max" if sign == 1 else "min"
    text = d.r.choice((f"torch.arg{name}({{0}}, {dim}, keepdim={keep})", f"torch.{name}({{0}}, {dim}, keepdim={keep}).indices"))

    def lowest(x: Bounded) -> Tensor:
        return (x.value.double() * sign - x.error).amax(dim, keepdim=True)

    def rule(apply: Apply, x: Bounded) -> Tensor:
        unsure = x.error.amax(dim, keepdim=keep) > 0
        return unless(unsure)

    if "indices" in text and bool(_ties(d.nodes[a].eager, dim)):
        raise NoFit  # which of equal elements, PyTorch leaves open
    return Call(text, (a,), rule, check=_places(dim, sign, lowest, keep))


def _ties(x: Tensor, dim: int) -> Tensor:
    """Whether a tensor holds equal elements along a dim, or NaNs."""
    ordered = x.sort(dim).values
    n = x.shape[dim]
    return torch.isnan(x).any() | (ordered.narrow(dim, 1, n - 1) == ordered.narrow(dim, 0, n - 1)).any() if n > 1 else torch.isnan(x).any()


def _extreme(d: Draw) -> Call:
    a = d.pick(lambda n: n.dtype != torch.bool and len(n.shape) > 0)
    dim, keep = d.dim(a), d.r.random() < 0.5
    text = f"torch.{d.r.choice(('max', 'min'))}({{0}}, {dim}, keepdim={keep}).values"
    return Call(text, (a,), lambda apply, x: x.error.amax(dim, keepdim=keep), unrounded=True)


def _sort(d: Draw) -> Call:
    a = d.pick(lambda n: n.dtype != torch.bool and len(n.shape) > 0)
    dim, down = d.dim(a), d.r.random() < 0.5
    n = d.nodes[a].shape[dim]
    if n > 260:
        raise NoFit
    k = d.r.choice((n, 1, min(n, 5)))
    sort = f"torch.sort({{0}}, dim={dim}, descending={down}, stable=True)"
    topk = f"torch.topk({{0}}, {k}, dim={dim}, largest={down})"
    indices = d.r.random() < 0.4
    text = sort if d.r.random() < 0.5 else topk
    length = n if text == sort else k
    if indices and text == topk and bool(_ties(d.nodes[a].eager, dim)):
        raise NoFit  # which of equal elements, PyTorch leaves open

    def rule(apply: Apply, x: Bounded) -> Tensor:
        most = x.error.amax(dim, keepdim=True)
        shape = [length if i == dim % x.value.dim() else s for i, s in enumerate(x.value.shape)]
        return unless(most > 0).expand(shape) if indices else most.expand(shape)

    def check(got: Tensor, operands: list[Bounded]) -> Tensor:
        x = operands[0]
        inside = (got >= 0) & (got < n)
        at = got.clamp(0, n - 1)
        values = x.value.double().sort(dim, descending=down).values.narrow(dim, 0, length)
        apart = (x.value.double().gather(dim, at) - values).abs()
        twice = (got.sort(dim).values.diff(dim=dim) == 0).any(dim, keepdim=True)
        return ~inside | (apart > x.error.gather(dim, at) + x.error.amax(dim, keepdim=True)) | twice

    return Call(text + (".indices" if indices else ".values"), (a,), rule, check=check if indices else None, unrounded=not indices)


_RULES: tuple[Rule, ...] = (moved, bilinear)
SUMS: dict[str, Sampler] = {
    "sum": _sum,
    "mean": _mean,
    "amax": _amax,
    "any": _any,
    "variance": _variance,
    "softmax": _softmax,
    "logsumexp": _logsumexp,
    "norm": _norm,
    "cumsum": _cumsum,
    "argmax": _argmax,
    "max": _extreme,
    "sort": _sort,
}
CONTRACTIONS: dict[str, Sampler] = {
    "matmul": _matmul,
    "linear": _linear,
    "bmm": _bmm,
    "addmm": _addmm,
    "dot": _dot,
    "outer": _outer,
    "convolution": _convolution,
    "layer norm": _layer_norm,
    "attention": _attention,
}
