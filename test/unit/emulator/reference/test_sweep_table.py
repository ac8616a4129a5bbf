"""Every op that can be executed is compared with an oracle by a sweep, or stands here with the module that compares it."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import sweep

from ktir.emulator.reference.compile.registry import executable_ops

SWEEPS = ("arith", "math", "spyreop", "linalg", "tensor", "memory", "inter_tile", "control")
ELSEWHERE: dict[str, tuple[str, ...]] = {
    "test_linalg_named": (
        "linalg.conv_",
        "linalg.depthwise_conv_",
        "linalg.pooling_",
        "linalg.quantized_",
        "linalg.winograd_",
        "linalg.batch_mmt4d",
        "linalg.contract",
        "linalg.elementwise",
        "linalg.fill_rng_2d",
        "linalg.pack",
        "linalg.softmax",
        "linalg.unpack",
    ),
    "test_ktir_ops": ("ktir.",),
    "test_memref_tensor": (
        "affine.delinearize_index",
        "affine.linearize_index",
        "arith.scaling_",
        "memref.collapse_shape",
        "memref.copy",
        "memref.expand_shape",
        "memref.extract_strided_metadata",
        "memref.load",
        "memref.rank",
        "memref.reinterpret_cast",
        "memref.store",
        "tensor.gather",
        "tensor.scatter",
    ),
}
"""Module -> ops, or beginnings of their names, that it compares by examples of its own. The names stand in its text."""


def test_every_executable_op_has_a_sweep():
    swept = set().union(*(sweep.covered(vars(importlib.import_module(f"test_sweep_{name}"))) for name in SWEEPS))
    begins = tuple(begin for names in ELSEWHERE.values() for begin in names)
    assert {op for op in executable_ops() - swept if not op.startswith(begins)} == set()


@pytest.mark.parametrize("module", list(ELSEWHERE))
def test_other_modules_name_their_ops(module):
    text = Path(__file__).with_name(f"{module}.py").read_text()
    assert [name for name in ELSEWHERE[module] if name.removeprefix("linalg.") not in text] == []
