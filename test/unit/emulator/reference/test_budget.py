"""A run that would never end is refused: named, placed, and where it can be told, before it begins."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_texts import function, kernel, load, module, store

from ktir.diagnostics import Unsupported
from ktir.emulator.policy import Policy
from ktir.emulator.reference import execute

CONSTANTS = """
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %few = arith.constant 100 : index
  %million = arith.constant 1000000 : index
  %huge = arith.constant 1152921504606846976 : index
  %low = arith.constant -9223372036854775808 : index
  %high = arith.constant 9223372036854775807 : index
  %yes = arith.constant true
"""

FORESEEN = {
    "one loop": ("scf.for", "scf.for %i = %c0 to %huge step %c1 {\n}"),
    "all integers": ("scf.for", "scf.for %i = %low to %high step %c1 {\n}"),
    "nested": ("scf.for", "scf.for %i = %c0 to %million step %c1 {\nscf.for %j = %c0 to %million step %c1 {\n}\n}"),
    "bounds in the body": (
        "scf.for",
        "scf.for %i = %c0 to %million step %c1 {\n%n = arith.constant 1000000 : index\nscf.for %j = %c0 to %n step %c1 {\n}\n}",
    ),
    "parallel": ("scf.parallel", "scf.parallel (%i, %j) = (%c0, %c0) to (%million, %huge) step (%c1, %c1) {\nscf.reduce\n}"),
    "forall": ("scf.forall", "scf.forall (%i, %j) in (1000000, 1000000) {\n}"),
}

SEEN = {
    "bounds that change": (
        "scf.for",
        "scf.for %i = %c0 to %few step %c1 {\n%n = arith.muli %i, %million : index\nscf.for %j = %c0 to %n step %c1 {\n}\n}",
    ),
    "while": (
        "scf.while",
        "scf.while (%i = %c0) : (index) -> (index) {\nscf.condition(%yes) %i : index\n} do {\n^bb0(%i: index):\nscf.yield %i : index\n}",
    ),
    "while from data": (
        "scf.while",
        """scf.while (%i = %c0) : (index) -> (index) {
  %e = tensor.extract %t[%c0] : tensor<4xf16>
  %zero = arith.constant 0.0 : f16
  %goes = arith.cmpf oge, %e, %zero : f16
  scf.condition(%goes) %i : index
} do {
^bb0(%i: index):
  scf.yield %i : index
}""",
    ),
}


def refused(body: str, policy: Policy | None = None, line: int = 0) -> Unsupported:
    """The error of a run, which names the loop on line `line` of `body`."""
    text = kernel(["%x"], CONSTANTS + load("%t", "%x", (4,)) + body + "\n")
    with pytest.raises(Unsupported) as caught:
        execute(text, args=[np.zeros(4, np.float16)], policy=policy, source="k.mlir")
    assert caught.value.location == f"k.mlir:{text[: text.index(body)].count(chr(10)) + 1 + line}:1"
    return caught.value


@pytest.mark.parametrize("name", FORESEEN)
def test_before_it_begins(name: str) -> None:
    op, body = FORESEEN[name]
    message = refused(body).message
    assert message.startswith(f"'{op}' op takes ")
    assert "but a run may take 33554432; 'most-steps' sets how many" in message


@pytest.mark.parametrize("name", SEEN)
def test_when_steps_are_used_up(name: str) -> None:
    op, body = SEEN[name]
    line = 2 if name == "bounds that change" else 0
    assert refused(body, Policy(most_steps=1000), line).message.startswith(f"'{op}' op ")


def test_calls_that_multiply() -> None:
    """Each function calls the next one ten times; no loop is in it."""
    calls = "".join(function(f"f{i}", [], f"func.call @f{i + 1}() : () -> ()\n" * 10) for i in range(30))
    with pytest.raises(Unsupported, match=r"'func\.call' op goes on after 100000 steps"):
        execute(module(calls, function("f30", [], "")), "f0", policy=Policy(most_steps=100_000))


def test_the_limit_counts_ops_and_trips() -> None:
    """The call and the trips count besides the ops."""
    x, y = np.arange(4, dtype=np.float16), np.zeros(4, np.float16)
    body = "scf.for %i = %c0 to %few step %c1 {\n%j = arith.addi %i, %c1 : index\n}\n"
    text = kernel(["%x", "%y"], CONSTANTS + body + load("%t", "%x", (4,)) + store("%t", "%y", (4,)))
    steps = 1 + execute(text, args=[x, y]).ops + 100
    execute(text, args=[x, y], policy=Policy(most_steps=steps))
    np.testing.assert_array_equal(x, y)
    with pytest.raises(Unsupported, match="takes 200 steps or more in its 100 trips"):
        execute(text, args=[x, y], policy=Policy(most_steps=200))
