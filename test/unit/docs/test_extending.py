"""The recipes of docs/extending.md, followed to the letter: its blocks are put where the lines above them say, its commands are run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "extending.md").read_text()
_BLOCK = re.compile(r"(?:^(?P<place>(?:In|At the end of) `(?P<path>[^`]+)`):\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S)


class Block(NamedTuple):
    """A fenced block: its language, its text, and where it goes."""

    kind: str
    text: str
    path: str
    at_the_end: bool

    def put(self, folder: Path) -> None:
        """Write the block to its place below `folder`; nothing that a link leads to is touched."""
        path = folder / self.path
        old = path.read_text() if path.exists() else ""
        if self.kind == "diff":
            new = changed(old, self.text)
        else:
            assert self.at_the_end == bool(old), f"{self.path} is {'there' if old else 'not there'}"
            new = old + f"\n\n{self.text}" if self.at_the_end else self.text
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(new)
        if path.name == "pyproject.toml":
            install(path)

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Each command, and what the page shows of its output."""
        for part in re.split(r"^\$ ", self.text, flags=re.M)[1:]:
            command, *shown = part.splitlines()
            yield command, shown


def changed(text: str, diff: str) -> str:
    """`text` with a diff applied, whose hunks have no numbers: what one replaces occurs once."""
    for hunk in re.split(r"^@@.*\n", diff, flags=re.M):
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] != "+")
        assert text.count(before) == 1, f"occurs {text.count(before)} times:\n{before}"
        text = text.replace(before, "".join(line[1:] for line in lines if line[0] != "-"))
    return text


def install(project: Path) -> None:
    """What installing a project does to its entry points."""
    described = tomllib.loads(project.read_text())["project"]
    metadata = project.parent / f"{described['name'].replace('-', '_')}-{described['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {described['name']}\nVersion: {described['version']}\n")
    groups = [[f"[{group}]", *(f"{k} = {v}" for k, v in entries.items())] for group, entries in described["entry-points"].items()]
    (metadata / "entry_points.txt").write_text("\n".join(line for group in groups for line in group))


def blocks(text: str) -> list[Block]:
    """The blocks of a part of the page."""
    found = [Block(m["kind"], m["text"], m["path"] or "", (m["place"] or "").startswith("At")) for m in _BLOCK.finditer(text)]
    assert all((b.kind == "console") == (not b.path) for b in found), "a block says where it goes"
    return found


START, *RECIPES = re.split(r"^## ", PAGE, flags=re.M)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.partition("\n")[0].replace(" ", "-").lower())
def test_recipe(recipe: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "ktir", tmp_path / "ktir", copy_function=os.symlink)
    shutil.copytree(ROOT / "test", tmp_path / "test", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(tmp_path / "acme")])}
    for block in [*blocks(START), *blocks(recipe)]:
        if block.kind != "console":
            block.put(tmp_path)
            continue
        for command, shown in block.commands():
            run = subprocess.run(f"set -o pipefail; {command}", shell=True, executable="/bin/bash", cwd=tmp_path, env=environment,
                                 capture_output=True, text=True)  # fmt: skip
            said = (run.stdout + run.stderr).splitlines()
            assert [line for line in shown if line not in said] == [], (command, said)
            failing = any("error:" in line for line in shown) or shown == ["0"]
            assert (run.returncode != 0) == failing, (command, said)


def test_each_recipe_adds_no_more_files_than_it_says() -> None:
    """Files of the package, that is: an op is two, a pass one, a target none."""
    files = {recipe.partition("\n")[0]: {b.path for b in blocks(recipe) if b.path.startswith("ktir/")} for recipe in RECIPES}
    assert files["Add an op"] == {"ktir/dialects/spyreop.py", "ktir/emulator/reference/dialects/spyreop.py"}
    assert files["Add a target"] == set()
