"""A tool that the process with the loaded tools runs says and returns what it does in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ktir import testing

ROOT = Path(__file__).resolve().parents[4]
TOOLS = Path(sys.executable).parent
TEXT = "func.func @f(%a: index) { %b = arith.addi %a, %a : index return }\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """Folder and environment of commands that ask the process."""
    folder, environment = tmp_path_factory.mktemp("shims"), {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    testing.serve_tools(folder, environment)
    process = testing._served.pop()
    yield folder, environment
    process.communicate()
    assert process.returncode == 0


def run(tool: Path, arguments: list[str], environment: dict[str, str], folder: Path) -> tuple[int, str, str]:
    done = subprocess.run([tool, *arguments], input=TEXT, capture_output=True, text=True, env=environment, cwd=folder)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("ktir-opt", ["--cse", "--ktir-canonicalize"]),
        ("ktir-opt", ["--no-such-pass"]),
        ("ktir-opt", ["missing.mlir"]),
        ("ktir-run", ["--help"]),
        ("FileCheck", ["check.txt"]),
        ("FileCheck", ["wrong.txt"]),
    ],
)
def test_as_in_a_process_of_its_own(tool: str, arguments: list[str], served: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    (tmp_path / "check.txt").write_text("// CHECK: arith.addi\n")
    (tmp_path / "wrong.txt").write_text("// CHECK: arith.muli\n")
    shims, environment = served
    alone = run(TOOLS / tool.replace("FileCheck", "filecheck"), arguments, environment, tmp_path)
    assert run(shims / tool, arguments, environment, tmp_path) == alone


def test_what_a_process_reads_at_its_start(served: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """A plugin on a path that the loaded process does not have."""
    shims, environment = served
    (tmp_path / "toy_plugin.py").write_text("raise RuntimeError('it is loaded')\n")
    arguments = ["--load-pass-plugin=toy_plugin"]
    assert "ModuleNotFoundError" in run(shims / "ktir-opt", arguments, environment, tmp_path)[2]
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    assert "it is loaded" in run(shims / "ktir-opt", arguments, environment | {"PYTHONPATH": path}, tmp_path)[2]


def test_nobody_is_there(tmp_path: Path) -> None:
    """Then the tool starts itself."""
    testing._write_shims(tmp_path, TOOLS, str(tmp_path / "nowhere"))
    assert "arith.addi" in run(tmp_path / "ktir-opt", [], {**os.environ, "PYTHONPATH": str(ROOT)}, tmp_path)[1]
