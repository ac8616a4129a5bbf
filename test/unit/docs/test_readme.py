"""The README's kernel and snippets do what it says."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ktir.device.autoload import register

ROOT = Path(__file__).resolve().parents[3]
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


def test_a_model_runs_on_the_card(on_chip: None, capsys: pytest.CaptureFixture[str]) -> None:
    register()
    model, where = SNIPPETS[:2]
    names: dict[str, Any] = {}
    exec(model + where, names)
    assert names["y"].device.type == "spyre"
    assert names["best"].shape == (57,)
    assert capsys.readouterr().out.strip() == where.rpartition("# ")[2].strip()


def test_the_kernel_runs() -> None:
    snippet = next(s for s in SNIPPETS if "ktir.execute" in s)
    printed = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert printed.strip() == snippet.rpartition("# ")[2].strip()


def test_the_kernel_is_transformed() -> None:
    command = [sys.executable, "-m", "ktir.tools.ktir_opt", "examples/add.mlir", "--ktir-canonicalize", "--cse"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert "ktdp.construct_access_tile %1[%0, 0]" in text
