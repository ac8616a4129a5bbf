"""Tiles in time that a user asks for: honoured, or refused with the reason and the nearest numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from nested_programs import host_arrays

from ktir import hint
from ktir.analysis.attributes.levels import constant_of
from ktir.assembly import parse_module
from ktir.checking import check_levels
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.mlir import ir, operations
from ktir.passes.ktir_to_allocated import ToAllocated
from ktir.pipeline import run_pipeline

LIT = Path(__file__).parents[3] / "lit" / "lowering" / "inductor"
NORM, LINEAR, ATTENTION = ((LIT / f"{name}.mlir").read_text() for name in ("rms_norm", "linear_relu", "attention"))


def tiled(text: str, cores: int = 3, **options: str) -> ir.Module:
    module = parse_module(text)
    run_pipeline(module, ToAllocated(cores=cores, **options).text("ktir-tile"))  # type: ignore[arg-type]  # texts alone
    return module


def trips(module: ir.Module) -> list[int]:
    """Of all loops, outer to inner."""
    loops = [op for op in operations(module) if op.name == "scf.for"]
    bounds = [[constant_of(v) or 0 for v in list(op.operands)[:3]] for op in loops]
    return [-(-(high - low) // step) for low, high, step in bounds]


@pytest.mark.parametrize("tiles", [1, 2, 3, 5, 10])
def test_blocks_of_rows(tiles: int) -> None:
    """19 rows on each of three cores."""
    with context(), ir.Location.unknown():
        with hint(num_tiles_per_dim={"m": tiles}):
            assert trips(tiled(NORM))[0] == tiles
        assert trips(tiled(NORM, num_tiles=f"m={tiles}"))[0] == tiles


def test_values() -> None:
    with hint(num_tiles_per_dim={"m": 5}):
        levels = check_levels(NORM, host_arrays(NORM), cores=3)
    assert all(level.exact for level in levels[-3:])


def test_what_the_units_take_at_once_may_be_said() -> None:
    """100 columns are two tiles; so is a reduced loop of as many elements."""
    with context(), ir.Location.unknown():
        free = trips(tiled(LINEAR))
        with hint(num_tiles_per_dim={"n": free[-2], "k": free[-1]}):
            assert trips(tiled(LINEAR)) == free


@pytest.mark.parametrize(
    ("text", "wish", "message"),
    [
        (NORM, {"m": 6}, r"wants 6 tiles of 'm' in kernel 'forward_kernel0', but a core's 19 rows .* the nearest are 4 and 5"),
        (NORM, {"m": 40}, r"wants 40 tiles of 'm'.* the nearest are 5 and 10"),
        (NORM, {"k": 2}, r"wants 2 tiles of 'k'.* the loops of this kernel are m(\n|$)"),
        (LINEAR, {"k": 7}, r"wants 7 tiles of 'k'.* the matrix array takes 64 elements of the reduced loop at once: \d+ tiles"),
        (LINEAR, {"n": 7}, r"wants 7 tiles of 'n'.* the matrix array makes 64 columns at once: \d+ tiles"),
        (ATTENTION, {"keys": 2}, r"wants 2 tiles of 'keys'.* the loops of this kernel are m, n, k"),
    ],
)
def test_refused(text: str, wish: dict[str, int], message: str) -> None:
    with context(), ir.Location.unknown(), hint(num_tiles_per_dim=wish), pytest.raises(KtirError, match=message) as error:
        tiled(text)
    assert error.value.location


def test_two_wishes_for_one_thing() -> None:
    with context(), ir.Location.unknown(), hint(num_tiles_per_dim={"m": 5}), pytest.raises(KtirError, match="'rows' asks for blocks of 8"):
        run_pipeline(parse_module(NORM), ToAllocated(cores=3, rows=8).text("ktir-tile"))


def test_rows_that_do_not_fit() -> None:
    with context(), ir.Location.unknown(), hint(num_tiles_per_dim={"m": 1}), pytest.raises(KtirError, match=r"at most \d+ rows fit"):
        run_pipeline(parse_module(NORM), ToAllocated(cores=3, lx_bytes=4096).text("ktir-tile"))
