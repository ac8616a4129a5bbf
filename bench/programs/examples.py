"""Kernels of torch-spyre/ktir-cpu, from a checkout, each with the same computation in NumPy from and to the same arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernel_texts as k
import numpy as np
from numpy.typing import NDArray

from ktir.emulator.policy import Policy
from programs.kernels import Case, norm_plain, rms_plain, rope_plain, softmax_plain

__all__ = ["examples"]

F16, F32 = np.float16, np.float32


def examples(folder: Path) -> list[tuple[Callable[[], Case], float | None, float | None]]:
    """How to make each case, and the largest ratio to NumPy under `machine` and under `fast`."""

    def case(
        name: str, file: str, arguments: list[Any], plain: Callable[[], NDArray[Any]], result: int, policy: Policy | None = None
    ) -> Case:
        return Case(f"{Path(file).stem}, {name}", (folder / file).read_text(), arguments, plain, result, 0.1, policy or Policy())

    def softmax() -> Case:
        x = k.random_f16(4096, 1024)
        return case("4096x1024", "triton-ktir/softmax_fwd_ktir.mlir", [np.zeros_like(x), x, 4096], softmax_plain(x), 0)

    def norm() -> Case:
        x, (g, h) = k.random_f16(1151, 8192), (np.repeat(k.random_f16(1, 8192, seed=s), 1151, 0) for s in (1, 2))
        arguments = [x, np.zeros_like(x), g, h, np.zeros(1151, F16), np.zeros(1151, F16), 8192, 1e-5, 1024]
        return case("1151x8192", "triton-ktir/layernorm_fwd_ktir.mlir", arguments, norm_plain(x, g, h), 1)

    def matmul() -> Case:
        a, b, c = k.random_f16(64, 2048), k.random_f16(2048, 8192, seed=1), np.zeros((64, 8192), F16)
        plain = lambda: (a.astype(F32) @ b.astype(F32)).astype(F16)  # noqa: E731
        return case("64x2048x8192", "triton-ktir/matmul_fwd_ktir.mlir", [a, b, c, 2048, 32, 512, 128], plain, 2)

    def rms() -> Case:
        x, w = k.random_f16(256, 4096), np.repeat(k.random_f16(1, 4096, seed=1), 256, 0)
        arguments = [x, np.zeros_like(x), w, 4096, 1e-5, 1024]
        return case("256x4096", "latency/rmsnorm_4core_4x1.mlir", arguments, rms_plain(x, w), 1, Policy(grid_order="first-fastest"))

    def rope() -> Case:
        x, cos, sin = k.random_f16(40, 4096, 128), k.random_f16(4096, 64, seed=1), k.random_f16(4096, 64, seed=2)
        arguments = [x.reshape(163840, 128), cos, sin, np.zeros((163840, 128), F16)]
        plain = rope_plain(x, cos, sin)
        return case("40x4096x128", "latency/rope_fwd_4x2.mlir", arguments, lambda: plain().reshape(163840, 128), 3)

    def paged() -> Case:
        query, *caches = k.random_f16(8, 32, 128), *(k.random_f16(64, 16, 8, 128, seed=s) for s in (1, 2))
        table = np.random.default_rng(0).permutation(64)[:16].astype(np.int32).reshape(1, 16)

        def plain() -> NDArray[Any]:
            keys, held = (c[table[0, :8]].reshape(128, 8, 128).astype(F32).repeat(4, 1) for c in caches)
            score = np.einsum("qhd,khd->hqk", query.astype(F32), keys, optimize=True) * F32(128**-0.5)
            score = np.where(np.arange(128) <= 120 + np.arange(8)[:, None], score, -np.inf)
            e = np.exp(score - score.max(-1, keepdims=True))
            return np.einsum("hqk,khd->qhd", e / e.sum(-1, keepdims=True), held, optimize=True).astype(F16)

        arguments = [np.zeros_like(query), query, *caches, table, 0, 0, 8, 120, 128**-0.5]
        return case("8x32x128, 128 keys", "triton-ktir/paged_attention.mlir", arguments, plain, 0)

    def indexed() -> Case:
        big, part, chosen = k.random_f16(128, 64, 8, 128), k.random_f16(2, 32, 8, 128, seed=1), np.array([77, 3], np.int64)
        plain = lambda: (big[chosen][:, :32].astype(F32) + part.astype(F32)).astype(F16)  # noqa: E731
        return case("2x32x8x128", "triton-ktir/indexed_add.mlir", [big, part, chosen, np.zeros_like(part), 0], plain, 3)

    return [
        (softmax, 1.6, None),
        (norm, 2, None),
        (matmul, 6, 1.5),
        (rms, 4, None),
        (rope, 1.5, None),
        (paged, 5, None),
        (indexed, 5, None),
    ]
