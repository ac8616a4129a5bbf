// C132: integer element types
// level: L2
// expected: values
// tags: i32, i64

#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%x: index, %z: index) {
  %at0 = arith.constant 0 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xi32>
  %a_tile = ktdp.construct_access_tile %a_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<2xi32> -> !ktdp.access_tile<2xindex>
  %a = ktdp.load %a_tile : <2xindex> -> tensor<2xi32>
  %b_view = ktdp.construct_memory_view %z, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xi64>
  %b_tile = ktdp.construct_access_tile %b_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<2xi64> -> !ktdp.access_tile<2xindex>
  %b = ktdp.load %b_tile : <2xindex> -> tensor<2xi64>
  %c = arith.muli %a, %a : tensor<2xi32>
  %d = arith.subi %b, %b : tensor<2xi64>
  %xo_view = ktdp.construct_memory_view %x, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xi32>
  %xo_tile = ktdp.construct_access_tile %xo_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<2xi32> -> !ktdp.access_tile<2xindex>
  ktdp.store %c, %xo_tile : tensor<2xi32>, <2xindex>
  %zo_view = ktdp.construct_memory_view %z, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xi64>
  %zo_tile = ktdp.construct_access_tile %zo_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<2xi64> -> !ktdp.access_tile<2xindex>
  ktdp.store %d, %zo_tile : tensor<2xi64>, <2xindex>
  return
}
