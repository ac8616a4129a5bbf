"""Every picture of programs of many kinds: words apart, figures as the machine has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import check, words_of
from torch import nn

import ktir
from ktir.analysis.attributes.kernel import KernelFunction
from ktir.analysis.calls import functions_of
from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.emulator.machine import Machine
from ktir.emulator.machine.memory.transfer import transfer
from ktir.emulator.machine.reports.occupancy import lives, needed
from ktir.emulator.machine.reports.report import KernelReport
from ktir.emulator.machine.reports.roofline import Roofline
from ktir.explore.pictures import layouts, roofline
from ktir.explore.pictures.division import parts
from ktir.explore.pictures.layouts import host_elements
from ktir.explore.pictures.sheet import MOST_LISTED, Sheet, kernel_entries, kernels_above, save
from ktir.hints import hint
from ktir.isa.instructions import Does
from ktir.isa.resources import Resource, bound_of
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.runtime.memory.slot import layout_of
from ktir.spyre_tensor_layout import DataFormats, SpyreTensorLayout
from ktir.target import DATASHEET
from ktir.tools.pages.pictures import Drawing

PICTURES = ("roofline", "lx", "timeline", "division", "loop")


def half(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float16)


def layer() -> tuple[Any, ...]:
    return nn.TransformerEncoderLayer(384, 12, 1536, batch_first=True, activation="gelu").half().eval(), half(8, 24, 384)


def many() -> tuple[Any, ...]:
    """More kernels than a list names."""

    def chain(x: torch.Tensor) -> torch.Tensor:
        for n in range(MOST_LISTED // 2 + 2):
            x = (x.sum(n % 2, keepdim=True) + x).roll(1, 0)
        return x

    return chain, half(65, 70)


MODELS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "layer": layer,
    "linear": lambda: (nn.Linear(300, 1000).half(), half(130, 300)),
    "softmax": lambda: (lambda x: torch.softmax(x, -1), half(57, 100)),
    "convolution": lambda: (nn.Conv2d(16, 32, 3, padding=1).half(), half(1, 16, 14, 14)),
    "transposed": lambda: (lambda x: x.t().contiguous() + 1, half(100, 300)),
    "many": many,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            with torch.no_grad():
                text = ktir.capture(*MODELS[name]())
            with context(), ir.Location.unknown():
                for file, data in compile_logical(parse_module(text)).items():
                    (made[name] / file).write_bytes(data)
        return made[name]

    return of


Folder = Callable[[str], Path]


def drawing(folder: Path, kernel: str | None = None) -> Drawing:
    package = read(folder)
    return Drawing(package, Machine(package.program, package.target), folder, kernel, 0)


@pytest.mark.turn
@pytest.mark.parametrize("name", [n if n in ("linear", "softmax") else pytest.param(n, marks=pytest.mark.long) for n in MODELS])
def test_words_lie_apart(name: str, folder: Folder, tmp_path: Path) -> None:
    made = drawing(folder(name))
    figures = {kind: figure for kind in PICTURES if (figure := _drawn(made, kind)) is not None}
    figures |= {f"layout {a.name}": made.layout(a.name) for a in made.package.launch_spec.args[:6]}
    assert len(figures) >= len(PICTURES)
    for kind, figure in figures.items():
        check(figure)
        for suffix, start in ((".svg", b"<?xml"), (".png", b"\x89PNG")):
            place = tmp_path / f"{kind}{suffix}"
            save(figure, place)
            assert place.read_bytes().startswith(start)


def _drawn(made: Drawing, kind: str, refusals: str = "has no loop of several trips") -> Any:
    """The picture; None where the machine says so of a kernel."""
    try:
        return getattr(made, kind)()
    except KtirError as error:
        if not re.search(refusals, str(error)):
            raise
        return None


@pytest.mark.long
def test_every_kernel_of_a_layer(folder: Folder) -> None:
    made = drawing(folder("layer"))
    for kernel in {k.name for k in made.machine.report.kernels}:
        one = drawing(folder("layer"), kernel)
        for kind in ("division", "loop"):
            if (figure := _drawn(one, kind, "has no loop|is not divided by the compiler")) is not None:
                check(figure)


def test_words_on_words_are_found() -> None:
    sheet = Sheet("a title", 2, kernel_entries(["one"], [1], 0))
    check(sheet.figure)
    sheet.figure.text(0.02, 0.92, "on the title", fontsize=8)
    with pytest.raises(AssertionError, match="on the title"):
        check(sheet.figure)


@pytest.mark.long
def test_the_roofline_has_every_kernel(folder: Folder) -> None:
    made = drawing(folder("layer"))
    reports = made.machine.report.kernels
    exchanges = [k for k in reports if not k.dram_read + k.dram_written]
    assert exchanges, "kernels that use the ring alone"
    words = "\n".join(t.get_text() for t in words_of(made.roofline()))
    assert len(reports) == words.count("kernel") - words.count("kernels") + sum(map(int, re.findall(r"and (\d+) more", words)))
    assert "ring busy" in words
    bound = made.machine.bottlenecks.kernels[0].resource
    assert f"bound by the {bound.title}" in words


def test_many_kernels_have_names_and_numbers() -> None:
    """Of a hundred those that take longest; on the roofline one name for those that lie on each other."""
    cycles = [4000 if n % 5 == 2 else 300 + n for n in range(101)]
    entries = kernel_entries([f"kernel{n}" for n in range(101)], cycles, 4)
    assert len(entries) == MOST_LISTED - 4
    listed = [int(words.split()[0]) for words, _ in entries[:-1]]
    assert listed == sorted(listed)
    assert {n + 1 for n in range(101) if n % 5 == 2} <= {*listed}
    assert entries[-1][0] == f"and {101 - len(listed)} shorter ones  {sum(cycles) - sum(cycles[n - 1] for n in listed):,}"
    sheet = Sheet("a title", 2, entries)
    kernels_above(sheet.axes(0.2), [0, *accumulate(cycles)])
    check(sheet.figure)
    numbers = [int(text) for t in words_of(sheet.figure) if (text := t.get_text()).isdigit()]
    assert len({n for n in numbers if n % 5 == 3}) == 20

    report = KernelReport("", 32, 0, 0.0, (), 0, 0, 0.0, {}, (), 0)
    bound = bound_of({Resource.MEMORY: 1}, {})
    places = [Roofline(f"kernel{n}", 100_000 * (1 + n % 3), 10_000, 1.0, 6144.0, 204.8) for n in range(101)]
    figure = roofline.draw(
        places, [replace(report, name=p.name, cycles=n) for p, n in zip(places, cycles, strict=True)], [bound] * 101, DATASHEET
    )
    check(figure)
    assert {"kernel0 and 33 more 5%", "kernel1 and 33 more 5%", "kernel2 and 32 more 5%"} <= {t.get_text() for t in words_of(figure)}


def test_the_division_is_what_the_machine_does(folder: Folder) -> None:
    """Rows that each core stores of a linear layer, by their addresses."""
    package = read(folder("linear"))
    machine = Machine(package.program, package.target)
    figure = drawing(folder("linear")).division()
    (output,) = [n for n, a in enumerate(package.launch_spec.args) if a.role == "output"]
    columns = host_elements(layout_of(package.launch_spec.args[output]))
    wide = package.launch_spec.args[output].layout.size[-1]
    text = (folder("linear") / "allocated.ktir.mlir").read_text()
    with context(), ir.Location.unknown():
        module = parse_module(text)
        (kernel,) = (KernelFunction(f.operation) for f in functions_of(module).values() if "ktir.work" in f.attributes)
        found = parts(kernel.work, kernel.rows, kernel.cores)
    assert len(found) > 1
    assert len({(p.columns, p.rows) for p in found}) > 1
    stored: dict[int, set[int]] = {p.core: set() for p in found}
    for e in machine.trace.events:
        if e.instruction.does is Does.MOVE and not e.instruction.loads:
            moved = transfer(e.instruction, e.counters)
            assert moved.argument == output
            at, live = np.broadcast_arrays(moved.at, moved.live)
            for core in range(len(at)):
                stored[core] |= {int(a) // 64 for a, n in zip(at[core].flat, live[core].flat, strict=True) if n}
    for part in found:
        expected = set()
        ((first, end),) = part.rows
        for stick in stored[part.core]:
            elements = columns[stick][columns[stick] >= 0]
            expected |= {(int(x) // wide, int(x) % wide // 64) for x in elements}
        last = -(-wide // 64)
        assert expected == {(r, c) for r, c in product(range(first, end), range(*part.columns)) if c < last}
    assert {t.get_text().split()[-1] for t in words_of(figure)} >= {str(p.core) for p in found}


def test_cores_that_share_a_sum_have_one_part(folder: Folder, tmp_path: Path) -> None:
    with hint(work_div={"k": 4, "m": 1, "n": 2}), torch.no_grad(), context(), ir.Location.unknown():
        text = ktir.capture(torch.matmul, half(4, 1024), half(1024, 128))
        for file, data in compile_logical(parse_module(text)).items():
            (tmp_path / file).write_bytes(data)
    figure = drawing(tmp_path).division()
    check(figure)
    assert {"cores 0\u20133", "cores 4\u20137"} <= {t.get_text() for t in words_of(figure)}


@pytest.mark.parametrize("shape", [(100, 300), (7,), (2, 3, 65), (5, 1), ()])
@pytest.mark.parametrize("order", ["default", "rows"])
def test_sticks_are_those_of_the_published_layout(shape: tuple[int, ...], order: str, folder: Folder) -> None:
    """Every element in one stick, in the order in which the host's copy of the layout puts them."""
    spec = read(folder("softmax")).launch_spec.args[0]
    dims = [*range(len(shape))]
    made = SpyreTensorLayout(shape, "float16") if order == "default" or len(shape) < 2 else None
    if made is None:
        strides = [int(np.prod(shape[i + 1 :])) for i in dims]
        made = SpyreTensorLayout(shape, strides, "float16", [*dims[1:], 0])
    sizes = replace(spec.layout, size=shape, device_size=tuple(made.device_size), stride_map=tuple(made.stride_map))
    argument = replace(spec, layout=replace(sizes, device_dtype=DataFormats.IEEE_FP16.name))
    found = host_elements(layout_of(argument))
    elements = found[found >= 0]
    assert sorted(elements.tolist()) == [*range(int(np.prod(shape)))]
    check(layouts.draw(argument, layout_of(argument)))


def test_what_is_needed_of_lx(folder: Folder) -> None:
    machine = Machine(read(folder("linear")).program, read(folder("linear")).target)
    found = lives(machine.program, machine.trace)
    times, sticks = needed(found)
    for cycle in np.linspace(0, machine.report.cycles, 50).astype(int):
        at = int(np.searchsorted(times, cycle, side="right")) - 1
        assert (sticks[at] if at >= 0 else 0) == sum(v.sticks for v in found if v.begin <= cycle < v.end)


def test_refusals(folder: Folder, tmp_path: Path) -> None:
    made = drawing(folder("softmax"))
    with pytest.raises(KtirError, match="no argument 'x'; it has arg0_1"):
        made.layout("x")
    with pytest.raises(KtirError, match="no kernel 'forward_kernel9'; did you mean"):
        drawing(folder("softmax"), "forward_kernel9").loop()
    with pytest.raises(KtirError, match=r"written as \.svg, \.png, \.pdf"):
        save(made.roofline(), tmp_path / "x.gif")


def test_a_program_without_kernels_has_a_roofline() -> None:
    check(roofline.draw([], [], [], DATASHEET))
