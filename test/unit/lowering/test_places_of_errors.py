"""An error of the compiler names a place in the text, whatever finds it."""

from __future__ import annotations

import pytest

from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir


def text(elements: int, grid: str = "") -> str:
    """A copy of four elements of a view of so many, on the second line."""
    box = "affine_set<(d) : (d >= 0, -d + {} >= 0)>"
    views = "".join(
        f"%{n}v = ktdp.construct_memory_view %{n}, sizes: [{elements}], strides: [1] "
        f"{{coordinate_set = {box.format(elements - 1)}, memory_space = #ktdp.memory_space<global>}} : memref<{elements}xf16>\n"
        f"%{n}t = ktdp.construct_access_tile %{n}v[0] {{access_tile_set = {box.format(3)}, access_tile_order = affine_map<(d) -> (d)>}} "
        f": memref<{elements}xf16> -> !ktdp.access_tile<4xindex>\n"
        for n in "xy"
    )
    return (
        f"\nfunc.func @copy(%x: index, %y: index){grid} {{\n{views}%v = ktdp.load %xt : <4xindex> -> tensor<4xf16>\n"
        "ktdp.store %v, %yt : tensor<4xf16>, <4xindex>\nreturn\n}\n"
    )


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (text(4, " attributes {grid = [2147483648]}"), "'func.func' op has a grid of 2147483648 tiles, more than"),
        (text(2**63 - 1), "'func.func' op has argument #0 with 9223372036854775807 elements, more than any memory has"),
        (text(10**11), "the arguments need .* bytes, more than"),
    ],
)
def test_a_place_in_the_text(kernel: str, message: str) -> None:
    with context(), ir.Location.unknown(), pytest.raises(KtirError, match=rf"kernel.mlir:\d+:\d+: error: .*{message}"):
        compile_logical(parse_module(kernel, "kernel.mlir"))
