"""Tests stand in the folder that has the name of the room that they test."""

from pathlib import Path

UNIT = Path(__file__).parent
ROOT = UNIT.parents[1]
LIT = ROOT / "test" / "lit"
BESIDE = {"tools/Inputs", "passes/flat/break_views"}
"""What the tests of the tools read; the tests of a pass that has many."""


def test_each_folder_names_a_room() -> None:
    """A room of the package, or what is beside it: docs, examples, the conformance suite."""
    folders = {path.parent.relative_to(UNIT) for path in UNIT.rglob("*.py")}
    assert [str(folder) for folder in folders if not any((ROOT / home / folder / "").is_dir() for home in ("ktir", "."))] == []


def test_each_folder_of_text_tests_names_a_room() -> None:
    folders = {str(path.parent.relative_to(LIT)) for suffix in ("mlir", "test") for path in LIT.rglob(f"*.{suffix}")}
    assert sorted(folder for folder in folders - BESIDE if not (ROOT / "ktir" / folder).is_dir()) == []
