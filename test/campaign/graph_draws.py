"""What the ops of a random program draw from: extents, values of the program, new loads, operands that fit."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from math import prod

import numpy as np
from campaign.graph_text import DTYPES, Text, Value, tensor

SIZES = (1, 1, 2, 3, 4, 5, 7, 16, 17, 33, 63, 64, 65, 66, 96, 128, 130)
LARGEST = 30_000
"""Elements of a tensor, at most."""
LARGE_SIZES, LARGE = (1, 3, 64, 65, 128, 200, 256, 300, 513), 250_000
"""Those of programs whose tensors are worth dividing and keeping."""

FLOATS, INTEGERS, FLAGS = ("f16", "f32"), ("i32", "i64"), ("i1",)
ANY = (*FLOATS, *INTEGERS, *FLAGS)
BELOW = 1000
"""Integers of a program stay below this, so that their sums fit 32 bits."""


@dataclass
class Draws(Text):
    """A program whose parts `random` decides."""

    random: random.Random = field(default_factory=random.Random)
    sizes: tuple[int, ...] = SIZES
    largest: int = LARGEST
    below: dict[int, int] = field(default_factory=dict)
    """Argument of indices -> the number that they stay below."""
    distinct: set[int] = field(default_factory=set)
    """Arguments of indices that are all different."""
    drawn: list[str] = field(default_factory=list)
    """The ops so far, and the kinds and element types of views."""

    def shape(self, rank: int) -> tuple[int, ...]:
        """Extents of a tensor that is not too large."""
        while True:
            found = tuple(self.random.choice(self.sizes) for _ in range(rank))
            if prod(found) <= self.largest:
                return found

    def pick(self, ranks: range = range(1, 5), elements: tuple[str, ...] = FLOATS) -> Value:
        """A value of the program, or a new load."""
        found = [v for v in self.values if len(v.shape) in ranks and v.element in elements]
        if found and self.random.random() < 0.85:
            return self.random.choice(found[-4:])
        return self.load(self.shape(self.random.choice(ranks)), self.element(elements))

    def element(self, elements: tuple[str, ...]) -> str:
        """One of some element types; f32, which inputs seldom have, not as often as the others."""
        return self.random.choices(elements, [1 if e == "f32" else 4 for e in elements])[0]

    def load(self, shape: tuple[int, ...], element: str = "f16") -> Value:
        """A view of a new input: as it is, or transposed, or along one dim a slice, every other element, backwards, or repeated."""
        order = list(range(len(shape)))
        way = self.random.choice(("whole", "whole", "permuted", "sliced", "repeated", "spread", "backwards"))
        if way == "permuted":
            self.random.shuffle(order)
        self.drawn += [way, element]
        host = [shape[d] for d in order]
        factors = [1] * len(shape)
        starts = [0] * len(shape)
        if shape and way not in ("whole", "permuted"):
            d = self.random.randrange(len(shape))
            if way == "sliced":
                starts[d] = self.random.choice((0, 1, 3, 64))
                host[d] += starts[d] + self.random.choice((0, 1, 5))
            elif way == "spread":
                factors[d] = 2
                host[d] = 2 * host[d] - self.random.choice((0, 1))
            elif way == "backwards":
                factors[d], starts[d] = -1, host[d] - 1
            else:
                factors[d], host[d] = 0, 1
        pitches = [prod(host[i + 1 :]) for i in range(len(host))]
        strides = tuple(factors[d] * pitches[order.index(d)] for d in range(len(shape)))
        offset = sum(s * p for s, p in zip(starts, pitches, strict=True))
        buffer = self.buffer("input", tuple(host), element)
        tile = self.tile(buffer, shape, strides, offset)
        return self.define(f"ktdp.load {tile} : <{self.extents(shape)}> -> {tensor(shape, element)}", shape, element)

    def operand(self, shape: tuple[int, ...], elements: tuple[str, ...] = FLOATS) -> tuple[Value, tuple[int | None, ...]]:
        """A value that fits loops of `shape`: some of its loops, in any order, and now and then a dim that no loop walks."""
        loops: list[int | None] = [d for d in range(len(shape)) if self.random.random() < 0.6]
        self.random.shuffle(loops)
        if self.random.random() < 0.2:
            loops.insert(self.random.randint(0, len(loops)), None)
        wanted = tuple(1 if d is None else shape[d] for d in loops)
        found = [v for v in self.values if v.shape == wanted and v.element in elements]
        if found and self.random.random() < 0.6:
            return self.random.choice(found), tuple(loops)
        same = [v for v in self.values if sorted(v.shape) == sorted(shape) and len(set(shape)) == len(shape) and v.element in elements]
        if same and self.random.random() < 0.7:
            value = self.random.choice(same)
            return value, tuple(shape.index(n) for n in value.shape)
        return self.load(wanted, self.element(elements)), tuple(loops)

    def joined(self, pieces: list[Value], d: int) -> Value:
        """Values that differ in one extent at most, side by side along it."""
        first = pieces[0]
        shape = (*first.shape[:d], sum(p.shape[d] for p in pieces), *first.shape[d + 1 :])
        type_ = tensor(shape, first.element)
        whole = self.filled(shape, first.element, None)
        start = [0] * len(shape)
        for piece in pieces:
            text = (
                f"tensor.insert_slice {piece.name} into {whole}{start} {list(piece.shape)} {[1] * len(shape)} : {piece.type} into {type_}"
            )
            start[d] += piece.shape[d]
            if piece is pieces[-1]:
                return self.define(text, shape, first.element, *pieces)
            whole = self.line(text)
        raise AssertionError("no pieces")

    def store(self, value: Value) -> None:
        """The value to a new output, its dims in some order in memory."""
        order = list(range(len(value.shape)))
        if self.random.random() < 0.3:
            self.random.shuffle(order)
        host = tuple(value.shape[d] for d in order)
        pitches = [prod(host[i + 1 :]) for i in range(len(host))]
        buffer = self.buffer("output", host, value.element)
        tile = self.tile(buffer, value.shape, tuple(pitches[order.index(d)] for d in range(len(host))))
        self.lines.append(f"    ktdp.store {value.name}, {tile} : {value.type}, <{self.extents(value.shape)}>")

    def array(self, number: int, buffer: Value) -> np.ndarray:
        """Data of an argument: small numbers, indices in range."""
        rng = np.random.default_rng(self.random.getrandbits(32))
        if number in self.distinct:
            return rng.permutation(self.below[number])[: buffer.shape[0]].astype(DTYPES[buffer.element])
        if buffer.element in INTEGERS:
            low, high = (0, self.below[number]) if number in self.below else (-50, 50)
            return rng.integers(low, high, buffer.shape).astype(DTYPES[buffer.element])
        if buffer.element == "i8":
            return rng.integers(-128, 128, buffer.shape).astype(np.int8)
        if buffer.element in FLAGS:
            return np.asarray(rng.integers(0, 2, buffer.shape), np.bool_)
        return np.asarray(rng.standard_normal(buffer.shape) * 0.5, DTYPES[buffer.element])


def wide(name: str, element: str, result: str) -> list[str]:
    """Lines that bring any scalar to f32."""
    if element == "f32":
        return [f"%z_{result[1:]} = arith.constant 0.0 : f32", f"{result} = arith.addf {name}, %z_{result[1:]} : f32"]
    op = "extf" if element in FLOATS else "sitofp" if element in INTEGERS else "uitofp"
    return [f"{result} = arith.{op} {name} : {element} to f32"]


def narrowed(name: str, element: str, result: str) -> list[str]:
    """Lines that bring an f32 to f16, or leave it."""
    return wide(name, "f32", result) if element == "f32" else [f"{result} = arith.truncf {name} : f32 to {element}"]
