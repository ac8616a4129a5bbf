// C144: an integer division by zero
// level: L2
// expected: error: divides by zero
// tags: f16

#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
func.func @main(%x: index, %n: index, %k: index) {
  %q = arith.divsi %n, %k : index
  %a_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%q]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<4xf16> -> !ktdp.access_tile<1xindex>
  %a = ktdp.load %a_tile : <1xindex> -> tensor<1xf16>
  return
}
