"""The kernels in `examples/` do what their first line says."""

from pathlib import Path

import numpy as np
import pytest

import ktir
from ktir.tools import ktir_opt

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.parametrize("numerics", ["machine", "fast", "peer"])
def test_softmax(numerics):
    x = np.random.default_rng(0).standard_normal((57, 100)).astype(np.float16)
    y = np.full_like(x, np.nan)
    ktir.execute(EXAMPLES / "softmax.mlir", "softmax", [x, y], policy=ktir.Policy(numerics=numerics))
    e = np.exp(x.astype(np.float64))
    want = e / e.sum(1, keepdims=True)
    # One rounding to f16; what f32 adds to it is below a hundredth of that.
    assert (np.abs(y - want) <= 1.01 * 2.0**-11 * want + 2.0**-25).all()


def test_add():
    x, y = (np.random.default_rng(s).standard_normal((4, 64)).astype(np.float16) for s in (0, 1))
    out = np.full_like(x, np.nan)
    ktir.execute(EXAMPLES / "add.mlir", "add", [x, y, out])
    np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.mlir")), ids=lambda p: p.stem)
def test_in_the_newest_spelling(path, capfd, tmp_path):
    assert ktir_opt.main([str(path), "--strict", "-o", str(tmp_path / "out.mlir")]) == 0
    assert capfd.readouterr().err == ""
