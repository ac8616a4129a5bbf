"""What a report says: ops, bytes per space and view, scratchpad peaks, arithmetic; checked by counting."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_texts import function, generic, kernel, load, module, random_f16, store, tensor, tile, view

import ktir
from ktir.emulator.findings import Race
from ktir.emulator.policy import Policy

F16 = np.float16
TILE = "%t = ktdp.get_compute_tile_id : index\n"


def line_of(text: str, part: str) -> int:
    return next(i for i, line in enumerate(text.splitlines(), 1) if part in line)


def test_views_are_counted_one_by_one():
    """Four tiles, three trips each; one input is read whole by every tile, a masked view counts its live part."""
    body = TILE + "%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n%c3 = arith.constant 3 : index\n"
    body += "%n = arith.constant 10 : index\n" + load("%w", "%arg0", (8,))
    body += "scf.for %i = %c0 to %c3 step %c1 {\n%b = arith.muli %t, %c3 : index\n%r = arith.addi %b, %i : index\n"
    body += load("%x", "%arg1", ("%n", 8), strides=(8, 1), index=("%r", 0), extents=(1, 8))
    body += f"%x2 = tensor.collapse_shape %x [[0, 1]] : {tensor((1, 8))} into {tensor((8,))}\n"
    body += f"%s = arith.addf %x2, %w : {tensor((8,))}\n%m = arith.mulf %s, %s : {tensor((8,))}\n"
    body += f"%y = tensor.expand_shape %m [[0, 1]] output_shape [1, 8] : {tensor((8,))} into {tensor((1, 8))}\n"
    body += store("%y", "%arg2", ("%n", 8), strides=(8, 1), index=("%r", 0), extents=(1, 8)) + "}\n"
    text = kernel(["%arg0", "%arg1", "%arg2"], body, "4")
    x, w, y = random_f16(10, 8), random_f16(8), np.zeros((10, 8), F16)
    report = ktir.execute(text, args=[w, x, y]).report
    assert report.bytes_read == {"global": 4 * 16 + 10 * 16, "ct_local": 0}  # rows 10 and 11 are clipped
    assert report.bytes_written == {"global": 10 * 16, "ct_local": 0}
    assert report.channel_bytes_read == 16 + 10 * 16  # one multicast serves all tiles
    places = {line_of(text, f"construct_memory_view %arg{i}"): moved for i, moved in enumerate([(64, 0), (160, 0), (0, 160)])}
    assert {int(v.split(":")[-2]): moved for v, moved in report.views.items()} == places
    assert report.arithmetic == {"arith.addf": 4 * 3 * 8, "arith.mulf": 4 * 3 * 8}
    in_loop = body.split("{\n")[1].count(" = ktdp.") + body.split("{\n", 1)[1].count("= arith.")
    assert in_loop > 0
    assert report.lx_peak_bytes == 0
    np.testing.assert_array_equal(y, ((x + w).astype(F16) ** 2).astype(F16))


def test_ops_are_counted_once_per_trip():
    """Of all tiles together; region terminators and the return are none."""
    body = "%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n%c5 = arith.constant 5 : index\n"
    body += "scf.for %i = %c0 to %c5 step %c1 {\n%a = arith.addi %i, %i : index\n%b = arith.muli %a, %a : index\n}\n"
    assert ktir.execute(kernel([], body, "4")).report.ops == 3 + 1 + 5 * 2
    assert ktir.execute(kernel([], body, "1")).report.ops == 3 + 1 + 5 * 2


def test_arithmetic_of_reductions_and_products():
    x, y = random_f16(6, 100), np.zeros((6,), np.float32)
    text = load("%x", "%arg0", x.shape) + "%z = arith.constant dense<0.0> : tensor<6xf32>\n"
    body = "%w = arith.extf %a : f16 to f32\n%e = math.exp %w : f32\n%r = arith.addf %e, %o : f32\nlinalg.yield %r : f32"
    text += generic("%y", [("%x", tensor(x.shape), "d0, d1")], ("%z", tensor((6,), "f32"), "d0"), "pr", body)
    report = ktir.execute(kernel(["%arg0", "%arg1"], text + store("%y", "%arg1", (6,), element="f32")), args=[x, y]).report
    assert report.arithmetic == {"math.exp": 600, "arith.addf": 600}
    a, b, c = random_f16(5, 7), random_f16(7, 3), np.zeros((5, 3), np.float32)
    text = load("%a", "%arg0", (5, 7)) + load("%b", "%arg1", (7, 3)) + "%z = arith.constant dense<0.0> : tensor<5x3xf32>\n"
    text += "%c = linalg.matmul ins(%a, %b : tensor<5x7xf16>, tensor<7x3xf16>) outs(%z : tensor<5x3xf32>) -> tensor<5x3xf32>\n"
    text += store("%c", "%arg2", (5, 3), element="f32")
    report = ktir.execute(kernel(["%arg0", "%arg1", "%arg2"], text), args=[a, b, c]).report
    assert report.arithmetic == {"arith.mulf": 105, "arith.addf": 105}
    report = ktir.execute(kernel(["%arg0", "%arg1", "%arg2"], text, "1"), args=[a, b, c], policy=Policy(numerics="fast")).report
    assert report.arithmetic == {"arith.mulf": 105, "arith.addf": 105}


def test_scratchpad_of_each_tile():
    """Peaks and bytes where only some tiles store, at addresses of their own; a second kernel adds to the same scratchpads."""
    body = TILE + "%c1 = arith.constant 1 : index\n%c64 = arith.constant 64 : index\n%n = arith.addi %t, %c1 : index\n"
    body += "%at = arith.muli %n, %c64 : index\n%c2 = arith.constant 2 : index\n%go = arith.cmpi ult, %t, %c2 : index\nscf.if %go {\n"
    body += load("%x", "%arg0", (64,)) + store("%x", "%at", (64,), space="ct_local") + load("%z", "%at", (64,), space="ct_local") + "}\n"
    again = TILE + "%at = arith.constant 1024 : index\n%v = arith.constant dense<1.0> : tensor<8xf16>\n"
    again += (
        "%c0 = arith.constant 0 : index\n%go = arith.cmpi eq, %t, %c0 : index\nscf.if %go {\n"
        + store("%v", "%at", (8,), space="ct_local")
        + "}\n"
    )
    calls = "func.call @a(%p) : (index) -> ()\nfunc.call @b() : () -> ()\n"
    text = module(
        function("a", ["%arg0"], body, "attributes {grid = [4]}"),
        function("b", [], again, "attributes {grid = [2]}"),
        function("main", ["%p"], calls),
    )
    report = ktir.execute(text, "main", args=[random_f16(64)]).report
    assert report.lx_peaks == (1024 * 2 + 16, (128 + 64) * 2, 0, 0)
    assert report.lx_peak_bytes == 1024 * 2 + 16
    assert report.bytes_written == {"global": 0, "ct_local": 2 * 128 + 16}
    assert report.bytes_read == {"global": 2 * 128, "ct_local": 2 * 128}


# Scratchpads of others


REMOTE = "%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n"


def remote(name: str, owner: int) -> str:
    return view(name, "%c0", (64,), (1,), space=f"ct_local, ct_id = {owner}")


def on_tile(tile_: str, body: str, number: int) -> str:
    return f"%is{number} = arith.cmpi eq, %t, {tile_} : index\nscf.if %is{number} {{\n{body}}}\n"


def store_to(of: str, number: int) -> str:
    return (
        "%v = arith.constant dense<1.0> : tensor<64xf16>\n"
        + tile(f"%a{number}", of, (0,), (64,), (64,))
        + f"ktdp.store %v, %a{number} : tensor<64xf16>, <64xindex>\n"
    )


def load_from(of: str, number: int) -> str:
    return tile(f"%a{number}", of, (0,), (64,), (64,)) + f"%x{number} = ktdp.load %a{number} : <64xindex> -> tensor<64xf16>\n"


@pytest.mark.parametrize(
    ("first", "second", "message", "other"),
    [
        (
            on_tile("%c0", store_to("%v0", 0), 0),
            on_tile("%c1", load_from("%v0", 1), 1),
            "reads LX byte 0 of tile 0 on tile 1",
            "ktdp.store",
        ),
        (
            on_tile("%c0", store_to("%v0", 0), 0),
            on_tile("%c1", store_to("%v0", 1), 1),
            "writes LX byte 0 of tile 0 on tile 1",
            "ktdp.store",
        ),
        (
            on_tile("%c0", store_to("%v1", 0), 0),
            on_tile("%c1", load_from("%v1", 1), 1),
            "reads LX byte 0 of tile 1 on tile 1, and it is written by tile 0",
            "ktdp.store",
        ),
    ],
)
def test_races_in_scratchpads_of_others(first, second, message, other):
    text = kernel([], TILE + REMOTE + remote("%v0", 0) + remote("%v1", 1) + first + second, "2")
    with pytest.raises(Race, match=rf"<text>:\d+:\d+: error: 'ktdp.(load|store)' op {message}") as caught:
        ktir.execute(text)
    found = caught.value
    assert sorted(found.tiles) == [0, 1]
    assert found.address == 0
    assert found.other is not None
    assert found.other.op == other
    assert found.other.location is not None
    assert f"note: the {'write' if 'reads' in message else 'other write'} is this '{other}' op" in str(found)
    ktir.execute(text, policy=Policy(races=False))


def test_writing_what_another_tile_has_read():
    """The scratchpad of tile 0 holds an array; tile 1 reads it, then tile 0 writes over it."""
    text = TILE + REMOTE + remote("%v0", 0) + on_tile("%c1", load_from("%v0", 1), 1)
    write = on_tile("%c0", store_to("%v0", 0), 0)
    held = {("lx", 0, 0): random_f16(64)}
    ktir.execute(kernel([], text, "2"), memory=held)
    with pytest.raises(Race, match="writes LX byte 0 of tile 0 on tile 0, and it is read by tile 1") as caught:
        ktir.execute(kernel([], text + write, "2"), memory=held)
    assert caught.value.other is not None
    assert caught.value.other.op == "ktdp.load"


def test_writing_what_the_owner_has_read():
    """Tile 0 reads its own scratchpad, before the program so much as names it from outside; tile 1 writes there."""
    own = TILE + REMOTE + on_tile("%c0", load("%x", "%c0", (64,), space="ct_local"), 0)
    write = remote("%v0", 0) + on_tile("%c1", store_to("%v0", 1), 1)
    held = {("lx", 0, 0): random_f16(64)}
    with pytest.raises(Race, match="writes LX byte 0 of tile 0 on tile 1, and it is read by tile 0"):
        ktir.execute(kernel([], own + write, "2"), memory=held)
