"""The README's kernel and snippets do what it says."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_kernel_runs() -> None:
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    snippet = next(s for s in snippets if "ktir.execute" in s)
    printed = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert printed.strip() == snippet.rpartition("# ")[2].strip()


def test_the_kernel_is_transformed() -> None:
    command = [sys.executable, "-m", "ktir.tools.ktir_opt", "examples/add.mlir", "--ktir-canonicalize", "--cse"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert "ktdp.construct_access_tile %1[%0, 0]" in text
