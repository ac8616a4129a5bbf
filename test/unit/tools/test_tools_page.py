"""The commands of docs/tools.md do what the page shows."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def commands() -> list[tuple[str, list[str]]]:
    """Command and the lines that are shown of its output."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", (ROOT / "docs" / "tools.md").read_text(), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


@pytest.mark.turn
def test_the_commands(tmp_path: Path, path_of_tools: str) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    assert len(commands()) == 20
    for command, shown in commands():
        run = subprocess.run(command, shell=True, cwd=tmp_path, env={**os.environ, "PATH": path_of_tools}, capture_output=True, text=True)
        said = (run.stdout + run.stderr).splitlines()
        assert [line for line in shown if line not in said] == [], (command, said)
        failing = any("error:" in line for line in shown)
        assert (run.returncode != 0) == failing, (command, said)
    assert "ktdp.store" in (tmp_path / "small.mlir").read_text()
