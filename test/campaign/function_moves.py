"""The operators of generated functions that move elements: views, joins, gathers and scatters, updates in place, constants."""

from __future__ import annotations

import math

import torch
from campaign.function_call import Call, Number
from campaign.function_draws import MOST, Draw, NoFit
from campaign.function_model import Apply, Bounded, added, moved, multiplied
from campaign.function_pointwise import Sampler
from campaign.function_sums import whole
from torch import Tensor


def _move(text: str, k: int, *, views: bool = True, errors: str = "") -> Call:
    return Call(text, (k,), moved, views=views, errors=errors, unrounded=True)


def _transpose(d: Draw) -> Call:
    a = d.pick(lambda n: len(n.shape) > 1)
    rank = len(d.nodes[a].shape)
    order = tuple(d.r.sample(range(rank), rank))
    i, j = d.r.sample(range(-rank, 0), 2)
    return _move(d.r.choice((f"{{0}}.permute({order})", f"{{0}}.transpose({i}, {j})", f"torch.movedim({{0}}, {i}, {j})", "{0}.mT")), a)


def _reshape(d: Draw) -> Call:
    """To another factoring of the same number of elements, or with dims merged."""
    a = d.pick(lambda n: len(n.shape) > 0)
    shape = list(d.nodes[a].shape)
    if len(shape) > 1 and d.r.random() < 0.5:
        at = d.r.randrange(len(shape) - 1)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    else:
        at = d.r.randrange(len(shape))
        factors = [f for f in range(1, shape[at] + 1) if shape[at] % f == 0]
        f = d.r.choice(factors)
        shape[at : at + 1] = [f, shape[at] // f]
    return _move(f"{{0}}.reshape({tuple(shape)})", a)


def _unsqueeze(d: Draw) -> Call:
    a = d.pick(lambda n: len(n.shape) < 4)
    return _move(f"{{0}}.unsqueeze({d.r.randint(-len(d.nodes[a].shape) - 1, len(d.nodes[a].shape))})", a)


def _squeeze(d: Draw) -> Call:
    a = d.pick(lambda n: 1 in n.shape)
    return _move("{0}.squeeze()", a) if d.r.random() < 0.5 else _move(f"{{0}}.squeeze({d.nodes[a].shape.index(1)})", a)


def _expand(d: Draw) -> Call:
    """Broadcast as a view, of dims of size 1 and of new ones."""
    a = d.pick(lambda n: len(n.shape) < 4)
    shape = [d.size() if s == 1 and d.r.random() < 0.7 else s for s in d.nodes[a].shape]
    if d.r.random() < 0.5:
        shape = [d.r.choice((2, 3, 5)), *shape]
    if math.prod(shape) > MOST or not shape:
        raise NoFit
    return _move(f"{{0}}.expand({tuple(shape)})", a)


def _slice(d: Draw) -> Call:
    """Of some dims, with steps, from either end."""
    a = d.pick(lambda n: len(n.shape) > 0 and max(n.shape) > 1)
    return _move(f"{{0}}[{_slices(d, d.nodes[a].shape)}]", a)


def _slices(d: Draw, shape: tuple[int, ...]) -> str:
    parts = []
    for n in shape:
        if n == 1 or d.r.random() < 0.4:
            parts.append(":")
            continue
        low = d.r.randrange(n)
        high = d.r.randint(low + 1, n)
        step = d.r.choice(("", "", ":2", ":3"))
        parts.append(d.r.choice((f"{low}:{high}{step}", f"{low - n}:{step}" if low else f":{high}{step}", f"{low}:{high}")))
    return ", ".join(parts)


def _select(d: Draw) -> Call:
    a = d.pick(lambda n: len(n.shape) > 0)
    dim = d.dim(a)
    return _move(f"{{0}}.select({dim}, {d.r.randrange(-d.nodes[a].shape[dim], d.nodes[a].shape[dim])})", a)


def _part(d: Draw) -> Call:
    """One of the parts of chunk, split or unbind."""
    a = d.pick(lambda n: len(n.shape) > 0)
    dim = d.dim(a)
    n = d.nodes[a].shape[dim]
    size = d.r.randint(1, n)
    parts = -(-n // size)
    text = d.r.choice((f"torch.split({{0}}, {size}, {dim})[{d.r.randrange(parts)}]", f"{{0}}.narrow({dim}, {n - size}, {size})"))
    return _move(text, a)


def _diagonal(d: Draw) -> Call:
    a = d.pick(lambda n: len(n.shape) == 2)
    text = d.r.choice(("torch.diagonal({0})", "torch.tril({0})", "torch.triu({0}, 1)", "torch.tril({0}, -1)"))
    return _move(text, a, views="diagonal" in text)


def _unfold(d: Draw) -> Call:
    a = d.pick(lambda n: len(n.shape) > 0)
    dim = d.dim(a)
    n = d.nodes[a].shape[dim]
    size, step = d.r.randint(1, min(n, 7)), d.r.choice((1, 2, 3))
    if math.prod(d.nodes[a].shape) * size > MOST:
        raise NoFit
    return _move(f"{{0}}.unfold({dim}, {size}, {step})", a)


def _turn(d: Draw) -> Call:
    a = d.pick(lambda n: len(n.shape) > 0)
    dim = d.dim(a)
    text = d.r.choice((f"torch.flip({{0}}, ({dim},))", f"torch.roll({{0}}, {d.r.choice((1, -3, 7))}, {dim})"))
    return _move(text, a, views=False)


def _repeat(d: Draw) -> Call:
    a = d.pick(lambda n: 0 < len(n.shape) < 4)
    times = [d.r.choice((1, 1, 2, 3)) for _ in d.nodes[a].shape]
    if math.prod(times) * math.prod(d.nodes[a].shape) > MOST:
        raise NoFit
    return _move(d.r.choice((f"{{0}}.repeat({times})", f"torch.repeat_interleave({{0}}, {times[0]}, 0)")), a, views=False)


def _pad(d: Draw) -> Call:
    a = d.pick(lambda n: len(n.shape) > 0 and n.dtype != torch.bool)
    widths = tuple(d.r.choice((0, 1, 3, 5)) for _ in range(2 * d.r.randint(1, min(2, len(d.nodes[a].shape)))))
    value = d.r.choice(("0", "1", "-2"))
    return _move(f"F.pad({{0}}, {widths}, value={value})", a, views=False, errors=f"F.pad({{0}}, {widths}, value=0)")


def _contiguous(d: Draw) -> Call:
    return _move(d.r.choice(("{0}.contiguous()", "{0}.clone()")), d.pick(), views=True)


def _join(d: Draw) -> Call:
    """cat along any dim, stack; of two or three, some twice."""
    a = d.pick(lambda n: 0 < len(n.shape) < 4)
    here, dim = d.nodes[a], d.dim(a)
    rank = len(here.shape)

    def fits(n: tuple[int, ...]) -> bool:
        return len(n) == rank and all(s == t for i, (s, t) in enumerate(zip(n, here.shape, strict=True)) if i != dim % rank)

    others = [d.pick(lambda n: n.dtype == here.dtype and fits(n.shape)) for _ in range(d.r.choice((1, 1, 2)))]
    if d.r.random() < 0.3:
        others = [d.pick(lambda n: n.dtype == here.dtype and n.shape == here.shape) for _ in others]
        joined = f"torch.stack(({{0}}, {', '.join(f'{{{k + 1}}}' for k in range(len(others)))}), {dim})"
    else:
        joined = f"torch.cat(({{0}}, {', '.join(f'{{{k + 1}}}' for k in range(len(others)))}), {dim})"
    return Call(joined, (a, *others), moved, unrounded=True)


# ------------------------------------------------------------------------------------------------------------------ gathers and scatters


def _gather(d: Draw) -> Call:
    a = d.pick(lambda n: len(n.shape) > 0)
    shape = d.nodes[a].shape
    dim = d.dim(a)
    count = d.size()
    if math.prod(shape) // shape[dim] * count > MOST:
        raise NoFit
    if d.r.random() < 0.4:
        index = d.index(tuple(count if i == dim % len(shape) else s for i, s in enumerate(shape)), shape[dim])
        return Call(f"torch.gather({{0}}, {dim}, {{1}})", (a, index), moved, kept=(1,), unrounded=True)
    index = d.index((count,), shape[dim])
    colons = ":, " * (dim % len(shape))
    text = d.r.choice((f"torch.index_select({{0}}, {dim}, {{1}})", f"{{0}}[{colons}{{1}}]"))
    return Call(text, (a, index), moved, kept=(1,), unrounded=True)


def _embedding(d: Draw) -> Call:
    a = d.pick(lambda n: len(n.shape) == 2 and n.is_float)
    rows, width = d.nodes[a].shape
    shape = d.r.choice([(3,), (2, 5), (17,)])
    if math.prod(shape) * width > MOST:
        raise NoFit
    return Call("F.embedding({0}, {1})", (d.index(shape, rows), a), moved, kept=(0,), unrounded=True)


def _scatter(d: Draw) -> Call:
    """Stores through indices that are all different along the dim."""
    a = d.pick(lambda n: len(n.shape) > 0 and n.shape[0] > 1 and n.dtype != torch.bool)
    here = d.nodes[a]
    count = d.r.randint(1, here.shape[0])
    chosen = torch.randperm(here.shape[0], generator=torch.Generator().manual_seed(d.r.getrandbits(32)))[:count]
    index = d.new(chosen)
    source = d.operand((count, *here.shape[1:]), here.dtype)
    text = d.r.choice(("torch.index_copy({0}, 0, {1}, {2})", "torch.index_put({0}, ({1},), {2})"))
    return Call(text, (a, index, source), moved, kept=(1,), unrounded=True)


def _scatter_add(d: Draw) -> Call:
    """Sums through indices that may be equal."""
    a = d.pick(lambda n: len(n.shape) > 0 and n.dtype != torch.bool)
    here = d.nodes[a]
    count = d.r.choice((1, 3, 7, 20))
    if count * math.prod(here.shape[1:]) > MOST:
        raise NoFit
    source = d.operand((count, *here.shape[1:]), here.dtype)

    def each(apply: Apply, x: Bounded, y: Bounded) -> Tensor:
        """PyTorch rounds after each addend."""
        total = apply(x.magnitude, y.magnitude)
        exact = whole(x.value, y.value) and not x.error.any() and not y.error.any()
        return total * 0 if exact and bool((total < 256).all()) else count * total

    name = "scatter_add" if d.r.random() < 0.5 and len(here.shape) == 1 else "index_add"
    index = d.index((count,), here.shape[0])
    return Call(f"torch.{name}({{0}}, 0, {{1}}, {{2}})", (a, index, source), moved, each, each, kept=(1,))


# -------------------------------------------------------------------------------------------------------------------------------- updates


def _update(d: Draw) -> Call:
    """Of a part of a copy, through a view."""
    a = d.pick(lambda n: len(n.shape) > 0 and n.dtype != torch.bool)
    here = d.nodes[a]
    part = _slices(d, here.shape)
    shape = tuple(_cut(here.shape, part))
    kind = d.r.choice(("copy", "add", "fill", "mul"))
    start = "{out} = {0}.clone()\n"
    if kind == "fill":
        return Call(f"{start}{{out}}[{part}] = 2", (a,), moved, errors=f"{start}{{out}}[{part}] = 0", unrounded=True)
    b = d.operand(d.r.choice([shape, shape[-1:]]), here.dtype)
    if kind == "copy":
        return Call(f"{start}{{out}}[{part}] = {{1}}", (a, b), moved, unrounded=True)
    if kind == "add":
        return Call(f"{start}{{out}}[{part}] += {{1}}", (a, b), moved)

    def rule(apply: Apply, x: Bounded, y: Bounded) -> Tensor:
        error = x.error.clone(memory_format=torch.contiguous_format)
        piece = torch.as_tensor(eval(f"torch.arange(error.numel()).reshape(error.shape)[{part}]", {"torch": torch, "error": error}))
        error.view(-1)[piece] = multiplied(apply, Bounded(x.value.reshape(-1)[piece], x.error.reshape(-1)[piece]), y)
        return error

    return Call(f"{start}{{out}}[{part}].mul_({{1}})", (a, b), rule)


def _cut(shape: tuple[int, ...], part: str) -> tuple[int, ...]:
    return tuple(eval(f"x[{part}]", {"x": torch.empty(shape)}).shape)


def _in_place(d: Draw) -> Call:
    """Of an input itself: the caller sees it."""
    shared = [root for n in d.nodes for root in n.roots]
    a = d.pick(lambda n: n.call is None and n.dtype != torch.bool and not n.gone and len(n.shape) > 0)
    if shared.count(a) > 1:
        raise NoFit
    here = d.nodes[a]
    kind = d.r.choice(("add_", "mul_", "copy_", "number"))
    if kind == "number":
        return Call("{0}.add_({1})", (a, Number(3)), added, oracle="{0} + {1}", mutates=0)
    b = d.operand(d.r.choice([here.shape, here.shape[-1:], ()]), here.dtype)
    if b == a:
        raise NoFit
    if kind == "copy_":
        return Call("{0}.copy_({1})", (a, b), moved, oracle="torch.broadcast_to({1}, {0}.shape)", mutates=0, unrounded=True)
    rule, sign = (added, "+") if kind == "add_" else (multiplied, "*")
    return Call(f"{{0}}.{kind}({{1}})", (a, b), rule, oracle=f"{{0}} {sign} {{1}}", mutates=0)


# ------------------------------------------------------------------------------------------------------------------------------ constants


def _constant(d: Draw) -> Call:
    kind = d.r.choice((d.main, d.main, torch.float32, torch.int64))
    n, m = d.size(), d.size()
    shape = d.r.choice([(n,), (m, n), (n, 1), ()])
    if math.prod(shape) > MOST:
        raise NoFit
    text = d.r.choice(
        (
            f"torch.arange({n}, dtype={kind})" if kind not in (torch.bool, torch.int8, torch.uint8) else f"torch.ones({n}, dtype={kind})",
            f"torch.ones({shape}, dtype={kind})",
            f"torch.zeros({shape}, dtype={kind})",
            f"torch.full({shape}, {3 if kind == torch.bool or not kind.is_floating_point else 0.75}, dtype={kind})",
            f"torch.eye({min(n, 130)}, dtype={kind})",
        )
    )
    if kind == torch.bool and "arange" in text:
        raise NoFit
    return Call(text, (), moved, unrounded=True)


def _like(d: Draw) -> Call:
    a = d.pick(lambda n: n.dtype != torch.bool)
    text = d.r.choice(("torch.zeros_like({0})", "torch.ones_like({0})", "torch.full_like({0}, 2)"))
    return Call(text, (a,), lambda apply, x: torch.zeros_like(x.error), unrounded=True)


MOVES: dict[str, Sampler] = {
    "transpose": _transpose,
    "reshape": _reshape,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "expand": _expand,
    "slice": _slice,
    "select": _select,
    "part": _part,
    "diagonal": _diagonal,
    "unfold": _unfold,
    "turn": _turn,
    "repeat": _repeat,
    "pad": _pad,
    "contiguous": _contiguous,
    "join": _join,
    "gather": _gather,
    "embedding": _embedding,
    "scatter": _scatter,
    "scatter add": _scatter_add,
    "update": _update,
    "in place": _in_place,
    "constant": _constant,
    "like": _like,
}
