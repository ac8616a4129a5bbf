"""Tests stand in the folder that has the name of the room that they test."""

from pathlib import Path

UNIT = Path(__file__).parent
ROOT = UNIT.parents[1]


def test_each_folder_names_a_room() -> None:
    """A room of the package, or what is beside it: docs, examples, the conformance suite."""
    folders = {path.parent.relative_to(UNIT) for path in UNIT.rglob("*.py")}
    assert [str(folder) for folder in folders if not any((ROOT / home / folder / "").is_dir() for home in ("ktir", "."))] == []
