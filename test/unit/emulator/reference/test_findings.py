"""Every kind of finding: its class, place, tiles, address and other party; and that correct programs give none."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from kernel_texts import LANES, function, kernel, load, module, random_f16, same, softmax_allocated, store, tensor

from ktir.diagnostics import KtirError
from ktir.emulator.findings import (
    DivisionByZero,
    Finding,
    LxOverflow,
    OutOfBounds,
    OutOfBuffer,
    Race,
    TypeConfusion,
    Uninitialized,
)
from ktir.emulator.policy import Policy
from ktir.emulator.reference import Scratch, execute
from ktir.target import DATASHEET

F16 = np.float16
TILE = "%t = ktdp.get_compute_tile_id : index\n"

LX_BYTES = DATASHEET.lx_planned_bytes


def constants(**values: int) -> str:
    return "".join(f"%{name} = arith.constant {value} : index\n" for name, value in values.items())


def finding(kind: type[Finding], text: str, *args, policy: Policy | None = None) -> Finding:
    """Executes `text`, which must raise exactly `kind`; checks that no array was touched and that the place is the op's."""
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    with pytest.raises(Finding) as caught:
        execute(text, args=list(args), policy=policy)
    found = caught.value
    assert type(found) is kind
    for a, b in zip(args, before, strict=True):
        if isinstance(a, np.ndarray):
            same(a, b)
    assert isinstance(found, KtirError)
    assert found.location is not None
    file, line, _ = found.location.rsplit(":", 2)
    assert file == "<text>"
    assert found.op in text.splitlines()[int(line) - 1]
    assert str(found).startswith(f"{found.location}: error: '{found.op}' op ")
    return found


THREE = constants(c1=1, c2=2) + "%i = arith.addi %c1, %c2 : index\n"
"""An index that the verifier does not know."""


def test_out_of_bounds_of_a_static_view():
    text = kernel(["%arg0", "%arg1"], THREE + load("%x", "%arg0", (5, 64), index=("%i", 0), extents=(4, 64)))
    found = finding(OutOfBounds, text, random_f16(10, 64), random_f16(10, 64))
    assert found.kind == "out-of-bounds"
    assert found.tiles == (0,)
    assert found.address == 5
    assert "coordinates 3 to 6 in dim 0 of a view of size 5" in found.message


def test_negative_coordinate():
    text = kernel(
        ["%arg0"],
        constants(c1=1, c2=2) + "%i = arith.subi %c1, %c2 : index\n" + load("%x", "%arg0", (5, 64), index=("%i", 0), extents=(2, 64)),
    )
    found = finding(OutOfBounds, text, random_f16(10, 64))
    assert found.address == -1
    assert "coordinates -1 to 0" in found.message


def test_out_of_bounds_on_some_tiles():
    body = TILE + constants(c2=2) + "%i = arith.muli %t, %c2 : index\n"
    body += load("%x", "%arg0", (5, 64), index=("%i", 0), extents=(2, 64))
    found = finding(OutOfBounds, kernel(["%arg0"], body, "4"), random_f16(10, 64))
    assert found.tiles == (2, 3)
    assert "(tile 2 and 1 others)" in found.message


def test_bounds_may_be_ignored_but_never_the_buffer():
    body = THREE + load("%x", "%arg0", (5, 64), index=("%i", 0), extents=(4, 64)) + store("%x", "%arg1", (4, 64))
    text = kernel(["%arg0", "%arg1"], body)
    x, y = random_f16(7, 64), np.zeros((4, 64), F16)
    execute(text, args=[x, y], policy=Policy(bounds=False))
    same(y, x[3:])
    found = finding(OutOfBuffer, text, random_f16(6, 64), y.copy(), policy=Policy(bounds=False))
    assert found.kind == "out-of-buffer"
    assert found.address == 6 * 64


def test_out_of_the_buffer():
    text = kernel(["%arg0"], load("%x", "%arg0", (5, 64)))
    found = finding(OutOfBuffer, text, random_f16(4, 64))
    assert "elements 0 to 319 of 'argument 0' of 256 elements" in found.message
    body = constants(c1=1) + "%p = arith.subi %arg0, %c1 : index\n" + load("%x", "%p", (2,))
    assert finding(OutOfBuffer, kernel(["%arg0"], body), random_f16(4)).address == -1
    body = TILE + constants(c64=64) + "%o = arith.muli %t, %c64 : index\n%p = arith.addi %arg0, %o : index\n" + load("%x", "%p", (64,))
    assert finding(OutOfBuffer, kernel(["%arg0"], body, "4"), random_f16(3, 64)).tiles == (3,)
    # The buffer's own name is used where there is one.
    named = module(function("kernel", ['%arg0: index {ktir.name = "weights"}'], load("%x", "%arg0", (5,))))
    assert "'weights'" in finding(OutOfBuffer, named, random_f16(4)).message


def own_rows(stride: int, rows: int, *, what: str = "store", grid: int = 4) -> str:
    """Each tile handles `rows` rows, `stride` rows apart."""
    body = TILE + constants(s=stride) + "%i = arith.muli %t, %s : index\n"
    place: dict[str, Any] = {"index": ("%i", 0), "extents": (rows, 64)}
    if what == "store":
        body += load("%x", "%arg0", (40, 64), **place) + store("%x", "%arg1", (40, 64), **place)
    return kernel(["%arg0", "%arg1"], body, str(grid))


def test_race_of_two_writes():
    x, y = random_f16(40, 64), np.zeros((40, 64), F16)
    execute(own_rows(8, 8), args=[x, y])
    found = finding(Race, own_rows(7, 8), x, y * 0)
    assert found.kind == "race"
    assert found.op == "ktdp.store"
    assert sorted(found.tiles) == [0, 1]
    assert found.address == 7 * 64
    assert found.other is not None
    assert found.other.op == "ktdp.store"
    assert "note: the other write is this 'ktdp.store' op" in str(found)
    execute(own_rows(7, 8), args=[x, y], policy=Policy(races=False))


def test_race_of_all_tiles_on_one_place():
    text = kernel(["%arg0"], "%v = arith.constant dense<1.0> : tensor<64xf16>\n" + store("%v", "%arg0", (64,)), "32")
    found = finding(Race, text, np.zeros(64, F16))
    assert found.address == 0
    one = kernel(["%arg0"], "%v = arith.constant dense<1.0> : tensor<64xf16>\n" + store("%v", "%arg0", (64,)), "1")
    execute(one, args=[np.zeros(64, F16)])


@pytest.mark.parametrize("read_first", [False, True])
def test_race_of_read_and_write(read_first):
    """Tile t writes row t and reads row t + 1."""
    body = TILE + constants(c1=1) + "%n = arith.addi %t, %c1 : index\n%v = arith.constant dense<1.0> : tensor<1x64xf16>\n"
    write = store("%v", "%arg0", (9, 64), index=("%t", 0), extents=(1, 64))
    read = load("%x", "%arg0", (9, 64), index=("%n", 0), extents=(1, 64))
    text = kernel(["%arg0"], body + (read + write if read_first else write + read), "8")
    found = finding(Race, text, np.zeros((9, 64), F16))
    assert found.op == ("ktdp.store" if read_first else "ktdp.load")
    assert found.other is not None
    assert {found.op, found.other.op} == {"ktdp.load", "ktdp.store"}


def test_reading_in_common_and_own_rows_is_no_race():
    body = TILE + load("%w", "%arg0", (1, 64)) + load("%x", "%arg1", (8, 64), index=("%t", 0), extents=(1, 64))
    body += "%y = arith.addf %x, %w : tensor<1x64xf16>\n" + store("%y", "%arg1", (8, 64), index=("%t", 0), extents=(1, 64))
    w, x = random_f16(1, 64), random_f16(8, 64)
    want = x + w
    execute(kernel(["%arg0", "%arg1"], body, "8"), args=[w, x])
    same(x, want)


def test_barrier_between_kernels_ends_a_race():
    """What is a race inside a kernel is fine across a call."""
    head = TILE + constants(c1=1, c7=7)
    write = "%v = tensor.splat %f : tensor<1x64xf16>\n" + store("%v", "%arg0", (8, 64), index=("%t", 0), extents=(1, 64))
    write = head + "%n = arith.index_cast %t : index to i32\n%f = arith.sitofp %n : i32 to f16\n" + write
    read = head + "%r = arith.subi %c7, %t : index\n" + load("%x", "%arg0", (8, 64), index=("%r", 0), extents=(1, 64))
    read += store("%x", "%arg1", (8, 64), index=("%t", 0), extents=(1, 64))
    grid = "attributes {grid = [8]}"
    calls = "func.call @w(%p) : (index) -> ()\nfunc.call @r(%p, %y) : (index, index) -> ()\n"
    text = module(
        function("w", ["%arg0"], write, grid), function("r", ["%arg0", "%arg1"], read, grid), function("main", ["%p", "%y"], calls)
    )
    y = np.zeros((8, 64), F16)
    execute(text, args=[Scratch(8 * 64), y])
    np.testing.assert_array_equal(y[:, 0], np.arange(7, -1, -1))


def test_lanes_of_one_stick_do_not_race_by_themselves():
    """Elements are what counts here; ownership of whole sticks is a rule of later levels."""
    body = TILE + constants(c2=2) + "%o = arith.muli %t, %c2 : index\n%v = arith.constant dense<1.0> : tensor<2xf16>\n"
    execute(kernel(["%arg0"], body + store("%v", "%arg0", (64,), index=("%o",), extents=(2,)), "32"), args=[np.zeros(64, F16)])


def test_uninitialized_scratchpad():
    body = constants(c0=0, c64=64) + load("%x", "%arg0", (64,)) + store("%x", "%c0", (64,), space="ct_local")
    body += load("%y", "%c0", (2, 64), space="ct_local") + store("%y", "%arg1", (2, 64))
    args = random_f16(64), np.zeros((2, 64), F16)
    found = finding(Uninitialized, kernel(["%arg0", "%arg1"], body), *args)
    assert found.kind == "uninitialized"
    assert found.address == 128
    execute(kernel(["%arg0", "%arg1"], body), args=args, policy=Policy(uninitialized=False))
    same(args[1][0], args[0])
    assert np.isnan(args[1][1]).all()
    execute(kernel(["%arg0", "%arg1"], body), args=args, policy=Policy(uninitialized=False, poison=False))
    assert not args[1][1].any()


def test_scratchpad_written_by_some_tiles_only():
    body = TILE + constants(c0=0, c2=2) + "%c = arith.cmpi slt, %t, %c2 : index\n%v = arith.constant dense<1.0> : tensor<64xf16>\n"
    body += "scf.if %c {\n" + store("%v", "%c0", (64,), space="ct_local") + "}\n" + load("%y", "%c0", (64,), space="ct_local")
    assert finding(Uninitialized, kernel(["%arg0"], body, "4"), np.zeros(64, F16)).tiles == (2, 3)


def test_uninitialized_scratch():
    body = load("%x", "%arg0", (2, 64)) + store("%x", "%arg1", (2, 64))
    found = finding(Uninitialized, kernel(["%arg0", "%arg1"], body), Scratch(128), np.zeros((2, 64), F16))
    assert found.address == 0
    half = "%v = arith.constant dense<1.0> : tensor<64xf16>\n" + store("%v", "%arg0", (64,)) + body
    assert finding(Uninitialized, kernel(["%arg0", "%arg1"], half), Scratch(128), np.zeros((2, 64), F16)).address == 64
    y = np.zeros((2, 64), F16)
    execute(kernel(["%arg0", "%arg1"], half), args=[Scratch(128), y], policy=Policy(uninitialized=False))
    assert (y[0] == 1).all()
    assert np.isnan(y[1]).all()
    execute(kernel(["%arg0", "%arg1"], body), args=[np.ones((2, 64), F16), y])  # an array counts as initialized


def test_addresses_that_are_plain_numbers():
    """They name one memory without content, of whatever size is used."""
    body = constants(p=4096) + load("%x", "%arg0", (64,)) + store("%x", "%p", (64,)) + load("%y", "%p", (64,)) + store("%y", "%arg1", (64,))
    x, y = random_f16(64), np.zeros(64, F16)
    execute(kernel(["%arg0", "%arg1"], body), args=[x, y])
    same(x, y)
    with pytest.raises(Uninitialized, match="global memory"):
        execute(kernel(["%arg0", "%arg1"], load("%y", "%arg0", (64,)) + store("%y", "%arg1", (64,))), args=[512, y])
    with pytest.raises(OutOfBuffer):
        execute(kernel(["%arg0"], load("%y", "%arg0", (64,))), args=[-512])


def test_lx_overflow():
    last = (LX_BYTES - 128) // 2
    good = constants(p=last) + load("%x", "%arg0", (64,)) + store("%x", "%p", (64,), space="ct_local")
    assert execute(kernel(["%arg0"], good), args=[random_f16(64)]).lx_peak_bytes == LX_BYTES
    found = finding(LxOverflow, kernel(["%arg0"], good.replace(str(last), str(last + 64))), random_f16(64))
    assert found.kind == "lx-overflow"
    assert found.address == LX_BYTES + 128
    assert finding(LxOverflow, kernel(["%arg0"], good), random_f16(64), policy=Policy(lx_bytes=4096)).address == LX_BYTES


def test_lx_is_unlimited_at_the_logical_level():
    far = constants(p=LX_BYTES) + load("%x", "%arg0", (64,)) + store("%x", "%p", (64,), space="ct_local")
    text = kernel(["%arg0"], far)
    finding(LxOverflow, text, random_f16(64))
    logical = text.replace("module {", 'module attributes {ktir.level = "logical"} {', 1)
    assert logical != text
    assert execute(logical, args=[random_f16(64)]).lx_peak_bytes == 2 * LX_BYTES + 128
    finding(LxOverflow, logical, random_f16(64), policy=Policy(lx_bytes=LX_BYTES))


def test_scratchpad_read_with_another_type():
    body = constants(c0=0) + load("%x", "%arg0", (64,)) + store("%x", "%c0", (64,), space="ct_local")
    found = finding(TypeConfusion, kernel(["%arg0"], body + load("%y", "%c0", (32,), element="f32", space="ct_local")), random_f16(64))
    assert found.kind == "type"
    assert found.other is not None
    assert found.other.op == "ktdp.store"
    # Overwritten as f32 it may be read as f32.
    again = "%w = arith.constant dense<1.0> : tensor<32xf32>\n" + store("%w", "%c0", (32,), element="f32", space="ct_local")
    execute(kernel(["%arg0"], body + again + load("%y", "%c0", (32,), element="f32", space="ct_local")), args=[random_f16(64)])
    with pytest.raises(TypeConfusion):
        execute(kernel(["%arg0"], body + again + load("%y", "%c0", (64,), space="ct_local")), args=[random_f16(64)])


def test_array_of_another_type():
    text = kernel(["%arg0"], load("%x", "%arg0", (4,)))
    assert "is an array of f32" in finding(TypeConfusion, text, np.zeros(4, np.float32)).message


def test_bytes_hold_any_type_but_one_at_a_time():
    """A pool of plain bytes: f16 and f32 tensors side by side, and one read as the other."""
    body = load("%x", "%arg0", (64,)) + store("%x", "%arg1", (64,)) + "%o = arith.constant 32 : index\n%p = arith.addi %arg1, %o : index\n"
    body += f"%w = arith.extf %x : {tensor((64,))} to {tensor((64,), 'f32')}\n" + store("%w", "%p", (64,), element="f32")
    right = body + load("%r", "%p", (64,), element="f32") + load("%q", "%arg1", (64,))
    x, pool = random_f16(64), np.zeros(384, np.uint8)
    execute(kernel(["%arg0", "%arg1"], right), args=[x, pool])
    same(pool[:128].view(F16), x)
    same(pool[128:].view(np.float32), x.astype(np.float32))
    wrong = body + load("%q", "%arg1", (32,), element="f32")
    found = finding(TypeConfusion, kernel(["%arg0", "%arg1"], wrong), x, np.zeros(384, np.uint8))
    assert re.search("reads 'argument 1' as f32 where it holds f16", found.message)


def test_division_by_zero():
    body = TILE + constants(c8=8) + "%q = arith.divui %c8, %t : index\n"
    assert finding(DivisionByZero, kernel([], body, "4")).kind == "division-by-zero"


def test_lx_addresses_may_differ_between_tiles():
    body = (
        TILE
        + "%c64 = arith.constant 64 : index\n%at = arith.muli %t, %c64 : index\n"
        + load("%x", "%arg0", (4, 64), index=("%t", 0), extents=(1, 64))
        + store("%x", "%at", (1, 64), space="ct_local")
        + load("%y", "%at", (1, 64), space="ct_local")
        + store("%y", "%arg1", (4, 64), index=("%t", 0), extents=(1, 64))
    )
    x, y = random_f16(4, 64), np.zeros((4, 64), np.float16)
    report = execute(kernel(["%arg0", "%arg1"], body, "4"), args=[x, y])
    assert np.array_equal(x, y)
    assert report.lx_peaks == (128, 256, 384, 512)


def test_mutants_of_an_allocated_softmax():
    """Wrong addresses of every kind are found or change values; the right program is clean."""
    rows, columns, share, block = 40, 130, 10, 4
    text = softmax_allocated(rows, columns, share, block)
    x = np.nan_to_num(random_f16(3, rows, LANES))
    y = np.zeros_like(x)
    execute(text, args=[x, y])
    slot = 3 * block * LANES

    def mutate(old: str, new: str) -> str:
        assert text.count(old) == 1, old
        return text.replace(old, new)

    beyond = mutate(f"%am = arith.constant {4 * slot} ", f"%am = arith.constant {LX_BYTES // 2} ")
    assert isinstance(finding(LxOverflow, beyond, x, y * 0), LxOverflow)
    overlapping = mutate("%row0 = arith.muli %t, %share", "%row0 = arith.muli %t, %step9").replace(
        "%all =", "%step9 = arith.constant 9 : index\n%all ="
    )
    assert isinstance(finding(Race, overlapping, x, y * 0), Race)
    # The row maxima lie on top of x.
    clobbered = np.zeros_like(y)
    execute(mutate(f"%am = arith.constant {4 * slot} ", "%am = arith.constant 0 "), args=[x, clobbered])
    assert (clobbered != y).any()
