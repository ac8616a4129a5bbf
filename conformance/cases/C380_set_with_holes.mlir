// C380: points that are not in the set read as zero
// level: L2
// expected: values
// tags: f16, sets

#even = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0, d0 mod 2 == 0)>
#box5 = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%x: index, %y: index) {
  %at0 = arith.constant 0 : index
  %v = ktdp.construct_memory_view %x, sizes: [5], strides: [1]
      {coordinate_set = #box5, memory_space = #ktdp.memory_space<global>} : memref<5xf16>
  %t = ktdp.construct_access_tile %v[%at0]
      {access_tile_order = #id1, access_tile_set = #even} : memref<5xf16> -> !ktdp.access_tile<5xindex>
  %a = ktdp.load %t : <5xindex> -> tensor<5xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [5], strides: [1]
      {coordinate_set = #box5, memory_space = #ktdp.memory_space<global>} : memref<5xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box5} : memref<5xf16> -> !ktdp.access_tile<5xindex>
  ktdp.store %a, %y_out_tile : tensor<5xf16>, <5xindex>
  return
}
