"""What functions on the device are drawn of: arguments and lines, as text.

Floats stay small, and are multiples of a quarter where they come from outside, so that comparing them is exact in every type. Names: `R`
and `C` are the sizes of matrices, `D` the device, `F` the type of floats, `F16`, `BF16`, `F32` types to convert to (in the oracle, all
float64).
"""

from __future__ import annotations

import random
from collections.abc import Callable

_FLOAT = "torch.randint(-12, 13, ({shape}), generator=torch.Generator().manual_seed(SEED * 100 + {seed})).to(F).mul(0.25)"
_INTEGER = "torch.randint({low}, {high}, ({shape}), generator=torch.Generator().manual_seed(SEED * 100 + {seed}))"
_VIEWS = (
    ("2 * R, C", "[::2]"),
    ("R, C + 3", "[:, 2:-1]"),
    ("C, R", ".t()"),
    ("R + 1, C", "[1:]"),
    ("R, C, 2", "[..., 1]"),
    ("C", ".expand(R, C)"),
    ("R, 1", ".expand(R, C)"),
    ("R * C + 7", ".as_strided((R, C), (C, 1), 5)"),
)
"""Memory, and how it is shown as a matrix."""


class Drawing:
    """A function that is being drawn: its lines, and the names of what there is, by kind; all but rows and numbers are matrices [R, C]."""

    def __init__(self, r: random.Random) -> None:
        self.r = r
        self.text: list[str] = []
        self.floats: list[str] = []
        self.ints: list[str] = []
        self.truths: list[str] = []
        self.places: list[str] = []
        """Row numbers, [R]."""
        self.hosts: list[str] = []
        """Matrices of the host."""
        self.scalars: list[str] = []
        """Floats of no dimensions, of the host, and numbers of Python."""
        self.leaves: list[str] = []
        """Floats that come from outside, and are written nowhere."""
        self.written: list[str] = []
        """Floats, and integers, that are dense, so that they may be written."""
        self.made: list[str] = []
        self.count = 0

    def let(self, kind: list[str], text: str) -> str:
        """A new name for what a text computes."""
        name = f"v{self.count}"
        self.count += 1
        self.text.append(f"{name} = {text}")
        kind.append(name)
        self.made.append(name)
        return name

    def f(self) -> str:
        """A float matrix, one of the newer ones rather."""
        return self.r.choice(self.floats[-3:] if self.r.random() < 0.6 else self.floats)

    def i(self) -> str:
        """An integer matrix."""
        return self.r.choice(self.ints[-3:] if self.r.random() < 0.6 else self.ints)

    def b(self) -> str:
        """A matrix of truth values."""
        return self.r.choice(self.truths)


def arguments(d: Drawing) -> list[str]:
    """The arguments of a function, as text."""
    r, given = d.r, list[str]()

    def add(kind: list[str], text: str) -> str:
        given.append(text)
        kind.append(name := f"a{len(given) - 1}")
        return name

    seed = iter(range(100))
    for _ in range(r.choice((2, 3))):
        d.written.append(add(d.floats, f"{_FLOAT.format(shape='R, C', seed=next(seed))}.to(D)"))
    for _ in range(r.choice((0, 1, 2))):
        shape, view = r.choice(_VIEWS)
        key, at = f"'{shape}'", next(seed)
        name = add(d.floats, f"base.setdefault({key}, {_FLOAT.format(shape=shape + ',', seed=at)}.to(D)){view}")
        if "expand" not in view:
            d.written.append(name)
    add(d.leaves, f"{_FLOAT.format(shape='R, C', seed=next(seed))}.to(D)")
    for _ in range(r.choice((1, 2))):
        kind = r.choice(("", ".to(torch.int32)", ".to(torch.int16)"))
        d.written.append(add(d.ints, f"{_INTEGER.format(low=-50, high=50, shape='R, C', seed=next(seed))}{kind}.to(D)"))
    add(d.truths, f"({_INTEGER.format(low=0, high=2, shape='R, C', seed=next(seed))} > 0).to(D)")
    add(d.places, f"{_INTEGER.format(low=0, high='R', shape='R,', seed=next(seed))}.to(D)")
    if r.random() < 0.5:
        add(d.hosts, _FLOAT.format(shape="R, C", seed=next(seed)))
    add(d.scalars, r.choice((f"{_FLOAT.format(shape='', seed=next(seed))}", "0.25 * SEED", "SEED", "1.5")))
    return given


def lines(d: Drawing, count: int) -> None:
    """So many lines of all kinds."""
    for _ in range(count):
        d.r.choices(list(LINES), list(LINES.values()))[0](d)


def pointwise(d: Drawing) -> None:
    """Element by element."""
    a, b, c = d.f(), d.f(), d.f()
    choices = (
        f"{a} * 0.5 + {b} * 0.25",
        f"torch.maximum({a}, -{b})",
        f"torch.where({d.b()}, {a}, {b})",
        f"torch.sigmoid({a}) * {b}",
        f"torch.tanh({a} + {b}) - {c} * 0.125",
        f"functional.gelu({a})",
        f"{a}.clamp(-1.0, 2.0) + {b}.abs().clamp(max=1)",
        f"torch.lerp({a}, {b}, 0.25)",
        f"functional.silu({a}) + torch.ones_like({b})",
        f"{a} * {d.b()}",
        f"{a} + {d.i()}.clamp(-3, 3)",
        f"{a}.to({d.r.choice(('F16', 'BF16', 'F32'))}) * 0.75",
        f"torch.full_like({a}, 0.5) * {b}",
    )
    d.let(d.floats, d.r.choice(choices))


def reduction(d: Drawing) -> None:
    """Sums and extremes, and what is made of them."""
    a, b = d.f(), d.f()
    choices = (
        f"{a} - {b}.mean(-1, keepdim=True)",
        f"{a}.amax(0) * 0.5 + {b} * 0.25",
        f"torch.softmax({a}, -1) + {b} * 0.5",
        f"functional.layer_norm({a}, ({a}.shape[-1],), eps=1.0)",
        f"{a} * torch.rsqrt({a}.square().mean(-1, keepdim=True) + 1)",
        f"({a} / 8).cumsum(0).clamp(-4, 4)",
        f"torch.logsumexp({a}, 1, keepdim=True).clamp(-4, 4) + {b} * 0.125",
        f"{a}.sum(0, keepdim=True) / {a}.shape[0] + {b} * 0.5",
        f"{a}.sort(-1).values" if a in d.leaves else f"{a} - {a}.min()",
    )
    d.let(d.floats, d.r.choice(choices))


def product(d: Drawing) -> None:
    """Products of matrices."""
    a, b, c = d.f(), d.f(), d.f()
    d.text.append(f"t = {a}.dtype")
    if d.r.random() < 0.5:
        d.let(d.floats, f"torch.softmax({a} @ {b}.to(t).mT * 0.125, -1) @ {c}.to(t)")
    else:
        d.let(d.floats, f"({a} / 8) @ ({b}.to(t).mT @ {c}.to(t) / 64 / {a}.shape[0])")


def moved(d: Drawing) -> None:
    """Elements in other places."""
    a, b = d.f(), d.f()
    choices = (
        f"torch.cat(({a}, {b}), 1)[:, ::2]",
        f"torch.stack(({a}, {b})).amax(0)",
        f"{a}.flip(0)",
        f"{a}.roll(1, 1)",
        f"{a}.t().contiguous().t()",
        f"{a}.reshape(-1).reshape({a}.shape)",
        f"{a}.repeat(2, 1)[{a}.shape[0]:]",
        f"functional.pad({a}, (1, 2))[:, 1:-2]",
        f"{a}[:, :1].expand_as({a})",
        f"{a}.unsqueeze(1).transpose(0, 1).squeeze(0)",
        f"torch.tril({a})",
        f"{a}.view({a}.shape)",
        f"{a}[None].expand(3, -1, -1)[1]",
        f"torch.atleast_3d({a})[..., 0]",
    )
    d.let(d.floats, d.r.choice(choices))


def integers(d: Drawing) -> None:
    """Of integers."""
    a, b = d.i(), d.i()
    choices = (
        f"{a} + 3",
        f"({a} * {b}) % 17",
        f"{a} // 3",
        f"({a} & 7) | 8",
        f"{a}.abs() - {b}",
        f"torch.where({d.b()}, {a}, -{b})",
        f"{a}.cumsum(-1) % 101",
        f"{a} - {b}.sum(-1, keepdim=True) % 31",
        f"{a}.to(torch.{d.r.choice(('int32', 'int64', 'int16'))})",
        f"{a}.clamp(-5, 9) << 1",
        f"torch.bitwise_xor({a}, {b})",
        f"{a}.sort(-1).values",
        f"{a} + torch.arange({a}.shape[1], device={a}.device)",
        f"{a}.amax(0) - {b}",
        f"{a}.argmax(-1, keepdim=True) + {b}",
        f"torch.remainder({a}, 7) + torch.fmod({b}, 5)",
    )
    d.let(d.ints, d.r.choice(choices))


def truths(d: Drawing) -> None:
    """Of truth values."""
    choices = (
        f"{d.i()} > {d.i()}",
        f"{d.i()} == 3",
        f"{d.b()} & ~{d.b()}",
        f"{d.b()} ^ {d.b()}.any(-1, keepdim=True)",
        f"{d.r.choice(d.leaves)} > 0.5",
        f"{d.r.choice(d.leaves)}.bool()",
        f"{d.i()}.bool()",
        f"torch.isfinite({d.f()}) & {d.b()}",
    )
    d.let(d.truths, d.r.choice(choices))


def indexed(d: Drawing) -> None:
    """By row numbers and masks."""
    a, b, at = d.f(), d.f(), d.r.choice(d.places)
    choices = (
        f"{a}[{at}]",
        f"{a}.index_select(0, {at})",
        f"{a}.gather(1, ({d.i()} % {a}.shape[1]).long())",
        f"({a} / 8).index_add(0, {at}, ({b} / 8).to({a}.dtype))",
        f"torch.zeros_like({a}).scatter_add(1, ({d.i()} % {a}.shape[1]).long(), {a} / 8).clamp(-4, 4)",
        f"{a}.index_fill(0, {at}, 0.5)",
        f"{a}[-1] + {b} * 0.5",
        f"torch.where({d.i()} > 2, {a}, 0.25)",
        f"{a}.masked_fill({d.b()}, -0.5)",
        f"functional.embedding({at}, {a})",
        f"torch.take_along_dim({a}, {at}[:, None] % {a}.shape[1], 1) + {b} * 0.5",
    )
    d.let(d.floats, d.r.choice(choices))


def written(d: Drawing) -> None:
    """To an argument, or to something of the function's own."""
    x = d.r.choice(d.written)
    if x in d.ints:
        choices = [f"{x}.add_(1)", f"{x}[:, 0] = 5", f"{x}[{d.r.choice(d.places)}] = 7", f"{x}.t().mul_(2).remainder_(97)"]
        choices += [f"{x}.masked_fill_({d.b()}, 3)", f"{x}.copy_({d.i()} % 99)", f"{x}.bitwise_and_(63)"]
    else:
        if d.r.random() < 0.3:
            x = d.let(d.floats, f"{d.f()}.clone()")
        a = d.f()
        choices = [f"{x}.mul_(0.5).add_({a} * 0.25)", f"{x}[:, 0] = 1", f"{x}[1:].mul_(0.5)", f"{x}.t().add_(0.25)", f"{x}.clamp_(-2, 2)"]
        choices += [f"{x}.copy_({a})", f"{x}.masked_fill_({d.b()}, 0.25)", f"{x}[{d.b()}] = 0.75", f"{x}.zero_()", f"{x}.tanh_()"]
        choices += [f"{x}[::2] = {a}[::2] * 0.5", f"{x} *= 0.5", f"{x}.view(-1)[0] = 2"]
        choices += [f"{x}[{d.r.choice(d.places)}] = -0.5", f"{x}.index_copy_(0, {d.r.choice(d.places)}.sort().values, {x} * 0 + 0.5)"]
    d.text.append(d.r.choice(choices))


def mixed(d: Drawing) -> None:
    """With what lies on the host."""
    a = d.f()
    scalar = d.r.choice(d.scalars)
    choices = [f"{a} * 0.5 + {scalar}", f"torch.add({a}, {scalar}, alpha=2)", f"{a} * torch.tensor(0.5)"]
    choices.append(f"{a} + torch.tensor([0.25], device={a}.device)")
    if d.hosts:
        h = d.r.choice(d.hosts)
        choices += [f"{a} + {h}.to({a}.device)", f"{a} + {h}[0, 0]", f"{h}.to({a}.device) * 0.5"]
        if d.r.random() < 0.4:
            d.let(d.hosts, d.r.choice((f"{h} * 0.5 + {a}.to('cpu', copy=True) * 0.25", f"{a}.to('cpu', copy=True) - {h}", f"{h} + 1")))
            return
        if d.r.random() < 0.3:
            d.text.append(f"{h}.mul_(0.5)")
            return
    elif d.r.random() < 0.3:
        d.let(d.hosts, f"{a}.to('cpu', copy=True)")
        return
    d.let(d.floats, d.r.choice(choices))


def broken(d: Drawing) -> None:
    """What graphs end at."""
    a, b = d.f(), d.f()
    n = f"n{d.count}"
    choices = (
        ["torch._dynamo.graph_break()"],
        [f"{n} = int({d.i()}.sum() % 3)", f"v{d.count} = {a} * 0.25 * {n}"],
        [f"v{d.count} = {a} * 0.5 if bool({d.b()}.any()) else {b} * 0.25"],
        [f"{n} = {d.r.choice(d.leaves)}[0, 0].item()", f"v{d.count} = {a} * 0.5 + {n}"],
        [f"{n} = {d.r.choice(d.places)}.tolist()[0]", f"v{d.count} = {a}[{n}] + {b} * 0.5"],
        [f"v{d.count} = {a}[{d.b()}].sum() / {a}.numel() + {b} * 0.5"],
    )
    found = d.r.choice(choices)
    d.text += found
    if found[-1].startswith("v"):
        d.floats.append(f"v{d.count}")
        d.made.append(f"v{d.count}")
    d.count += 1


LINES: dict[Callable[[Drawing], None], int] = {
    pointwise: 5,
    reduction: 3,
    product: 2,
    moved: 4,
    integers: 3,
    truths: 1,
    indexed: 3,
    written: 4,
    mixed: 3,
    broken: 1,
}
