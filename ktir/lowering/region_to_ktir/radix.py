"""Mixed radices: index expressions as exact affine forms over digits of loop variables, and digits matched to dims. Pure integers.

A loop variable v of range R owns a chain of cuts 1 = c0 | c1 | ... | R. Two neighbours lo, hi of it give the digit
`(v // lo) % (hi / lo)`; v is the sum of its digits times their lo. Floor divisions and remainders of a sum of digits are digits again
once the chains have the cuts that they need. Each access refines chains of its own, so cuts never spread from one access to another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ktir.lowering.region_to_ktir.indices import Atom, Call, FloorDiv, Index, Mod

Loops = Sequence[tuple[str, int]]
"""(variable, number of trips), outer loop first."""


class Irregular(Exception):
    """The index is no sum of digits, or they do not fit the dims; `reason` is one word of the table in `docs/design/front-end.md`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Cut(Exception):
    """A chain needs one more cut."""

    def __init__(self, variable: str, at: int) -> None:
        super().__init__(variable, at)
        self.variable, self.at = variable, at


class Digit(NamedTuple):
    """`(variable // low) % (high / low)`. The value of an index from data is a digit too, with low = 1 and high = its size."""

    variable: str
    low: int
    high: int

    @property
    def size(self) -> int:
        """Number of values."""
        return self.high // self.low


class Chains:
    """The cuts of some variables."""

    def __init__(self, ranges: Loops) -> None:
        self._cuts = {v: [1, n] if n != 1 else [1] for v, n in ranges}

    def __contains__(self, variable: str) -> bool:
        return variable in self._cuts

    def digits(self, variable: str) -> list[Digit]:
        """High digit first; none for a variable of one trip."""
        return [Digit(variable, a, b) for a, b in pairwise(self._cuts[variable])][::-1]

    def cut(self, variable: str, at: int) -> None:
        """Refine a chain by a cut inside one of its digits."""
        self._cuts[variable] = sorted([*self._cuts[variable], at])


@dataclass(frozen=True)
class Affine:
    """`constant + sum of coefficient * digit`."""

    constant: int = 0
    terms: Mapping[Digit, int] = field(default_factory=dict)

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        """`self + factor * other`."""
        terms = dict(self.terms)
        for digit, coefficient in other.terms.items():
            terms[digit] = terms.get(digit, 0) + factor * coefficient
        return Affine(self.constant + factor * other.constant, {d: c for d, c in terms.items() if c})

    @property
    def least(self) -> int:
        """Exact minimum."""
        return self.constant + sum(min(0, c * (d.size - 1)) for d, c in self.terms.items())

    @property
    def greatest(self) -> int:
        """Exact maximum."""
        return self.constant + sum(max(0, c * (d.size - 1)) for d, c in self.terms.items())


def refined(index: Index, loops: Loops, data: Mapping[str, int] | None = None) -> tuple[Affine, Chains]:
    """The affine form of an index over digits of `loops`, whose chains get the cuts that it needs; `data` are the symbols that stand
    for indices from data, with their sizes. Raises Irregular.
    """
    chains = Chains(loops)
    while True:
        try:
            return _affine(index, chains, data or {}), chains
        except _Cut as needed:
            chains.cut(needed.variable, needed.at)


def _affine(index: Index, chains: Chains, data: Mapping[str, int]) -> Affine:
    total = Affine(index.constant)
    for coefficient, atom in index.terms:
        total = total.plus(_atom(atom, chains, data), coefficient)
    return total


def _atom(atom: Atom, chains: Chains, data: Mapping[str, int]) -> Affine:
    match atom:
        case FloorDiv(operand, divisor):
            return divided(_affine(operand, chains, data), divisor, data)[0]
        case Mod(operand, modulus):
            return divided(_affine(operand, chains, data), modulus, data)[1]
        case Call("max" | "min", operands):
            forms = [_affine(o, chains, data) for o in operands]
            for form in forms:
                differences = [form.plus(other, -1) for other in forms if other is not form]
                if all(d.least >= 0 if atom.function == "max" else d.greatest <= 0 for d in differences):
                    return form
            raise Irregular(atom.function)
        case Call(function, _):
            raise Irregular(function)
        case name:
            if name in data:
                return Affine(0, {Digit(name, 1, data[name]): 1})
            if name not in chains:
                raise Irregular("symbolic")
            return Affine(0, {d: d.low for d in chains.digits(name)})


def divided(form: Affine, divisor: int, data: Mapping[str, int] | None = None) -> tuple[Affine, Affine]:
    """Exact quotient and remainder. Raises Irregular, or asks for a cut of a digit that straddles the divisor."""
    quotient = Affine(form.constant // divisor, {d: c // divisor for d, c in form.terms.items() if c % divisor == 0})
    low = {d: c for d, c in form.terms.items() if c % divisor}
    residue = form.constant % divisor
    for carry in (0, 1, -1):
        rest = Affine(residue - carry * divisor, low)
        if rest.least >= 0 and rest.greatest < divisor:
            return Affine(quotient.constant + carry, quotient.terms), rest
    for digit, coefficient in sorted(low.items(), key=lambda t: -abs(t[1])):
        if digit.variable not in (data or {}) and 0 < coefficient < divisor and divisor % coefficient == 0:
            parts = divisor // coefficient
            if parts < digit.size:
                if digit.size % parts == 0:
                    raise _Cut(digit.variable, digit.low * parts)
                raise Irregular("ragged-digit")
    raise Irregular("div-carry" if residue else "div-overlap")


# ---------------------------------------------------------------------------------------------------------- digits matched to dims


class Dim(NamedTuple):
    """A dim of a buffer."""

    size: int
    stride: int


class Place(NamedTuple):
    """How one dim is walked: from `offset` in steps of `step` by `digit`; at `offset` alone without one."""

    offset: int
    digit: Digit | None
    step: int


@dataclass(frozen=True)
class Match:
    """An access as a box of a buffer whose dims were cut: of dim k the part `boxes[k]` (offset, size) became `cuts[k]` (sizes, outer
    first). `digits` are those of each variable, high first; the access may walk some of them only.
    """

    boxes: tuple[tuple[int, int], ...]
    cuts: tuple[tuple[int, ...], ...]
    places: tuple[Place, ...]
    digits: Mapping[str, tuple[Digit, ...]]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of all dims after cutting."""
        return tuple(n for cut in self.cuts for n in cut)


def matched(index: Index, loops: Loops, dims: Sequence[Dim], data: Mapping[str, int] | None = None) -> Match:
    """The box of `dims` (sizes above 1, strides descending) that `index` walks. Chains and dims are cut as needed. Raises Irregular."""
    data = data or {}
    chains = Chains(loops)
    cut_dims = [_CutDim(0, d.size, [d]) for d in dims]
    while True:
        try:
            form = _affine(index, chains, data)
            places = _placed(form, cut_dims, data)
        except _Cut as needed:
            chains.cut(needed.variable, needed.at)
            continue
        if places is not None:
            digits = {v: tuple(chains.digits(v)) for v, _ in loops}
            boxes = tuple((d.offset, d.size) for d in cut_dims)
            return Match(boxes, tuple(tuple(p.size for p in d.parts) for d in cut_dims), tuple(places), digits)


@dataclass
class _CutDim:
    """The part of a dim from `offset` on that is `size` long, cut into `parts`."""

    offset: int
    size: int
    parts: list[Dim]


def _placed(form: Affine, cut_dims: list[_CutDim], data: Mapping[str, int]) -> list[Place] | None:
    """One attempt: the places, or None after a dim was cut."""
    dims = [p for d in cut_dims for p in d.parts]
    constant = form.constant - sum(d.offset * d.parts[-1].stride for d in cut_dims)
    if any(c < 0 for c in form.terms.values()):
        raise Irregular("reversed")
    walkers: list[list[tuple[int, Digit]]] = [[] for _ in dims]
    for digit, coefficient in sorted(form.terms.items(), key=lambda t: -t[1]):
        k = next((k for k, d in enumerate(dims) if d.stride <= coefficient), None)
        if k is None or coefficient % dims[k].stride:
            raise Irregular("odd-stride")
        dim, from_data = dims[k], digit.variable in data
        if from_data and (coefficient != dim.stride or dim.size != digit.size):
            raise Irregular("index-misfit")
        extent = dim.stride * dim.size
        if not from_data and coefficient * (digit.size - 1) >= extent:
            parts = extent // coefficient
            continues = k > 0 and dims[k - 1].stride == extent and extent % coefficient == 0
            if not continues or parts <= 1 or digit.size % parts:
                raise Irregular("ragged-cross")
            raise _Cut(digit.variable, digit.low * parts)
        walkers[k].append((coefficient // dim.stride, digit))
    offsets = _offsets(constant, dims)
    places = []
    for k, (dim, walking) in enumerate(zip(dims, walkers, strict=True)):
        if len(walking) > 1:
            _cut_dim(cut_dims, k, offsets[k], walking, data)
            return None
        step, digit = walking[0] if walking else (1, None)
        if offsets[k] + (step * (digit.size - 1) if digit else 0) >= dim.size:
            raise Irregular("offset-carry")
        places.append(Place(offsets[k], digit, step))
    return places


def _offsets(constant: int, dims: Iterable[Dim]) -> list[int]:
    if constant < 0:
        raise Irregular("negative-offset")
    offsets = []
    for dim in dims:
        offsets.append(constant // dim.stride)
        constant -= offsets[-1] * dim.stride
    if constant:
        raise Irregular("odd-offset")
    return offsets


def _cut_dim(cut_dims: list[_CutDim], k: int, offset: int, walking: list[tuple[int, Digit]], data: Mapping[str, int]) -> None:
    """Cut the dim at position k, so that the digit with the largest step gets a part of its own; a dim that the step does not divide is
    first reduced to what is walked.
    """
    step, count = walking[0][0], walking[0][1].size
    if any(d.variable in data for _, d in walking):
        raise Irregular("index-misfit")
    if sum(s * (d.size - 1) for s, d in walking[1:]) >= step:
        raise Irregular("overlap")
    for cut in cut_dims:
        if k >= len(cut.parts):
            k -= len(cut.parts)
            continue
        dim = cut.parts[k]
        if dim.size % step:
            if len(cut.parts) > 1 or offset + count * step > dim.size:
                raise Irregular("ragged-dim")
            cut.offset, cut.size = offset, count * step
            dim = Dim(cut.size, dim.stride)
        cut.parts[k : k + 1] = [Dim(dim.size // step, dim.stride * step), Dim(step, dim.stride)]
        return


# ---------------------------------------------------------------------------------------------------------------------- reshapes


@dataclass(frozen=True)
class Group:
    """Dims `before` (positions in the old shape) become dims `after` (positions in the new shape)."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def groups(old: Sequence[int], new: Sequence[int]) -> list[Group]:
    """The finest common grouping of two shapes of the same number of elements. What is left at an end, of one element each, goes with the
    last group.
    """
    result: list[Group] = []
    i = j = 0
    while i < len(old) and j < len(new):
        a, b = [i], [j]
        p, q = old[i], new[j]
        while p != q:
            if p < q:
                a.append(a[-1] + 1)
                p *= old[a[-1]]
            else:
                b.append(b[-1] + 1)
                q *= new[b[-1]]
        result.append(Group(tuple(a), tuple(b)))
        i, j = a[-1] + 1, b[-1] + 1
    if result and (i < len(old) or j < len(new)):
        last = result.pop()
        result.append(Group((*last.before, *range(i, len(old))), (*last.after, *range(j, len(new)))))
    return result
