"""The static verifier: correct programs pass, one change is found and placed."""
# ruff: noqa: E501

import time

import pytest
from amounts import examples
from hypothesis import given, settings
from random_programs import programs
from samples import GATHER, MATMUL, ROW_SHARE

from ktir.isa.assembly.text import parse_program, print_program
from ktir.isa.program import Kernel, Program, Source, word
from ktir.isa.units import Unit
from ktir.isa.wellformed.verify import verify
from ktir.target import DATASHEET


@pytest.mark.parametrize("text", [ROW_SHARE, MATMUL, GATHER])
def test_correct_programs(text):
    program = parse_program(text)
    assert verify(program, DATASHEET) == []
    assert "\n".join(line.split("//")[0].rstrip() for line in print_program(program).splitlines()) + "\n" == text
    start = time.process_time()
    verify(program, DATASHEET)
    assert time.process_time() - start < 0.05


@given(programs())
@settings(max_examples=examples(100), deadline=None)
def test_any_program_gets_a_verdict(program):
    for p in verify(program, DATASHEET):
        assert str(p)


CHANGES = [
    # structure
    (ROW_SHARE, ("    pull lx=%lx.5, fifo=O @3\n", ""), "SFP pushes 5 entries into FIFO O, but LXSU pops 1"),
    (ROW_SHARE, ("loop trips=1", "loop trips=0"), "region 1 has 0 in MNIL"),
    (ROW_SHARE, ("  halt\n.unit MNIS", ".unit MNIS"), "does not end in 'halt'"),
    (ROW_SHARE, ("  endl level=0\n  halt\n.unit MNIS", "  halt\n  endl level=0\n.unit MNIS"), "'halt' stands inside a loop"),
    (ROW_SHARE, ("  endl level=0\n  halt\n.unit MNIS", "  halt\n  endl level=0\n.unit MNIS"), "'halt' is not the last word"),
    (ROW_SHARE, ("  endl level=0\n  halt\n.unit MNIS", "  endl level=1\n  halt\n.unit MNIS"), "'endl' expects level 0"),
    (ROW_SHARE, ("  endl level=0\n  halt\n.unit MNIS", "  halt\n.unit MNIS"), "'loop' of level 0 is not ended"),
    (ROW_SHARE, ("  loop trips=1, level=0, region=1\n", "", 1), "'endl' without an open 'loop'"),
    (ROW_SHARE, ("    move", "    loop trips=1, level=0, region=0\n    move"), "expects a level that is not open"),
    (ROW_SHARE, ("each=4", "each=3"), "'vout' is legal only inside the body of a 'rep'"),
    (ROW_SHARE, ("each=4", "each=5"), "'endl' stands inside the body of a 'rep'"),
    (ROW_SHARE, ("each=4", "each=49"), "only 7 words follow"),
    (ROW_SHARE, ("streams=2", "streams=3"), "'par' expects 3 words of push"),
    (ROW_SHARE, ("lx=%lx.4, fifo=I1", "lx=%lx.4, fifo=I0"), "'par' expects streams of different FIFOs"),
    (ROW_SHARE, ("region=1\n    pull", "region=2\n    pull"), None),
    (ROW_SHARE, ("groups=1, sticks=4, start=1", "groups=0, sticks=4, start=1"), "'rep' expects at least one group"),
    # tokens
    (ROW_SHARE, ("move src=%lx.7, dst=%y.6 @4\n    sig token=0, receiver=LXSU", "move src=%lx.7, dst=%y.6 @4\n    sig token=1, receiver=LXSU"), "0 tokens are left over, but 1 are declared"),
    (ROW_SHARE, (".channel MNIS -> LXSU, token=0, leftover=1\n", ""), "1 tokens are left over, but 0 are declared"),
    (ROW_SHARE, ("wait token=0, sender=MNIS, count=1", "wait token=0, sender=MNIS, count=3"), "2 tokens are posted, but 3 are taken"),
    (ROW_SHARE, ("token=0, leftover=1\n.desc", "token=3, leftover=1\n.desc"), "no word posts on it"),
    (ROW_SHARE, ("sender=MNIS", "sender=LXSU"), "'wait' names its own unit LXSU"),
    # descriptors
    (ROW_SHARE, ("move src=%x.0, dst=%lx.1", "move src=%x.0, dst=%lx.2"), "moves 8 entries into 4"),
    (ROW_SHARE, ("move src=%x.0, dst=%lx.1", "move src=%lx.7, dst=%lx.1"), "expects src to be of ddr, but it is of lx"),
    (ROW_SHARE, ("fifo=I0 @2", "fifo=I0, transpose @2"), "'push' transposes blocks of 64 entries, but has 4"),
    (ROW_SHARE, ("stride=[256, 128]\n", "stride=[384, 128]\n"), "must be contiguous"),
    (ROW_SHARE, ("stride=[256], base=1536", "stride=[0], base=1536"), "two of its positions share a stick"),
    (ROW_SHARE, ("stride=[256], base=1536, corelet_step=128", "stride=[256], base=1536"), "two of its positions share a stick"),
    (ROW_SHARE, ("stride=[7296, 128], arg=a1", "stride=[0, 128], arg=a1"), "two of its positions share a stick"),
    (ROW_SHARE, ("base=1024, corelet_step=256\n", "base=2097024, corelet_step=256\n"), "but LX has 2097152"),
    (ROW_SHARE, ("stride=[7296, 128], arg=a0", "stride=[7424, 128], arg=a0"), "reaches bytes 0 to 29567, but argument 'x' has 29184"),
    (ROW_SHARE, ("2, 2, 2, 1]", "2, 2, 2, 2]"), "reaches bytes 0 to 29311, but argument 'x' has 29184"),
    (ROW_SHARE, ("bound=(limit=t1, dim=1, dim_step=1)\n.descriptor %lx.1", "base=128\n.descriptor %lx.1"), "reaches bytes 128 to 29439"),
    (ROW_SHARE, ("base=1536, corelet_step=128", "base=1536, corelet_step=128, level_step=[0, 512]"), "steps over level 1, which is not open"),
    (ROW_SHARE, ("[256, 128], base=1536", "[256, 128], base=1536, corelet_step=128"), "but MNIS exists once per core"),
    (ROW_SHARE, ("[256, 128], base=1536", "[256, 128], base=1536, splat"), "repeats lane 0, which only 'push' can do"),
    (ROW_SHARE, ("sticks=228, element_bytes=2", "sticks=228, element_bytes=4"), "has elements of 2 bytes, but argument 'x' of 4"),
    (ROW_SHARE, ("%lx.1 = lx, element_bytes=2, extent=[4, 2], stride=[256, 128]", "%lx.1 = lx, element_bytes=4, extent=[2, 2], stride=[512, 256]"), "changes the element size"),
    (MATMUL, ("rotate_step=8192\n.descriptor %b.2", "rotate_step=8064\n.descriptor %b.2"), "has buffers of 8192 bytes, but they lie 8064 apart"),
    (MATMUL, ("rotate_levels=[0], rotate_step=8192\n.descriptor %b.2", "rotate_levels=[1], rotate_step=8192\n.descriptor %b.2"), "no level that chooses the buffer is open"),
    (MATMUL, ("level_step=[8192]", "level_step=[8320]"), "reaches bytes 0 to 33151, but argument 'b' has 32768"),
    (MATMUL, ("level_step=[8192]", "level_step=[-128]"), "reaches bytes -384 to 8191"),
    (MATMUL, ("move src=%b.2", "move src=%a.0"), "core 0 read for core 1, but table 0 differs between them"),
    (MATMUL, ("g0 = [0, 0]", "g0 = [1, 0]"), "core 1 receives from core 0"),
    (MATMUL, ("mm rows=32", "mm rows=999"), "'mm' expects 1 to 256 rows"),
    (MATMUL, ("mm rows=32", "mm rows=31"), "PT pushes 31 entries into FIFO P, but SFP pops 32"),
    (MATMUL, ("  loop trips=4, level=0, region=1\n    ldw", "  pto\n  loop trips=4, level=0, region=1\n    ldw"), "'pto' has no 'mm' above it"),
    (MATMUL, ("loop trips=4, level=0, region=1\n    ldw", "loop trips=3, level=0, region=1\n    ldw"), "'loop' has 3 trips, but region 1 has 4 in MNIL"),
    # elements and indices
    (GATHER, ("size=50", "size=51"), "reaches bytes 0 to 10199, but argument 'table' has 10112"),
    (GATHER, ("sticks=32", "sticks=10"), "reaches bytes 0 to 1399, but argument 'y' has 1280"),
    (GATHER, ("limit=100, dim=0, dim_step=64, lanes), bound=(limit=t1, dim=1, dim_step=1)\n.descriptor %lx", "limit=t1, dim=1, dim_step=1)\n.descriptor %lx"), None),
    (GATHER, ("sticks=79", "sticks=78"), "reaches bytes 0 to 9999, but argument 'table' has 9984"),
    (GATHER, ("sticks=2, element_bytes=4", "sticks=2, element_bytes=2"), "has elements of 4 bytes, but argument 'rows' of 2"),
    (GATHER, ("core_table=t0, lane", "core_table=t0, base=228, lane"), "reaches bytes 228 to 259, but argument 'rows' has 256"),
    (GATHER, ("stride=[4], arg=a1, core_table=t0, lane_stride=4", "stride=[128], arg=a1"), "expects an element descriptor of 4 bytes for its indices"),
    (GATHER, ("dim=1, size=50", "dim=0, size=50"), "expects an index for each of 2 positions, but got 4"),
    (GATHER, ("dim=1, size=50", "dim=2, size=50"), "expects dim in 0 to 1, but got 2"),
    (GATHER, ("index=%rows.2", "index=%lx.1"), "'move' expects index to be of ddr, but it is of lx"),
    (GATHER, ("arg=a2, core_table=t2, lane_stride=2, bound=(limit=100, dim=0, dim_step=64, lanes), ", "arg=a2, core_table=t2, lane_stride=2, "), "two of its positions share an element"),
    (GATHER, ("arg=a2, core_table=t2, lane_stride=2", "arg=a2, core_table=t2, lane_stride=0"), "two of its positions share an element"),
    # bodies
    (ROW_SHARE, ("vacc kind=add, dst=acc0, src=r0", "vacc kind=add, dst=acc0, src=r3"), "uses r3 before it is defined"),
    (ROW_SHARE, ("each=2, end=2", "each=3, end=1"), "stands in each, but acc0 holds a value of end"),
    (ROW_SHARE, ("vout src=r1, fifo=O @2", "vout src=r0, fifo=O @2"), "stands in end, but r0 holds a value of each"),
    (ROW_SHARE, ("start=1, each=4", "start=5, each=0"), "'vout' stands in each or end, but got one in start"),
    (ROW_SHARE, ("each=2, end=2", "each=0, end=4"), "'vin' stands in start or each, but got one in end"),
    (ROW_SHARE, ("each=2, end=2", "each=0, end=4"), "'vacc' stands in each, but got one in end"),
    (ROW_SHARE, ("dst=r2, src=r0, src2=r1 @3\n      v1 kind=mov, dst=r0, src=r2", "dst=r1, src=r0, src2=r1 @3\n      v1 kind=mov, dst=r0, src=r1"), "expects r1 from word 0 of the body, but word 2 overwrites it"),
    (ROW_SHARE, ("      vred", "      vacc kind=max, dst=acc0, src=r0\n      vred"), "an accumulator of its own"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "change", "message"), CHANGES)
def test_one_change(text, change, message):
    old, new, *count = change
    assert old in text
    changed = text.replace(old, new, *count or [1])
    if "vacc kind=max" in new:
        changed = changed.replace("each=2", "each=3")
    found = verify(parse_program(changed), DATASHEET)
    if message is None:
        assert found == []
    else:
        assert any(message in p.text for p in found), "\n".join(map(str, found))


def test_places():
    found = verify(parse_program(ROW_SHARE.replace("%lx.2, fifo=I0 @2", "%lx.2, fifo=I0, transpose @2")), DATASHEET)
    p = next(p for p in found if "transposes" in p.message)
    assert (p.kernel_name, p.unit, p.word, p.op) == ("share_0", Unit.LXLU, 3, "push")
    assert p.source == Source("linalg.generic", "share.mlir:14:10")
    assert str(p) == (
        "share.mlir:14:10: error: kernel 'share_0', unit LXLU, word 3 (push): "
        "'push' transposes blocks of 64 entries, but has 4 [linalg.generic]"
    )


def test_targets():
    assert any("has 1" in p.message for p in verify(parse_program(MATMUL), DATASHEET.with_cores(1)))


def test_bounds_of_two_loops_clip_exactly():
    """A walk over rows (level 0) and columns (level 1), both clipped: exactly the argument."""
    text = (
        '.program "p"\n.argument a0 = "x", role=input, sticks=35, element_bytes=2\n.kernel "k", cores=1\n'
        ".descriptor %x = ddr, element_bytes=2, extent=[2, 3], stride=[896, 128], arg=a0, level_step=[1792, 384],"
        " bound=(limit=5, dim=0, dim_step=1, level=0, level_step=2), bound=(limit={}, dim=1, dim_step=1, level=1, level_step=3)\n"
        ".descriptor %l = lx, element_bytes=2, extent=[2, 3], stride=[384, 128]\n"
        ".unit MNIL\nloop trips=3, level=0, region=0\nloop trips=3, level=1, region=0\nmove src=%x, dst=%l\n"
        "endl level=1\nendl level=0\nhalt\n"
    )
    assert verify(parse_program(text.format(7)), DATASHEET) == []
    assert "reaches bytes 0 to 4607" in verify(parse_program(text.format(8)), DATASHEET)[0].message


def test_indices_that_reach_beyond_64_bits():
    """2^28 steps of 2^36 bytes: what wraps to the first row again reaches far beyond the table."""
    text = GATHER.replace("stride=[128, 200], arg=a0", f"stride=[128, {2**36}], arg=a0").replace("size=50", f"size={2**28 + 1}")
    (found,) = (p.message for p in verify(parse_program(text), DATASHEET) if "reaches" in p.message)
    assert f"reaches bytes 0 to {2**64 + 199}, but argument 'table' has 10112" in found


def test_hostile_nests_cost_little():
    body = [word("loop", trips=2**31 - 1, level=i % 8) for i in range(20_000)] + [word("endl", level=0)] * 20_000
    program = Program("p", [], [Kernel("k", 1, {Unit.PT: body}, [])])
    start = time.process_time()
    assert len(verify(program, DATASHEET)) >= 20_000 - 8
    assert len(print_program(program)) < 10_000_000
    assert time.process_time() - start < 5


def spanning(rows: int, extent: str = "extent=[2, 1]") -> Program:
    """Two cores: each reads a stick at either end of its half of `rows` sticks, the second core one stick less."""
    text = (
        f'.program "p"\n.argument a0 = "x", role=input, sticks={2 * rows}, element_bytes=2\n.kernel "k", cores=2\n'
        f".table t0 = [0, {128 * rows}]\n.table t1 = [2, 1]\n"
        f".descriptor %x = ddr, element_bytes=2, {extent}, stride=[{128 * (rows - 1)}, 128], arg=a0, core_table=t0, bound=(limit=t1, dim=0, dim_step=1)\n"
        ".descriptor %l = lx, element_bytes=2, extent=[2, 1], stride=[128, 128]\n.unit MNIL\nmove src=%x, dst=%l\nhalt\n"
    )
    return parse_program(text)


def test_span_of_a_core() -> None:
    """What one core addresses of an argument lies strictly within 256 MiB; two cores may be further apart."""
    most = DATASHEET.span_bytes // 128
    assert DATASHEET.span_bytes < 256 * 2**20
    assert verify(spanning(most), DATASHEET) == []
    found = verify(spanning(most + 1), DATASHEET)
    assert [p.op for p in found] == ["move"]
    assert (
        f"spans {128 * (most + 1)} bytes of argument 'x' on a core, but at most {DATASHEET.span_bytes} can be addressed" in found[0].message
    )


def test_span_counts_what_is_live() -> None:
    program = spanning(2**22)
    kernel = program.kernels[0]
    kernel.tables[1][:] = [1, 1]
    assert verify(program, DATASHEET) == []
