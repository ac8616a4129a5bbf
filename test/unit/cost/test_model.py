"""The model's terms against a count core by core, and its explanation."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from ktir.cost.division import candidates
from ktir.cost.estimate import Term, combine
from ktir.cost.model import Model
from ktir.cost.problem import Loop, Operand, Problem, matmul, pointwise
from ktir.cost.tiles import ROW_STICKS, Share, matmul_tiles, tile_cycles
from ktir.isa.resources import Resource
from ktir.target import DATASHEET, FITTED, PRESETS, Target


@settings(deadline=None, max_examples=examples(80))
@given(m=st.integers(1, 90), k=st.integers(1, 500), n=st.integers(1, 500), cores=st.integers(1, 12), pick=st.randoms(use_true_random=False))
def test_bytes_and_blocks_are_those_of_the_cores(m: int, k: int, n: int, cores: int, pick) -> None:
    """Per core its boxes of a, w and c; what several cores read alike counts once."""
    problem = matmul(m, k, n)
    division = pick.choice(list(candidates(problem, cores)))
    cost = Model(problem, DATASHEET).cost(division)
    assert cost is not None
    extents = {loop.name: loop.blocks for loop in problem.loops}
    unit: dict[str, int] = {"m": 1, "n": 64, "k": 64}
    share: dict[str, int] = dict(zip("mnk", division.shares, strict=True))
    boxes = []
    for part in itertools.product(*(range(s) for s in division.splits)):
        at: dict[str, int] = dict(zip("mnk", part, strict=True))
        boxes.append({x: range(at[x] * share[x], min((at[x] + 1) * share[x], extents[x])) for x in "mnk"})
    for name, (rows, columns) in {"a": "mk", "w": "kn", "c": "mn"}.items():
        # elements of k that w has as rows are not padded to sticks
        height = {"a": extents["m"], "w": k, "c": extents["m"]}[name]
        touched = {(r, c) for box in boxes for r in box[rows] for c in box[columns]}
        sticks = sum(min(unit[rows], height - r * unit[rows]) for r, _ in touched)
        terms = [t for t in cost.terms if t.unit == "dram" and t.what == name]
        assert [t.bytes / t.times for t in terms] == [sticks * 128]
        if name != "c":
            sharing = max(sum(1 for o in boxes if o[rows] == box[rows] and o[columns] == box[columns]) for box in boxes)
            ring = next(t for t in cost.terms if t.unit == "ring" and t.what == name)
            assert max(ring.times, 1) == sharing
    slowest = max(len(box["n"]) * len(box["k"]) for box in boxes)
    blocks = next(t.times for t in cost.terms if t.what == "blocks of 64x64 weights")
    tiles = Model(problem, DATASHEET).tiles(division)
    assert tiles is not None
    assert blocks == slowest * tiles.trips


def held(share: Share, rows: int, streamed: bool, kept: bool) -> int:
    """Bytes of scratchpad for blocks of `rows` rows: rows in flight, two sticks of results, weights."""
    sticks = ROW_STICKS if streamed else share.k * (1 if rows >= share.rows else 2)
    return rows * (sticks + 2) * 128 + (share.k * share.n if kept else 8) * 64 * 128


@settings(deadline=None, max_examples=examples(100))
@given(rows=st.integers(1, 3000), n=st.integers(1, 60), k=st.integers(1, 600), cores=st.sampled_from((1, 4, 32)))
def test_tiles_fit_cover_and_are_nearly_the_fastest(rows: int, n: int, k: int, cores: int) -> None:
    first, second, result = (sticks * cores * 128 / 136.5 for sticks in (rows * k, n * k * 64, rows * n))
    share = Share(rows, n, k, first, second, result)
    tiles = matmul_tiles(share, DATASHEET)
    assert tiles is not None
    assert held(share, tiles.rows, tiles.streamed, tiles.kept) <= tiles.lx_bytes <= DATASHEET.lx_planned_bytes
    assert tiles.rows % 2 == 0
    assert (tiles.trips - 1) * tiles.rows < rows <= tiles.trips * tiles.rows <= 512 * tiles.trips
    others = [
        tile_cycles(share, r, -(-rows // r), streamed, kept, DATASHEET)
        for streamed, kept, r in itertools.product((False, True), (False, True), range(2, min(rows + 1, 512) + 1, 2))
        if held(share, r, streamed, kept) <= DATASHEET.lx_planned_bytes
    ]
    assert tile_cycles(share, tiles.rows, tiles.trips, tiles.streamed, tiles.kept, DATASHEET) <= 1.05 * min(others)


def test_too_little_scratchpad() -> None:
    assert matmul_tiles(Share(2, 1, 1, 1, 1, 1), replace(DATASHEET, lx_planned_bytes=4096)) is None


def test_the_slowest_stream_bounds() -> None:
    terms = [
        Term("PT", "", 100),
        Term("SFP", "", 90),
        Term("fill", "", 7),
        Term("dram", "", 50),
        Term("dram", "", 40),
        Term("start", "", 3),
    ]
    for more, cycles, resource, saves in (
        ([], 110, Resource.PT, 20),  # 90 are left of the vector unit and of memory
        ([Term("dram", "", 30)], 123, Resource.MEMORY, 23),
        ([Term("ring", "", 130)], 133, Resource.RING, 33),
        ([Term("partial sums", "", 200)], 310, Resource.RING, 200),
        ([Term("start", "", 300)], 410, Resource.LATENCY, 220),  # of what PT waits, 90 may be memory
    ):
        cost = combine([*terms, *more])
        assert cost.cycles == cost.bound.cycles == cycles
        assert (cost.bound.resource, cost.bound.saves[resource]) == (resource, saves)


def test_splitting_a_reduction_leaves_one_corelet_and_costs_ring() -> None:
    problem = matmul(64, 4096, 64)
    whole, split = (
        Model(problem, DATASHEET).cost(next(d for d in candidates(problem, 2) if d.splits == (1, 1, parts))) for parts in (1, 2)
    )
    assert whole is not None
    assert split is not None
    assert split.of("PT") > 0.5 * whole.of("PT")
    assert (split.of("partial sums"), whole.of("partial sums")) == (64 * 64 * 4 / 32, 0)


def test_resident_operands_move_nothing() -> None:
    names = ("m", "n")
    loops = (Loop("m", 64), Loop("n", 640, 64))
    operands = (Operand("x", names, resident=True), Operand("y", names, output=True))
    cost = Model(Problem("relu", loops, operands, "vector"), DATASHEET).cost(next(candidates(pointwise((64, 640)), 1)))
    assert cost is not None
    assert cost.dram_bytes == 64 * 640 * 2


def test_fitted_rates() -> None:
    """A balanced copy runs at 105 GB/s, one direction at 150 (torch-spyre cost_model.py)."""
    problem = pointwise((4096, 4096))
    cost = Model(problem, FITTED).cost(next(candidates(problem, 32)))
    assert cost is not None
    dram = cost.of("dram")
    assert cost.dram_bytes / FITTED.microseconds(dram) / 1000 == pytest.approx(105, abs=0.2)
    assert FITTED.dram_bytes_per_cycle * FITTED.clock_ghz == pytest.approx(150)


@pytest.mark.parametrize(
    ("loops", "operands", "message"),
    [
        ((Loop("m", 0),), (Operand("y", ("m",), output=True),), "positive extent"),
        ((Loop("m", 1), Loop("m", 2)), (Operand("y", ("m",), output=True),), "names a loop twice"),
        ((Loop("m", 1),), (Operand("y", ("x",), output=True),), "unknown loop 'x'"),
        ((Loop("m", 1),), (Operand("y", ("m",)),), "exactly one output"),
    ],
)
def test_bad_problems(loops: tuple[Loop, ...], operands: tuple[Operand, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Problem("p", loops, operands, "vector")


@pytest.mark.parametrize("target", list(PRESETS.values()), ids=list(PRESETS))
def test_every_figure_has_a_source(target: Target) -> None:
    figures = target.figures()
    assert len(figures) == len(vars(target)) - 4, "all but the name, the sources, the cores that a program leaves out, and dl16"
    assert all(f.source and f.status in ("stated", "inferred", "fitted", "default", "unofficial", "assumed", "derived") for f in figures)


def test_presets_differ_where_they_say_so() -> None:
    changed = {a.name for a, b in zip(DATASHEET.figures(), FITTED.figures(), strict=True) if a.value != b.value}
    assert changed == {a.name for a, b in zip(DATASHEET.figures(), FITTED.figures(), strict=True) if a.source != b.source}


@pytest.mark.parametrize("cores", [0, 33])
def test_cores(cores: int) -> None:
    with pytest.raises(ValueError, match="1 to 32 cores"):
        DATASHEET.with_cores(cores)
