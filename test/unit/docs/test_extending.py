"""The recipes of docs/extending.md, followed to the letter: its blocks are put where the lines above them say, its commands are run."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from page_blocks import ROOT, blocks, shell

PAGE = (ROOT / "docs" / "extending.md").read_text()
START, *RECIPES = re.split(r"^## ", PAGE, flags=re.M)


@pytest.mark.turn
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.partition("\n")[0].replace(" ", "-").lower())
def test_recipe(recipe: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "ktir", tmp_path / "ktir", copy_function=os.symlink)
    shutil.copytree(ROOT / "test", tmp_path / "test", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(tmp_path / "acme")])}
    for block in [*blocks(START), *blocks(recipe)]:
        assert (block.kind == "console") == (not block.path), "a block says where it goes"
        if block.kind != "console":
            block.put(tmp_path)
            continue
        for command, shown in block.commands():
            status, said = shell(command, tmp_path, environment)
            assert [line for line in shown if line not in said] == [], (command, said)
            failing = any("error:" in line for line in shown) or shown == ["0"]
            assert (status != 0) == failing, (command, said)


def test_each_recipe_adds_no_more_files_than_it_says() -> None:
    """Files of the package, that is: an op is two, a pass one, a target none."""
    files = {recipe.partition("\n")[0]: {b.path for b in blocks(recipe) if b.path.startswith("ktir/")} for recipe in RECIPES}
    assert files["Add an op"] == {"ktir/dialects/spyreop.py", "ktir/emulator/reference/dialects/spyreop.py"}
    assert files["Add a target"] == set()
