"""Mistakes in kernels as people make them: each is refused by a message at a line of the text, and never by an error of Python.

`wrong_kernels.txt` has them: a kernel's name, then for each mistake the text, what stands there instead (`\\n` is a line break), and the
line and the beginning of what is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError, verify
from ktir.emulator.reference import execute
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.passes.general.ktir_check_legality import refuse_illegal_exchanges
from ktir.tools import ktir_run
from ktir.tools.shared.input import checked

HERE = Path(__file__).parent
SOFTMAX = HERE.parents[2] / "examples" / "softmax.mlir"
_PARTS = re.split(r"(?m)^// ----- (\w+)\n", (HERE / "wrong_kernels.mlir").read_text())
KERNELS = {"softmax": SOFTMAX.read_text(), **dict(zip(_PARTS[1::2], _PARTS[2::2], strict=True))}
FILE = "kernel.mlir"


@dataclass(frozen=True)
class Mistake:
    """One change of a kernel, and what must be said of it."""

    kernel: str
    old: str
    new: str
    line: int
    message: str


def mistakes() -> Iterator[Mistake]:
    """All of the table."""
    kernel = ""
    entry: list[str] = []
    for line in (HERE / "wrong_kernels.txt").read_text().splitlines():
        if line.startswith("== "):
            kernel = line[3:]
            continue
        entry.append(line[3:].replace("\\n", "\n"))
        if line.startswith("@ "):
            place, _, message = line[2:].partition(": ")
            yield Mistake(kernel, entry[0], entry[1], int(place), message)
            entry = []


def arguments(kernel: str) -> list[np.ndarray | int]:
    """What a kernel is executed on."""
    match kernel:
        case "softmax":
            return [np.ones(5700, np.float16), np.zeros(5700, np.float16)]
        case "gather":
            return [np.ones((8, 4), np.float16), np.array([1, 2, 3, 0], np.int32), np.zeros((8, 4), np.float16)]
        case "exchange":
            return [np.ones((4, 2), np.float32), np.zeros((4, 2), np.float32)]
    return [np.ones(4, np.float16), np.zeros(4, np.float16), 4]


def run(kernel: str, text: str) -> None:
    """What `ktir-run` does with a text."""
    with context():
        module = parse_module(text, FILE)
        verify(module)
        checked(module)
        refuse_illegal_exchanges(module)
        execute(text, "main" if kernel == "program" else None, arguments(kernel), source=FILE)


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_a_mistake_they_run(kernel: str) -> None:
    run(kernel, KERNELS[kernel])


def test_there_are_many() -> None:
    found = list(mistakes())
    assert len({(m.kernel, m.old, m.new) for m in found}) == len(found) >= 200


@pytest.mark.parametrize("kernel", KERNELS)
def test_each_mistake_is_said_at_its_line(kernel: str) -> None:
    wrong = []
    for mistake in mistakes():
        if mistake.kernel != kernel:
            continue
        assert mistake.old in KERNELS[kernel], mistake
        try:
            run(kernel, KERNELS[kernel].replace(mistake.old, mistake.new, 1))
        except KtirError as error:
            place = re.match(rf"{FILE}:(\d+):\d+$", error.location or "")
            if place is None or int(place[1]) != mistake.line or not error.message.startswith(mistake.message):
                wrong.append(f"{mistake.new!r}: {error.location}: {error.message}")
            continue
        wrong.append(f"{mistake.new!r}: accepted")
    assert not wrong, "\n".join(wrong)


def in_no_order() -> str:
    """The softmax with its sum as a generic, whose reduced loop is said to be parallel."""
    maps = "indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r)>]"
    body = "{ ^bb0(%in: f32, %out: f32): %both = arith.addf %out, %in : f32 linalg.yield %both : f32 } -> tensor<5xf32>"
    named = "linalg.reduce { arith.addf } ins(%e : tensor<5x100xf32>) outs(%nothing : tensor<5xf32>) dimensions = [1]"
    generic = f'linalg.generic {{{maps}, iterator_types = ["parallel", "parallel"]}} ins(%e : tensor<5x100xf32>)'
    return SOFTMAX.read_text().replace(named, f"{generic} outs(%nothing : tensor<5xf32>) {body}")


@pytest.mark.parametrize("way", ["pin", "lift", "executor"])
def test_what_is_written_in_no_order_is_refused(way: Any) -> None:
    """What no order says is no value: also where no tool has looked at the module before."""
    said = r"^kernel\.mlir:54:12: error: 'linalg.generic' op has the parallel loop d1, all trips of which write the same element"

    def made() -> None:
        if way == "executor":
            execute(in_no_order(), None, arguments("softmax"), source=FILE)
        else:
            compile_logical(parse_module(in_no_order(), FILE), way=way)

    with context(), ir.Location.unknown(), pytest.raises(KtirError, match=said):
        made()
    with context(), pytest.raises(KtirError, match=said):
        checked(parse_module(in_no_order(), FILE))


def test_a_static_dim_of_a_masked_view_does_not_clip_on_the_chip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "moved.mlir").write_text(SOFTMAX.read_text().replace("%from[%i, 0]", "%from[%i, %t]"))
    assert ktir_run.main([str(file), "--random=1", "--quiet", "--engine=spyre"]) == 2
    said = "moved.mlir:45:15: error: 'ktdp.load' op reads coordinates 1 to 100 in dim 1 of a view of size 100"
    assert said in capsys.readouterr().err
