// C120: the static dim of a masked view is not exceeded
// level: L2
// expected: error: in dim 1
// tags: dynamic-sizes, f16, masks

#boxnx2 = affine_set<(d0, d1)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box2x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 1 >= 0)>
func.func @main(%x: index, %n: index, %j: index) {
  %at0 = arith.constant 0 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [%n, 2], strides: [2, 1]
      {coordinate_set = #boxnx2, masked, memory_space = #ktdp.memory_space<global>} : memref<?x2xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%at0, %j]
      {access_tile_order = #id2, access_tile_set = #box2x2} : memref<?x2xf16> -> !ktdp.access_tile<2x2xindex>
  %a = ktdp.load %a_tile : <2x2xindex> -> tensor<2x2xf16>
  return
}
