// RUN: ktir-opt %s | FileCheck %s
// RUN: ktir-opt %s --verify-roundtrip -o /dev/null

!tile = !ktdp.access_tile< 4 x ? x index >
#near = #ktdp.memory_space<ct_local, ct_id = 0>
#layout = #ktir.layout<dtype = f16, device = [1, 4, 64], size = [4, 60], strides = [64, 60, 1]>
!stick = tensor<1x4x64xf16, #layout>

// CHECK-LABEL: func.func private @types(
// CHECK-SAME: !ktdp.access_tile<4x?xindex>,
// CHECK-SAME: memref<4x60xf16, #ktdp.memory_space<ct_local, ct_id = 0>>,
// CHECK-SAME: tensor<1x4x64xf16, #ktir.layout<size = [4, 60], device = [1, 4, 64], strides = [64, 60, 1], dtype = f16, arrangement = standard, pad = uninit>>,
// CHECK-SAME: (!ktdp.access_tile<index>, tuple<!ktdp.access_tile<2xindex>, f16>) -> !ktdp.access_tile<0x4xindex>)
func.func private @types(!tile, memref<4x60xf16, #near>, !stick, (!ktdp.access_tile<index>, tuple<!ktdp.access_tile<2xindex>, f16>) -> !ktdp.access_tile<0x4xindex>)

// CHECK-LABEL: func.func private @attributes()
// CHECK-SAME: a = [#ktir.acc<PT>, #ktir.acc<SFP>],
// CHECK-SAME: b = {inner = #ktir.work<splits = [1, 29, 1], tile = [2, 2, 64]>},
// CHECK-SAME: c = !ktdp.access_tile<4x?xindex>,
// CHECK-SAME: d = #ktir.host_view<arg = 0, offset = 3, size = [57, 64], strides = [64, 1]>,
// CHECK-SAME: e = #ktir.layout<size = [], device = [], strides = [], dtype = vector<2xf32>, arrangement = standard, pad = zero>
func.func private @attributes() attributes {
  a = [#ktir.acc<PT>, #ktir.acc<SFP>],
  b = {inner = #ktir.work<tile = [2, 2, 64], splits = [1, 29, 1]>},
  c = !tile,
  d = #ktir.host_view<arg = 0, offset = 3, size = [57, 64], strides = [64, 1]>,
  e = #ktir.layout<size = [], device = [], strides = [], dtype = vector<2xf32>, pad = zero>
}
