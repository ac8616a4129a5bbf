"""The KTIR executor against plain f32 NumPy: how many times as long a launch takes, and what preparing it costs once.

Run with one BLAS thread for figures that can be compared: OPENBLAS_NUM_THREADS=1 python bench/executor.py [--runs 9]

Times are CPU milliseconds of one process, medians; executor and NumPy alternate, so that both see the same load.

With --examples DIR, the kernels of torch-spyre/ktir-cpu in DIR run instead (a checkout's folder `examples`; it is no part of this
repository), each against the same computation in NumPy from and to the same arrays, with the bound that the ratio should keep.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "test/unit/emulator/reference"))

import kernel_texts as k

from ktir.emulator.policy import Policy
from ktir.emulator.reference import execute

Case = tuple[str, str, list[np.ndarray], Callable[[], object]]


def softmax(rows: int, columns: int, block: int) -> Case:
    x = k.random_f16(rows, columns)
    wide = x.astype(np.float32)

    def plain() -> np.ndarray:
        e = np.exp(wide - wide.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    text = k.softmax_tiled(rows, columns, -(-rows // 32), block)
    return f"softmax {rows}x{columns}, {block}-row tiles", text, [k.pack(x), np.zeros_like(k.pack(x))], plain


def allocated_softmax(rows: int, columns: int, block: int) -> Case:
    name, _, arrays, plain = softmax(rows, columns, block)
    return f"{name}, allocated", k.softmax_allocated(rows, columns, -(-rows // 32), block), arrays, plain


def matmul(m: int, depth: int, n: int) -> Case:
    a, b = k.random_f16(m, depth), k.random_f16(depth, n, seed=1)
    wide = a.astype(np.float32), b.astype(np.float32)
    text = k.matmul_tiled(m, depth, n, -(-m // 32))
    arrays = [k.pack(a, 0), k.pack(b, 0), np.zeros((-(-n // 64), m, 64), np.float16)]
    return f"matmul {m}x{depth}x{n}, tiled", text, arrays, lambda: wide[0] @ wide[1]


def layer_norm(rows: int, columns: int) -> Case:
    x, g, h = k.random_f16(rows, columns), k.random_f16(columns, seed=1), k.random_f16(columns, seed=2)
    wide, weight, bias = (v.astype(np.float32) for v in (x, g, h))

    def plain() -> np.ndarray:
        centred = wide - wide.mean(1, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(1, keepdims=True) + np.float32(1e-5)) * weight + bias

    return f"layer norm {rows}x{columns}, logical", k.layer_norm(rows, columns), [x, g, h, np.zeros_like(x)], plain


def pointwise(rows: int, columns: int) -> Case:
    """(x + y) * x - y in f16: three rounded ops."""
    x, y = k.random_f16(rows, columns), k.random_f16(rows, columns, seed=1)
    wide = x.astype(np.float32), y.astype(np.float32)
    t = k.tensor((rows, columns))
    body = "%x = arith.addf %a, %b : f16\n%y = arith.mulf %x, %a : f16\n%z = arith.subf %y, %b : f16\nlinalg.yield %z : f16"
    text = k.load("%x", "%arg0", (rows, columns)) + k.load("%y", "%arg1", (rows, columns)) + k.empty("%e", (rows, columns))
    text += k.generic("%z", [("%x", t, "d0, d1"), ("%y", t, "d0, d1")], ("%e", t, "d0, d1"), "pp", body)
    text = k.kernel(["%arg0", "%arg1", "%arg2"], text + k.store("%z", "%arg2", (rows, columns)))
    return f"pointwise {rows}x{columns}, logical", text, [x, y, np.zeros_like(x)], lambda: (wide[0] + wide[1]) * wide[0] - wide[1]


Peer = tuple[str, str, object, dict[object, np.ndarray], Policy, float, Callable[[], object]]


def peer_kernels() -> list[Peer]:
    """Kernels of ktir-cpu: title, file, arguments, memory, policy, largest ratio, NumPy."""
    f = np.float32
    first = Policy(grid_order="first-fastest")
    x, y = k.random_f16(4096, 1024), np.zeros((4096, 1024), np.float16)

    def softmax() -> np.ndarray:
        w = x.astype(f)
        e = np.exp(w - w.max(1, keepdims=True))
        return (e / e.sum(1, keepdims=True)).astype(np.float16)

    n = k.random_f16(1151, 8192)
    w, b = (np.repeat(k.random_f16(1, 8192, seed=s), 1151, 0) for s in (1, 2))

    def norm() -> np.ndarray:
        v = n.astype(f)
        c = v - v.mean(1, keepdims=True)
        return (c / np.sqrt((c * c).mean(1, keepdims=True) + f(1e-5)) * w.astype(f) + b.astype(f)).astype(np.float16)

    rows = [n, np.zeros_like(n), w, b, np.zeros(1151, np.float16), np.zeros(1151, np.float16), 8192, 1e-5, 1024]
    p, q, r = k.random_f16(64, 2048), k.random_f16(2048, 8192, seed=1), np.zeros((64, 8192), np.float16)

    def product() -> np.ndarray:
        return (p.astype(f) @ q.astype(f)).astype(np.float16)

    blocks = [p, q, r, 2048, 32, 512, 128]
    h, g = k.random_f16(256, 4096), np.repeat(k.random_f16(1, 4096, seed=1), 256, 0)

    def rms() -> np.ndarray:
        v = h.astype(f)
        return (v / np.sqrt((v * v).mean(1, keepdims=True) + f(1e-5)) * g.astype(f)).astype(np.float16)

    z, cos, sin = k.random_f16(163840, 128), k.random_f16(4096, 64, seed=1), k.random_f16(4096, 64, seed=2)

    def rope() -> np.ndarray:
        v, c, s = z.reshape(40, 4096, 128).astype(f), cos.astype(f), sin.astype(f)
        return np.concatenate([v[..., :64] * c - v[..., 64:] * s, v[..., :64] * s + v[..., 64:] * c], -1).astype(np.float16)

    query, cache, values = k.random_f16(8, 32, 128), k.random_f16(64, 16, 8, 128, seed=1), k.random_f16(64, 16, 8, 128, seed=2)
    table = np.random.default_rng(0).permutation(64)[:16].astype(np.int32).reshape(1, 16)

    def paged() -> np.ndarray:
        keys, held = (c[table[0, :8]].reshape(128, 8, 128).astype(f).repeat(4, 1) for c in (cache, values))
        score = np.einsum("qhd,khd->hqk", query.astype(f), keys, optimize=True) * f(128**-0.5)
        score = np.where(np.arange(128) <= 120 + np.arange(8)[:, None], score, -np.inf)
        e = np.exp(score - score.max(-1, keepdims=True))
        return np.einsum("hqk,khd->qhd", e / e.sum(-1, keepdims=True), held, optimize=True).astype(np.float16)

    big, part, chosen = k.random_f16(128, 64, 8, 128), k.random_f16(2, 32, 8, 128, seed=1), np.array([77, 3], np.int64)

    def indexed() -> np.ndarray:
        return (big[chosen][:, :32].astype(f) + part.astype(f)).astype(np.float16)

    attention = [np.zeros_like(query), query, cache, values, table, 0, 0, 8, 120, 128**-0.5]
    return [
        ("softmax 4096x1024", "triton-ktir/softmax_fwd_ktir.mlir", [y, x, 4096], {}, Policy(), 1.6, softmax),
        ("layer norm 1151x8192", "triton-ktir/layernorm_fwd_ktir.mlir", rows, {}, Policy(), 2, norm),
        ("matmul 64x2048x8192", "triton-ktir/matmul_fwd_ktir.mlir", blocks, {}, Policy(), 6, product),
        ("matmul, fast", "triton-ktir/matmul_fwd_ktir.mlir", blocks, {}, Policy(numerics="fast"), 1.5, product),
        ("RMS norm 256x4096", "latency/rmsnorm_4core_4x1.mlir", [h, np.zeros_like(h), g, 4096, 1e-5, 1024], {}, first, 4, rms),
        ("RoPE 40x4096x128", "latency/rope_fwd_4x2.mlir", [z, cos, sin, np.zeros_like(z)], {}, Policy(), 1.5, rope),
        ("paged attention", "triton-ktir/paged_attention.mlir", attention, {}, Policy(), 5, paged),
        ("indexed add", "triton-ktir/indexed_add.mlir", [big, part, chosen, np.zeros_like(part), 0], {}, Policy(), 5, indexed),
    ]


def run_peer(folder: Path, runs: int) -> None:
    print(f"{'kernel':24} {'first':>9} {'launch':>9} {'unchecked':>9} {'NumPy':>9} {'ratio':>6} {'bound':>6} {'checks':>6}")
    for name, file, arguments, memory, policy, bound, plain in peer_kernels():
        text = (folder / file).read_text()
        free = replace(policy, bounds=False, races=False, uninitialized=False)

        def launch(policy: Policy = policy, text: str = text, arguments: Any = arguments, memory: Any = memory) -> object:
            return execute(text, args=arguments, memory=memory, policy=policy)

        first = clock(launch)
        launch(free)
        times = [(clock(launch), clock(lambda: launch(free)), clock(plain)) for _ in range(runs)]  # noqa: B023
        took, unchecked, numpy = (statistics.median(column) for column in zip(*times, strict=True))
        print(
            f"{name:24} {first:9.1f} {took:9.2f} {unchecked:9.2f} {numpy:9.2f} {took / numpy:6.2f} {bound:6.1f} {took / unchecked:6.2f}",
            flush=True,
        )


def clock(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return (time.process_time() - start) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--examples", type=Path, help="folder `examples` of a checkout of torch-spyre/ktir-cpu")
    arguments = parser.parse_args()
    runs = arguments.runs
    if arguments.examples:
        run_peer(arguments.examples, runs)
        return
    cases = [
        softmax(4096, 1024, 32),
        softmax(4096, 1024, 2),
        allocated_softmax(4096, 1024, 16),
        softmax(256, 64, 8),
        layer_norm(4096, 1024),
        pointwise(4096, 1024),
        matmul(512, 1024, 512),
        matmul(2048, 2048, 2048),
    ]
    print(f"{'program':44} {'prepare':>9} {'launch':>9} {'fast':>9} {'NumPy':>9} {'ratio':>6}")
    for name, text, arrays, plain in cases:
        prepare = execute(text, args=arrays).prepare_seconds * 1e3
        execute(text, args=arrays, policy=Policy(numerics="fast"))
        times: list[tuple[float, float, float]] = []
        for _ in range(runs):
            launch = clock(lambda: execute(text, args=arrays))  # noqa: B023
            fast = clock(lambda: execute(text, args=arrays, policy=Policy(numerics="fast")))  # noqa: B023
            times.append((launch, fast, clock(plain)))
        launch, fast, numpy = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"{name:44} {prepare:9.1f} {launch:9.2f} {fast:9.2f} {numpy:9.2f} {launch / numpy:6.2f}")


if __name__ == "__main__":
    main()
