"""The KTIR executor against plain f32 NumPy: how many times as long a launch takes, and what preparing it costs once.

Run with one BLAS thread for figures that can be compared: OPENBLAS_NUM_THREADS=1 python bench/executor.py [--runs 9]

Times are CPU milliseconds of one process, medians; executor and NumPy alternate, so that both see the same load.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

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


def clock(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return (time.process_time() - start) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
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
