"""Programs that stay logical KTIR, on host memory."""

import numpy as np
import pytest

from ktir.diagnostics import KtirError
from ktir.runtime.logical import ARGUMENTS, PROGRAM, Argument, LogicalExecutable, files_of

TEXT = """
module attributes {ktir.level = "logical"} {
  func.func @forward(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<3x4xf32>},
                     %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<3x4xf32>}) {
    %c0 = arith.constant 0 : index
    %vx = ktdp.construct_memory_view %x, sizes: [3, 4], strides: [8, 2] {memory_space = #ktdp.memory_space<global>,
      coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 3 >= 0)>} : memref<3x4xf32>
    %vy = ktdp.construct_memory_view %y, sizes: [3, 4], strides: [4, 1] {memory_space = #ktdp.memory_space<global>,
      coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 3 >= 0)>} : memref<3x4xf32>
    %tx = ktdp.construct_access_tile %vx[%c0, %c0] {access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 3 >= 0)>,
      access_tile_order = affine_map<(d0, d1) -> (d0, d1)>} : memref<3x4xf32> -> !ktdp.access_tile<3x4xindex>
    %ty = ktdp.construct_access_tile %vy[%c0, %c0] {access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 3 >= 0)>,
      access_tile_order = affine_map<(d0, d1) -> (d0, d1)>} : memref<3x4xf32> -> !ktdp.access_tile<3x4xindex>
    %a = ktdp.load %tx : <3x4xindex> -> tensor<3x4xf32>
    %b = arith.addf %a, %a : tensor<3x4xf32>
    ktdp.store %b, %ty : tensor<3x4xf32>, <3x4xindex>
    return
  }
}
"""
FILES = files_of(TEXT, [Argument("x", "input", "float32", (3, 4), (8, 2)), Argument("y", "output", "float32", (3, 4), (4, 1))])


def test_strided_memory() -> None:
    x, y = np.arange(24, dtype=np.float32).reshape(3, 8)[:, ::2], np.zeros((3, 4), np.float32)
    LogicalExecutable(FILES)(x, y)
    np.testing.assert_array_equal(y, 2 * x)


def test_an_input_that_overlaps_a_result() -> None:
    """The input is copied, the result lies where it lies."""
    memory = np.arange(40, dtype=np.float32)
    x, y = memory[:24].reshape(3, 8)[:, ::2], memory[12:24].reshape(3, 4)
    expected = 2 * x
    LogicalExecutable(FILES)(x, y)
    np.testing.assert_array_equal(memory[12:24].reshape(3, 4), expected)


def test_results_that_overlap() -> None:
    files = files_of(TEXT, [Argument("x", "output", "float32", (3, 4), (8, 2)), Argument("y", "output", "float32", (3, 4), (4, 1))])
    memory = np.zeros(40, np.float32)
    with pytest.raises(KtirError, match="arguments 'x' and 'y' share elements, and both are written"):
        LogicalExecutable(files)(memory[:24].reshape(3, 8)[:, ::2], memory[12:24].reshape(3, 4))


def test_wrong_arguments() -> None:
    run, x, y = LogicalExecutable(FILES), np.zeros((3, 8), np.float32)[:, ::2], np.zeros((3, 4), np.float32)
    with pytest.raises(KtirError, match="expects 2 arguments, but got 1"):
        run(x)
    with pytest.raises(KtirError, match="argument 'y' expects element type float32, but got float16"):
        run(x, y.astype(np.float16))
    with pytest.raises(KtirError, match=r"argument 'x' expects shape \[3, 4\], but got \[4, 3\]"):
        run(x.T, y)


@pytest.mark.parametrize("files", [{}, {PROGRAM: b"", ARGUMENTS: b"[]"}, {PROGRAM: b"\xff", ARGUMENTS: FILES[ARGUMENTS]}])
def test_wrong_packages(files: dict[str, bytes]) -> None:
    with pytest.raises(KtirError, match="the package of a logical program expects"):
        LogicalExecutable(files)
    with pytest.raises(KtirError, match="expects version 1, but got 2"):
        LogicalExecutable({**FILES, ARGUMENTS: b'{"version": 2}'})
