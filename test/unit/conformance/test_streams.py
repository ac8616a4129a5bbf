"""Test vectors of programs: the emulator, loaded with the bytes before, holds the bytes after."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ktir.emulator.machine import Machine
from ktir.isa.binary.encoding import decode
from ktir.target import DATASHEET
from ktir.tools import ktir_compile

ROOT = Path(__file__).resolve().parents[3]
_spec = importlib.util.spec_from_file_location("conformance_streams", ROOT / "conformance" / "streams.py")
assert _spec is not None
assert _spec.loader is not None
streams: Any = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = streams
_spec.loader.exec_module(streams)


@pytest.mark.parametrize("mode", ["tape", "step"])
def test_vectors(mode: Any, tmp_path: Path) -> None:
    package, vectors = tmp_path / "package", tmp_path / "vectors"
    assert ktir_compile.main([str(ROOT / "test" / "lit" / "passes" / "ktir_to_allocated.mlir"), "-o", str(package)]) == 0
    assert streams.write(package, vectors, seed=3) == ["y"]
    program = decode((vectors / "program.bin").read_bytes())
    memory = {a.name: np.fromfile(vectors / f"{a.name}.before", "<f2").astype(np.float32).reshape(-1, 64) for a in program.arguments}
    Machine(program, DATASHEET).launch(list(memory.values()), mode)
    after = np.fromfile(vectors / "y.after", "<f2")
    assert np.isfinite(after[:64]).all()
    np.testing.assert_array_equal(memory["y"].astype(np.float16).view(np.uint16).reshape(-1), after.view(np.uint16))
