"""Small correct programs as assembly text."""
# ruff: noqa: E501

ROW_SHARE = """\
.program "share"
.argument a0 = "x", role=input, sticks=228, element_bytes=2
.argument a1 = "y", role=output, sticks=228, element_bytes=2

.kernel "share_0", cores=29
.table t0 = [0, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 2304, 2560, 2816, 3072, 3328, 3584, 3840, 4096, 4352, 4608, 4864, 5120, 5376, 5632, 5888, 6144, 6400, 6656, 6912, 7168]
.table t1 = [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]
.channel MNIS -> LXSU, token=0, leftover=1
.channel LXLU -> MNIL, token=0, leftover=1
.descriptor %x.0 = ddr, element_bytes=2, extent=[4, 2], stride=[7296, 128], arg=a0, core_table=t0, bound=(limit=t1, dim=1, dim_step=1)
.descriptor %lx.1 = lx, element_bytes=2, extent=[4, 2], stride=[256, 128]
.descriptor %lx.2 = lx, element_bytes=2, extent=[4], stride=[256], corelet_step=128
.descriptor %lx.3 = lx, element_bytes=4, extent=[1], stride=[256], base=1024, corelet_step=256
.descriptor %lx.4 = lx, element_bytes=4, extent=[1], stride=[256], base=1024, corelet_step=256, splat
.descriptor %lx.5 = lx, element_bytes=2, extent=[4], stride=[256], base=1536, corelet_step=128
.descriptor %y.6 = ddr, element_bytes=2, extent=[4, 2], stride=[7296, 128], arg=a1, core_table=t0, bound=(limit=t1, dim=1, dim_step=1)
.descriptor %lx.7 = lx, element_bytes=2, extent=[4, 2], stride=[256, 128], base=1536
.unit MNIL
  loop trips=1, level=0, region=1
    wait token=0, sender=LXLU, count=1
    move src=%x.0, dst=%lx.1 @1
    sig token=0, receiver=LXLU, count=1
  endl level=0
  halt
.unit MNIS
  sig token=0, receiver=LXSU, count=1
  loop trips=1, level=0, region=1
    wait token=0, sender=LXSU, count=1
    move src=%lx.7, dst=%y.6 @4
    sig token=0, receiver=LXSU, count=1
  endl level=0
  halt
.unit LXLU
  sig token=0, receiver=MNIL, count=1
  loop trips=1, level=0, region=1
    wait token=0, sender=MNIL, count=1
    push lx=%lx.2, fifo=I0 @2
    wait token=0, sender=LXSU, count=1
    par streams=2 @3
      push lx=%lx.2, fifo=I0 @3
      push lx=%lx.4, fifo=I1 @3
    sig token=0, receiver=MNIL, count=1
  endl level=0
  halt
.unit PT
  halt
.unit SFP
  loop trips=1, level=0, region=1
    rep groups=1, sticks=4, start=0, each=2, end=2 @2
      vin dst=r0, fifo=I0 @2
      vacc kind=add, dst=acc0, src=r0 @2
      vred kind=add, dst=r1, src=acc0 @2
      vout src=r1, fifo=O @2
    rep groups=1, sticks=4, start=1, each=4, end=0 @3
      vin dst=r1, fifo=I1 @3
      vin dst=r0, fifo=I0 @3
      v2 kind=div, dst=r2, src=r0, src2=r1 @3
      v1 kind=mov, dst=r0, src=r2, round @3
      vout src=r0, fifo=O @3
  endl level=0
  halt
.unit LXSU
  loop trips=1, level=0, region=1
    pull lx=%lx.3, fifo=O @2
    sig token=0, receiver=LXLU, count=1
    wait token=0, sender=MNIS, count=1
    pull lx=%lx.5, fifo=O @3
    sig token=0, receiver=MNIS, count=1
  endl level=0
  halt

.source 1 = "ktdp.load", "share.mlir:10:10"
.source 2 = "linalg.generic", "share.mlir:14:10"
.source 3 = "linalg.generic", "share.mlir:21:10"
.source 4 = "ktdp.store", "share.mlir:30:5"
"""
"""Every row of x divided by its sum: 57 rows of 200 columns over 29 cores."""

GATHER = """\
.program "gather"
.argument a0 = "table", role=input, sticks=79, element_bytes=2
.argument a1 = "rows", role=input, sticks=2, element_bytes=4
.argument a2 = "y", role=output, sticks=32, element_bytes=2

.kernel "gather_0", cores=2
.table t0 = [0, 16]
.table t1 = [4, 3]
.table t2 = [0, 800]
.channel LXLU -> MNIL, token=0, leftover=1
.descriptor %table.0 = ddr, element_bytes=2, extent=[2, 4], stride=[128, 200], arg=a0, lane_stride=2, \
bound=(limit=100, dim=0, dim_step=64, lanes), bound=(limit=t1, dim=1, dim_step=1)
.descriptor %lx.1 = lx, element_bytes=2, extent=[2, 4], stride=[512, 128]
.descriptor %rows.2 = ddr, element_bytes=4, extent=[4], stride=[4], arg=a1, core_table=t0, lane_stride=4
.descriptor %y.3 = ddr, element_bytes=2, extent=[2, 4], stride=[128, 200], arg=a2, core_table=t2, lane_stride=2, \
bound=(limit=100, dim=0, dim_step=64, lanes), bound=(limit=t1, dim=1, dim_step=1)
.unit MNIL
  move src=%table.0, dst=%lx.1, index=%rows.2, dim=1, size=50
  sig token=0, receiver=MNIS, count=1
  halt
.unit MNIS
  wait token=0, sender=MNIL, count=1
  move src=%lx.1, dst=%y.3
  halt
.unit LXLU
  sig token=0, receiver=MNIL, count=1
  halt
"""
"""Seven rows of a table of 50 rows of 100 columns, over two cores; all memory is linear."""

MATMUL = """\
.program "mm"
.argument a0 = "a", role=input, sticks=512, element_bytes=2
.argument a1 = "b", role=input, sticks=256, element_bytes=2
.argument a2 = "c", role=output, sticks=128, element_bytes=2

.kernel "mm_0", cores=2
.table t0 = [0, 8192]
.group g0 = [0, 0]
.channel LXLU -> MNIL, token=0, leftover=2
.descriptor %a.0 = ddr, element_bytes=2, extent=[64], stride=[128], arg=a0, core_table=t0, level_step=[16384]
.descriptor %lx.1 = lx, element_bytes=2, extent=[64], stride=[128], buffers=2, rotate_levels=[0], rotate_step=8192
.descriptor %b.2 = ddr, element_bytes=2, extent=[64], stride=[128], arg=a1, level_step=[8192]
.descriptor %lx.3 = lx, element_bytes=2, extent=[64], stride=[128], base=16384, buffers=2, rotate_levels=[0], rotate_step=8192
.descriptor %lx.4 = lx, element_bytes=2, extent=[32], stride=[128], buffers=2, rotate_levels=[0], rotate_step=8192, corelet_step=4096
.descriptor %lx.5 = lx, element_bytes=2, extent=[32], stride=[128], base=32768, corelet_step=4096
.descriptor %lx.6 = lx, element_bytes=2, extent=[64], stride=[128], base=32768
.descriptor %c.7 = ddr, element_bytes=2, extent=[64], stride=[128], arg=a2, core_table=t0
.unit MNIL
  loop trips=4, level=0, region=1
    wait token=0, sender=LXLU, count=1
    move src=%a.0, dst=%lx.1
    move src=%b.2, dst=%lx.3, group=g0
    sig token=0, receiver=LXLU, count=1
  endl level=0
  halt
.unit MNIS
  wait token=0, sender=LXSU, count=1
  move src=%lx.6, dst=%c.7
  halt
.unit LXLU
  sig token=0, receiver=MNIL, count=2
  loop trips=4, level=0, region=1
    wait token=0, sender=MNIL, count=1
    push lx=%lx.3, fifo=W, transpose
    push lx=%lx.4, fifo=A
    sig token=0, receiver=MNIL, count=1
  endl level=0
  halt
.unit PT
  loop trips=4, level=0, region=1
    ldw
    mm rows=32
  endl level=0
  pto
  halt
.unit SFP
  rep groups=32, sticks=1, start=0, each=3, end=0
    vin dst=r0, fifo=P
    v1 kind=mov, dst=r1, src=r0, round
    vout src=r1, fifo=O
  halt
.unit LXSU
  pull lx=%lx.5, fifo=O
  sig token=0, receiver=MNIS, count=1
  halt
"""
"""128 rows over two cores times a 256x64 block, b multicast."""
