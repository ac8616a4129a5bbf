"""Attributes of ours where they cannot stand, or as they cannot be, are refused at their place by every tool that reads KTIR."""

from __future__ import annotations

from pathlib import Path

import pytest

from ktir.tools import ktir_compile, ktir_opt, ktir_run

SET = "affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>"
LAYOUT = "#ktir.layout<size = [2, 64], device = [1, 2, 64], strides = [64, 64, 1], dtype = f16>"
WORK = "#ktir.work<splits = [1, 2, 1], tile = [1, 2, 64]>"
X = 'ktir.name = "x", ktir.role = "input"'


def function(attributes: str, level: str = "", arguments: str = "", body: str = "", name: str = "f") -> str:
    """A module of one function; `§` stands before what is at fault, the function by default."""
    head = f'module attributes {{ktir.level = "{level}"}}' if level else "module"
    mark = "" if "§" in arguments + body else "§"
    given = f" attributes {{{attributes}}}" if attributes else ""
    return f"{head} {{\n  {mark}func.func @{name}({arguments}){given} {{\n{body}    return\n  }}\n}}\n"


def argument(attributes: str, level: str = "") -> str:
    return function("", level, f"§%x: index {{{attributes}}}")


def view(element: str = "f16", size: int = 4, space: str = "global", more: str = "", mark: str = "§") -> str:
    owned = f"affine_set<(d0) : (d0 >= 0, -d0 + {size - 1} >= 0)>"
    return (
        f"    %v = {mark}ktdp.construct_memory_view %x, sizes: [{size}], strides: [1] {{coordinate_set = {owned}, "
        f"memory_space = #ktdp.memory_space<{space}>{more}}} : memref<{size}x{element}>\n"
    )


def generic(more: str = "") -> str:
    dims = "d0, d1, d2" + ", d3" * bool(more)
    tensor, kinds = f"tensor<1x{more}2x64xf16>", ", ".join(['"parallel"'] * (3 + bool(more)))
    return (
        f"    %a = tensor.empty() : {tensor}\n    %b = §linalg.generic {{indexing_maps = [affine_map<({dims}) -> ({dims})>, "
        f"affine_map<({dims}) -> ({dims})>], iterator_types = [{kinds}]}} ins(%a : {tensor}) outs(%a : {tensor}) {{\n"
        f"    ^bb0(%in: f16, %out: f16):\n      linalg.yield %in : f16\n    }} -> {tensor}\n"
    )


def exchange(groups: str) -> str:
    return (
        f"    %p = §ktdp.inter_tile_produce producer_tiles_per_group = affine_set<(i)[g] : (i - g == 0)> -> "
        f"<(tensor<4xf16>), groups = {groups}> {{\n    ^bb0(%g: index):\n      %z = tensor.empty() : tensor<4xf16>\n"
        "      ktdp.yield_partial %z : tensor<4xf16>\n    }\n"
    )


def kernel(attributes: str, level: str = "") -> str:
    return function(attributes, level)


CASES = {
    # The module.
    "a level of another kind": ("§module attributes {ktir.level = 3} {\n}\n", "to be one of logical, flat, laid-out, divided"),
    "a level that there is not": ('§module attributes {ktir.level = "tield"} {\n}\n', "did you mean 'tiled'?"),
    "a level that is a location": (
        '§module attributes {ktir.level = loc("x":1:1)} {\n}\n',
        'divided, tiled, allocated, spyre, but got loc("x":1:1)',
    ),
    "hosts that are locations": (
        "§module attributes {ktir.hosts = [loc(unknown)]} {\n}\n",
        "types of static shape, but got [loc(unknown)]",
    ),
    "a grid that is a location": (kernel('grid = loc("x")'), 'to be an array of one to three positive integers, but got loc("x")'),
    "hosts that are no types": ("§module attributes {ktir.hosts = [1]} {\n}\n", "'ktir.hosts' to be an array of tensor and memref types"),
    "ranges that are none": ("§module attributes {ktir.ranges = {f = [{low = 1}]}} {\n}\n", "'ktir.ranges' to be a dictionary"),
    "rows of a module": ("§module attributes {ktir.rows = array<i64: 4>} {\n}\n", "has 'ktir.rows', an attribute of a kernel"),
    "an unknown attribute of a module": (
        "§module attributes {ktir.levle} {\n}\n",
        "unknown attribute 'ktir.levle'; did you mean 'ktir.level'?",
    ),
    # Functions.
    "an unknown attribute": (function("ktir.wrok = 1"), "unknown attribute 'ktir.wrok'; did you mean 'ktir.work'?"),
    "a misspelled grid": (function("gird = [4]"), "unknown attribute 'gird'; did you mean 'grid'?"),
    "a grid of index 0": (function("grid = [0 : index]"), "'grid' to be an array of one to three positive integers, but got [0 : index]"),
    "a grid of four": (function("grid = [1, 2, 3, 4]"), "'grid' to be an array of one to three positive integers, but got [1, 2, 3, 4]"),
    "a grid of none": (function("grid = []"), "'grid' to be an array of one to three positive integers"),
    "a grid of zero": (function("grid = [4, 0]"), "'grid' to be an array of one to three positive integers"),
    "a grid of floats": (function("grid = [2.0]"), "'grid' to be an array of one to three positive integers"),
    "a grid that is a number": (function("grid = 4 : i64"), "'grid' to be an array of one to three positive integers"),
    "a grid of a logical function": (function("grid = [4]", "logical"), "'grid', an attribute of the divided, tiled and allocated levels"),
    "rows that are a number": (kernel("ktir.rows = 4 : i64"), "'ktir.rows' to be an array<i64> of positive extents"),
    "rows of none": (kernel("ktir.rows = array<i64: 4, 0>"), "'ktir.rows' to be an array<i64> of positive extents"),
    "work that is a number": (kernel("grid = [2], ktir.rows = array<i64: 4>, ktir.work = 3"), "'ktir.work' to be a #ktir.work"),
    "work without rows": (kernel(f"grid = [2], ktir.work = {WORK}"), "a kernel that is divided to have the attribute 'ktir.rows'"),
    "rows of other axes": (kernel(f"grid = [2], ktir.rows = array<i64: 4, 5>, ktir.work = {WORK}"), "to divide sticks and rows [4, 5]"),
    "rows of other extents": (kernel(f"grid = [2], ktir.rows = array<i64: 9>, ktir.work = {WORK}"), "2 parts of 2 rows to cover 9 rows"),
    "another grid than work": (
        kernel(f"grid = [3], ktir.rows = array<i64: 4>, ktir.work = {WORK}"),
        "as many tiles as 'ktir.work' has parts",
    ),
    "work of a logical module": (
        kernel(f"ktir.rows = array<i64: 4>, ktir.work = {WORK}", "laid-out"),
        "has 'ktir.work', an attribute of the divided, tiled and allocated levels, in a module at level 'laid-out'",
    ),
    "a tiled kernel without work": (kernel("grid = [2], ktir.rows = array<i64: 4>", "tiled"), "a kernel with the attribute 'ktir.work'"),
    "sums of nobody": (kernel("grid = [2], ktir.sums = 0"), "'ktir.sums' to be a positive integer"),
    "a scratchpad below zero": (kernel("grid = [2], ktir.lx_bytes = -1"), "'ktir.lx_bytes' to be an integer that is not negative"),
    "a scratchpad of no kernel": (function("ktir.lx_bytes = 128"), "has 'ktir.lx_bytes', an attribute of a kernel"),
    "residents of another kind": (kernel("grid = [2], ktir.residents = [1]"), "'ktir.residents' to be an array of #ktir.resident"),
    "an exchange that computes": (
        kernel("grid = [2], ktir.exchange, ktir.rows = array<i64: 4>"),
        "has 'ktir.rows', an attribute of a kernel that computes",
    ),
    "a plan of another kind": (function("ktir.plan = [{columns = -1}]"), "'ktir.plan' to be an array of dictionaries of 'columns'"),
    "a kernel with results": (
        "§func.func @f(%x: index) -> index attributes {grid = [2]} {\n  return %x : index\n}\n",
        "a kernel without results, but it gives index",
    ),
    "a kernel that calls a kernel": (
        "func.func @f() attributes {grid = [2]} {\n  §call @g() : () -> ()\n  return\n}\n"
        "func.func @g() attributes {grid = [2]} {\n  return\n}\n",
        "calls the kernel '@g' from the kernel '@f'",
    ),
    "a kernel that calls a kernel through others": (
        "func.func @f() attributes {grid = [2]} {\n  §call @h() : () -> ()\n  return\n}\n"
        "func.func @h() {\n  call @i() : () -> ()\n  return\n}\n"
        "func.func @i() {\n  call @g() : () -> ()\n  return\n}\n"
        "func.func @g() attributes {grid = [2]} {\n  return\n}\n",
        "calls the kernel '@g' through '@h', '@i' from the kernel '@f'",
    ),
    "functions that call each other": (
        "func.func @f() {\n  call @g() : () -> ()\n  return\n}\nfunc.func @g() {\n  §call @f() : () -> ()\n  return\n}\n",
        "is recursive: '@f' calls '@g' calls '@f'",
    ),
    # Arguments.
    "a name of another kind": (argument("ktir.name = 3"), "'ktir.name' of argument #0 to be a string"),
    "a name of nothing": (argument('ktir.name = ""'), "'ktir.name' of argument #0 to be a string that is not empty"),
    "a name twice": (function("", "", f"%x: index {{{X}}}, §%y: index {{{X}}}"), "arguments of different names, but 'x' names #0 and #1"),
    "a role that there is not": (
        argument('ktir.role = "inptu"'),
        'input, output, input_output, pool, iota, shared, but got "inptu"; did you',
    ),
    "an unknown attribute of an argument": (argument("ktir.layuot = 1"), "'ktir.layuot' of argument #0; did you mean 'ktir.layout'?"),
    "an attribute of kernels": (argument(f"ktir.work = {WORK}"), "has 'ktir.work' of argument #0, an attribute of a kernel"),
    "an attribute of a result": (
        '§func.func private @f() -> (index {ktir.name = "x"})\n',
        "has 'ktir.name' of result #0, an attribute of an argument",
    ),
    "a type of no tensor": (argument("ktir.type = i32"), "'ktir.type' of argument #0 to be a tensor type of static shape"),
    "a type of no shape": (argument("ktir.type = tensor<?xf16>"), "'ktir.type' of argument #0 to be a tensor type of static shape"),
    "strides of another rank": (argument("ktir.type = tensor<2x4xf16>, ktir.strides = array<i64: 1>"), "one stride per dim"),
    "a layout of a logical module": (
        argument(f"ktir.layout = {LAYOUT}", "logical"),
        "'ktir.layout' of argument #0, an attribute of the laid-out",
    ),
    "a layout of another kind": (argument("ktir.layout = 1"), "'ktir.layout' of argument #0 to be a #ktir.layout"),
    "a layout that holds less": (
        argument(f"ktir.layout = {LAYOUT.replace('size = [2', 'size = [5')}"),
        "a place for each of the 320 elements of size [5, 64]",
    ),
    "a layout of more than any memory": (
        argument(f"ktir.layout = {LAYOUT.replace('device = [1', 'device = [9223372036854775807')}"),
        "at most 2**48 elements",
    ),
    "a layout of other sticks": (argument(f"ktir.layout = {LAYOUT.replace('2, 64], s', '2, 32], s')}"), "sticks of 64 lanes"),
    "a layout of other elements": (
        argument(f"ktir.layout = {LAYOUT.replace('f16', 'f64')}"),
        "elements of type f16, bf16, f32, i32, f8E4M3FN, f8E5M2, i8, but got f64",
    ),
    "a host view that holds less": (
        argument(f"ktir.layout = {LAYOUT}, ktir.host = #ktir.host_view<arg = 0, offset = 0, size = [64], strides = [1]>"),
        "the host view of argument #0 to have as many elements as its layout",
    ),
    "a host view of a pool": (
        argument('ktir.role = "pool", ktir.host = #ktir.host_view<arg = 0, offset = 0, size = [64], strides = [1]>'),
        "'ktir.role' of argument #0 with a 'ktir.host' to be one of input",
    ),
    "a host view of no tensor": (
        argument("ktir.host = #ktir.host_view<arg = 1, offset = 0, size = [64], strides = [1]>").replace(
            "module", "module attributes {ktir.hosts = [tensor<64xf16>]}", 1
        ),
        "to be of one of the 1 tensors in 'ktir.hosts', but got 1",
    ),
    "a host view beyond its tensor": (
        argument("ktir.host = #ktir.host_view<arg = 0, offset = 1, size = [2, 64], strides = [64, 1]>").replace(
            "module", "module attributes {ktir.hosts = [tensor<2x64xf16>]}", 1
        ),
        "to be within the 128 elements of its tensor in 'ktir.hosts', tensor<2x64xf16>, but it reaches element 128",
    ),
    "a host view beyond a tensor with gaps": (
        argument("ktir.host = #ktir.host_view<arg = 0, offset = 0, size = [2, 65], strides = [100, 1]>").replace(
            "module", "module attributes {ktir.hosts = [memref<2x64xf16, strided<[100, 1]>>]}", 1
        ),
        "to be within the 164 elements of its tensor in 'ktir.hosts', memref<2x64xf16, strided<[100, 1]>>, but it reaches element 164",
    ),
    # Ops.
    "tensors of other rows": (
        function("ktir.rows = array<i64: 3>", "laid-out", "", generic()),
        "runs over 2 rows of the axis of 3 rows",
    ),
    "tensors of more axes": (
        function("ktir.rows = array<i64: 2>", "laid-out", "", generic("2x")),
        "runs over 2 row loops, but",
    ),
    "an attribute of another op": (
        function("", "", "%x: index", view(more=", ktir.ordered")),
        "has 'ktir.ordered', an attribute of 'ktdp.store'",
    ),
    "a rotation of another kind": (function("", "", "%x: index", view(more=", ktir.rotate = 2")), "'ktir.rotate' to be a #ktir.rotate"),
    "a rotation before the allocation": (
        function("", "divided", "%x: index", view(more=", ktir.rotate = #ktir.rotate<nbuf = 2, stride = 64>")),
        "has 'ktir.rotate', an attribute of the allocated level",
    ),
    "a stick of another kind": (
        function("", "", "%x: index", view(more=", ktir.stick = 2")),
        "'ktir.stick' to be an array<i64> of dimensions",
    ),
    "an unknown attribute of an op": (
        function("", "", "%x: index", view(more=", ktir.residnet")),
        "'ktir.residnet'; did you mean 'ktir.resident'?",
    ),
    "a view of another type": (
        function("", "", f"%x: index {{{X}, ktir.type = tensor<4xf16>}}", view("f32")),
        "shows elements of type f32 of a tensor that is declared",
    ),
    "a view of more": (
        function("", "", f"%x: index {{{X}, ktir.type = tensor<4xf16>}}", view(size=5)),
        "reaches element 4 of a tensor of 4 elements",
    ),
    "a scratchpad of no tile": (
        function("grid = [4]", "", "%x: index", view(space="ct_local, ct_id = 4")),
        "the scratchpad of tile 4, but the grid [4] has 4 tiles",
    ),
    "coordinates of no grid": (
        function("grid = [4]", "", "", "    %t:2 = §ktdp.get_compute_tile_id : index, index\n"),
        "asks for 2 coordinates of a grid of 1 dims",
    ),
    "groups without an end": (function("grid = [4]", "", "", exchange("affine_set<(g) : (g >= 0)>")), "groups that constants bound"),
}


@pytest.mark.parametrize(("text", "message"), CASES.values(), ids=CASES)
def test_a_misuse_is_refused_at_its_place(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = text[: text.index("§")]
    place = f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
    source = tmp_path / "in.mlir"
    source.write_text(text.replace("§", ""))
    for status, main, more in (
        (1, ktir_opt.main, ["-o", str(tmp_path / "out")]),
        (2, ktir_run.main, []),
        (1, ktir_compile.main, ["-o", str(tmp_path / "package")]),
    ):
        assert main([str(source), *more]) == status
        said = capsys.readouterr().err
        first = said.splitlines()[0]
        assert first.startswith(f"{source}:{place}: error: '"), said
        assert message in first, said


def test_attributes_of_others_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.mlir"
    source.write_text(function("b, c.rows = 3, noinline = false").replace("§", "").replace("module", "module attributes {a.level = 1}"))
    assert ktir_opt.main([str(source)]) == 0
    assert "attributes {b, c.rows = 3 : i64, noinline = false}" in capsys.readouterr().out
