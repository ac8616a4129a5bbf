"""scf and affine, against Python: bounds, conditions and carried values that differ from tile to tile, numbers and tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sweep
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep import Program

Array = np.ndarray
Draw = Callable[..., Any]
V = "tensor<3xi32>"


class Machine:
    """A program that works on an index and a tensor per tile, both known to the test."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.program = Program(draw(sweep.tile_counts))
        random = np.random.default_rng(draw(sweep.seeds))
        self.x = sweep.random_values("i32", (self.program.tiles, 3), random)
        self.tensor = self.program.load(self.x, "i32")

    def emit(self, text: str) -> None:
        self.program.body += text

    def number(self, low: int, high: int) -> tuple[str, list[int]]:
        """An index between the two: a constant, or one that depends on the tile."""
        tiles = self.program.tiles
        values = [self.draw(st.integers(low, high))] * tiles
        if self.draw(st.booleans()):
            values = [self.draw(st.integers(low, high)) for _ in range(tiles)]
        return self.program.chosen("index", np.array(values, object)), values

    def finish(self, numbers: list[int], tensors: list[Array], what: str) -> None:
        """Compares %n and %v."""
        self.emit("%q = tensor.from_elements %n : tensor<1xindex>\n")
        self.program.store("%q", (1,), "index")
        self.program.store("%v", (3,), "i32")
        got, found = self.program.run()
        assert got[:, 0].tolist() == numbers, what
        sweep.check_same("i32", found, np.stack([sweep.wrapped("i32", t) for t in tensors]), 0, [], what)


def check_for(draw: Draw) -> None:
    m = Machine(draw)
    (low, a), (high, b), (step, s) = m.number(-3, 3), m.number(-3, 6), m.number(1, 3)
    m.emit(f"%one = arith.constant 1 : index\n%n, %v = scf.for %i = {low} to {high} step {step} iter_args(%p = %one, %u = {m.tensor}) ")
    m.emit(f"-> (index, {V}) {{\n%t = arith.muli %p, %i : index\n%r = arith.addi %t, %one : index\n%w = arith.addi %u, {m.tensor} : {V}\n")
    m.emit(f"scf.yield %r, %w : index, {V}\n}}\n")
    numbers, tensors = [], []
    for t in range(m.program.tiles):
        p, u = 1, m.x[t]
        for i in range(a[t], b[t], s[t]):
            p, u = p * i + 1, u + m.x[t]
        numbers.append(p)
        tensors.append(u)
    m.finish(numbers, tensors, f"for {a} to {b} step {s}")


def check_while(draw: Draw) -> None:
    m = Machine(draw)
    start, a = m.number(-2, 9)
    step, s = m.number(1, 4)
    m.emit(f"%zero = arith.constant 0 : index\n%n, %v = scf.while (%p = {start}, %u = {m.tensor}) : (index, {V}) -> (index, {V}) {{\n")
    m.emit(f"%c = arith.cmpi sgt, %p, %zero : index\nscf.condition(%c) %p, %u : index, {V}\n}} do {{\n^bb0(%q0: index, %w: {V}):\n")
    m.emit(f"%r = arith.subi %q0, {step} : index\n%z = arith.addi %w, %w : {V}\nscf.yield %r, %z : index, {V}\n}}\n")
    numbers, tensors = [], []
    for t in range(m.program.tiles):
        p, u = a[t], m.x[t]
        while p > 0:
            p, u = p - s[t], u + u
        numbers.append(p)
        tensors.append(u)
    m.finish(numbers, tensors, f"while {a} by {s}")


def check_if(draw: Draw) -> None:
    """A condition within a condition; one branch computes, the other passes on."""
    m = Machine(draw)
    (p, a), (q, b) = m.number(0, 2), m.number(0, 2)
    m.emit(f"%c = arith.cmpi slt, {p}, {q} : index\n%d = arith.cmpi eq, {p}, {q} : index\n")
    m.emit(f"%n, %v = scf.if %c -> (index, {V}) {{\n%e = arith.addi {p}, {q} : index\nscf.yield %e, {m.tensor} : index, {V}\n}} else {{\n")
    m.emit(
        f"%g, %h = scf.if %d -> (index, {V}) {{\n%k = arith.addi {m.tensor}, {m.tensor} : {V}\nscf.yield {p}, %k : index, {V}\n}} else {{\n"
    )
    m.emit(f"%k = arith.muli {m.tensor}, {m.tensor} : {V}\nscf.yield {q}, %k : index, {V}\n}}\nscf.yield %g, %h : index, {V}\n}}\n")
    numbers = [x + y if x < y else x if x == y else y for x, y in zip(a, b, strict=True)]
    tensors = [v if x < y else v + v if x == y else v * v for x, y, v in zip(a, b, m.x, strict=True)]
    m.finish(numbers, tensors, f"if {a} < {b}")


def check_switch(draw: Draw) -> None:
    m = Machine(draw)
    p, a = m.number(0, 3)
    m.emit(f"%n, %v = scf.index_switch {p} -> index, {V}\n")
    for case in (0, 2):
        m.emit(f"case {case} {{\n%k{case} = arith.constant {case + 10} : index\n%u{case} = arith.addi {m.tensor}, {m.tensor} : {V}\n")
        m.emit(f"scf.yield %k{case}, %u{case} : index, {V}\n}}\n")
    m.emit(f"default {{\n%r:2 = scf.execute_region -> (index, {V}) {{\nscf.yield {p}, {m.tensor} : index, {V}\n}}\n")
    m.emit(f"scf.yield %r#0, %r#1 : index, {V}\n}}\n")
    m.finish([x + 10 if x in (0, 2) else x for x in a], [v + v if x in (0, 2) else v for x, v in zip(a, m.x, strict=True)], f"switch {a}")


def check_parallel(draw: Draw) -> None:
    """Two dims, reduced into a number and a tensor; then a forall that builds a tensor slice by slice."""
    m = Machine(draw)
    rows, columns, step = draw(st.integers(0, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    names = [m.program.index(k) for k in (0, rows, columns, step)]
    m.emit(f"%n, %w = scf.parallel (%i, %j) = ({names[0]}, {names[0]}) to ({names[1]}, {names[2]}) step ({names[3]}, {names[3]}) ")
    m.emit(
        f"init ({names[3]}, {m.tensor}) -> (index, {V}) {{\n%k = arith.addi %i, %j : index\nscf.reduce(%k, {m.tensor} : index, {V}) {{\n"
    )
    m.emit("^bb0(%l: index, %r: index):\n%a = arith.addi %l, %r : index\nscf.reduce.return %a : index\n}, {\n")
    m.emit(f"^bb0(%l: {V}, %r: {V}):\n%a = arith.addi %l, %r : {V}\nscf.reduce.return %a : {V}\n}}\n}}\n")
    m.emit(
        f"%v = scf.forall (%i) in (3) shared_outs(%o = {m.tensor}) -> ({V}) {{\n"
        f"%s = tensor.extract_slice %w[%i] [1] [1] : {V} to tensor<1xi32>\n"
    )
    m.emit("%two = arith.constant 2 : index\n%b = arith.subi %two, %i : index\nscf.forall.in_parallel {\n")
    m.emit(f"tensor.parallel_insert_slice %s into %o[%b] [1] [1] : tensor<1xi32> into {V}\n}}\n}}\n")
    points = [(i, j) for i in range(0, rows, step) for j in range(0, columns, step)]
    tiles = m.program.tiles
    m.finish(
        [step + sum(i + j for i, j in points)] * tiles, [(v * (1 + len(points)))[::-1] for v in m.x], f"parallel {rows} {columns} {step}"
    )


def check_affine(draw: Draw) -> None:
    m = Machine(draw)
    (p, a), (q, b) = m.number(-9, 9), m.number(0, 5)
    m.emit(f"%a = affine.apply affine_map<(d0)[s0] -> (d0 floordiv 3 + s0 * 2 + d0 mod 4 - d0 ceildiv 2)>({p})[{q}]\n")
    m.emit(
        f"%b = affine.min affine_map<(d0, d1) -> (d0 + 5, d1, 4)>(%a, {p})\n%n = affine.max affine_map<(d0, d1) -> (d0, -d1)>(%b, {q})\n"
    )
    m.emit(f"%z = arith.constant dense<0> : {V}\n%v = arith.addi {m.tensor}, %z : {V}\n")
    numbers = []
    for x, y in zip(a, b, strict=True):
        first = x // 3 + y * 2 + x % 4 + (-x) // 2
        numbers.append(max(min(first + 5, x, 4), -y))
    m.finish(numbers, list(m.x), f"affine {a} {b}")


CHECKS: dict[str, tuple[Callable[[Draw], None], tuple[str, ...]]] = {
    "for": (check_for, ("scf.for",)),
    "while": (check_while, ("scf.while",)),
    "if": (check_if, ("scf.if",)),
    "switch": (check_switch, ("scf.index_switch", "scf.execute_region")),
    "parallel": (
        check_parallel,
        ("scf.parallel", "scf.reduce", "scf.forall", "scf.forall.in_parallel", "tensor.parallel_insert_slice"),
    ),
    "affine": (check_affine, ("affine.apply", "affine.min", "affine.max")),
}


@pytest.mark.parametrize("name", list(CHECKS))
def test_random(name):
    check, ops = CHECKS[name]

    @sweep.covers(*ops)
    @settings(sweep.FEW, max_examples=20)
    @given(st.data())
    def run(data):
        check(data.draw)

    run()


@pytest.mark.long
@pytest.mark.parametrize("name", list(CHECKS))
@sweep.MANY
@given(st.data())
def test_random_many(name, data):
    CHECKS[name][0](data.draw)


COVERED = {op for _, ops in CHECKS.values() for op in ops}
