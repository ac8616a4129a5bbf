// C124: a view that is larger than its buffer
// level: L2
// expected: error: elements 0 to 4
// tags: bounds, f16

#box5 = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%x: index) {
  %at0 = arith.constant 0 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [5], strides: [1]
      {coordinate_set = #box5, memory_space = #ktdp.memory_space<global>} : memref<5xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box5} : memref<5xf16> -> !ktdp.access_tile<5xindex>
  %a = ktdp.load %a_tile : <5xindex> -> tensor<5xf16>
  return
}
